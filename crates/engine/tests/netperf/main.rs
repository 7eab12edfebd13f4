//! netperf's and ttcp's clients at an endpoint, on loopback: the requests that stock clients sent
//! once, as bytes, with data phases of the tests' own; clients that vanish; and the programs
//! themselves where they are installed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what it expects by panicking"
)]

mod bench;
mod dialogue;
mod programs;
mod served;
mod ttcp;
mod used;
mod vanishing;
