//! Random policy files, and packets that hit their filters often. Tests of other crates use it too
//! (by `#[path]`), so it needs nothing but this crate and core.
#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

mod dice;
mod files;
mod packets;

pub(crate) use dice::Dice;
pub(crate) use files::{Wishes, adapter, file};
pub(crate) use packets::{Extension, Ip, Recipe, checksum, packet};
