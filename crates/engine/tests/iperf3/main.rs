//! iperf3's clients at the endpoint, its server used, and strangers that speak a part of its
//! protocol.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what it expects by panicking"
)]

mod bench;
mod limits;
mod served;
mod strangers;
mod used;
mod users;
