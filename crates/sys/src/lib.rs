//! linerate-sys

pub mod clock;
pub mod ethtool;
pub mod idle;
pub mod netlink;
pub mod netns;
pub mod poll;
pub mod proc;
pub mod signal;
pub mod socket;
pub mod tcp_info;
pub mod thread;
