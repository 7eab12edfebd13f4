//! Options of `stream`, `rr` and `crr`.

use clap::Args;
use linerate_core::units::BitRate;

use super::options::{OfCrr, OfRr, OfStream, TestOptions};
use super::parsers;
use super::shared::RunOptions;

#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pub(crate) test: TestOptions<OfStream>,
    /// Exit with 1 if a run, or one direction of it, is slower than RATE
    #[arg(
        long, value_name = "RATE", help_heading = "Stream", value_parser = parsers::rate_with_unit
    )]
    pub(crate) fail_below: Option<BitRate>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RrArgs {
    #[command(flatten)]
    pub(crate) test: TestOptions<OfRr>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CrrArgs {
    #[command(flatten)]
    pub(crate) test: TestOptions<OfCrr>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}
