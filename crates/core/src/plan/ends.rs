//! The two ends of a path, and what they do in a transfer.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Direction;

/// One of the two ends.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The host where `linerate` is started.
    Client,
    /// The endpoint's host.
    Server,
}

/// What an end does in one direction.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It sends the payload.
    Sender,
    /// It receives the payload.
    Receiver,
}

impl Role {
    /// The end that has this role; of both directions, in the one up.
    pub fn end(self, direction: Direction) -> End {
        if (self == Self::Sender) == (direction != Direction::Down) {
            End::Client
        } else {
            End::Server
        }
    }
}

impl End {
    /// What it does in a direction; of both, in the one up.
    pub fn role(self, direction: Direction) -> Role {
        if Role::Sender.end(direction) == self {
            Role::Sender
        } else {
            Role::Receiver
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}
