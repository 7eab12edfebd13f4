//! All tests of this kind in one program: each program of its own would be linked with everything.
//! Apart stays `capacity`, which needs a process with one thread. Tests that count the threads,
//! descriptors or memory of their process run in one of their own (`own_process!`).
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

mod engine;
mod faults;
mod iperf3;
mod netperf;
mod qos_program;
