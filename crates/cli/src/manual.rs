//! What packages bring beside the program: completions of shells, manual pages. Both are made from
//! the one description of the command line.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output;

/// Prints the completions of a shell.
///
/// # Errors
/// They cannot be printed.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(shell, &mut visible(), "linerate", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

/// Writes `linerate.1` and a page for each command into a directory.
///
/// # Errors
/// One cannot be written.
pub(crate) fn pages(directory: &Path) -> Result<(), Failure> {
    page(directory, visible(), "linerate").map_err(Failure::usage)
}

fn page(directory: &Path, command: clap::Command, name: &str) -> anyhow::Result<()> {
    for of in command.get_subcommands().filter(|of| !of.is_hide_set()) {
        page(directory, of.clone(), &format!("{name}-{}", of.get_name()))?;
    }
    let mut text = Vec::new();
    let man = Man::new(command.display_name(name)).title(name.to_uppercase());
    man.render(&mut text)?;
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Without the commands that are no user's.
fn visible() -> clap::Command {
    let all = Cli::whole();
    let shown = all.get_subcommands().filter(|of| !of.is_hide_set());
    clap::Command::new("linerate")
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .subcommands(shown.cloned())
        .disable_help_subcommand(true)
}
