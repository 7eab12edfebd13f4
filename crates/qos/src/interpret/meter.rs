//! The two meters (RFC 2697, RFC 2698), in whole numbers.

use crate::rules::{Bucket, Buckets, Meter, UNITS_PER_BYTE};

use super::Colour;

/// What a meter remembers; all zero is one that was never used, whose buckets are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeterState {
    /// When it was last filled.
    pub last_ns: u64,
    /// Tokens of the committed bucket.
    pub committed: u64,
    /// Tokens of the excess bucket (RFC 2697) or of the peak bucket (RFC 2698).
    pub second: u64,
}

impl MeterState {
    /// The colour of a packet of `bytes`, at most [`MOST_METERED_BYTES`](crate::rules::MOST_METERED_BYTES).
    pub fn colour(
        &mut self,
        buckets: &Buckets,
        precolour: Colour,
        bytes: u32,
        now_ns: u64,
    ) -> Colour {
        self.fit(buckets);
        let is_new = self.last_ns == 0;
        let elapsed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let elapsed = (!is_new).then_some(elapsed);
        let cost = u64::from(bytes) * UNITS_PER_BYTE;
        match buckets {
            Buckets::SingleRate {
                committed,
                excess_depth,
            } => {
                self.fill_single(committed, *excess_depth, elapsed);
                self.take_single(precolour, cost)
            }
            Buckets::TwoRate { committed, peak } => {
                self.committed = committed.filled(self.committed, elapsed);
                self.second = peak.filled(self.second, elapsed);
                self.take_two(precolour, cost)
            }
        }
    }

    /// A policy that was changed may have less deep buckets than those that its slot was left with.
    fn fit(&mut self, buckets: &Buckets) {
        let (committed, second) = match buckets {
            Buckets::SingleRate {
                committed,
                excess_depth,
            } => (committed.depth, *excess_depth),
            Buckets::TwoRate { committed, peak } => (committed.depth, peak.depth),
        };
        self.committed = self.committed.min(committed);
        self.second = self.second.min(second);
    }

    /// RFC 2697, 3: what the committed bucket cannot hold goes to the excess bucket.
    fn fill_single(&mut self, bucket: &Bucket, excess_depth: u64, elapsed: Option<u64>) {
        let added = match elapsed {
            Some(elapsed) if elapsed < bucket.full_ns => bucket.rate * elapsed,
            _ => {
                (self.committed, self.second) = (bucket.depth, excess_depth);
                return;
            }
        };
        let room = bucket.depth - self.committed;
        if added <= room {
            self.committed += added;
            return;
        }
        self.committed = bucket.depth;
        let over = added - room;
        let room = excess_depth - self.second;
        self.second = match over >= room {
            true => excess_depth,
            false => self.second + over,
        };
    }

    /// RFC 2697, 3.1 and 3.2; colour-blind is colour-aware with all packets green.
    fn take_single(&mut self, precolour: Colour, cost: u64) -> Colour {
        if precolour == Colour::Green && self.committed >= cost {
            self.committed -= cost;
            return Colour::Green;
        }
        if precolour <= Colour::Yellow && self.second >= cost {
            self.second -= cost;
            return Colour::Yellow;
        }
        Colour::Red
    }

    /// RFC 2698, 3.1 and 3.2.
    fn take_two(&mut self, precolour: Colour, cost: u64) -> Colour {
        if precolour == Colour::Red || self.second < cost {
            return Colour::Red;
        }
        self.second -= cost;
        if precolour == Colour::Yellow || self.committed < cost {
            return Colour::Yellow;
        }
        self.committed -= cost;
        Colour::Green
    }
}

impl Bucket {
    /// The tokens after `elapsed` nanoseconds; `None` is for ever.
    fn filled(&self, tokens: u64, elapsed: Option<u64>) -> u64 {
        match elapsed {
            Some(elapsed) if elapsed < self.full_ns => {
                let added = self.rate * elapsed;
                match added >= self.depth - tokens {
                    true => self.depth,
                    false => tokens + added,
                }
            }
            _ => self.depth,
        }
    }
}

/// The colour that a packet brings: that whose code point it has (RFC 2697 and 2698 leave the encoding open).
pub(super) fn precolour(meter: &Meter, dscp: Option<u128>) -> Colour {
    let [_, yellow, red] = meter
        .colours
        .map(|code| code.map(|code| u128::from(code.octet() >> 2)));
    match dscp {
        None => Colour::Green,
        came if came == red => Colour::Red,
        came if came == yellow => Colour::Yellow,
        _ => Colour::Green,
    }
}
