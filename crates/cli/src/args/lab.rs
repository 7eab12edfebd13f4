//! Options of `lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use linerate_core::link::PathSpec;

use super::shared::RandomOptions;

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
