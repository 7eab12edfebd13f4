//! The fuzz targets as plain tests: over their seeds, and over mutations of them from a fixed seed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test reads its files and says what it expects by panicking"
)]

#[path = "corpus/targets.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use linerate_core::wire::message::{ClientMessage, ServerMessage};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use targets::{TARGETS, Target};

/// Of each seed. The fuzzer itself tries millions; this is to notice what a change breaks.
const MUTATIONS: usize = 300;
/// Where each one costs several key exchanges.
const SEALED_MUTATIONS: usize = 20;

#[test]
fn every_target_stands_its_seeds_and_their_mutations() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let mut random = ChaCha8Rng::seed_from_u64(0x11e);
        for seed in &seeds {
            stands(name, target, seed);
            let mutations = match name {
                "sealed" | "session" => SEALED_MUTATIONS,
                _ => MUTATIONS,
            };
            for _ in 0..mutations {
                stands(name, target, &mutated(seed, &seeds, &mut random));
            }
        }
    }
}

/// A seed that is refused at the first byte would test nothing.
#[test]
fn the_seeds_of_messages_are_messages() {
    for seed in seeds("client_message") {
        ClientMessage::parse(&seed).expect("a client's message");
    }
    for seed in seeds("server_message") {
        ServerMessage::parse(&seed).expect("an endpoint's message");
    }
    for seed in seeds("report") {
        let message = ServerMessage::parse(&seed).expect("an endpoint's message");
        assert!(matches!(message, ServerMessage::Report(_)));
    }
    for seed in seeds("traced") {
        let message = ServerMessage::parse(&seed).expect("an endpoint's message");
        assert!(matches!(message, ServerMessage::Traced(_)));
    }
    for seed in seeds("icmp") {
        let codec = targets::codec_of(seed[0]);
        let message = codec.read_icmp(codec.target, None, &seed[1..]);
        let segment = codec.read_tcp(codec.target, None, &seed[1..]);
        message.or(segment).expect("an answer to a probe");
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus/seeds")
        .join(name);
    let mut paths: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("a readable seed"))
        .collect()
}

fn stands(name: &str, target: Target, bytes: &[u8]) {
    let result = catch_unwind(AssertUnwindSafe(|| target(bytes)));
    assert!(
        result.is_ok(),
        "{name} fails with {:?}",
        String::from_utf8_lossy(bytes)
    );
}

/// One to four changes: bits, pieces left out, doubled or taken from another seed, absurd numbers.
fn mutated(seed: &[u8], seeds: &[Vec<u8>], random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    let mut below = |bound: usize| random.next_u64() as usize % bound.max(1);
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
    let end = (start..bytes.len())
        .find(|i| !bytes[*i].is_ascii_digit())
        .unwrap_or(bytes.len());
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
