//! The lab's topologies: hosts, routers and links, resolved to addresses and routes before anything is made.
//!
//! A [`Topology`] says all that the engine has to do, and nothing is left to be decided on the way: every name is
//! known, every address allocated, every route computed. It comes from the spec of one path
//! ([`Topology::of_path`]).
//!
//! Addresses are from the ranges for benchmarks, 198.18.0.0/15 (RFC 2544) and 2001:2::/48 (RFC 5180).

mod address;
mod assemble;
mod path;
mod routes;
mod topology;

pub use topology::{Interface, Join, Node, Prefix, Role, Route, Topology};
