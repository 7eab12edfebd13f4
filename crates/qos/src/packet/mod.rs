//! What rules see of a packet: [`Fields`], from its bytes and from what the kernel knows beside
//! them.

mod fields;
mod layers;

pub(crate) use fields::NO_UID;
pub(crate) use fields::icmp;
pub use fields::{CGROUP_LEVELS, Field, Fields, Fragment, LinkType, Metadata};
pub(crate) use layers::{ETHERTYPE_AT, EXTENSIONS, LinkLayer, NetworkLayer};
