//! What the two ends of a path do in a transfer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Direction;
use crate::units::End;

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

    /// Of the peer.
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    /// What an end does in a direction; of both, in the one up.
    pub fn at(end: End, direction: Direction) -> Self {
        if Self::Sender.end(direction) == end {
            Self::Sender
        } else {
            Self::Receiver
        }
    }
}
