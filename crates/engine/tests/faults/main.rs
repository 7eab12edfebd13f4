//! Faults between a client and an endpoint, on loopback and in namespaces: strangers at
//! the endpoint's port, clients that vanish, stall or lie, and endpoints that do.
//!
//! The tests count the threads and the descriptors of their process, so each has its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what it expects by panicking"
)]

/// The rest of the test runs in a process of its own.
macro_rules! own_process {
    () => {
        if linerate_testkit::passes_in_own_process() {
            return;
        }
    };
}

mod bench;
mod datagrams;
mod endpoint;
mod fake;
mod limits;
mod server;
mod silence;
mod stranger;
mod treatment;
