//! Caveats: what limits the worth of a record's figures, and what would improve them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::End;

/// The kind of a caveat; scripts match on this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaveatKind {
    /// Both ends run on one kernel: host-wide figures count both.
    SharedKernel,
    /// linerate itself is what limits the rate.
    LinerateLimited,
    /// The receiver discarded the bytes unread.
    Discarded,
    /// The run ended before its time: signal, peer lost, error.
    Partial,
    /// Too few runs for an interval at 95 %.
    FewRuns,
    /// The runs do not scatter around one figure.
    NotOneFigure,
    /// A setting did not take as asked.
    SettingNotTaken,
    /// A figure could not be read on this host.
    NotReadable,
    /// Something else used the host's CPUs, or the hypervisor took them.
    BusyHost,
    /// The clock is not fit for the times measured.
    Clock,
    /// Fewer requests were sent than the open loop intended.
    RateNotReached,
    /// The segments are small for the interface they leave by.
    SmallSegments,
    /// The warm-up or the run was too short for what it measures.
    TooShort,
    /// Datagrams were dropped by a socket buffer, not by the path.
    SocketDrops,
    /// Datagrams arrived that fit no sequence: corrupted or forged.
    Malformed,
    /// Data arrived other than it was sent.
    Corrupted,
    /// The path is emulated or is this host's loopback.
    LocalPath,
    /// Connections of `crr` were refused, reset, timed out or found no local port.
    ConnectionsFailed,
    /// Idle CPUs were kept awake; host-wide CPU figures mean nothing.
    IdleSpinners,
    /// The emulator of the path fell behind, or lost packets by its own fault.
    EmulatorOverload,
    /// A comparison ended as soon as there was an answer, which overstates the effect.
    EarlyStop,
    /// Pairs of a comparison were left out for a fault.
    ExcludedPairs,
    /// A treatment of a comparison changed the load beside its runs, too.
    LoadChanged,
    /// A treatment is at an end that does not do what the treatment is about.
    Misplaced,
    /// The other end is another tool: what its host has seen is not known.
    OtherTool,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// A caveat: its kind, its cause, and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caveat {
    /// For scripts.
    pub kind: CaveatKind,
    /// For people: the cause, with its figures.
    pub message: String,
    /// The remedy; empty if there is none.
    pub remedy: CaveatRemedy,
    /// The end whose words these are, where it is not the one that made the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// What would mend a caveat: a text in JSON. What was read is words, so that nobody else's command
/// is ever shown as one to paste.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String", inline)]
pub enum CaveatRemedy {
    /// Advice.
    Words(String),
    /// A shell command, built by this program from typed data.
    Command(String),
}

impl Caveat {
    /// A caveat with its text.
    pub fn new(
        kind: CaveatKind,
        message: impl Into<String>,
        remedy: impl Into<CaveatRemedy>,
    ) -> Self {
        Self { kind, message: message.into(), remedy: remedy.into(), end: None }
    }

    /// The caveat as another end reported it: none of its text is taken as a command.
    pub fn told_by(self, end: End) -> Self {
        Self { remedy: CaveatRemedy::Words(self.remedy.into()), end: Some(end), ..self }
    }

    /// The message, with the end that reported it.
    pub fn says(&self) -> String {
        match self.end {
            None => self.message.clone(),
            Some(End::Client) => format!("the client says: {}", self.message),
            Some(End::Server) => format!("the endpoint says: {}", self.message),
        }
    }
}

impl From<&str> for CaveatRemedy {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

impl From<String> for CaveatRemedy {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl From<CaveatRemedy> for String {
    fn from(remedy: CaveatRemedy) -> Self {
        match remedy {
            CaveatRemedy::Words(text) | CaveatRemedy::Command(text) => text,
        }
    }
}

impl fmt::Display for CaveatRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(text) | Self::Command(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_somebody_else_wrote_is_words() {
        let remedy = CaveatRemedy::Command("reboot".into());
        let caveat = Caveat::new(CaveatKind::Partial, "it is broken", remedy);
        let told = caveat.told_by(End::Server);
        assert_eq!(told.remedy, CaveatRemedy::from("reboot".to_owned()));
        assert_eq!(told.says(), "the endpoint says: it is broken");
    }
}
