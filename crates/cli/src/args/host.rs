//! Options of the commands about this host: `host`, `lab`, `qos` and `connections`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::ensure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use linerate_core::host::Profile;
use linerate_core::link::PathSpec;
use linerate_core::units::{BitRate, EndpointName, Span};
use linerate_report::text::GroupBy;

use super::parsers;
use super::shared::{DocumentOptions, RandomOptions};

// Options of `host`.

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
    let is_bare = text.trim().ends_with(|last: char| last.is_ascii_digit() || last == '.');
    ensure!(!is_bare, "a time needs its unit here: {text}s, or {text}ms as in ping?");
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

// Options of `lab`.

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "COMMAND", disable_help_subcommand = true)]
pub(crate) enum LabCommand {
    /// Make a lab; it stays until it is taken down
    Up(LabUpArgs),
    /// Run a command in a host of a lab; its exit status is that of the command
    Exec(LabExecArgs),
    /// Show labs, their hosts, and what their links did
    Status(LabStatusArgs),
    /// Take a lab down
    Down(LabDownArgs),
    /// Be the process that holds a lab, whose file is on standard input
    #[command(hide = true)]
    Hold(LabHoldArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LabUpArgs {
    /// Hosts, routers and links, in TOML; max 1 MiB
    #[arg(required_unless_present = "lab", conflicts_with = "lab")]
    pub(crate) file: Option<PathBuf>,
    /// One path from client to server instead, such as rate=100mbit,rtt=29ms,loss=0.1%
    #[arg(long, value_name = "SPEC")]
    pub(crate) lab: Option<PathSpec>,
    /// Name of the lab, 1 to 32 lower-case letters, digits and hyphens
    #[arg(long, default_value = "lab")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
    /// Print the lab as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LabExecArgs {
    /// Host or router of the lab
    pub(crate) host: String,
    /// Name of the lab (default: the one that is up)
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Command and its arguments; options of exec stand before it
    #[arg(trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct LabStatusArgs {
    #[command(flatten)]
    pub(crate) which: LabNameOptions,
    /// Print the labs as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LabDownArgs {
    #[command(flatten)]
    pub(crate) which: LabNameOptions,
    /// All labs of this user
    #[arg(long, conflicts_with_all = ["name", "lab"])]
    pub(crate) all: bool,
}

/// A lab by its name.
#[derive(Debug, Args)]
pub(crate) struct LabNameOptions {
    /// Name of the lab (default: status shows all, down takes the one that is up)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The same as --name NAME
    #[arg(value_name = "NAME", conflicts_with = "name")]
    lab: Option<String>,
}

impl LabNameOptions {
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref().or(self.lab.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct LabHoldArgs {
    /// Name of the lab
    #[arg(long)]
    pub(crate) name: String,
    /// Seed of every random choice
    #[arg(long)]
    pub(crate) seed: u64,
    /// One path instead of a file
    #[arg(long)]
    pub(crate) lab: Option<PathSpec>,
    /// Where files lie that the topology names (default: here)
    #[arg(long)]
    pub(crate) directory: Option<PathBuf>,
}

// Options of `qos`.

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "COMMAND", disable_help_subcommand = true)]
pub(crate) enum QosCommand {
    /// Read a policy file and say what is wrong or doubtful; nothing is changed
    Check(QosCheckArgs),
    /// Put the policies of a file in force, on all its interfaces or on none
    Apply(QosApplyArgs),
    /// Look each second whether policies are in force, and restore them; until Ctrl-C
    Watch,
    /// What is in force; exit status 0 filtering, 1 wrong, 10 disabled or none, 11 passing through
    Status(QosStatusArgs),
    /// What policies and filters counted; bytes of incoming packets lack layer-2 headers
    Stats(QosStatsArgs),
    /// Put in force again what was disabled or passed through
    Enable(QosInterfaceArgs),
    /// Take programs and classes away, and keep policy and counts
    Disable(QosInterfaceArgs),
    /// Let packets pass by a program that does nothing, and keep policy and counts
    Passthrough(QosInterfaceArgs),
    /// Take everything away
    Remove(QosInterfaceArgs),
    /// Which filter of a file takes a packet, and why those before it do not
    Explain(QosExplainArgs),
}

/// Another syntax of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QosImport {
    /// HP-UX IPQoS: filter{}, policy{}, adapter{}
    Hpux,
}

#[derive(Debug, Args)]
pub(crate) struct QosCheckArgs {
    /// Policy file in TOML, max 4 MiB
    pub(crate) file: PathBuf,
    /// Read another syntax and print the file in TOML: hpux
    #[arg(long, value_name = "SYNTAX", hide_possible_values = true)]
    pub(crate) import: Option<QosImport>,
    /// Only this interface, by the file's adapter of its name or else by `*`
    #[arg(long, value_name = "IF", conflicts_with_all = ["import", "file_only"])]
    pub(crate) adapter: Option<String>,
    /// Look at the file alone, not whether this host has what it names
    #[arg(long, conflicts_with = "import")]
    pub(crate) file_only: bool,
    /// Print what was found as JSON
    #[arg(long, conflicts_with = "import")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QosApplyArgs {
    /// Policy file in TOML, max 4 MiB
    pub(crate) file: PathBuf,
    /// Only this interface, by the file's adapter of its name or else by `*`
    #[arg(long, value_name = "IF")]
    pub(crate) adapter: Option<String>,
    /// Also incoming packets: they are marked and counted, and have no classes
    #[arg(long)]
    pub(crate) ingress: bool,
    /// Also beside programs of others, and in place of their queueing discipline
    #[arg(long)]
    pub(crate) force: bool,
    /// Also after a reboot or on a new interface: a systemd unit runs `linerate qos watch`
    #[arg(long)]
    pub(crate) persist: bool,
    /// Print what is in force as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QosStatusArgs {
    #[command(flatten)]
    pub(crate) which: QosInterfaceArgs,
    /// Print each filter and what it takes, too
    #[arg(long, conflicts_with = "json")]
    pub(crate) details: bool,
}

#[derive(Debug, Args)]
pub(crate) struct QosStatsArgs {
    #[command(flatten)]
    pub(crate) which: QosInterfaceArgs,
    /// Print rates each second until Ctrl-C; with --json one line of counts each second
    #[arg(long, conflicts_with = "reset")]
    pub(crate) watch: bool,
    /// Begin counting anew
    #[arg(long)]
    pub(crate) reset: bool,
}

/// The policies that a command is about.
#[derive(Debug, Args)]
pub(crate) struct QosInterfaceArgs {
    /// Interface (default: all with a policy)
    #[arg(value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Print the document as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = PACKET_KEYS)]
pub(crate) struct QosExplainArgs {
    /// Policy file in TOML, max 4 MiB
    pub(crate) file: PathBuf,
    /// Such as "tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=EF length=1500", or hex:FRAME
    pub(crate) packet: String,
    /// Which adapter of the file (default: its only one)
    #[arg(long, value_name = "IF")]
    pub(crate) adapter: Option<String>,
    /// Print the explanation as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const PACKET_KEYS: &str = "\
Keys of PACKET:
  any   dscp, ecn, length (default: that of the headers), fragment (first, later),
        vlan, vlan_priority, uid, cgroup, incoming, mark
  TCP   flags or tcp_flags (default: ack)
  ICMP  type or icmp_type (default: echo-request), code or icmp_code
  IPv6  flow_label";

// Options of `connections`.

#[derive(Debug, Args)]
#[command(after_help = CONNECTIONS_EXAMPLES)]
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

const CONNECTIONS_EXAMPLES: &str = "\
Examples:
  linerate connections --watch
  linerate connections --port 443 --sort retransmitted
  linerate connections --by cause
  linerate connections --listen";
