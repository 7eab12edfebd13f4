//! Faults between a client and an endpoint, on loopback and in namespaces: strangers at
//! the endpoint's port, clients that vanish, stall or lie, and endpoints that do.
//!
//! The tests count the threads and the descriptors of their process, so each has its own.

mod bench;
mod datagrams;
mod endpoint;
mod fake;
mod limits;
mod server;
mod silence;
mod stranger;
mod treatment;
