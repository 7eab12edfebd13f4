//! Client and endpoint in one process: on loopback, and between two network namespaces.

mod connections;
mod datagrams;
mod exchange;
mod keys;
mod load;
mod profile;
mod proof;
mod qos;
mod slot;
mod stamp;
mod stream;
mod support;
mod treatments;
mod veth;
