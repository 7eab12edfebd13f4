//! `rerun`: runs the test of a stored document again, by the command line that the document
//! implies.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use linerate_core::capacity::{CAPACITY_SCHEMA, CapacityDocument, CapacityTest, LoadPace};
use linerate_core::compare::{COMPARISON_SCHEMA, Comparison};
use linerate_core::foreign::Tool;
use linerate_core::load::{LOAD_SCHEMA, LoadDocument};
use linerate_core::plan::{Protocol, Test, Workload};
use linerate_core::record::{
    CHECK_SCHEMA, CaveatKind, Check, Environment, RECORD_SCHEMA, Record, SWEEP_SCHEMA, Sweep,
    message_sizes,
};
use linerate_core::remedy::shell_word;
use linerate_core::trace::{ProbeKind, TRACE_SCHEMA, TraceDocument};
use linerate_core::units::{DEFAULT_PORT, EndpointName, Family, Span, listed};
use linerate_report::document::{ReadError, schema};
use serde::de::DeserializeOwned;

use crate::args::{Command, RerunArgs};
use crate::failure::Failure;
use crate::files::MAX_DOCUMENT;
use crate::target::flag;
use crate::{files, output, usage};

/// The command that runs the document's test again. With `--list` its line is printed here, and
/// there is none.
///
/// # Errors
/// The file is no such document, or its plan cannot be run again.
pub(crate) fn command(args: &RerunArgs) -> Result<Option<Command>, Failure> {
    let place = || args.file.display().to_string();
    let bytes = files::read_bytes("", &args.file, MAX_DOCUMENT).map_err(Failure::usage)?;
    let again = again(&bytes, &args.file).with_context(place).map_err(Failure::usage)?;
    let words = again.typed(args).with_context(place).map_err(Failure::usage)?;
    let line: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    let line = line.join(" ");
    if args.list {
        return output::print(&format!("{line}\n")).map(|()| None);
    }
    if !args.document.quiet {
        again.note.iter().for_each(|note| output::note(note));
        output::note(&line);
    }
    // The line is shown without the password of a PostgreSQL server; the test needs it.
    let db = args.document.keep.db.as_ref();
    let words = words.into_iter().map(|word| match db {
        Some(place @ linerate_history::Place::Server(url)) if word == place.to_string() => {
            url.into()
        }
        _ => word.into(),
    });
    let cli = usage::parse(words)?;
    Ok(Some(cli.command))
}

/// The words of a command line.
#[derive(Debug, Default)]
struct CommandWords(Vec<String>);

impl CommandWords {
    fn flag(&mut self, option: &str, is_given: bool) {
        self.0.extend(is_given.then(|| option.to_owned()));
    }

    fn value(&mut self, option: &str, value: impl ToString) {
        self.0.extend([option.to_owned(), value.to_string()]);
    }

    fn maybe(&mut self, option: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.value(option, value);
        }
    }

    /// The values joined by commas, if there are any.
    fn list<T: ToString>(&mut self, option: &str, values: impl IntoIterator<Item = T>) {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        self.maybe(option, (!values.is_empty()).then(|| values.join(",")));
    }

    /// The options of a test, except those with these keys.
    fn test(&mut self, test: &Test, without: &[&str]) {
        for words in test.typed(without) {
            self.0.extend(words.splitn(2, ' ').map(str::to_owned));
        }
    }
}

/// The parts of the command line.
#[derive(Debug, Default)]
struct Rerun {
    command: &'static str,
    place: MeasuredPath,
    options: CommandWords,
    seed: u64,
    /// What may differ from the first run.
    note: Option<&'static str>,
}

