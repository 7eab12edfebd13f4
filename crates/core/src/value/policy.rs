//! The treatment `qos`: a DiffServ policy on the device that leads to the peer.
//!
//! Its value is written as the name of a file. This crate reads none: whoever has the treatments
//! gives them the text ([`Treatments::load`](super::Treatments::load)), which then travels with
//! them, to an endpoint too.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which policy is to be in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum QosPolicy {
    /// None: no program, no classes.
    Off,
    /// A program without rules: every packet passes it, and nothing is done with it.
    Passthrough,
    /// Policy of a file.
    File {
        /// As it was written.
        name: String,
        /// Text of the file; empty before it was loaded.
        text: String,
    },
}

/// Largest file of a policy, bytes.
pub const MAX_POLICY_BYTES: usize = 1 << 20;
/// Largest that travels to an endpoint, bytes: as JSON it has to fit a frame.
pub const MAX_REMOTE_POLICY_BYTES: usize = 32 << 10;

impl QosPolicy {
    /// The policy that `text` names; none if it cannot be a file's name.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "passthrough" => Some(Self::Passthrough),
            name => is_file_name(name)
                .then(|| Self::File { name: name.to_owned(), text: String::new() }),
        }
    }

    /// Whether it can be put in force: a file was loaded, and is not too large.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Off | Self::Passthrough => true,
            Self::File { name, text } => {
                is_file_name(name) && (1..=MAX_POLICY_BYTES).contains(&text.len())
            }
        }
    }
}

impl fmt::Display for QosPolicy {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Passthrough => "passthrough",
            Self::File { name, .. } => name,
        })
    }
}

/// Treatments are separated by commas, and stand in messages of one line.
fn is_file_name(name: &str) -> bool {
    let allowed = |c: char| !c.is_control() && c != ',';
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed)
}

/// As long as a path of Linux (PATH_MAX), bytes.
const MAX_NAME: usize = 4096;
