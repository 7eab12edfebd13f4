//! Running a test: workers, sampler, evidence.

mod crr;
mod exchange;
pub(crate) mod flow;
pub(crate) mod half;
mod iperf3_udp;
mod meter;
pub(crate) mod options;
mod outcome;
pub(crate) mod plain;
mod qos;
mod quickack;
mod rest;
mod sampler;
pub(crate) mod shared;
pub(crate) mod source;
mod stream;
mod tcp;
mod transfer;
mod udp;
mod whole;
pub(crate) mod window;
