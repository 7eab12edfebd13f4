//! `rerun`: what a stored document says was run, as the command line that runs it again.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use linerate_core::capacity::{CAPACITY_SCHEMA, CapacityDocument, CapacityTest, LoadPace};
use linerate_core::compare::{COMPARISON_SCHEMA, Comparison};
use linerate_core::plan::Test;
use linerate_core::record::{
    CHECK_SCHEMA, CaveatKind, Check, Environment, RECORD_SCHEMA, Record, SWEEP_SCHEMA, Sweep,
};
use linerate_core::remedy::shell_word;
use linerate_core::trace::{ProbeKind, TRACE_SCHEMA, TraceDocument};
use linerate_core::units::{DEFAULT_PORT, Family, Span};
use serde::de::DeserializeOwned;

use crate::args::RerunArgs;
use crate::failure::Failure;
use crate::target::flag;
use crate::{commands, files, output, usage};

/// Runs the document's plan again, or prints the command line that does.
///
/// # Errors
/// The file is no such document, its plan cannot be run again, or the run failed.
pub(crate) fn execute(args: &RerunArgs) -> Result<(), Failure> {
    let place = || args.file.display().to_string();
    let bytes = files::read_at_most(&args.file, commands::MAX_DOCUMENT).map_err(Failure::usage)?;
    let again = again(&bytes).with_context(place).map_err(Failure::usage)?;
    let words = again
        .words(args)
        .with_context(place)
        .map_err(Failure::usage)?;
    let line: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let line = line.join(" ");
    if args.list {
        return output::print(&format!("{line}\n"));
    }
    if !args.document.quiet {
        again.notes.iter().for_each(|note| output::note(note));
        output::note(&line);
    }
    let command = usage::parse(words.into_iter().map(Into::into))?.command;
    commands::execute(command)
}

/// What is to be done again.
#[derive(Debug, Default)]
struct Again {
    /// The command.
    verb: &'static str,
    /// Where to.
    place: Place,
    /// What else is typed.
    options: Vec<String>,
    seed: u64,
    /// What is not as it was.
    notes: Vec<String>,
}

/// Where to.
#[derive(Debug, Default)]
enum Place {
    /// The demonstration path, which the seed draws.
    #[default]
    Demonstration,
    Lab {
        spec: String,
        family: Option<Family>,
    },
    Host {
        name: String,
        port: Option<u16>,
        family: Option<Family>,
    },
}

impl Again {
    fn words(&self, args: &RerunArgs) -> anyhow::Result<Vec<String>> {
        let mut words = vec!["linerate".to_owned(), self.verb.to_owned()];
        let is_trace = self.verb == "trace";
        match (&self.place, &args.host) {
            (_, Some(host)) => words.push(host.clone()),
            (Place::Demonstration, None) => {}
            (Place::Lab { spec, family }, None) => {
                words.extend(["--lab".to_owned(), spec.clone()]);
                words.extend(family.map(|family| flag(family).to_owned()));
            }
            (Place::Host { name, port, family }, None) => {
                words.push(name.clone());
                words.extend(
                    port.iter()
                        .flat_map(|port| ["-p".to_owned(), port.to_string()]),
                );
                words.extend(family.map(|family| flag(family).to_owned()));
            }
        }
        words.extend(self.options.iter().cloned());
        let seed = args.seed.unwrap_or(self.seed);
        words.extend(["--seed".to_owned(), seed.to_string()]);
        let path = |path: &Path| path.display().to_string();
        if let Some(key) = &args.key_file {
            ensure!(!is_trace, "--key-file: this trace asked no endpoint");
            words.extend(["--key-file".to_owned(), path(key)]);
        }
        if let Some(baseline) = &args.beside.baseline {
            ensure!(
                ["stream", "rr", "crr", "check"].contains(&self.verb),
                "--baseline is of stream, rr, crr and check: {} has no figure to set beside",
                self.verb
            );
            words.extend(["--baseline".to_owned(), path(baseline)]);
        }
        if let Some(percent) = &args.beside.fail_on_worse {
            words.extend(["--fail-on-worse".to_owned(), format!("{}%", percent.0)]);
        }
        let output = args.document.output.iter();
        words.extend(output.flat_map(|file| ["--output".to_owned(), path(file)]));
        let flags = [
            ("--details", args.document.details),
            ("--json", args.document.json),
            ("--quiet", args.document.quiet),
        ];
        let given = flags.into_iter().filter(|(_, is_given)| *is_given);
        words.extend(given.map(|(flag, _)| flag.to_owned()));
        Ok(words)
    }
}

