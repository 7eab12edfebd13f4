//! linerate-sys

pub mod ethtool;
pub mod netlink;
pub mod netns;
