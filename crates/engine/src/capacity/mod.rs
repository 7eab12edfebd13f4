//! Holding as many connections as two ends can: the worker processes that hold them, and what they
//! cost.
//!
//! A process may have few descriptors: where `ulimit -Hn` is 20,000, one process was measured to
//! end at 19,993 connections, and only CAP_SYS_RESOURCE raises that. So worker processes hold them:
//! this program, started again (`worker`), as few times as the limit allows. Each has one thread,
//! one epoll set, and some eighty bytes for each connection. The workers get their orders over a
//! pair of sockets (`message`) and end when it is closed, whatever happens to the process that
//! started them. Their connections are then reset, so that neither TIME_WAIT nor orphans stay.
//!
//! | module | what is in it |
//! |---|---|
//! | `run`, `round`, `opening` | client: a run's phases and document; the search for the limit |
//! | `holding` | endpoint: the connections of one client, for its session |
//! | `workers` | starting and ending workers, and dividing the connections between them |
//! | `worker`, `message` | a worker's process, its loop, an endpoint's UDP; orders and reports |
//! | `driver`, `pool` | a client's worker: its schedule; its connections or UDP sockets |
//! | `socket` | what differs between connections and UDP sockets |
//! | `destination` | local ports; requests over the connections |
//! | `accept` | an endpoint's worker: its connections |
//! | `readings` | the kernel's figures of sockets, memory and limits |

mod accept;
mod destination;
mod driver;
mod holding;
mod message;
mod opening;
mod pool;
mod readings;
mod round;
mod run;
mod socket;
mod worker;
mod workers;

use std::time::Duration;

pub(crate) use holding::{Holding, HoldingNews, cost};
pub use run::{CapacityLive, CapacityOptions, CapacityOutcome, CapacityPhase};
pub use worker::{CAPACITY_WORKER, run_capacity_worker};

/// Most worker processes of each kind. With 20,000 descriptors each they hold five million.
const MAX_WORKERS: u64 = 256;
/// Longest wait for the workers to close their connections, before they are killed.
const CLOSING: Duration = Duration::from_secs(90);
