//! The longest burst that passes whole (RFC 2544, 26.4): how much the bottleneck's queue or bucket
//! takes at once.
//!
//! Frames of a burst follow each other as fast as the sender can. Before a link they wait in its
//! queue, so that the later ones are late; a token bucket passes them at once, and drops the rest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::capacity::{Search, SearchFound};
use crate::record::UdpEvidence;

/// Longest burst that is tried, frames.
pub const LONGEST_BURST: u64 = 1 << 16;
/// Part of the time in which the path carries a burst from which on its frames wait in a queue:
/// they wait for half of it in the mean where the burst comes at once. A bucket has none.
const WAITS: f64 = 0.15;
/// Frames below which a burst is too short to wait for longer than a host takes to wake up.
const FEW: u64 = 4;

/// The longest burst of frames that passed whole.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Burst {
    /// Frames of the longest burst of which nothing was lost; 0 if none was.
    pub frames: u64,
    /// Its length, bytes of frames.
    pub bytes: u64,
    /// Frames of the shortest burst that lost some; absent if the longest that may be tried passed.
    pub fails_at_frames: Option<u64>,
    /// Mean delay of its datagrams over the smallest, µs.
    pub delay_us: Option<f64>,
    /// What took it.
    pub store: Option<BurstStore>,
}

/// What takes a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BurstStore {
    /// A queue before a link, in which they wait.
    Queue,
    /// A token bucket, which passes them at once.
    Bucket,
    /// The receiver's socket, which drops what its program does not take in time.
    Receiver,
}

/// A search for the longest burst: which to send next.
#[derive(Debug, Clone)]
pub struct BurstSearch {
    search: Search,
    frame_bytes: u64,
    delay_us: Option<f64>,
    is_receivers: bool,
}

impl BurstSearch {
    /// A search among bursts of these frames, up to [`LONGEST_BURST`] and to so many bytes.
    pub fn new(frame_bytes: u64, most_bytes: Option<f64>) -> Self {
        let allowed = most_bytes.map_or(LONGEST_BURST, |bytes| (bytes / frame_bytes as f64) as u64);
        let search = Search::new(allowed.min(LONGEST_BURST));
        Self { search, frame_bytes, delay_us: None, is_receivers: false }
    }

    /// Frames of the next burst; `None` when the search is over.
    pub fn next_frames(&self) -> Option<u64> {
        self.search.next_number()
    }

    /// Takes what came of the burst that [`BurstSearch::next_frames`] gave, if anybody counted.
    pub fn take(&mut self, udp: Option<&UdpEvidence>) {
        let Some((asked, udp)) = self.next_frames().zip(udp) else {
            self.search.handle_round(0);
            return;
        };
        let passed = asked.saturating_sub(udp.lost);
        if passed == asked {
            self.delay_us = udp.added_delay_us;
        } else {
            self.is_receivers = udp.socket_drops.is_some_and(|drops| drops > udp.lost / 2);
        }
        self.search.handle_round(passed);
    }

    /// What was found on a path that carries so many frames per second.
    pub fn found(&self, frames_per_s: Option<f64>) -> Burst {
        let SearchFound { holds: frames, stops_at, .. } = self.search.found();
        let store = stops_at.and(frames_per_s).and_then(|per_s| self.store(frames, per_s));
        Burst {
            frames,
            bytes: frames * self.frame_bytes,
            fails_at_frames: stops_at,
            delay_us: self.delay_us.filter(|_| frames > 0),
            store,
        }
    }

    fn store(&self, frames: u64, frames_per_s: f64) -> Option<BurstStore> {
        if self.is_receivers {
            return Some(BurstStore::Receiver);
        }
        let carried_us = frames as f64 / frames_per_s * 1e6;
        let waits = self.delay_us.filter(|_| frames >= FEW)? >= WAITS * carried_us;
        Some(if waits { BurstStore::Queue } else { BurstStore::Bucket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came of a burst into a place for so many frames, of which those that fit wait for so
    /// long in the mean.
    fn burst(sent: u64, fits: u64, delay_us: f64, at_socket: bool) -> UdpEvidence {
        let lost = sent.saturating_sub(fits);
        UdpEvidence {
            sent,
            lost,
            received: sent - lost,
            socket_drops: Some(if at_socket { lost } else { 0 }),
            added_delay_us: Some(delay_us),
            ..UdpEvidence::default()
        }
    }

    fn found(fits: u64, delay_us: f64, at_socket: bool) -> Burst {
        let mut search = BurstSearch::new(1518, None);
        while let Some(frames) = search.next_frames() {
            search.take(Some(&burst(frames, fits, delay_us, at_socket)));
        }
        search.found(Some(10_000.0))
    }

    #[test]
    fn the_longest_burst_that_passes_whole_is_found_and_what_took_it_is_told_by_the_wait() {
        let queued = found(66, 3_000.0, false);
        assert_eq!((queued.frames, queued.bytes), (66, 66 * 1518));
        assert_eq!((queued.fails_at_frames, queued.store), (Some(67), Some(BurstStore::Queue)));
        assert_eq!(found(66, 40.0, false).store, Some(BurstStore::Bucket));
        assert_eq!(found(66, 40.0, true).store, Some(BurstStore::Receiver));
        // Too short to tell a wait from a wake-up.
        assert_eq!(found(3, 40.0, false).store, None);
    }

    #[test]
    fn a_burst_has_limits() {
        let all = found(u64::MAX, 10.0, false);
        assert_eq!((all.frames, all.fails_at_frames, all.store), (LONGEST_BURST, None, None));
        let mut few = BurstSearch::new(1518, Some(15_180.0));
        assert_eq!(few.next_frames(), Some(10));
        few.take(None);
        assert_eq!(few.found(None).frames, 0);
    }
}
