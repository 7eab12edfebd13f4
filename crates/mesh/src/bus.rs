//! What carries the messages of a mesh between the coordinator and the agents: a queue of work for
//! each site, what comes of it, and who is there.
//!
//! A bus knows no message. What is delivered is delivered again unless it is acknowledged; who takes it
//! must bear that. What is published with a key comes once, however often it is published.

use std::time::Duration;

use thiserror::Error;

/// Why the bus did not do it; it may be asked again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the bus {0}")]
pub struct BusError(pub String);

/// A message that was taken from the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Whose subject it came on: nobody else can have sent it there.
    pub site: String,
    /// The message.
    pub body: Vec<u8>,
    /// By which it is acknowledged.
    pub receipt: u64,
}

/// What a site has said of itself last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// On whose key it stands.
    pub site: String,
    /// The message.
    pub body: Vec<u8>,
    /// How long ago.
    pub age: Duration,
}

/// The carrier. Each call returns within seconds, whatever has become of the other end.
pub trait Bus: Send + Sync {
    /// A site says that it is there, in place of what it has said before.
    ///
    /// # Errors
    /// The bus is not to be reached.
    fn announce(&self, site: &str, presence: &[u8]) -> Result<(), BusError>;

    /// A site says that it leaves.
    ///
    /// # Errors
    /// The bus is not to be reached.
    fn withdraw(&self, site: &str) -> Result<(), BusError>;

    /// Takes the oldest task of that site, which is gone when it is acknowledged; waits for one so
    /// long.
    ///
    /// # Errors
    /// The bus is not to be reached.
    fn take(&self, site: &str, wait: Duration) -> Result<Option<Delivery>, BusError>;

    /// Says what came of a task; returns when the bus has it for good.
    ///
    /// # Errors
    /// The bus is not to be reached: nothing, or all of it, was said.
    fn publish(&self, site: &str, key: &str, report: &[u8]) -> Result<(), BusError>;

    /// What was taken is done with.
    ///
    /// # Errors
    /// The bus is not to be reached: it comes again.
    fn acknowledge(&self, delivery: &Delivery) -> Result<(), BusError>;

    /// For the coordinator: makes what there must be for these sites.
    ///
    /// # Errors
    /// The bus is not to be reached, or does not allow it.
    fn prepare(&self, sites: &[&str]) -> Result<(), BusError>;

    /// For the coordinator: puts a task into the queue of that site, which is gone from there after
    /// [`OFFER_LIFE`].
    ///
    /// # Errors
    /// The bus is not to be reached.
    fn offer(&self, site: &str, key: &str, task: &[u8]) -> Result<(), BusError>;

    /// For the coordinator: nothing that was offered before is to be taken any more.
    ///
    /// # Errors
    /// The bus is not to be reached.
    fn clear(&self) -> Result<(), BusError>;

    /// For the coordinator: takes the oldest report, which is gone when it is acknowledged; waits for
    /// one so long.
    ///
    /// # Errors
    /// The bus is not to be reached.
    fn collect(&self, wait: Duration) -> Result<Option<Delivery>, BusError>;

    /// For the coordinator: what each site that did not leave has said last.
    ///
    /// # Errors
    /// The bus is not to be reached.
    fn present(&self) -> Result<Vec<Seen>, BusError>;
}

/// A task that nobody has taken by then is gone: its slot is over, or soon will be.
pub const OFFER_LIFE: Duration = Duration::from_secs(10);
/// What was taken and not acknowledged by then is delivered again.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(5);
/// How often a site says that it is there.
pub const BEAT: Duration = Duration::from_secs(2);
/// Who has said nothing for so long is gone.
pub const GONE_AFTER: Duration = Duration::from_secs(9);
