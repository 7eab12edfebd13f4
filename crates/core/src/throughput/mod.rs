//! How much gets through: the highest rate of datagrams of a size that a path carries (RFC 2544,
//! 26.1).
//!
//! | type | what it is |
//! |---|---|
//! | [`ThroughputTest`] | what the user asks for: sizes, what a rate has to keep, for how long |
//! | [`Goal`], [`RateSearch`] | which rate to try next; no socket, no clock |
//! | [`BurstSearch`], [`Burst`] | the same for the longest burst that passes whole |
//! | [`ThroughputDocument`] | what was found for each size: the JSON contract |

mod burst;
mod document;
mod search;
mod test;

pub use burst::{Burst, BurstSearch, BurstStore, LONGEST_BURST};
pub use document::{
    PREAMBLE_AND_GAP, THROUGHPUT_SCHEMA, ThroughputDocument, ThroughputLimit, ThroughputRow,
    ThroughputTrial, Tried,
};
pub use search::{Goal, MAX_TRIALS, NextTrial, RateSearch, TrialOutcome};
pub use test::{
    DEFAULT_FRAMES, ETHERNET_FRAMING, FrameSize, MAX_FRAME, MAX_SIZES, MIN_FRAME, Sought,
    ThroughputError, ThroughputTest, framing_bytes,
};
