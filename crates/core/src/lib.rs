#![forbid(unsafe_code)]
//! linerate-core
