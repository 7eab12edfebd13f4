//! The fuzz targets as plain tests: over their seeds and the examples, and over mutations of them
//! from a fixed seed.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test reads its files and says what it expects by panicking"
)]

#[path = "../../core/tests/corpus/mutate.rs"]
mod mutate;
pub(crate) mod targets;

use std::path::Path;

use linerate_qos::policy::PolicyFile;
use mutate::{Dice, mutated, seeds_in, stands};
use targets::{Anybody, TARGETS};

/// Of each seed. The fuzzer itself tries millions; this is to notice what a change breaks.
const MUTATIONS: usize = 400;

#[test]
fn every_target_stands_its_seeds_and_their_mutations() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        let mut dice = Dice(0x905);
        for seed in &seeds {
            stands(name, target, seed);
            for _ in 0..MUTATIONS {
                stands(name, target, &mutated(seed, &seeds, &mut dice));
            }
        }
    }
}

/// A seed that is refused would test little.
#[test]
fn the_seeds_are_policy_files() {
    for (name, read) in
        [("policy_toml", PolicyFile::from_toml as Read), ("policy_hpux", PolicyFile::from_hpux)]
    {
        for seed in seeds(name) {
            let text = String::from_utf8(seed).expect("a text");
            if let Err(error) = read(&text, &mut Anybody) {
                panic!("{name}: {error}\n{text}");
            }
        }
    }
}

type Read = fn(
    &str,
    &mut dyn linerate_qos::policy::Names,
) -> Result<PolicyFile, linerate_core::toml_reader::FileError>;

/// The target's own, and the examples of its syntax.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = seeds_in(&here.join("tests/corpus/seeds").join(name));
    let examples = seeds_in(&here.join("../../examples/qos"));
    let is_hpux =
        |text: &[u8]| text.windows(7).any(|word| word == b"\nuses f" || word == b"uses f1");
    seeds.extend(examples.into_iter().filter(|text| is_hpux(text) == (name == "policy_hpux")));
    seeds
}
