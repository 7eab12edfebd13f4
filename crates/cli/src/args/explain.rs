//! Options of `explain` without a file.

use std::path::PathBuf;

use clap::Args;
use linerate_core::units::Span;

/// Connections of other programs, which are watched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of this host, without FILE")]
pub(crate) struct WatchOptions {
    /// Those of the processes of this name, or of the one of this number
    #[arg(long, visible_alias = "pid", value_name = "NAME|PID")]
    pub(crate) process: Option<String>,
    /// In this network namespace: its name (ip netns) or its file
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "container")]
    pub(crate) netns: Option<String>,
    /// In the network namespace of the process PID, such as a container's first
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) container: Option<u32>,
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
