//! Options of `host`.

use anyhow::ensure;
use clap::{Args, Subcommand};
use linerate_core::host::Profile;
use linerate_core::units::{BitRate, EndpointName, Span};

use super::parsers;
use super::shared::DocumentOptions;

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "COMMAND", disable_help_subcommand = true)]
pub(crate) enum HostCommand {
    /// What limits this host, what it should be for a path or a number of connections, and why
    Show(HostShowArgs),
    /// Set settings, all or none: checked, written down, read back, kept until undone
    Set(HostSetArgs),
    /// Put back what set and profile changed, where nobody else has changed it since
    Undo(HostUndoArgs),
    /// What a host for wan, lan or many-connections lacks; with --apply, set it
    Profile(HostProfileArgs),
}

#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct HostShowArgs {
    /// Settings to look at, such as net.ipv4.tcp_rmem or device.eth0.tso (default: all)
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Show also settings that are fine, or that this host does not have
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) need: NeedOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// Rate and round trip that the host is to reach.
#[derive(Debug, Args)]
#[command(next_help_heading = "Needed")]
pub(crate) struct NeedOptions {
    /// Measure the path to the endpoint HOST: its rate, round-trip time and device
    #[arg(long = "for", value_name = "HOST", conflicts_with_all = ["rate", "rtt"])]
    pub(crate) host: Option<EndpointName>,
    /// What one connection is to get, such as 10gbit: 1kbit to 1tbit
    #[arg(
        long, value_name = "RATE", requires = "rtt",
        value_parser = parsers::rate(1_000, 1_000_000_000_000)
    )]
    pub(crate) rate: Option<BitRate>,
    /// Round-trip time of the path, such as 80ms: 1us to 1min
    #[arg(long, value_name = "TIME", requires = "rate", value_parser = rtt)]
    pub(crate) rtt: Option<Span>,
    /// TCP connections at once, 1 to 2^30
    #[arg(long, value_name = "N", value_parser = parsers::number::<u64>(1, 1 << 30))]
    pub(crate) connections: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct HostSetArgs {
    /// Such as net.ipv4.tcp_rmem='4096 131072 33554432'; `host show --all` lists the keys
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub(crate) assignments: Vec<String>,
    /// Keep kernel settings over a reboot, too, by our one file in /etc/sysctl.d
    #[arg(long)]
    pub(crate) persist: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HostUndoArgs {
    /// Settings to put back (default: all that were set in this network namespace)
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = PROFILES)]
pub(crate) struct HostProfileArgs {
    /// wan, lan or many-connections
    #[arg(value_name = "NAME")]
    pub(crate) profile: Profile,
    /// Set it; without, only say what would be set
    #[arg(long)]
    pub(crate) apply: bool,
    /// Keep kernel settings over a reboot, too, by our one file in /etc/sysctl.d
    #[arg(long, requires = "apply")]
    pub(crate) persist: bool,
    #[command(flatten)]
    pub(crate) need: NeedOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

fn rtt(text: &str) -> anyhow::Result<Span> {
    let rtt: Span = text.parse()?;
    ensure!((1..=60_000_000).contains(&rtt.0.as_micros()), "it must be 1us to 1min");
    Ok(rtt)
}

const SHOW_EXAMPLES: &str = "\
Examples:
  linerate host show --rate 10gbit --rtt 80ms
  linerate host show --for pit --connections 20000
  linerate host show net.ipv4.tcp_rmem --rate 1gbit --rtt 1ms";
const PROFILES: &str = "\
Without --rate, --rtt and --connections:
  wan               the device's rate or 1gbit, over 100ms
  lan               the device's rate or 10gbit, over 500us
  many-connections  100000 connections";
