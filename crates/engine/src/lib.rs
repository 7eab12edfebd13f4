#![forbid(unsafe_code)]
//! linerate-engine
