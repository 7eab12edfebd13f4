//! The roles of the two ends of a path.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Direction;
use crate::units::End;

/// The role of an end in one direction.
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
    /// The end with this role; with both directions, in that up.
    pub fn end(self, direction: Direction) -> End {
        if (self == Self::Sender) == (direction != Direction::Down) {
            End::Client
        } else {
            End::Server
        }
    }

    /// The peer's role.
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    /// The role of an end in a direction; with both, in that up.
    pub fn at(end: End, direction: Direction) -> Self {
        if Self::Sender.end(direction) == end { Self::Sender } else { Self::Receiver }
    }
}
