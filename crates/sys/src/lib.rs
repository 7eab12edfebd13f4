//! linerate-sys

pub mod poll;
pub mod socket;
pub mod tcp_info;
