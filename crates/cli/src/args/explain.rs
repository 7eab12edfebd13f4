//! Options of `explain` without a file.

use std::path::PathBuf;

use clap::Args;
use linerate_core::units::Span;

use super::connections::OwnerOptions;

/// Connections of other programs, which are watched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of this host, without FILE")]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    /// How long they are watched, 500ms to 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) time: Span,
    /// Set an earlier document of them beside this one: an observation of what changed
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
}

fn time(text: &str) -> Result<Span, String> {
    let range = Span::from_secs_f64(0.5).zip(Span::from_secs_f64(3600.0));
    let time: Span = text.parse().map_err(|error| format!("{error}"))?;
    let (least, most) = range.ok_or("no range")?;
    if (least..=most).contains(&time) {
        Ok(time)
    } else {
        Err("it is 500ms to 1h".to_owned())
    }
}
