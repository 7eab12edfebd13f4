//! Where a request waits under load: divides what the load adds to its round trip among the queues
//! on its way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::remedy::Remedy;

/// Where packets or bytes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Written and not yet sent, in the sender's socket.
    SendSocket,
    /// In the root queueing discipline of the sender's device.
    SendQdisc,
    /// Between the two hosts: at the path's bottleneck.
    Path,
    /// Received and not yet read, in the receiver's socket.
    ReceiveSocket,
}

/// A queue and what it adds to a round trip on a flow with load.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Place of the queue.
    pub place: Place,
    /// Delay that the queue adds, µs.
    pub delay_us: f64,
    /// What waits there, bytes, as the host's kernel counts it: of a socket the mean of each flow.
    /// Absent of the path, whose queue is what the round trip has grown by and no host's kernel
    /// has.
    pub bytes: Option<u64>,
    /// What shortens it.
    pub remedy: Option<Remedy>,
}

/// What the kernels of both ends show of the flows with load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Backlog {
    /// Mean round trip of the idle path, µs.
    pub idle_us: f64,
    /// Mean round trip of the flows, µs.
    pub round_trip_us: f64,
    /// Goodput of all flows, bits per second.
    pub goodput_bps: f64,
    /// Their number.
    pub flows: u32,
    /// Unsent, all flows together, bytes.
    pub unsent_bytes: u64,
    /// In the sender's queueing discipline; `None` where it has none, or does not tell.
    pub qdisc_bytes: Option<u64>,
    /// Unread, all flows together.
    pub unread_bytes: Option<u64>,
}

impl Backlog {
    /// The queues, the longest first; those that add nothing are left out.
    pub fn queues(&self) -> Vec<Queue> {
        let us = |bytes: u64| bytes as f64 * 8e6 / self.goodput_bps;
        let of_each = |bytes: u64| bytes / u64::from(self.flows.max(1));
        let grown_us = (self.round_trip_us - self.idle_us).max(0.0);
        // It cannot hold more than the round trip has grown by.
        let qdisc_us = self.qdisc_bytes.map_or(0.0, us).min(grown_us);
        let queue = |place, delay_us, bytes| Queue { place, delay_us, bytes, remedy: None };
        let unread = self.unread_bytes.unwrap_or(0);
        let mut queues = vec![
            queue(Place::SendSocket, us(self.unsent_bytes), Some(of_each(self.unsent_bytes))),
            queue(Place::SendQdisc, qdisc_us, self.qdisc_bytes),
            queue(Place::Path, grown_us - qdisc_us, None),
            queue(Place::ReceiveSocket, us(unread), Some(of_each(unread))),
        ];
        queues.retain(|queue| queue.delay_us.is_finite() && queue.delay_us >= MIN_US);
        queues.sort_by(|a, b| b.delay_us.total_cmp(&a.delay_us));
        queues
    }
}

/// Less is no queue: a packet's time on a slow link, a wake-up.
const MIN_US: f64 = 200.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 80 Mbit/s: 10 kB are 1 ms.
    fn backlog() -> Backlog {
        Backlog {
            idle_us: 30e3,
            round_trip_us: 130e3,
            goodput_bps: 80e6,
            flows: 4,
            unsent_bytes: 400_000,
            qdisc_bytes: Some(600_000),
            unread_bytes: Some(100),
        }
    }

    #[test]
    fn what_load_adds_is_shared_out_over_the_queues() {
        let queues = backlog().queues();
        let found: Vec<_> = queues.iter().map(|queue| (queue.place, queue.delay_us)).collect();
        assert_eq!(
            found,
            [(Place::SendQdisc, 60e3), (Place::SendSocket, 40e3), (Place::Path, 40e3)]
        );
        assert_eq!(queues[1].bytes, Some(100_000));
    }

    #[test]
    fn what_no_host_holds_is_on_the_path() {
        let queues = Backlog { unsent_bytes: 0, qdisc_bytes: None, ..backlog() }.queues();
        assert_eq!(queues.len(), 1);
        assert_eq!((queues[0].place, queues[0].delay_us), (Place::Path, 100e3));
    }

    #[test]
    fn an_idle_path_has_no_queue() {
        assert_eq!(Backlog::default().queues(), []);
    }

    proptest! {
        #[test]
        fn path_and_qdisc_are_what_the_round_trip_has_grown_by(
            grown_us in 1e3..1e6f64, qdisc_bytes in 0..10_000_000u64, goodput_bps in 1e3..1e10f64
        ) {
            let queues = Backlog {
                round_trip_us: 30e3 + grown_us,
                qdisc_bytes: Some(qdisc_bytes),
                goodput_bps,
                ..backlog()
            }
            .queues();
            let on_the_way = queues
                .iter()
                .filter(|queue| matches!(queue.place, Place::SendQdisc | Place::Path));
            let sum: f64 = on_the_way.map(|queue| queue.delay_us).sum();
            prop_assert!((sum - grown_us).abs() < 2.0 * MIN_US);
        }
    }
}
