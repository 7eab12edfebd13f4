//! Token buckets of a meter in integers, computed the same way by a kernel program.
//!
//! A token is a billionth of a bit, what 1 bit/s gives in 1 ns. So filling is one multiplication
//! and nothing is ever rounded.

use linerate_core::units::{BitRate, ByteCount};

use crate::policy::{Meter, MeterKind};

/// Tokens of one byte.
pub(crate) const UNITS_PER_BYTE: u64 = 8_000_000_000;

/// The deepest bucket, 1 GiB: two of them fit in 64 bits.
const MAX_BURST_BYTES: u64 = 1 << 30;

/// Most bytes a packet is charged for.
pub(crate) const MAX_METERED_BYTES: u32 = 1 << 30;

/// Highest rate used, 1 Pbit/s, so that filling never exceeds 64 bits.
const MAX_RATE: u64 = 1_000_000_000_000_000;

/// The constants of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    /// RFC 2697: one rate fills the committed bucket and, when it is full, the excess bucket.
    SingleRate {
        /// The committed bucket; its `full_ns` is the time that fills both from empty.
        committed: Bucket,
        /// Depth of the excess bucket.
        excess_depth: u64,
    },
    /// RFC 2698: each bucket has a rate of its own.
    TwoRate {
        /// The committed bucket.
        committed: Bucket,
        /// The peak bucket.
        peak: Bucket,
    },
}

/// The constants of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Tokens per nanosecond.
    pub rate: u64,
    /// Most tokens it holds.
    pub depth: u64,
    /// Nanoseconds after which it is full whatever it held; longer times count as this, and
    /// multiplied by `rate` it fits in 64 bits.
    pub full_ns: u64,
}

impl Meter {
    /// Its constants.
    pub fn buckets(&self) -> Buckets {
        match self.kind {
            MeterKind::SingleRate { committed, committed_burst, excess_burst } => {
                let excess_depth = depth(excess_burst);
                Buckets::SingleRate {
                    committed: Bucket::new(committed, committed_burst, excess_depth),
                    excess_depth,
                }
            }
            MeterKind::TwoRate { committed, committed_burst, peak, peak_burst } => {
                Buckets::TwoRate {
                    committed: Bucket::new(committed, committed_burst, 0),
                    peak: Bucket::new(peak, peak_burst, 0),
                }
            }
        }
    }
}

impl Bucket {
    /// A bucket that is surely full after `full_ns`, with `further` tokens for a second one.
    fn new(rate: BitRate, burst: ByteCount, further: u64) -> Self {
        let rate = rate.0.min(MAX_RATE);
        let depth = depth(burst);
        let full_ns = (depth + further).checked_div(rate).map_or(0, |ns| ns + 1);
        Self { rate, depth, full_ns }
    }
}

fn depth(burst: ByteCount) -> u64 {
    burst.0.min(MAX_BURST_BYTES) * UNITS_PER_BYTE
}