/// What a document says was run.
fn again(bytes: &[u8]) -> anyhow::Result<Again> {
    // The words for what is no document of this version are those of `explain`.
    linerate_report::document::read(bytes)?;
    match linerate_report::document::schema(bytes)? {
        RECORD_SCHEMA => of_runs(&[read(bytes)?]),
        SWEEP_SCHEMA => of_runs(&read::<Sweep>(bytes)?.rows),
        CHECK_SCHEMA => of_check(&read(bytes)?),
        COMPARISON_SCHEMA => of_comparison(&read(bytes)?),
        CAPACITY_SCHEMA => of_capacity(&read(bytes)?),
        TRACE_SCHEMA => of_trace(&read(bytes)?),
        other => bail!(
            "a {other} is not run again; a record, sweep, check, comparison, capacity or trace is"
        ),
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> anyhow::Result<T> {
    Ok(serde_json::from_slice(bytes)?)
}

/// The path of a lab where there was one, else the endpoint.
fn place(environment: &Environment, host: &str, peer: &str, family: Option<Family>) -> Place {
    if let Some(lab) = &environment.lab {
        let spec = lab.spec.clone();
        return Place::Lab { spec, family };
    }
    let port = peer
        .parse::<std::net::SocketAddr>()
        .ok()
        .map(|peer| peer.port());
    let is_named = host
        .parse::<linerate_core::units::EndpointName>()
        .is_ok_and(|it| it.port.is_some());
    Place::Host {
        name: host.to_owned(),
        port: port.filter(|port| *port != DEFAULT_PORT && !is_named),
        family,
    }
}

/// The options of a test, but those of these keys.
fn given(test: &Test, without: &[&str]) -> Vec<String> {
    let given = test.given().into_iter();
    let given = given.filter(|(option, _)| !without.contains(&option.key));
    let typed = given.map(|(option, value)| option.words(&value));
    typed.flat_map(|words| split(&words)).collect()
}

/// An option and its value.
fn split(words: &str) -> Vec<String> {
    words.splitn(2, ' ').map(str::to_owned).collect()
}

fn of_runs(rows: &[Record]) -> anyhow::Result<Again> {
    let first = rows.first().context("it has no runs")?;
    ensure!(
        !first.served,
        "an endpoint made it, of another tool's client: run that client again"
    );
    let key = match first.workload {
        linerate_core::plan::Workload::Stream => "size",
        _ => "request",
    };
    let plain = |row: &Record| (row.workload, given(&row.plan, &[key]));
    ensure!(
        rows.iter().all(|row| plain(row) == plain(first)),
        "its runs are of different tests"
    );
    let mut sizes: Vec<u64> = Vec::new();
    for row in rows {
        if !sizes.contains(&row.plan.traffic.message_bytes()) {
            sizes.push(row.plan.traffic.message_bytes());
        }
    }
    let without = [key];
    let swept = if sizes.len() > 1 { &without[..] } else { &[] };
    let mut options = given(&first.plan, swept);
    if sizes.len() > 1 {
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        options.extend([format!("--{key}"), sizes.join(",")]);
    }
    let repeats = rows.len().div_ceil(sizes.len());
    if repeats > 1 {
        options.extend(["--repeat".to_owned(), repeats.to_string()]);
    }
    if let Some(tool) = first.via {
        options.extend(["--via".to_owned(), tool.name().to_owned()]);
    }
    Ok(Again {
        verb: first.workload.word(),
        place: place(
            &first.environment,
            &first.host,
            &first.peer,
            Some(first.family),
        ),
        options,
        seed: first.seed,
        notes: Vec::new(),
    })
}

fn of_check(check: &Check) -> anyhow::Result<Again> {
    let is_local = check
        .caveats
        .iter()
        .any(|caveat| caveat.kind == CaveatKind::LocalPath);
    ensure!(
        !is_local,
        "it was of this host's loopback, in place of a demonstration path: linerate check"
    );
    let run = check.up.as_ref().or(check.down.as_ref());
    let run = run.context("it has no run: no endpoint answered")?;
    let mut options = Vec::new();
    if check
        .caveats
        .iter()
        .any(|caveat| caveat.kind == CaveatKind::FewRuns)
    {
        options.push("--quick".to_owned());
    }
    if let Some(tool) = run.via {
        options.extend(["--via".to_owned(), tool.name().to_owned()]);
    }
    Ok(Again {
        verb: "check",
        place: match check.hidden_fault {
            Some(_) => Place::Demonstration,
            None => place(&check.environment, &check.host, &run.peer, Some(run.family)),
        },
        options,
        seed: run.seed,
        notes: Vec::new(),
    })
}

fn of_comparison(comparison: &Comparison) -> anyhow::Result<Again> {
    let mut options = Vec::new();
    let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
    add("--workload", comparison.plan.workload().word().to_owned());
    add("--a", comparison.a.to_string());
    add("--b", comparison.b.to_string());
    let metrics = comparison.metrics.iter().map(|it| it.metric.to_string());
    let metrics: Vec<String> = metrics.collect();
    if !metrics.is_empty() {
        add("--metric", metrics.join(","));
    }
    if let Some(margin) = comparison.margin_percent {
        add("--margin", format!("{margin}%"));
    }
    add("--pairs", comparison.max_pairs.to_string());
    if !comparison.forbidden.is_empty() {
        let names: Vec<&str> = comparison
            .forbidden
            .iter()
            .map(|fault| fault.name())
            .collect();
        add("--forbid", names.join(","));
    }
    if let Some(with) = &comparison.with {
        // It lasts as long as the runs.
        let words = given(with, &["time"]).join(" ");
        add(
            "--with",
            format!("{} {words}", with.workload().word())
                .trim_end()
                .to_owned(),
        );
    }
    options.extend(given(&comparison.plan, &["interval"]));
    let treatments = comparison.a.iter().chain(comparison.b.iter());
    let has_policy = treatments.into_iter().any(|it| it.entry().name == "qos");
    let peer = comparison.peer.parse::<std::net::SocketAddr>().ok();
    let notes = has_policy.then(|| "the policy is what its file says now".to_owned());
    Ok(Again {
        verb: "compare",
        place: place(
            &comparison.environment,
            &comparison.host,
            &comparison.peer,
            peer.map(|peer| peer.ip().into()),
        ),
        options,
        seed: comparison.seed,
        notes: notes.into_iter().collect(),
    })
}

fn of_capacity(document: &CapacityDocument) -> anyhow::Result<Again> {
    Ok(Again {
        verb: "capacity",
        place: place(
            &document.environment,
            &document.host,
            &document.peer,
            Some(document.family),
        ),
        options: of_capacity_test(&document.test),
        seed: document.seed,
        notes: Vec::new(),
    })
}

fn of_capacity_test(test: &CapacityTest) -> Vec<String> {
    let time = |span: Span| format!("{}us", span.0.as_micros());
    let mut options = Vec::new();
    let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
    if test.connections > 0 || test.udp_sockets > 0 {
        add("--connections", test.connections.to_string());
    }
    if test.udp_sockets > 0 {
        add("--udp-sockets", test.udp_sockets.to_string());
    }
    if let Some(rate) = test.rate_per_s {
        add("--rate", rate.to_string());
    }
    add("--hold", time(test.hold));
    add("--heartbeat", time(test.heartbeat));
    if test.churn_per_s > 0 {
        add("--churn", test.churn_per_s.to_string());
    }
    if !test.sources.is_empty() {
        let sources: Vec<String> = test.sources.iter().map(ToString::to_string).collect();
        add("--sources", sources.join(","));
    }
    match &test.load {
        Some(load) => {
            add("--load", time(load.time));
            add("--active", load.connections.to_string());
            if let LoadPace::PerSecond(rate) = load.pace {
                add("--requests", rate.to_string());
            }
            add("--request", load.request_bytes.0.to_string());
            add("--response", load.response_bytes.0.to_string());
        }
        None if !test.find_limit => add("--load", "0".to_owned()),
        None => {}
    }
    if test.find_limit {
        options.push("--find-limit".to_owned());
    }
    options
}

fn of_trace(trace: &TraceDocument) -> anyhow::Result<Again> {
    let mut options = Vec::new();
    let mut add = |option: &str, value: String| options.extend([option.to_owned(), value]);
    add("--protocol", trace.kind.word().to_owned());
    add("-q", trace.probes_per_hop.to_string());
    add("-m", trace.last_ttl.to_string());
    add("-f", trace.first_ttl.to_string());
    if let Some(port) = trace.port {
        add("--port", port.to_string());
    }
    if trace.kind != ProbeKind::Tcp {
        add("--size", trace.size_bytes.to_string());
    }
    add("--dscp", trace.dscp.to_string());
    if let Some(watch) = &trace.watch {
        add("--count", watch.rounds.to_string());
    }
    for (option, is_given) in [
        ("--paths", trace.paths.is_some()),
        ("--mtu", trace.mtu.is_some()),
        ("--bandwidth", !trace.link_rates.is_empty()),
        ("--reverse", trace.reverse.is_some()),
    ] {
        if is_given {
            options.push(option.to_owned());
        }
    }
    let name = &trace.host;
    ensure!(
        name != LAB_TARGET,
        "it was of an emulated path, which a trace does not name: linerate trace --lab SPEC"
    );
    Ok(Again {
        verb: "trace",
        place: Place::Host {
            name: name.clone(),
            port: None,
            family: Some(trace.target.into()),
        },
        options,
        seed: trace.seed,
        notes: Vec::new(),
    })
}

/// What the far end of `--lab` is called.
const LAB_TARGET: &str = "server";

#[cfg(test)]
mod tests {
    use clap::Parser;
    use linerate_core::plan::Workload;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::plan;

    /// The record of a command line that was not run.
    fn record(line: &str) -> Vec<Record> {
        let words = ["linerate"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).unwrap();
        let plan = match cli.command {
            Command::Stream(it) => plan::plan(Workload::Stream, &it.test, &it.run.repeats, 7),
            Command::Rr(it) => plan::plan(Workload::Rr, &it.test, &it.run.repeats, 7),
            Command::Crr(it) => plan::plan(Workload::Crr, &it.test, &it.run.repeats, 7),
            other => panic!("{other:?}"),
        };
        let rows = plan.unwrap().tests.into_iter().map(|test| Record {
            host: "pit".to_owned(),
            peer: "192.0.2.1:5202".to_owned(),
            ..Record::new(test)
        });
        rows.collect()
    }

    fn line(rows: &[Record]) -> String {
        let again = of_runs(rows).unwrap();
        let args = Cli::try_parse_from(["linerate", "rerun", "x.json"]).unwrap();
        let Command::Rerun(args) = args.command else {
            panic!("rerun was asked for");
        };
        again.words(&args).unwrap().join(" ")
    }

    #[test]
    fn a_record_is_run_again_as_it_was() {
        for options in [
            "stream pit",
            "stream pit -R -P 4 -t 2500ms --mss 536 -C reno --dscp EF",
            "stream pit -u --rate 10mbit --size 1000 --count 50",
            "stream pit --size 64,128,1448 --warm-up 0",
            "rr pit --depth 4 --request 64 --response 1000",
            "rr pit --rate 2.5k -u",
            "crr pit --close client --reset",
        ] {
            let rows = record(options);
            let again = line(&rows);
            assert!(again.contains("pit -p 5202 -4"), "{again}");
            assert!(again.ends_with("--seed 7"), "{again}");
            let made: Vec<Test> = {
                let words = again.trim_start_matches("linerate ").to_owned();
                record(&words).into_iter().map(|row| row.plan).collect()
            };
            let were: Vec<Test> = rows.into_iter().map(|row| row.plan).collect();
            assert_eq!(made, were, "{again}");
        }
    }

    #[test]
    fn runs_of_one_test_are_repeated_and_those_of_several_are_refused() {
        let row = record("stream pit").remove(0);
        assert!(line(&vec![row.clone(); 3]).contains("--repeat 3"));
        let other = record("stream pit -P 2").remove(0);
        let error = of_runs(&[row.clone(), other]).unwrap_err().to_string();
        assert_eq!(error, "its runs are of different tests");
        assert_eq!(of_runs(&[]).unwrap_err().to_string(), "it has no runs");
        let served = Record {
            served: true,
            ..row
        };
        assert!(of_runs(&[served]).is_err());
    }

    #[test]
    fn every_option_of_capacity_comes_back() {
        for options in [
            "",
            "-c 500 -u 20 --churn 5 --load 0",
            "--find-limit -c 5000",
            "-c 9 --requests 100 --hold 1s",
        ] {
            let test = |line: &str| {
                let words = format!("linerate capacity pit --seed 3 {line}");
                let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
                let Command::Capacity(args) = cli.command else {
                    panic!("capacity was asked for");
                };
                crate::capacity::test::test(&args, 3).unwrap()
            };
            let asked = test(options);
            assert_eq!(
                test(&of_capacity_test(&asked).join(" ")),
                asked,
                "{options}"
            );
        }
    }
}
