//! The seeded byte pattern of `--verify`.

use crate::units::SplitMix64;

/// A pattern in which the byte at each position of the stream follows from the seed alone, so that
/// the receiver can check any piece of it. The period is 256 KiB + 8, which no power-of-two slip
/// repeats.
#[derive(Debug, Clone)]
pub struct Pattern {
    bytes: Vec<u8>,
}

const PERIOD: usize = (256 << 10) + 8;

impl Pattern {
    /// The pattern of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut bytes = Vec::with_capacity(PERIOD);
        while bytes.len() < PERIOD {
            bytes.extend_from_slice(&random.draw().to_be_bytes());
        }
        bytes.truncate(PERIOD);
        Self { bytes }
    }

    /// Writes the pattern from stream position `position` on.
    pub fn fill(&self, position: u64, out: &mut [u8]) {
        let mut at = (position % PERIOD as u64) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let n = rest.len().min(PERIOD - at);
            rest[..n].copy_from_slice(&self.bytes[at..at + n]);
            rest = &mut rest[n..];
            at = 0;
        }
    }

    /// Bytes of `received` that differ from the pattern from stream position `position` on.
    pub fn differences(&self, position: u64, received: &[u8]) -> u64 {
        let mut at = (position % PERIOD as u64) as usize;
        let mut rest = received;
        let mut different = 0;
        while !rest.is_empty() {
            let n = rest.len().min(PERIOD - at);
            let (piece, after) = rest.split_at(n);
            let wanted = &self.bytes[at..at + n];
            // Whole slices first: equal memory is the rule and memcmp is far faster than counting.
            if piece != wanted {
                different += piece.iter().zip(wanted).filter(|(a, b)| a != b).count() as u64;
            }
            rest = after;
            at = 0;
        }
        different
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_changed_byte_is_counted(
            seed: u64, position in 0u64..1 << 40, length in 1usize..5000, at in 0usize..5000,
        ) {
            let pattern = Pattern::new(seed);
            let mut bytes = vec![0; length];
            pattern.fill(position, &mut bytes);
            prop_assert_eq!(pattern.differences(position, &bytes), 0);
            bytes[at % length] ^= 0x10;
            prop_assert_eq!(pattern.differences(position, &bytes), 1);
        }
    }

    #[test]
    fn bytes_shifted_by_one_are_detected() {
        let pattern = Pattern::new(7);
        let mut bytes = vec![0; 4096];
        pattern.fill(1, &mut bytes);
        assert!(pattern.differences(0, &bytes) > 3900);
    }
}
