//! Who else speaks: tools whose clients an endpoint serves, and whose servers a client uses.
//!
//! Each protocol is a module of its own: pure state machines of the shape of [`crate::session`],
//! bytes and time in, bytes and events out. What is common to them is here: the [`Tool`], and
//! [`Encounter`], which makes a record of a test of which one end alone has linerate's evidence;
//! [`Demand`] is what a client asks of the owner.

mod demand;
mod encounter;
pub mod iperf3;
pub mod netperf;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use demand::{Demand, Excess};
pub use encounter::{Encounter, Role};

/// A measuring tool that is not linerate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// iperf3, 3.1 and later.
    Iperf3,
    /// netperf, 2.5 and later.
    Netperf,
    /// ttcp and those that take its bytes.
    Ttcp,
}

impl Tool {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
            Self::Ttcp => "ttcp",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
