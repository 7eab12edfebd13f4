//! From a command to the module that executes it. `check`, `stream`, `rr` and `crr` are here, and
//! what packages need: shell completions and manual pages.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use linerate_core::plan::{Direction, Extent, Plan, Test, Workload};
use linerate_core::proof::ProofBudget;
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::units::{BitRate, Family};
use linerate_engine::{BulkOptions, CheckOptions, Target, knows_congestion};
use linerate_report::Document;
use serde_json::json;

use crate::args::{CheckArgs, Choice, Cli, Command, RunOptions, SCHEME, TestOptions};
use crate::failure::Failure;
use crate::history::{self, Against};
use crate::output::{self, Output, conclude};
use crate::progress::Progress;
use crate::site::{Site, place};
use crate::target::{Remote, check_congestion, check_pace, check_sizes};
use crate::{
    analyze, baseline, capacity, compare, config, connections, experiment, explain, gate, host,
    iperf3, lab, load, mesh, monitor, plan, profile, qos, report, rerun, run, serve, site,
    throughput, trace, typed, web,
};

/// Does what the command line says.
///
/// # Errors
/// With the kind that decides the exit status.
pub(crate) fn execute(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check(args),
        Command::Serve(args) => serve::execute(args),
        Command::Stream(args) => {
            measure(Workload::Stream, &args.test, args.run, args.fail_below, args.prove)
        }
        Command::Rr(args) => measure(Workload::Rr, &args.test, args.run, None, false),
        Command::Crr(args) => measure(Workload::Crr, &args.test, args.run, None, false),
        Command::Load(args) => load::execute(args),
        Command::Throughput(args) => throughput::execute(args),
        Command::Capacity(args) => capacity::execute(args),
        Command::Compare(args) => compare::execute(*args),
        Command::Run(args) => experiment::execute(&args),
        Command::Profile(args) => profile::execute(args),
        Command::Trace(args) => trace::execute(&args),
        Command::Connections(args) => connections::execute(&args),
        Command::Explain(args) => explain::execute(&args),
        Command::Report(args) => report::execute(&args),
        Command::History(args) => history::execute(&args),
        Command::Monitor(args) => monitor::execute(&args),
        Command::Mesh(command) => mesh::execute(command),
        Command::Web(args) => web::execute(&args),
        Command::Probe(args) => monitor::probe(&args),
        Command::Rerun(args) => rerun::command(&args)?.map_or(Ok(()), execute),
        Command::Analyze(args) => analyze::execute(&args),
        Command::Lab(command) => lab::execute(command),
        Command::Qos(command) => qos::execute(command),
        Command::Host(command) => host::execute(command),
        Command::Iperf3 { words } => match iperf3::execute(&words) {
            0 => Ok(()),
            status => Err(Failure::of_status(status)),
        },
        Command::Config => output::print(&config::text()?),
        Command::Completions { shell } => completions(shell),
        Command::Man { directory } => pages(&directory),
        Command::CapacityWorker => capacity::work(),
        Command::WatchTreatments(args) => {
            site::watch(&args);
            Ok(())
        }
    }
}

fn measure<C: Choice>(
    workload: Workload,
    test: &TestOptions<C>,
    options: RunOptions,
    floor: Option<BitRate>,
    prove: bool,
) -> Result<(), Failure> {
    let plan = plan::plan(workload, test, &options.repeats);
    let plan = &plan.map_err(Failure::usage)?;
    if prove {
        check_provable(plan, test.is_endless()).map_err(Failure::usage)?;
    }
    for test in &plan.tests {
        let option = |name: &str| format!("{} {name}", typed::option("congestion"));
        check_congestion(test, option)?;
    }
    let against = Against {
        detail: plan.tests.first().map(detail),
        ..Against::new(
            &options.document.keep,
            options.host.as_ref(),
            &options.path,
            workload.word(),
        )
    };
    let baseline = baseline::of_runs(&options.beside, plan, against)?;
    let table = &options.table;
    let format = output::format(options.document.json, &table.csv, table.json_stream);
    let output = Output::open(&options.document, format)?.titled(&options.title);
    let mut progress = Progress::new(format, options.document.quiet);
    let seed = plan.tests.first().map_or(0, |test| test.seed);
    let (site, target) = place(options.host, &options.path, seed, &mut progress)?;
    check_sizes(&target, plan)?;
    check_pace(&target, plan, test.has("rate"))?;
    progress.lasts(plan.tests.first().and_then(|it| match it.extent {
        Extent::Time(time) if !test.is_endless() => Some(time.as_secs_f64()),
        Extent::Time(_) | Extent::Bytes(_) | Extent::Count(_) => None,
    }));
    let kept = output.is_kept();
    let (mut measured, error) = match plan.tests.first().filter(|_| prove) {
        Some(test) => {
            run::prove(&target, options.via, test, ProofBudget::default(), progress, kept)?
        }
        None if test.is_endless() => {
            run::until_stopped(&target, options.via, plan, progress, kept)?
        }
        None => run::plan(&target, options.via, plan, progress, kept)?,
    };
    let document = measured.document();
    site.iter().for_each(|site| site.describe(document));
    let now = measured.document().observed();
    let is_whole = error.is_none() && measured.document().why_partial().is_none();
    let held = baseline.map_or(Ok(()), |was| was.beside(&now, is_whole, measured.baseline()));
    conclude(measured.document(), error, output, floor)?;
    held
}

