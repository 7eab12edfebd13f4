//! Options of `connections`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use linerate_core::units::Span;
use linerate_report::text::GroupBy;

use super::parsers;
use super::shared::DocumentOptions;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConnectionsArgs {
    #[command(flatten)]
    pub(crate) which: WhichOptions,
    #[command(flatten)]
    pub(crate) show: ShowOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// Which connections of this host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which")]
pub(crate) struct WhichOptions {
    /// With this local or remote port; several as 80,443
    #[arg(
        long, short, value_name = "PORT", value_delimiter = ',',
        value_parser = parsers::number::<u16>(1, 65_535)
    )]
    pub(crate) port: Vec<u16>,
    /// To or from this address, network (198.18.0.0/15) or name
    #[arg(long, value_name = "PEER")]
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
}

/// Whose connections, and in which of this host's network namespaces.
#[derive(Debug, Clone, Args)]
pub(crate) struct OwnerOptions {
    /// Of processes with this name, or of the one with this ID
    #[arg(long, visible_alias = "pid", value_name = "NAME|PID")]
    pub(crate) process: Option<String>,
    /// In this network namespace: its name (ip netns) or its file
    #[arg(long, value_name = "NAME|PATH", conflicts_with = "container")]
    pub(crate) netns: Option<String>,
    /// In the network namespace of process PID, such as a container's first
    #[arg(long, value_name = "PID", value_parser = parsers::number::<u32>(1, u32::MAX.into()))]
    pub(crate) container: Option<u32>,
}

/// Options of the table.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shown")]
pub(crate) struct ShowOptions {
    /// In this state, such as established or close_wait (default: all but time_wait)
    #[arg(
        long,
        value_enum,
        value_name = "STATE",
        hide_possible_values = true,
        conflicts_with = "listen"
    )]
    pub(crate) state: Option<StateName>,
    /// Sorted by rate (default), rtt, retransmitted, cwnd, process or peer
    #[arg(long, value_enum, value_name = "KEY", hide_possible_values = true)]
    pub(crate) sort: Option<SortKey>,
    /// Summed up by cause, process or peer
    #[arg(
        long, value_name = "KEY", value_parser = group_by(), hide_possible_values = true,
        conflicts_with_all = ["watch", "json", "listen"]
    )]
    pub(crate) by: Option<GroupBy>,
    /// Update them on the whole screen until q or Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "listen"])]
    pub(crate) watch: bool,
    /// Time over which rates are measured, 100ms to 1h (default 1s)
    #[arg(long, short, value_name = "TIME", value_parser = parsers::time(100, parsers::HOUR))]
    pub(crate) interval: Option<Span>,
    /// Listening sockets instead: their queues and the limit that applies
    #[arg(long)]
    pub(crate) listen: bool,
}

/// The kernel's states of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum StateName {
    Established = 1,
    SynSent = 2,
    SynReceived = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    CloseWait = 8,
    LastAck = 9,
    Closing = 11,
}

/// What a table is sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    #[default]
    Rate,
    Rtt,
    Retransmitted,
    Cwnd,
    Process,
    Peer,
}

fn group_by() -> impl TypedValueParser<Value = GroupBy> {
    PossibleValuesParser::new(["cause", "process", "peer"]).map(|word| match word.as_str() {
        "process" => GroupBy::Process,
        "peer" => GroupBy::Peer,
        _ => GroupBy::Cause,
    })
}

const EXAMPLES: &str = "\
Examples:
  linerate connections --watch
  linerate connections --port 443 --sort retransmitted
  linerate connections --by cause
  linerate connections --listen";
