//! Other measuring tools that can be at the far end of a test.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::names;

/// A measuring tool that is not linerate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// iperf3, 3.1 and later.
    Iperf3,
    /// netperf, 2.5 and later.
    Netperf,
    /// ttcp and the tools that accept its bytes.
    Ttcp,
    /// STAMP's session-reflectors (RFC 8762) and those of TWAMP's light mode.
    Stamp,
}

names! {
    /// The name as users type it.
    Tool::name: Iperf3 "iperf3", Netperf "netperf", Ttcp "ttcp", Stamp "stamp";
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
