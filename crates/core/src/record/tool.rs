//! Other tools that can be the far end.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// STAMP's session-reflectors (RFC 8762) and those of TWAMP's light mode.
    Stamp,
}

impl Tool {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
            Self::Ttcp => "ttcp",
            Self::Stamp => "stamp",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
