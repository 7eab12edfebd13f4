//! Options of a run that remedies change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::names;

/// An option of the command that made the run, or of `linerate serve` at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOption {
    /// Bytes of a write, or of a datagram.
    Size,
    /// Flows.
    Streams,
    /// How long it lasts.
    Time,
    /// Rate of a UDP sender.
    Rate,
    /// Rate at which the application writes.
    WriteRate,
    /// Rate at which the application reads.
    ReadRate,
    /// Both buffers.
    Window,
    /// The window that the receiver may advertise.
    ReceiveWindow,
    /// Buffer of the sender.
    SendBuffer,
    /// The largest segment.
    Mss,
    /// Rate of the sender's pacing.
    Pacing,
    /// Congestion control.
    Congestion,
    /// Connections that the endpoint's owner allows.
    MaxConnections,
    /// Addresses that connections come from.
    Sources,
}

names! {
    /// The key of the option, as its long form has it.
    RunOption::key: Size "size", Streams "streams", Time "time", Rate "rate",
        WriteRate "write-rate", ReadRate "read-rate", Window "window",
        ReceiveWindow "receive-window", SendBuffer "send-buffer", Mss "mss", Pacing "pacing",
        Congestion "congestion", MaxConnections "max-connections", Sources "sources";
}

impl RunOption {
    /// The option as it is typed.
    pub fn flag(self) -> String {
        match self {
            Self::Congestion => "-C".to_owned(),
            Self::Window => "-w".to_owned(),
            _ => format!("--{}", self.key()),
        }
    }
}
