//! A player of video in chunks that chooses each chunk's rate by what it has in its buffer, as
//! players of DASH do (T.-Y. Huang et al., "A buffer-based approach to rate adaptation", 2014).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Playing time of a chunk.
pub const CHUNK: Duration = Duration::from_secs(2);
/// A chunk's size at each rate, in requests: with 62,500 bytes each from 0.25 to 8 Mbit/s.
const LADDER: [u64; 8] = [1, 2, 4, 6, 10, 16, 24, 32];
/// Default size of a response, bytes.
pub const UNIT_BYTES: u64 = 62_500;
/// With less than this in the buffer the lowest rate is fetched.
const RESERVOIR: Duration = Duration::from_secs(4);
/// With at least this in the buffer the highest rate is fetched.
const CUSHION: Duration = Duration::from_secs(14);
/// Capacity of the buffer.
const MAX_BUFFER: Duration = Duration::from_secs(20);

/// The playback as the viewer saw it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Playback {
    /// Chunks fetched whole.
    pub chunks: u64,
    /// Mean rate of their video, bits per second.
    pub mean_bps: f64,
    /// Number of changes of the rate between chunks.
    pub switches: u64,
    /// Number of stalls, without the wait for the first chunk.
    pub stalls: u64,
    /// Total time of stalls, s.
    pub stalled_s: f64,
    /// Time until the first chunk arrived, s.
    pub startup_s: f64,
}

/// The state of a player.
#[derive(Debug, Clone, Default)]
pub struct Player {
    began: Duration,
    /// Time of the last update, and the buffer's content then.
    seen: Duration,
    buffer: Duration,
    /// The rate of the chunk that is being fetched.
    rung: usize,
    units: u64,
    startup: Option<Duration>,
    chunks: u64,
    switches: u64,
    stalls: u64,
    stalled: Duration,
}

impl Player {
    /// A player that starts to fetch its first chunk.
    pub fn new(now: Duration) -> Self {
        Self { began: now, seen: now, ..Self::default() }
    }

    /// The number of requests of the chunk being fetched.
    pub fn requests(&self) -> u64 {
        LADDER[self.rung]
    }

    /// The chunk is there. Answers when the next one is to be fetched: at once, unless the buffer
    /// is full.
    pub fn handle_chunk(&mut self, now: Duration) -> Duration {
        self.play(now);
        self.startup.get_or_insert(now.saturating_sub(self.began));
        self.chunks += 1;
        self.units += self.requests();
        self.buffer += CHUNK;
        let wait = (self.buffer + CHUNK).saturating_sub(MAX_BUFFER);
        let rung = rung(self.buffer - wait.min(self.buffer));
        self.switches += u64::from(rung != self.rung);
        self.rung = rung;
        now + wait
    }

    /// The playback as a whole, at its end; a response has `unit_bytes`.
    pub fn end(mut self, now: Duration, unit_bytes: u64) -> Playback {
        self.play(now);
        let startup = self.startup.unwrap_or(now.saturating_sub(self.began));
        let played = (self.chunks * CHUNK.as_secs()).max(1) as f64;
        Playback {
            chunks: self.chunks,
            mean_bps: (self.units * unit_bytes * 8) as f64 / played,
            switches: self.switches,
            stalls: self.stalls,
            stalled_s: self.stalled.as_secs_f64(),
            startup_s: startup.as_secs_f64(),
        }
    }

    fn play(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.seen);
        self.seen = now;
        if self.startup.is_none() {
            return;
        }
        let missing = passed.saturating_sub(self.buffer);
        // The buffer may end with the chunk's arrival: that is no stall.
        self.stalls += u64::from(!missing.is_zero());
        self.stalled += missing;
        self.buffer = self.buffer.saturating_sub(passed);
    }
}

/// The lowest below the reservoir, the highest above the cushion, in proportion between them.
fn rung(buffer: Duration) -> usize {
    let above = buffer.saturating_sub(RESERVOIR).as_secs_f64();
    let share = (above / (CUSHION - RESERVOIR).as_secs_f64()).min(1.0);
    (share * (LADDER.len() - 1) as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A path of that rate for so many seconds, in requests of 62,500 bytes.
    fn watch(bps: f64, seconds: f64) -> Playback {
        let mut now = Duration::ZERO;
        let mut player = Player::new(now);
        while now.as_secs_f64() < seconds {
            let bits = (player.requests() * 62_500 * 8) as f64;
            let there = now + Duration::from_secs_f64(bits / bps);
            now = player.handle_chunk(there);
        }
        player.end(now, 62_500)
    }

    #[test]
    fn a_fast_path_gets_the_highest_rate_without_a_stall() {
        let playback = watch(100e6, 300.0);
        assert!(playback.mean_bps > 7.4e6, "{playback:?}");
        assert_eq!((playback.stalls, playback.stalled_s), (0, 0.0));
        assert!(playback.startup_s < 0.01 && playback.switches <= 7, "{playback:?}");
    }

    #[test]
    fn a_path_below_the_lowest_rate_stalls_for_what_is_missing() {
        // 2 s of video in each 4 s.
        let playback = watch(125e3, 100.0);
        assert_eq!(playback.mean_bps, 250e3);
        assert!((playback.stalled_s - 48.0).abs() < 0.1, "{playback:?}");
        assert_eq!((playback.stalls, playback.startup_s), (24, 4.0));
    }

    proptest! {
        #[test]
        fn on_a_steady_path_the_rate_is_below_it_and_nothing_stalls(mbit in 0.6f64..30.0) {
            let playback = watch(mbit * 1e6, 600.0);
            prop_assert_eq!(playback.stalls, 0);
            prop_assert!(playback.mean_bps <= mbit * 1.02e6 + 1.0);
            // No less than half of what there is, up to the highest.
            prop_assert!(playback.mean_bps >= (mbit * 0.5e6).min(7.4e6), "{:?}", playback);
        }
    }
}
