//! linerate-sys

pub mod clock;
pub mod errno;
pub mod ethtool;
pub mod idle;
pub mod inherit;
pub mod netlink;
pub mod netns;
pub mod poll;
pub mod proc;
pub mod signal;
pub mod socket;
pub mod splice;
pub mod tcp_info;
pub mod thread;
pub mod udp_batch;
