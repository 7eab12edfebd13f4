//! The fuzz targets as plain tests: over their seeds, and over mutations of them from a fixed seed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test reads its files and says what it expects by panicking"
)]

mod mutate;
mod targets;

use std::path::Path;

use linerate_core::session::message::{ClientMessage, ServerMessage};
use linerate_core::session::operation::Reply;
use mutate::{Dice, mutated, seeds_in, stands};
use targets::TARGETS;

/// Of each seed. The fuzzer itself tries millions; this is to notice what a change breaks.
const MUTATIONS: usize = 300;
/// Where each one costs several key exchanges.
const SEALED_MUTATIONS: usize = 20;

#[test]
fn every_target_stands_its_seeds_and_their_mutations() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let mut dice = Dice(0x11e);
        for seed in &seeds {
            stands(name, target, seed);
            let mutations = match name {
                "sealed" | "session" => SEALED_MUTATIONS,
                _ => MUTATIONS,
            };
            for _ in 0..mutations {
                stands(name, target, &mutated(seed, &seeds, &mut dice));
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
        assert!(matches!(message, ServerMessage::Answer(Reply::End(_))));
    }
    for seed in seeds("traced") {
        let message = ServerMessage::parse(&seed).expect("an endpoint's message");
        assert!(matches!(message, ServerMessage::Answer(Reply::Trace(_))));
    }
    for seed in seeds("held") {
        let message = ServerMessage::parse(&seed).expect("an endpoint's message");
        assert!(
            matches!(message, ServerMessage::Answer(Reply::Release(half)) if half.check().is_ok())
        );
    }
    for seed in seeds("icmp") {
        let codec = targets::codec_of(seed[0]);
        let message = codec.read_icmp(codec.target, None, &seed[1..]);
        let segment = codec.read_tcp(codec.target, None, &seed[1..]);
        message.or(segment).expect("an answer to a probe");
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    seeds_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/seeds").join(name))
}
