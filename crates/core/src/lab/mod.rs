//! The lab's topologies: hosts, routers and links, resolved to addresses and routes before anything
//! is made.
//!
//! A [`Topology`] says all that the engine has to do, and nothing is left to be decided on the way:
//! every name is known, every address allocated, every route computed. It comes from the spec of
//! one path ([`Topology::of_path`]) or from a file ([`Topology::from_toml`]).
//!
//! Addresses are from the ranges for benchmarks, 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC
//! 5180).
//!
//! | module | what is in it |
//! |---|---|
//! | `topology` | what a lab consists of, as plain data |
//! | `path` | the topology of one path |
//! | `file` | the topology that a TOML file describes, and what can be wrong with it |
//! | `assemble` | nodes and links put together, with interfaces and MTUs |
//! | `address` | networks, and which link gets which |
//! | `routes` | the shortest ways |
//! | `status` | labs that are up, as a document |

mod address;
mod assemble;
mod file;
mod path;
mod routes;
mod status;
mod topology;

pub use status::{Inhabitant, LAB_SCHEMA, LabHost, LabShown, LabStatus, LabsDocument, LinkStatus};
pub use topology::{Interface, Join, Node, Prefix, Role, Route, Topology};