/// The path that was measured.
#[derive(Debug, Default)]
enum MeasuredPath {
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

impl MeasuredPath {
    /// The emulated path if there was one, else the endpoint.
    fn new(environment: &Environment, host: &str, peer: &str, family: Option<Family>) -> Self {
        if let Some(lab) = &environment.lab {
            let spec = lab.spec.clone();
            return Self::Lab { spec, family };
        }
        let peer: Option<SocketAddr> = peer.parse().ok();
        let named: Result<EndpointName, _> = host.parse();
        let is_named = named.is_ok_and(|name| name.port.is_some());
        let port = peer.map(|peer| peer.port());
        Self::Host {
            name: host.to_owned(),
            port: port.filter(|port| *port != DEFAULT_PORT && !is_named),
            family,
        }
    }

    fn add_to(&self, words: &mut CommandWords) {
        let family = match self {
            Self::Demonstration => return,
            Self::Lab { spec, family } => {
                words.value("--lab", spec.as_str());
                family
            }
            Self::Host { name, port, family } => {
                words.0.push(name.clone());
                words.maybe("-p", *port);
                family
            }
        };
        words.0.extend(family.map(|family| flag(family).to_owned()));
    }
}

impl Rerun {
    /// The command line with the options of `rerun`.
    fn typed(&self, args: &RerunArgs) -> anyhow::Result<Vec<String>> {
        let mut words = CommandWords(vec!["linerate".to_owned(), self.command.to_owned()]);
        match &args.host {
            Some(host) => words.0.push(host.clone()),
            None => self.place.add_to(&mut words),
        }
        words.0.extend(self.options.0.iter().cloned());
        words.value("--seed", args.seed.unwrap_or(self.seed));
        ensure!(
            self.command != "trace" || args.key_file.is_none(),
            "--key-file: this trace asked no endpoint"
        );
        ensure!(
            (args.beside.baseline.is_none() && args.beside.against.is_none())
                || BESIDE.contains(&self.command),
            "--baseline and --against are of {}: {} has no figure to set beside",
            listed(&BESIDE, "and"),
            self.command
        );
        let file = |path: &Option<PathBuf>| Some(path.as_deref()?.display().to_string());
        words.maybe("--key-file", file(&args.key_file));
        words.maybe("--baseline", file(&args.beside.baseline));
        let worse = args.beside.fail_on_worse;
        words.maybe("--fail-on-worse", worse.map(|percent| format!("{}%", percent.0)));
        words.maybe("--against", args.beside.against.as_ref());
        words.maybe("--output", file(&args.document.output));
        let keep = &args.document.keep;
        words.flag("--save", keep.save);
        for (key, value) in &keep.label {
            words.value("--label", format!("{key}={value}"));
        }
        words.maybe("--db", keep.db.as_ref());
        words.flag("--details", args.document.details);
        words.flag("--json", args.document.json);
        words.flag("--quiet", args.document.quiet);
        Ok(words.0)
    }
}

/// Options of a check's transfers that no option of `check` sets.
const NOT_OF_CHECK: [&str; 7] =
    ["time", "warm-up", "interval", "direction", "streams", "size", "offload"];

/// Commands that take `--baseline` and `--against`.
const BESIDE: [&str; 5] = ["stream", "rr", "crr", "check", "compare"];

/// The command line of a document.
fn again(bytes: &[u8], file: &Path) -> anyhow::Result<Rerun> {
    match schema(bytes)? {
        it @ RECORD_SCHEMA => runs(&[read(bytes, it)?]),
        it @ SWEEP_SCHEMA => runs(&read::<Sweep>(bytes, it)?.rows),
        it @ CHECK_SCHEMA => check(&read(bytes, it)?),
        it @ COMPARISON_SCHEMA => Ok(comparison(&read(bytes, it)?)),
        it @ LOAD_SCHEMA => Ok(load(&read(bytes, it)?, file)),
        it @ CAPACITY_SCHEMA => Ok(capacity(&read(bytes, it)?)),
        it @ TRACE_SCHEMA => trace(&read(bytes, it)?),
        other => bail!(
            "a {other} is not run again; a record, sweep, check, comparison, load, capacity or \
             trace is"
        ),
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8], schema: &'static str) -> Result<T, ReadError> {
    serde_json::from_slice(bytes).map_err(|source| ReadError::NotWhole { schema, source })
}

fn runs(rows: &[Record]) -> anyhow::Result<Rerun> {
    let first = rows.first().context("it has no runs")?;
    ensure!(!first.served, "an endpoint made it, of another tool's client: run that client again");
    let key = match first.workload {
        Workload::Stream => "size",
        Workload::Rr | Workload::Crr => "request",
    };
    let plain = |row: &Record| (row.workload, row.plan.typed(&[key]));
    ensure!(rows.iter().all(|row| plain(row) == plain(first)), "its runs are of different tests");
    let sizes = message_sizes(rows);
    let repeats = rows.len().div_ceil(sizes.len());
    let mut options = CommandWords::default();
    if sizes.len() > 1 {
        options.test(&first.plan, &[key]);
        options.list(&format!("--{key}"), sizes);
    } else {
        options.test(&first.plan, &[]);
    }
    options.maybe("--repeat", (repeats > 1).then_some(repeats));
    options.maybe("--via", first.via.map(Tool::name));
    let family = Some(first.family);
    Ok(Rerun {
        command: first.workload.word(),
        place: MeasuredPath::new(&first.environment, &first.host, &first.peer, family),
        options,
        seed: first.seed,
        ..Rerun::default()
    })
}

fn check(check: &Check) -> anyhow::Result<Rerun> {
    let has = |kind| check.caveats.iter().any(|caveat| caveat.kind == kind);
    ensure!(
        !has(CaveatKind::LocalPath),
        "it was of this host's loopback, in place of a demonstration path: linerate check"
    );
    let run = check.up.as_ref().or(check.down.as_ref());
    let run = run.context("it has no run: no endpoint answered")?;
    let mut options = CommandWords::default();
    options.flag("--quick", has(CaveatKind::FewRuns));
    options.maybe("--streams", Some(run.plan.streams).filter(|n| *n > 1));
    options.maybe("--congestion", run.plan.options.congestion.as_ref());
    if run.protocol == Protocol::Udp {
        options.test(&run.plan, &NOT_OF_CHECK);
    }
    options.maybe("--via", run.via.map(Tool::name));
    let family = Some(run.family);
    Ok(Rerun {
        command: "check",
        place: match check.hidden_fault {
            Some(_) => MeasuredPath::Demonstration,
            None => MeasuredPath::new(&check.environment, &check.host, &run.peer, family),
        },
        options,
        seed: run.seed,
        ..Rerun::default()
    })
}

fn comparison(it: &Comparison) -> Rerun {
    let mut options = CommandWords::default();
    options.value("--workload", it.plan.workload().word());
    options.value("--a", it.a.to_string());
    options.value("--b", it.b.to_string());
    options.maybe("--lab-b", it.lab_b.clone());
    options.list("--metric", it.metrics.iter().map(|it| &it.metric));
    options.maybe("--margin", it.margin_percent.map(|margin| format!("{margin}%")));
    options.value("--pairs", it.max_pairs);
    options.list("--forbid", it.forbidden.iter().map(|fault| fault.name()));
    let with = it.with.as_ref().map(|with| {
        // The load lasts as long as the runs.
        let workload = [with.workload().word().to_owned()].into_iter();
        let words = workload.chain(with.typed(&["time"]));
        words.collect::<Vec<_>>().join(" ")
    });
    options.maybe("--with", with);
    options.test(&it.plan, &["interval"]);
    let mut treatments = it.a.iter().chain(it.b.iter());
    let has_policy = treatments.any(|treatment| treatment.entry().name == "qos");
    let peer: Option<SocketAddr> = it.peer.parse().ok();
    let family = peer.map(|peer| peer.ip().into());
    Rerun {
        command: "compare",
        place: MeasuredPath::new(&it.environment, &it.host, &it.peer, family),
        options,
        seed: it.seed,
        note: has_policy.then_some("the policy is what its file says now"),
    }
}

/// The mix is the document itself.
fn load(it: &LoadDocument, file: &Path) -> Rerun {
    let mut options = CommandWords::default();
    options.0.push(file.display().to_string());
    let first = it.members.first().map(|member| &member.record);
    let family = first.map(|first| first.family);
    let (host, peer) = first.map_or(("", ""), |first| (first.host.as_str(), first.peer.as_str()));
    let mut place = MeasuredPath::new(&it.environment, host, peer, family);
    if let MeasuredPath::Host { name, .. } = &mut place {
        // The load's host has the names of all its endpoints.
        name.clone_from(&it.host);
    }
    Rerun { command: "load", place, options, seed: it.seed, ..Rerun::default() }
}

fn capacity(it: &CapacityDocument) -> Rerun {
    Rerun {
        command: "capacity",
        place: MeasuredPath::new(&it.environment, &it.host, &it.peer, Some(it.family)),
        options: capacity_options(&it.test),
        seed: it.seed,
        ..Rerun::default()
    }
}

fn capacity_options(test: &CapacityTest) -> CommandWords {
    let time = |span: Span| format!("{}us", span.0.as_micros());
    let above_0 = |count: u64| (count > 0).then_some(count);
    let mut options = CommandWords::default();
    let connections = above_0(test.connections + test.udp_sockets).map(|_| test.connections);
    options.maybe("--connections", connections);
    options.maybe("--udp-sockets", above_0(test.udp_sockets));
    options.maybe("--rate", test.rate_per_s);
    options.value("--hold", time(test.hold));
    options.value("--heartbeat", time(test.heartbeat));
    options.maybe("--churn", above_0(test.churn_per_s));
    options.list("--sources", &test.sources);
    match &test.load {
        Some(load) => {
            options.value("--load", time(load.time));
            options.value("--active", load.connections);
            if let LoadPace::PerSecond(rate) = load.pace {
                options.value("--requests", rate);
            }
            options.value("--request", load.request_bytes.0);
            options.value("--response", load.response_bytes.0);
        }
        None if !test.find_limit => options.value("--load", 0),
        None => {}
    }
    options.flag("--find-limit", test.find_limit);
    options
}

fn trace(it: &TraceDocument) -> anyhow::Result<Rerun> {
    ensure!(
        it.host != LAB_TARGET,
        "it was of an emulated path, which a trace does not name: linerate trace --lab SPEC"
    );
    let mut options = CommandWords::default();
    options.value("--protocol", it.kind.word());
    options.value("-q", it.probes_per_hop);
    options.value("-m", it.last_ttl);
    options.value("-f", it.first_ttl);
    options.maybe("--port", it.port);
    options.maybe("--size", (it.kind != ProbeKind::Tcp).then_some(it.size_bytes));
    options.value("--dscp", it.dscp);
    options.maybe("--count", it.watch.as_ref().map(|watch| watch.rounds));
    options.flag("--paths", it.paths.is_some());
    options.flag("--mtu", it.mtu.is_some());
    options.flag("--bandwidth", !it.link_rates.is_empty());
    options.flag("--reverse", it.reverse.is_some());
    Ok(Rerun {
        command: "trace",
        place: MeasuredPath::Host {
            name: it.host.clone(),
            port: None,
            family: Some(it.target.into()),
        },
        options,
        seed: it.seed,
        ..Rerun::default()
    })
}

/// Name of the far end of `--lab`.
const LAB_TARGET: &str = "server";

#[cfg(test)]
mod tests {
    use linerate_core::load::{LoadMember, Mix, MixChoice};

