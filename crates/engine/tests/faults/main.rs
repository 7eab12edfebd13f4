//! Faults between a client and an endpoint, on loopback and in namespaces: strangers at
//! the endpoint's port, clients that vanish, stall or lie, and endpoints that do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what it expects by panicking"
)]

mod bench;
mod datagrams;
mod endpoint;
mod fake;
mod limits;
mod server;
mod silence;
mod stranger;
mod treatment;
