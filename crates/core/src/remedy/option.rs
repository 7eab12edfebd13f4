//! Options of a run that remedies change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::names;
use crate::plan::{Draft, Test, Workload, option_of};

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

    /// Name of the treatment that sets it on a socket, if there is one.
    pub fn treatment(self) -> Option<&'static str> {
        let option = option_of(Workload::Stream, self.key())?;
        option.treatment.map(|_| option.name)
    }

    /// Sets it in a test, or leaves it out there. `None` if it does not take the value, or if a
    /// test has no such option.
    pub fn set(self, test: &mut Test, value: Option<&str>) -> Option<()> {
        let workload = test.workload();
        let own = option_of(workload, self.key())?;
        let mut draft = Draft::new(workload);
        for (option, value) in test.given() {
            if option != own && !own.excludes.contains(&option.key) {
                let written = option.kind.written(&value);
                draft.set(option.key, &written).ok()?;
            }
        }
        if let Some(value) = value {
            draft.set(own.key, value).ok()?;
        }
        *test = draft.resolve(test.seed).ok()?;
        Some(())
    }
}
