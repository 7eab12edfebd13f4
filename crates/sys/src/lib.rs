//! linerate-sys

pub mod clock;
pub mod idle;
pub mod proc;
pub mod signal;
pub mod thread;
