//! `qos` as a program, in network namespaces of the test's own: what is in force, what it counts,
//! what the peer sees.
//!
//! Without root, or on kernels without TCX, each test says SKIPPED.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by panicking"
)]

mod drift;
mod kill;
mod lifecycle;
mod lost;
mod marks;
mod reload;
mod shares;
mod support;
mod watch;
