//! Options of a run that remedies change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Extent, SocketOptions, StreamTest, Test, Traffic};
use crate::units::{BitRate, ByteCount, Span};

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

impl RunOption {
    /// As it is typed.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Size => "--size",
            Self::Streams => "--streams",
            Self::Time => "--time",
            Self::Rate => "--rate",
            Self::WriteRate => "--write-rate",
            Self::ReadRate => "--read-rate",
            Self::ReceiveWindow => "--receive-window",
            Self::SendBuffer => "--send-buffer",
            Self::Mss => "--mss",
            Self::Pacing => "--pacing",
            Self::Congestion => "-C",
            Self::MaxConnections => "--max-connections",
            Self::Sources => "--sources",
        }
    }

    /// Name of the treatment that sets it on a socket, if it is one.
    pub fn treatment(self) -> Option<&'static str> {
        match self {
            Self::ReceiveWindow => Some("receive_window"),
            Self::SendBuffer => Some("send_buffer"),
            Self::Mss => Some("mss"),
            Self::Pacing => Some("pacing"),
            Self::Congestion => Some("congestion"),
            _ => None,
        }
    }

    /// Sets it in a test, or leaves it out there; `None` for a value that it does not take, and for
    /// an option that a test does not have.
    pub fn set(self, test: &mut Test, value: Option<&str>) -> Option<()> {
        match self {
            Self::Size => stream(test)?.message_bytes = bytes(value?)?.0,
            Self::Streams => test.streams = value?.parse().ok()?,
            Self::Time => test.extent = Extent::Time(value?.parse::<Span>().ok()?),
            Self::Rate => stream(test)?.rate_bps = optional(value, rate)?,
            Self::WriteRate => stream(test)?.write_rate_bps = optional(value, rate)?,
            Self::ReadRate => stream(test)?.read_rate_bps = optional(value, rate)?,
            Self::MaxConnections | Self::Sources => return None,
            Self::ReceiveWindow
            | Self::SendBuffer
            | Self::Mss
            | Self::Pacing
            | Self::Congestion => self.set_on_socket(&mut test.options, value)?,
        }
        Some(())
    }

    fn set_on_socket(self, options: &mut SocketOptions, value: Option<&str>) -> Option<()> {
        match self {
            Self::ReceiveWindow => options.receive_window_bytes = optional(value, bytes)?,
            Self::SendBuffer => options.send_buffer_bytes = optional(value, bytes)?,
            Self::Mss => options.mss_bytes = optional(value, |text| text.parse().ok())?,
            Self::Pacing => options.pacing_bps = optional(value, rate)?,
            Self::Congestion => options.congestion = value.map(str::to_owned),
            _ => return None,
        }
        Some(())
    }
}

fn stream(test: &mut Test) -> Option<&mut StreamTest> {
    match &mut test.traffic {
        Traffic::Stream(stream) => Some(stream),
        Traffic::Rr(_) | Traffic::Crr(_) => None,
    }
}

fn optional<T>(value: Option<&str>, read: fn(&str) -> Option<T>) -> Option<Option<T>> {
    match value {
        Some(text) => read(text).map(Some),
        None => Some(None),
    }
}

fn bytes(text: &str) -> Option<ByteCount> {
    text.parse().ok()
}

fn rate(text: &str) -> Option<BitRate> {
    text.parse().ok()
}
