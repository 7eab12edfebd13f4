//! What rules see of a packet: [`Fields`], from its bytes and from what the kernel knows beside them.

mod fields;

pub use fields::{Fields, LinkType, Metadata};
