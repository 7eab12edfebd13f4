//! Options of `qos`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
