#![forbid(unsafe_code)]
//! linerate-core
pub mod units;
