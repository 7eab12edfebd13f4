//! The carrier of a mesh's messages between the coordinator and the agents: a queue of tasks for
//! each site, one queue of reports, and the presence of each site.
//!
//! A bus does not look into messages. A delivery that is not acknowledged is delivered again, so
//! its taker must tolerate duplicates. A message that is published with a key arrives once, however
//! often it is published.

use std::time::Duration;

use thiserror::Error;

/// Why the bus failed. The call may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the bus {0}")]
pub struct BusError(pub String);

/// A message that was taken from the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The site whose subject it came on: no other site can send there.
    pub site: String,
    /// The message.
    pub body: Vec<u8>,
    /// Number by which it is acknowledged.
    pub receipt: u64,
}

/// The last presence of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The site.
    pub site: String,
    /// The message.
    pub body: Vec<u8>,
    /// Its age.
    pub age: Duration,
}

/// The carrier. Each call returns within seconds, whatever has become of the other end.
pub trait Bus: Send + Sync {
    /// Sets a site's presence, in place of its last one.
    ///
    /// # Errors
    /// The bus cannot be reached.
    fn announce(&self, site: &str, presence: &[u8]) -> Result<(), BusError>;

    /// Removes a site's presence.
    ///
    /// # Errors
    /// The bus cannot be reached.
    fn withdraw(&self, site: &str) -> Result<(), BusError>;

    /// Takes the oldest task of a site, and waits for at most `wait` for one. The task stays in the
    /// queue until it is acknowledged.
    ///
    /// # Errors
    /// The bus cannot be reached.
    fn take(&self, site: &str, wait: Duration) -> Result<Option<Delivery>, BusError>;

    /// Publishes a report; returns once the bus has stored it.
    ///
    /// # Errors
    /// The bus cannot be reached, or [`MAX_WAITING`] reports of this site wait: the report is
    /// stored whole or not at all.
    fn publish(&self, site: &str, key: &str, report: &[u8]) -> Result<(), BusError>;

    /// Removes a delivery from its queue.
    ///
    /// # Errors
    /// The bus cannot be reached: it will be delivered again.
    fn acknowledge(&self, delivery: &Delivery) -> Result<(), BusError>;

    /// For the coordinator: makes the queues of these sites.
    ///
    /// # Errors
    /// The bus cannot be reached, or does not allow it.
    fn prepare(&self, sites: &[&str]) -> Result<(), BusError>;

    /// For the coordinator: puts a task into a site's queue, where it stays for [`OFFER_LIFE`] at
    /// most.
    ///
    /// # Errors
    /// The bus cannot be reached.
    fn offer(&self, site: &str, key: &str, task: &[u8]) -> Result<(), BusError>;

    /// For the coordinator: removes all tasks that were offered.
    ///
    /// # Errors
    /// The bus cannot be reached.
    fn clear(&self) -> Result<(), BusError>;

    /// For the coordinator: takes the oldest report, and waits for at most `wait` for one. The
    /// report stays in the queue until it is acknowledged.
    ///
    /// # Errors
    /// The bus cannot be reached.
    fn collect(&self, wait: Duration) -> Result<Option<Delivery>, BusError>;

    /// For the coordinator: the presence of each site that did not withdraw.
    ///
    /// # Errors
    /// The bus cannot be reached.
    fn present(&self) -> Result<Vec<Seen>, BusError>;
}

/// A task that nobody has taken after this time is removed: its slot is over, or soon will be.
pub const OFFER_LIFE: Duration = Duration::from_secs(10);
/// A delivery that is not acknowledged within this time is delivered again.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(5);
/// Most reports of one site that wait for the coordinator: one site does not take the room of the
/// others. Agents keep what the bus does not take.
pub const MAX_WAITING: usize = 256;
/// Interval at which a site announces its presence.
pub const BEAT: Duration = Duration::from_secs(2);
/// A site whose presence is older than this is gone.
pub const GONE_AFTER: Duration = Duration::from_secs(9);
