#![forbid(unsafe_code)]
//! linerate
fn main() {}