    use super::*;
    use crate::args::{Command, command};
    use crate::plan::tests::planned;

    /// The records of a command line, which was not run.
    fn records(line: &str) -> Vec<Record> {
        let rows = planned(line).unwrap().tests.into_iter().map(|test| Record {
            host: "pit".to_owned(),
            peer: "192.0.2.1:5202".to_owned(),
            ..Record::new(test)
        });
        rows.collect()
    }

    /// The command line of `rerun` without options.
    fn typed(again: &Rerun) -> String {
        let Command::Rerun(args) = command("rerun x.json").unwrap() else {
            panic!("rerun was asked for");
        };
        again.typed(&args).unwrap().join(" ")
    }

    #[test]
    fn a_record_is_run_again_as_it_was() {
        for options in [
            "stream pit",
            "stream pit -R -P 4 -t 2500ms --mss 536 -C reno --dscp EF",
            "stream pit -u --rate 10mbit --size 1000 --count 50",
            "stream pit --size 64,128,1448 --warm-up 0",
            "stream pit --size 32 --batch 16",
            "rr pit --depth 4 --request 64 --response 1000",
            "rr pit --rate 2.5k -u",
            "rr pit -u --stamp --rate 10 --request 100",
            "rr pit --objects 40 --streams 6 --rate 0.5",
            "rr pit --video --request 400",
            "crr pit --close client --reset",
            "crr pit --fast-open",
        ] {
            let rows = records(options);
            let again = typed(&runs(&rows).unwrap());
            assert!(again.contains("pit -p 5202 -4"), "{again}");
            assert!(again.ends_with("--seed 7"), "{again}");
            let made = planned(again.trim_start_matches("linerate ")).unwrap().tests;
            let were: Vec<Test> = rows.into_iter().map(|row| row.plan).collect();
            assert_eq!(made, were, "{again}");
        }
    }

