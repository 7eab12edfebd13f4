#![forbid(unsafe_code)]
//! linerate-report
