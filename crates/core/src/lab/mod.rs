//! The lab's topologies: hosts, routers and links, resolved to addresses and routes before anything
//! is made.
//!
//! A [`Topology`] leaves nothing to decide for the engine: every name is known, every address
//! allocated, every route computed. It comes from the spec of one path ([`Topology::of_path`]) or
//! from a file ([`Topology::from_toml`]).
//!
//! Addresses are from the ranges for benchmarks, 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC
//! 5180).
//!
//! | module | what is in it |
//! |---|---|
//! | `topology` | the parts of a lab, as plain data |
//! | `path` | the topology of one path |
//! | `file` | the topology of a TOML file, and the mistakes in it |
//! | `assemble` | adds nodes and links, with interfaces and MTUs |
//! | `address` | networks, and the addresses of links |
//! | `routes` | the shortest routes |
//! | `status` | the document of the labs that are up |

mod address;
mod assemble;
mod file;
mod path;
mod routes;
mod status;
mod topology;

pub use status::{Inhabitant, LAB_SCHEMA, LabHost, LabShown, LabStatus, LabsDocument, LinkStatus};
pub use topology::{Interface, Join, Node, Prefix, Role, Route, Topology};
