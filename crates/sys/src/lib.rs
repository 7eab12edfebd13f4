//! linerate-sys

pub mod proc;
