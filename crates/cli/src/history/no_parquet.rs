//! In the place of `parquet.rs` where the feature `parquet` is off: nothing is written.

use std::io::Write;

use anyhow::{anyhow, bail};

use super::SavedFigure;
use crate::failure::Failure;

const WHY: &str = "--format parquet: this program was built without it; build it with: \
    cargo build --release --features parquet; or give --format csv";

pub(super) fn is_built() -> Result<(), Failure> {
    Err(Failure::unsupported(anyhow!(WHY)))
}

pub(super) fn write(_: impl Write, _: &[SavedFigure<'_>]) -> anyhow::Result<()> {
    bail!(WHY)
}