/// Refuses what has no single answer to prove.
fn check_provable(plan: &Plan, is_endless: bool) -> anyhow::Result<()> {
    let [test] = &plan.tests[..] else {
        bail!("--prove: it is of one test, not of several sizes");
    };
    ensure!(test.direction != Direction::Both, "--prove: it is of one direction: up or down");
    ensure!(
        matches!(test.extent, Extent::Time(_)) && !is_endless,
        "--prove: its runs have a time, not an amount and not 0: --time"
    );
    Ok(())
}

/// Protocol and direction, as the history keeps them: the same in the record of the test.
fn detail(test: &Test) -> String {
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let [protocol, direction] = [json!(test.protocol), json!(test.direction)].map(word);
    format!("{protocol} {direction}")
}

fn check(args: CheckArgs) -> Result<(), Failure> {
    if let Some(name) = &args.congestion {
        let option = typed::option("congestion");
        let known = knows_congestion(name).map_err(Failure::from);
        known.map_err(|failure| failure.at(format!("{option} {name}")))?;
    }
    let against = Against::new(&args.document.keep, args.host.as_ref(), &args.path, "check");
    let baseline = baseline::of_check(&args.beside, against)?;
    let by_ssh = args.host.as_ref().filter(|host| host.host.starts_with(SCHEME));
    if by_ssh.is_some() {
        check_ssh(&args).map_err(Failure::usage)?;
    }
    let format = output::json_or_text(args.document.json);
    let output = Output::open(&args.document, format)?.titled(&args.title);
    let mut progress = Progress::new(format, args.document.quiet);
    let remote =
        by_ssh.map(|host| Remote::start(&host.host, args.path.port.unwrap_or(0))).transpose()?;
    let (site, target, doubt) = match (&remote, &args.host, &args.path.lab) {
        (Some(remote), ..) => {
            let target = remote.target(&args.path, &mut progress)?;
            (None, Some(target), None)
        }
        (None, None, None) => demonstration(args.path.family(), args.random.seed, &mut progress),
        _ => {
            let (site, target) = place(args.host, &args.path, args.random.seed, &mut progress)?;
            (site, Some(target), None)
        }
    };
    let examination = CheckOptions {
        target,
        via: args.via,
        family: args.path.family(),
        quick: args.quick,
        prove: !args.no_prove,
        max_bytes: args.max_bytes,
        bulk: BulkOptions {
            time: args.time.map(|time| time.0),
            streams: args.streams,
            congestion: args.congestion,
            udp_rate: args.rate,
        },
        seed: args.random.seed,
    };
    let (mut check, error) = run::check(&examination, progress)?;
    if let Some(site) = &site {
        site.describe(&mut check);
        site.reveal(&mut check);
    }
    check.caveats.extend(doubt);
    let now = check.observed();
    let is_whole = error.is_none() && check.why_partial().is_none();
    let held = baseline.map_or(Ok(()), |was| was.beside(&now, is_whole, &mut check.baseline));
    if let Some(floor) = args.fail_below_rpm.filter(|_| !is_whole) {
        gate::no_result(&format!("--fail-below-rpm {floor}"));
    }
    conclude(&check, error, output, args.fail_below)?;
    if let Some(floor) = args.fail_below_rpm {
        gate::hold_rpm(&check, floor).map_err(Failure::failed)?;
    }
    held
}

/// Refuses options that an endpoint which ssh starts cannot have.
fn check_ssh(args: &CheckArgs) -> anyhow::Result<()> {
    let why = "cannot be used with ssh://: ssh starts linerate's own endpoint there";
    ensure!(args.via.is_none(), "--via {why}");
    ensure!(args.path.key_file.is_none(), "--key-file {why}, with a key of its own");
    Ok(())
}

/// The emulated path of the demonstration. On a host that cannot emulate one, the check runs over
/// loopback, with a caveat that says why.
fn demonstration(
    family: Option<Family>,
    seed: u64,
    progress: &mut Progress,
) -> (Option<Site>, Option<Target>, Option<Caveat>) {
    match Site::demo(family, seed) {
        Ok(site) => {
            progress.line("no HOST: a demonstration, on an emulated path with a hidden fault");
            let target = site.target();
            (Some(site), Some(target), None)
        }
        Err(failure) => {
            let message = format!("no demonstration path, loopback instead: {}", failure.chain());
            progress.warn(&message);
            let doubt = Caveat::new(CaveatKind::LocalPath, message, "");
            (None, None, Some(doubt))
        }
    }
}

// Shell completions and manual pages, both made from clap's description of the command line.

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
