//! `qos`: policies of this host's interfaces.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use linerate_engine::qos::{self, QosError, QosOptions, SystemNames};
use linerate_qos::document::{FileReport, QosDocument, QosState};
use linerate_qos::explain::{Packet, explain};
use linerate_qos::policy::{Adapter, PolicyFile};
use linerate_report::text::Style;
use linerate_report::{Document, json, text};

use crate::args::{
    QosApplyArgs, QosCheckArgs, QosCommand, QosExplainArgs, QosImport, QosInterfaceArgs,
    QosStatsArgs, QosStatusArgs,
};
use crate::failure::Failure;
use crate::files::{self, MAX_POLICY};
use crate::{output, run};

/// Does what the command line says.
///
/// # Errors
/// With the kind that decides the exit status.
pub(crate) fn execute(command: QosCommand) -> Result<(), Failure> {
    qos::tell_when_waiting(|| output::note("another `linerate qos` is running: waiting for it"));
    match command {
        QosCommand::Check(args) => check(&args),
        QosCommand::Apply(args) => apply(args),
        QosCommand::Watch => qos::watch(output::note).map_err(Failure::from),
        QosCommand::Status(args) => status(&args),
        QosCommand::Stats(args) => stats(&args),
        QosCommand::Enable(args) => change(&args, qos::enable),
        QosCommand::Disable(args) => change(&args, qos::disable),
        QosCommand::Passthrough(args) => change(&args, qos::passthrough),
        QosCommand::Remove(args) => show(&qos::remove(args.interface.as_deref())?, args.json),
        QosCommand::Explain(args) => explain_packet(&args),
    }
}

fn check(args: &QosCheckArgs) -> Result<(), Failure> {
    let place = || args.file.display().to_string();
    let names = &mut SystemNames::default();
    let file = match args.import {
        Some(QosImport::Hpux) => {
            files::parse("", &args.file, MAX_POLICY, |text| PolicyFile::from_hpux(text, names))
        }
        None => files::policy("", &args.file),
    }?;
    if args.import.is_some() {
        for policy in file.policies.iter().filter(|policy| policy.drop) {
            output::note(&format!(
                "{}: line {}: policy `{}` becomes `drop = true`: IPQoS dropped packets of a policy \
                 that reserves nothing, limits nothing and marks nothing",
                place(),
                policy.place.line,
                policy.name
            ));
        }
        return output::print(&file.to_toml());
    }
    let speeds = if args.file_only { BTreeMap::new() } else { qos::speeds(&file) };
    let mut report = FileReport::new(&file, &speeds).with_context(place).map_err(Failure::usage)?;
    if !args.file_only {
        let here = qos::here(&file, args.adapter.as_deref());
        report.warnings.extend(here?);
        report.warnings.sort_by_key(|warning| warning.line);
    }
    let is_refused = report.warnings.iter().any(|warning| warning.refused);
    report.name = Some(place());
    show(&QosDocument::from(report), args.json)?;
    if is_refused { Err(Failure::of_status(2)) } else { Ok(()) }
}

fn apply(args: QosApplyArgs) -> Result<(), Failure> {
    let text = files::read_text("", &args.file, MAX_POLICY).map_err(Failure::usage)?;
    let options = QosOptions {
        adapter: args.adapter,
        force: args.force,
        ingress: args.ingress,
        file: args.file.display().to_string(),
    };
    if args.persist {
        qos::check_persist()?;
    }
    let mut applied = qos::apply(&text, &options).map_err(|error| match error {
        error @ (QosError::Policy(_) | QosError::Classes(_) | QosError::Rules(_)) => {
            let error = anyhow!(error).context(args.file.display().to_string());
            Failure::usage(error)
        }
        error => error.into(),
    })?;
    if args.persist {
        let notes = qos::persist(&applied)?;
        applied.notes.extend(notes);
    }
    tell(&applied, None, args.json)
}

fn status(args: &QosStatusArgs) -> Result<(), Failure> {
    let interface = args.which.interface.as_deref();
    let document = qos::status(interface)?;
    if args.details {
        note(&document, interface);
        output::print(&document.text(Style { details: true, ..output::style() }))?;
    } else {
        tell(&document, interface, args.which.json)?;
    }
    let states = document.adapters.iter().map(|adapter| adapter.state);
    // What is wrong goes first, then what filters.
    match states.max_by_key(|state| importance(*state)) {
        Some(QosState::Failed) => Err(Failure::of_status(1)),
        Some(QosState::Filtering) => Ok(()),
        Some(QosState::PassingThrough) => Err(Failure::of_status(11)),
        Some(QosState::Disabled) | None => Err(Failure::of_status(10)),
    }
}

