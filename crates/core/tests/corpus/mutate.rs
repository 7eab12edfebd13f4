//! Bytes that are nearly right, from a fixed seed, and what stands them. The fuzz targets' plain
//! tests of each crate share this.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// SplitMix64 (Steele, Lea and Flood 2014): the same changes on each machine, and no dependency of
/// the crates.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % bound.max(1)
    }
}

/// The files of a directory, by name.
pub(crate) fn seeds_in(directory: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a readable seed")).collect()
}

/// Whether a target holds for these bytes.
pub(crate) fn stands(name: &str, target: fn(&[u8]), bytes: &[u8]) {
    let result = catch_unwind(AssertUnwindSafe(|| target(bytes)));
    assert!(result.is_ok(), "{name} fails with {:?}", String::from_utf8_lossy(bytes));
}

/// One to four changes: bits, pieces left out, doubled or taken from another seed, absurd numbers.
pub(crate) fn mutated(seed: &[u8], seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    let mut below = |bound: usize| dice.below(bound);
    for _ in 0..=below(4) {
        let at = below(bytes.len());
        let length = below(8).min(bytes.len() - at);
        match below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << below(8),
            1 if !bytes.is_empty() => bytes[at] = below(256) as u8,
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let other = &seeds[below(seeds.len())];
                let from = below(other.len());
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => absurd_number(&mut bytes, at, NUMBERS[below(NUMBERS.len())]),
        }
    }
    bytes
}

/// Replaces the next number of a text.
fn absurd_number(bytes: &mut Vec<u8>, from: usize, number: &str) {
    let Some(start) = (from..bytes.len()).find(|i| bytes[*i].is_ascii_digit()) else {
        return;
    };
    let end = (start..bytes.len()).find(|i| !bytes[*i].is_ascii_digit()).unwrap_or(bytes.len());
    bytes.splice(start..end, number.bytes());
}

const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1e308",
    "1e-308",
    "null",
    "36028797018963968",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "4294967295",
];
