//! What rules see of a packet: [`Fields`], from its bytes and from what the kernel knows beside them; and what a decision
//! leaves of it: [`rewritten`].

mod fields;
mod layers;
mod rewrite;

pub use fields::{CGROUP_LEVELS, Fields, Fragment, LinkType, Metadata};
pub(crate) use fields::{TCP, WITH_PORTS, icmp};
pub use rewrite::{Rewritten, rewritten};