fn importance(state: QosState) -> u8 {
    match state {
        QosState::Failed => 3,
        QosState::Filtering => 2,
        QosState::PassingThrough => 1,
        QosState::Disabled => 0,
    }
}

fn stats(args: &QosStatsArgs) -> Result<(), Failure> {
    let (interface, json) = (args.which.interface.as_deref(), args.which.json);
    if args.reset {
        return show_stats(&qos::reset(interface)?, interface, json);
    }
    let first = qos::status(interface)?;
    if args.watch { watch(interface, first, json) } else { show_stats(&first, interface, json) }
}

/// Rates since the last second, until somebody stops it.
fn watch(interface: Option<&str>, first: QosDocument, as_json: bool) -> Result<(), Failure> {
    let stop = run::signals()?;
    if !as_json {
        note_none(&first, interface);
    }
    let (mut before, mut since) = (first, Instant::now());
    while !stop.is_requested() {
        thread::sleep(SECOND.saturating_sub(since.elapsed()));
        let now = qos::status(interface)?;
        if !as_json && !before.adapters.is_empty() {
            note_none(&now, interface);
        }
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        let printed = if as_json {
            output::print(&json::line(&now))
        } else {
            output::print(&text::qos_rates(&before, &now, seconds, output::style()))
        };
        match printed {
            Err(failure) if failure.is_reader_gone() => return Ok(()),
            other => other?,
        }
        before = now;
    }
    Ok(())
}

fn explain_packet(args: &QosExplainArgs) -> Result<(), Failure> {
    let place = || args.file.display().to_string();
    let file = files::policy("", &args.file)?;
    let packet: Packet =
        args.packet.parse().map_err(|why: String| Failure::usage(anyhow!("PACKET: {why}")))?;
    let adapter =
        adapter(&file, args.adapter.as_deref()).with_context(place).map_err(Failure::usage)?;
    let report = explain(&file, &adapter, &packet).with_context(place).map_err(Failure::usage)?;
    show(&QosDocument::from(report), args.json)
}

/// The adapter that is meant: the one of that name, or `*` under that name; or the only one.
fn adapter(file: &PolicyFile, name: Option<&str>) -> anyhow::Result<Adapter> {
    let named = |name: &str| file.adapters.iter().find(|adapter| adapter.name == name);
    match (name, &file.adapters[..]) {
        (Some(name), _) => {
            let adapter = named(name)
                .or_else(|| named("*"))
                .ok_or_else(|| anyhow!("there is no adapter `{name}` in it"))?;
            Ok(Adapter { name: name.to_owned(), ..adapter.clone() })
        }
        (None, [only]) => Ok(only.clone()),
        (None, all) => {
            let names: Vec<_> = all.iter().map(|adapter| adapter.name.as_str()).collect();
            Err(anyhow!("which adapter? --adapter is one of {}", names.join(", ")))
        }
    }
}

/// Changes what is in force, and prints it.
fn change(
    args: &QosInterfaceArgs,
    change: fn(Option<&str>) -> Result<QosDocument, QosError>,
) -> Result<(), Failure> {
    tell(&change(args.interface.as_deref())?, None, args.json)
}

fn tell(document: &QosDocument, interface: Option<&str>, as_json: bool) -> Result<(), Failure> {
    if !as_json {
        note(document, interface);
    }
    show(document, as_json)
}

fn show(document: &QosDocument, as_json: bool) -> Result<(), Failure> {
    output::print(&if as_json { output::json(document) } else { document.text(output::style()) })
}

fn show_stats(
    document: &QosDocument,
    interface: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    if as_json {
        return output::print(&output::json(document));
    }
    note(document, interface);
    output::print(&text::qos_stats(document, output::style()))
}

fn note(document: &QosDocument, interface: Option<&str>) {
    document.notes.iter().for_each(|note| output::note(note));
    note_none(document, interface);
}

/// Says that there is no policy, if there is none, and where it was looked for.
fn note_none(document: &QosDocument, interface: Option<&str>) {
    match interface {
        _ if !document.adapters.is_empty() => {}
        Some(interface) => output::note(&format!("no policy is in force on {interface}")),
        None => output::note("no policy is in force"),
    }
}

const SECOND: Duration = Duration::from_secs(1);
