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
//! | `holding` | the endpoint's part of it, for its session |
//! | `workers`, `share`, `roles` | the workers: started and ended, how much each has, what it is |
//! | `worker`, `message` | what one of them does; what it is told and tells |
//! | `driver`, `pool` | of the client: what is due when; its connections and UDP sockets |
//! | `tcp`, `udp` | what differs between them |
//! | `destination`, `load` | their local ports; requests on them |
//! | `serve`, `accept`, `held` | of the endpoint: its loop; the connections that it holds |
//! | `answer` | its side of UDP |
//! | `probe` | the latency of one active connection |
//! | `readings`, `tally` | what the kernel says of sockets, memory and limits; failures by cause |

mod accept;
mod answer;
mod destination;
mod driver;
mod held;
mod holding;
mod load;
mod message;
mod opening;
mod outcome;
mod outgoing;
mod pool;
mod probe;
mod readings;
mod roles;
mod round;
mod run;
mod serve;
mod share;
mod tally;
mod tcp;
mod udp;
mod worker;
mod workers;

use std::time::Duration;

pub(crate) use holding::{Holding, HoldingNews};
pub use run::{CapacityLive, CapacityOptions, CapacityOutcome, CapacityPhase};
pub use worker::{CAPACITY_WORKER, run_capacity_worker};

/// Most worker processes of each kind. With 20,000 descriptors each they hold five million.
const MAX_WORKERS: u64 = 256;
/// Longest wait for the workers to close what they hold, before they are killed.
const CLOSING: Duration = Duration::from_secs(90);
