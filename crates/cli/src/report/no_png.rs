//! In the place of `png.rs` where the feature `png` is off: nothing is drawn.

use anyhow::anyhow;

use crate::failure::Failure;

pub(super) enum Painter {}

impl Painter {
    pub(super) fn new() -> Result<Self, Failure> {
        Err(Failure::unsupported(anyhow!(
            "--png: this program was built without it; build it with: cargo build --release --features png; \
             or give --svg DIR, and for each picture: rsvg-convert --zoom 2 FILE.svg -o FILE.png"
        )))
    }

    pub(super) fn png(&self, _: &str, _: u32) -> anyhow::Result<Vec<u8>> {
        match *self {}
    }
}
