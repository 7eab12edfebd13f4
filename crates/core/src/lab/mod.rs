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
//! | `topology` | the parts of a lab as plain data; one path; addresses; the shortest routes |
//! | `file` | the topology of a TOML file, and the mistakes in it |

mod file;
mod topology;

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
pub use topology::{Interface, Join, Node, Prefix, Role, Route, Topology};

use crate::record::LabDirection;

// The labs that are up, as `lab status --json` has them.

/// Schema of [`LabsDocument`].
pub const LAB_SCHEMA: &str = "linerate.lab/1";

/// The labs that are up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabsDocument {
    /// [`LAB_SCHEMA`].
    pub schema: String,
    /// Each lab, by name.
    pub labs: Vec<LabShown>,
}

/// A lab: its hosts, what its links did so far, and who is in it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabShown {
    /// Its name.
    pub name: String,
    /// The process that holds it.
    pub pid: u32,
    /// Hosts and routers, in the order of the file.
    pub hosts: Vec<LabHost>,
    /// Round trip through the emulator without any delay, which is taken off the delays, µs.
    pub baseline_rtt_us: Option<f64>,
    /// All links, in the order of the file; absent where the process that holds it does not answer.
    pub links: Option<Vec<LinkStatus>>,
    /// Processes of this user that run in its hosts, by number.
    pub running: Vec<Inhabitant>,
}

/// A host or router of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabHost {
    /// Its name.
    pub name: String,
    /// Whether it forwards.
    pub is_router: bool,
    /// The addresses of its first interface, which are what its name means.
    pub addresses: Vec<IpAddr>,
}

/// What the process that holds a lab says of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabStatus {
    /// Round trip through the emulator without any delay, which is taken off the delays, µs.
    pub baseline_rtt_us: Option<f64>,
    /// All links, in the order of the file.
    pub links: Vec<LinkStatus>,
}

impl LabStatus {
    /// Reads what that process says.
    ///
    /// # Errors
    /// It is no JSON, or no such answer.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }
}

/// A link of a lab.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Names of its two ends.
    pub between: [String; 2],
    /// As `--lab` has it; empty for a plain link.
    pub spec: String,
    /// MTU of both interfaces, bytes.
    pub mtu_bytes: u32,
    /// From the first end to the second, as a record has it; absent for a plain link.
    pub up: Option<LabDirection>,
    /// Back; absent for a plain link.
    pub down: Option<LabDirection>,
}

/// A process that runs in a host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inhabitant {
    /// Its number.
    pub pid: u32,
    /// Its name, up to 15 bytes.
    pub command: String,
    /// The host.
    pub host: String,
}