    #[test]
    fn runs_of_one_test_are_repeated_and_those_of_several_are_refused() {
        let row = records("stream pit").remove(0);
        let thrice = runs(&vec![row.clone(); 3]).unwrap();
        assert!(typed(&thrice).contains("--repeat 3"));
        let other = records("stream pit -P 2").remove(0);
        let error = runs(&[row.clone(), other]).unwrap_err().to_string();
        assert_eq!(error, "its runs are of different tests");
        assert_eq!(runs(&[]).unwrap_err().to_string(), "it has no runs");
        let served = Record { served: true, ..row };
        assert!(runs(&[served]).is_err());
    }

    #[test]
    fn a_load_is_run_again_from_its_document_with_all_of_its_endpoints() {
        for (hosts, place) in [
            ("pit", "pit -p 5202 -4"),
            ("pit,pat", "pit,pat -p 5202 -4"),
            ("pit:5202,pat:5203", "pit:5202,pat:5203 -4"),
        ] {
            let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
            let mix = Mix::named("incast", &MixChoice::default()).unwrap();
            let mix = mix.over(&hosts).unwrap();
            let ran = mix.members.iter().map(|member| {
                let record = Record {
                    host: hosts[member.endpoint].clone(),
                    peer: "192.0.2.1:5202".to_owned(),
                    ..Record::new(member.test.clone())
                };
                LoadMember::new(member, None, record)
            });
            let document = LoadDocument::new(&mix, 7, ran.collect());
            let line = typed(&load(&document, Path::new("monday.json")));
            assert_eq!(line, format!("linerate load {place} monday.json --seed 7"));
        }
    }

    #[test]
    fn every_option_of_capacity_comes_back() {
        for options in [
            "",
            "--connections 500 --udp-sockets 20 --churn 5 --load 0",
            "--find-limit --connections 5000",
            "--connections 9 --requests 100 --hold 1s",
        ] {
            let test = |line: &str| {
                let line = format!("capacity pit --seed 3 {line}");
                let Command::Capacity(args) = command(&line).unwrap() else {
                    panic!("capacity was asked for");
                };
                crate::capacity::test::test(&args, 3).unwrap()
            };
            let asked = test(options);
            let again = test(&capacity_options(&asked).0.join(" "));
            assert_eq!(again, asked, "{options}");
        }
    }
}
