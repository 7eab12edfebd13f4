//! Holding as many connections as two ends can: worker processes, what they do, and what it costs.
//!
//! A process has few descriptors, so that others hold the connections: this program, started again
//! (`worker`), as few as the descriptor limit allows, each with one thread, one epoll set, and some
//! eighty bytes for a connection. They are told what to do over a pair of sockets (`message`) and
//! end when that is closed, whatever becomes of the process that started them; everything that they
//! hold is then reset, so that neither TIME_WAIT nor an orphan is left.
//!
//! | module | what is in it |
//! |---|---|
//! | `run`, `round`, `opening` | the client's phases, in their order, and the search for the limit |
//! | `outcome` | the document of them |
//! | `allowance` | what all clients of an endpoint may hold together |
//! | `holding` | the endpoint's part of it, for its session |
//! | `crew`, `message`, `share`, `orders` | the workers: started and ended, what they are told, how much each has |
//! | `driver` | the loop of a client's worker: what is due when |
//! | `connect`, `connection`, `lane`, `load` | its connections, their local ports, requests on them |
//! | `knock` | its UDP sockets |
//! | `serve`, `held` | the endpoint's connections |
//! | `answer` | the endpoint's side of UDP |
//! | `probe` | the latency of one active connection |
//! | `readings`, `tally` | what the kernel says of sockets, memory and limits; failures by cause |

mod allowance;
mod answer;
mod connect;
mod connection;
mod crew;
mod driver;
mod held;
mod holding;
mod knock;
mod lane;
mod load;
mod message;
mod opening;
mod orders;
mod outcome;
mod outgoing;
mod probe;
mod random;
mod readings;
mod round;
mod run;
mod serve;
mod share;
mod tally;
mod worker;

use std::time::Duration;

pub(crate) use allowance::Shares;
pub(crate) use holding::{Holding, HoldingNews};
pub use run::{CapacityLive, CapacityOptions, CapacityOutcome, CapacityPhase};
pub use worker::{CAPACITY_WORKER, run_capacity_worker};

/// Most worker processes of each kind. With 20,000 descriptors each they hold five million.
const MAX_WORKERS: u64 = 256;
/// Longest wait for the workers to close what they hold, before they are killed.
const CLOSING: Duration = Duration::from_secs(90);
