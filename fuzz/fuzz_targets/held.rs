#![no_main]
//! See the function of this name.

#[path = "../../crates/core/tests/corpus/targets.rs"]
#[allow(dead_code, reason = "the others have a fuzz target of their own")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::held(bytes));
