//! What rules see of a packet: [`Fields`], from its bytes and from what the kernel knows beside
//! them; and what a decision leaves of it: [`rewritten`].

mod fields;
mod layers;
mod rewrite;

pub(crate) use fields::icmp;
pub use fields::{CGROUP_LEVELS, Fields, Fragment, LinkType, Metadata};
pub(crate) use layers::EXTENSIONS;
pub use rewrite::{Rewritten, rewritten};
