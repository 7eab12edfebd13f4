//! How many connections two ends can hold: what is asked, what the endpoint is asked for, what came
//! of it.
//!
//! A client names no address and no port: an endpoint takes connections on ports of its own, only
//! from where its client's control connection comes from, and only those whose first bytes name the
//! session ([`wire`]). So many as its owner allows, for so long as its owner allows.
//!
//! | type | what it is |
//! |---|---|
//! | [`CapacityTest`] | what the user asks for: counts, rate, hold, churn, load |
//! | [`CapacityRequest`] | the part of it that the endpoint must know |
//! | [`HoldPorts`] | the ports that it answers with, and how many each takes |
//! | [`CapacityHalf`] | one end's account: counts, CPU, memory, limits |
//! | [`CapacityDocument`] | both, and what the client measured: the JSON contract |
//! | [`LimitRow`], [`StoppedBy`] | which limit comes next, and which ended it, by [`annotate`] |
//! | [`Search`] | which number to try next when the limit is looked for |

mod document;
mod limit;
mod search;
mod test;
pub mod wire;

pub use document::{
    CAPACITY_SCHEMA, CapacityDocument, CapacityHalf, ChurnResult, ConnectLatency, Failure,
    FailureCause, HeldCounts, LatencyAt, LimitReadings, LoadResult, MAX_CACHES, MemoryCourse,
    MemoryReading, PoolResult, RampStep, SlabUse,
};
pub use limit::{LimitEnd, LimitKind, LimitRow, StoppedBy, annotate};
pub use search::{FIRST_TRIED, MAX_ROUNDS, Search, SearchFound, SearchRound, TOLERANCE};
pub use test::{
    CapacityError, CapacityRequest, CapacityTest, DESCRIPTOR_RESERVE, HoldPort, HoldPorts,
    HoldProgress, Load, LoadPace, MAX_AT_PORT, MAX_CAUSES, MAX_HELD, MAX_MESSAGE, MAX_PER_S,
    MAX_PORTS, MIN_MESSAGE,
};
