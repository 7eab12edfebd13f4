//! Shell completions and manual pages for packages, both made from clap's description of the
//! command line.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::args::Cli;
use crate::failure::Failure;
use crate::{iperf3, output};

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

/// Writes the page of a command that is typed as `typed`, and those of its subcommands.
fn page(directory: &Path, command: clap::Command, typed: &str) -> anyhow::Result<()> {
    for of in command.get_subcommands().filter(|of| !of.is_hide_set()) {
        page(directory, of.clone(), &format!("{typed} {}", of.get_name()))?;
    }
    let name = typed.replace(' ', "-");
    let mut command = command.display_name(&name).bin_name(typed);
    let usage = command.render_usage().to_string();
    let help = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command)
        .title(name.to_uppercase())
        // No date, so that each build makes the same bytes; an empty one would break the title.
        .date(" ")
        .source(concat!("linerate ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    text.extend(section("SYNOPSIS", usage.trim_start_matches("Usage: ")).into_bytes());
    if typed == "linerate iperf3" {
        text.extend(section("DESCRIPTION", iperf3::help()).into_bytes());
    } else {
        man.render_options_section(&mut text)?;
    }
    if name == "linerate" {
        man.render_subcommands_section(&mut text)?;
        text.extend(section("FILES", FILES).into_bytes());
    }
    let help = help.unwrap_or_default();
    let (notes, examples) = help.split_once("Examples:\n").unwrap_or((&help, ""));
    let end =
        [("NOTES", notes), ("EXAMPLES", examples)].into_iter().filter(|(_, text)| !text.is_empty());
    for (heading, lines) in end.chain([("EXIT STATUS", STATUS), ("SEE ALSO", SEE)]) {
        text.extend(section(heading, lines).into_bytes());
    }
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// A section whose lines are printed as they are, in roff.
fn section(heading: &str, text: &str) -> String {
    let lines = text.trim_end().lines();
    // roff takes a line that begins with a dot or a quote for a command.
    let lines = lines.map(|line| format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-")));
    format!(".SH \"{heading}\"\n.nf\n{}.fi\n", lines.collect::<String>())
}

const FILES: &str = "\
~/.config/linerate.toml               defaults: linerate config
~/.local/state/linerate/history.db    runs that were saved";
const STATUS: &str = "\
0   done
1   the run or a gate failed
2   the command line or a file is wrong
3   this host lacks something, or does not allow it";
const SEE: &str = "linerate(1), linerate-check(1), linerate-serve(1)";

/// The command line without hidden commands.
fn visible() -> clap::Command {
    let all = Cli::whole();
    let shown = all.get_subcommands().filter(|of| !of.is_hide_set());
    clap::Command::new("linerate")
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .subcommands(shown.cloned())
        .subcommand_value_name("COMMAND")
        .disable_help_subcommand(true)
}
