//! linerate-sys

pub mod netlink;
pub mod netns;
