//! What each command does, from its arguments to its success or failure.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use linerate_core::plan::{Extent, Plan, Test, Workload};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::message::Limits;
use linerate_core::units::{BitRate, DEFAULT_PORT, Family, Span};
use linerate_engine::{
    BulkOptions, CheckOptions, NetperfOptions, ServeOptions, StampOptions, Target,
};
use linerate_report::Document;
use serde_json::json;

use crate::args::{
    CheckArgs, Choice, Command, Count, ExplainArgs, LimitOptions, ListenOptions, MAX_FLOWS,
    OtherOptions, RunOptions, SCHEME, ServeArgs, TestOptions,
};
use crate::capture::{self, Opened};
use crate::failure::Failure;
use crate::history::Against;
use crate::output::{self, Format, Output, conclude};
use crate::progress::Progress;
use crate::remote::Remote;
use crate::run::{self, Entrance, Service};
use crate::site::{Site, place};
use crate::target::{check_pace, check_sizes};
use crate::{
    analyze, baseline, capacity, compare, config, connections, experiment, explain, files, gate,
    history, host, iperf3, lab, load, manual, mesh, monitor, plan, profile, qos, report, rerun,
    trace, watch, web,
};

/// Does what the command line says.
///
/// # Errors
/// With the kind that decides the exit status.
pub(crate) fn execute(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check(args),
        Command::Serve(args) => serve(args),
        Command::Stream(args) => measure(Workload::Stream, &args.test, args.run, args.fail_below),
        Command::Rr(args) => measure(Workload::Rr, &args.test, args.run, None),
        Command::Crr(args) => measure(Workload::Crr, &args.test, args.run, None),
        Command::Load(args) => load::execute(args),
        Command::Capacity(args) => capacity::execute(args),
        Command::Compare(args) => compare::execute(*args),
        Command::Run(args) => experiment::execute(&args),
        Command::Profile(args) => profile::execute(args),
        Command::Trace(args) => trace::execute(&args),
        Command::Connections(args) => connections::execute(&args),
        Command::Explain(args) => explain(args),
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
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { directory } => manual::pages(&directory),
        Command::CapacityWorker => capacity::work(),
        Command::WatchTreatments(args) => {
            watch::execute(&args);
            Ok(())
        }
    }
}

fn measure<C: Choice>(
    workload: Workload,
    test: &TestOptions<C>,
    options: RunOptions,
    floor: Option<BitRate>,
) -> Result<(), Failure> {
    let plan = plan::plan(workload, test, &options.repeats, plan::fresh_seed());
    let plan = &plan.map_err(Failure::usage)?;
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
    let format = output::format(&options.document, &options.table);
    let mut progress = Progress::new(format, options.document.quiet);
    let (site, target) = place(options.host, &options.path, seed_of(plan), &mut progress)?;
    check_sizes(&target, plan)?;
    check_pace(&target, plan, test.has("rate"))?;
    let output = Output::open(&options.document, format)?.titled(&options.title);
    progress.lasts(plan.tests.first().and_then(|test| match test.extent {
        Extent::Time(time) => Some(time.as_secs_f64()),
        Extent::Bytes(_) | Extent::Count(_) => None,
    }));
    let (mut measured, error) = run::plan(&target, options.via, plan, progress, output.is_kept())?;
    let document = measured.document();
    site.iter().for_each(|site| site.describe(document));
    let held = baseline.map(|baseline| baseline.beside_runs(&mut measured));
    conclude(measured.document(), error, output, floor)?;
    held.map_or(Ok(()), |held| held)
}

/// What tells a test from others of its workload, as in its record.
fn detail(test: &Test) -> String {
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let [protocol, direction] = [json!(test.protocol), json!(test.direction)].map(word);
    format!("{protocol} {direction}")
}

fn seed_of(plan: &Plan) -> u64 {
    plan.tests.first().map_or(0, |test| test.seed)
}

fn check(args: CheckArgs) -> Result<(), Failure> {
    if let Some(name) = &args.congestion {
        run::knows_congestion(name)?;
    }
    let against = Against::new(&args.document.keep, args.host.as_ref(), &args.path, "check");
    let baseline = baseline::of_check(&args.beside, against)?;
    let format = output::json_or_text(args.document.json);
    let mut progress = Progress::new(format, args.document.quiet);
    let seed = args.seed.unwrap_or_else(plan::fresh_seed);
    let by_ssh = args
        .host
        .as_ref()
        .filter(|host| host.host.starts_with(SCHEME));
    let remote = by_ssh.map(|host| Remote::start(&host.host, args.path.port.unwrap_or(0)));
    let remote = remote.transpose().map_err(Failure::failed)?;
    let (site, target, doubt) = match (&remote, &args.host, &args.path.lab) {
        (Some(remote), ..) => {
            let target = remote.target(&args.path, &mut progress)?;
            (None, Some(target), None)
        }
        (None, None, None) => demonstration(args.path.family(), seed, &mut progress),
        _ => {
            let (site, target) = place(args.host, &args.path, seed, &mut progress)?;
            (site, Some(target), None)
        }
    };
    let output = Output::open(&args.document, format)?.titled(&args.title);
    let examination = CheckOptions {
        target,
        via: args.via,
        family: args.path.family(),
        quick: args.quick,
        bulk: BulkOptions {
            time: args.time.map(|time| time.0),
            streams: args.streams,
            congestion: args.congestion,
            udp_rate: args.rate,
        },
        seed,
    };
    let (mut check, error) = run::check(&examination, progress)?;
    if let Some(site) = &site {
        site.describe(&mut check);
        site.reveal(&mut check);
    }
    check.caveats.extend(doubt);
    let held = baseline.map(|baseline| baseline.beside_check(&mut check));
    conclude(&check, error, output, args.fail_below)?;
    if let Some(floor) = args.fail_below_rpm {
        gate::hold_rpm(&check, floor).map_err(Failure::failed)?;
    }
    held.map_or(Ok(()), |held| held)
}

/// The demonstration path; where this host allows none, the check is of loopback, with a caveat
/// that says why.
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
            let message = format!(
                "no demonstration path, loopback instead: {}",
                failure.chain()
            );
            progress.warn(&message);
            let doubt = Caveat::new(CaveatKind::LocalPath, message, "");
            (None, None, Some(doubt))
        }
    }
}

fn explain(args: ExplainArgs) -> Result<(), Failure> {
    let format = match (args.document.json, args.csv) {
        (true, _) => Format::Json,
        (_, Some(rows)) => Format::Csv(rows),
        _ => Format::Text,
    };
    let Some(file) = &args.file else {
        if args.csv.is_some() {
            let words = "--csv: connections that are watched have no records; give --json";
            return Err(Failure::usage(anyhow!(words)));
        }
        return explain::execute(&args, format);
    };
    let opened = Opened::new(file).map_err(Failure::usage)?;
    if opened.is_capture() {
        return capture::execute(&args, format, opened);
    }
    let mut document = stored(&args, opened)?;
    document.annotate();
    let output = Output::open(&args.document, format)?;
    let output = output.read_by(files::explaining(file));
    output.write(&*document)
}

/// The document that a file holds.
fn stored(args: &ExplainArgs, opened: Opened) -> Result<Box<dyn Document>, Failure> {
    let name = opened.name.clone();
    let read = || {
        let asked = args.capture.asked().is_some() || args.capture.flows;
        ensure!(
            !asked,
            "{name}: --port, --peer and --flows are for packet captures, and it is none"
        );
        let mut documents = report::documents(opened, "explain")?;
        ensure!(
            documents.len() == 1,
            "{name}: a report of {} documents; one of them at a time is explained",
            documents.len()
        );
        Ok(documents.remove(0))
    };
    read().map_err(Failure::usage)
}

fn serve(args: ServeArgs) -> Result<(), Failure> {
    let entrance = entrance(&args.listen).map_err(Failure::usage)?;
    let allow_treatments = allow_treatments(&args.limits).map_err(Failure::usage)?;
    // Inetd makes the client's connection stderr, too: nothing but errors may go there.
    let quiet = args.quiet || entrance == Entrance::Inherited;
    let key = match &args.limits.key_file {
        Some(path) => {
            let (key, warning) = files::read_key(path)?;
            if let (Some(warning), Entrance::Port { .. }) = (warning, &entrance) {
                Progress::new(Format::Text, quiet).warn(&warning);
            }
            Some(key)
        }
        None => None,
    };
    let iperf3 = match (&args.limits.iperf3_users, &args.limits.iperf3_key) {
        (Some(users), Some(key)) => {
            let (access, warning) =
                files::read_iperf3_access(users, key, args.limits.iperf3_pkcs1)?;
            if let (Some(warning), Entrance::Port { .. }) = (warning, &entrance) {
                Progress::new(Format::Text, quiet).warn(&warning);
            }
            Some(Arc::new(access))
        }
        _ => None,
    };
    let has_key = key.is_some();
    let options = ServeOptions {
        max_memory: args.limits.max_memory.map(|size| size.0),
        key,
        iperf3,
        allow_treatments,
        allow_profiles: !args.limits.no_profile,
        one_off: args.listen.one_off,
        ..ServeOptions::within(limits(&args.limits))
    };
    run::serve(Service {
        entrance,
        options: with_others(options, &args.others, has_key)?,
        json_stream: args.json_stream,
        quiet,
    })
}

/// The same with clients of other tools. Whoever must have a key does not come in by another door
/// without one.
fn with_others(
    serve: ServeOptions,
    options: &OtherOptions,
    has_key: bool,
) -> Result<ServeOptions, Failure> {
    let passphrase = match &options.netperf_passphrase {
        Some(path) => Some(files::read_passphrase("--netperf-passphrase", path)?),
        None => None,
    };
    let checked = || {
        ensure!(
            !has_key || options.netperf.is_none() || passphrase.is_some(),
            "--key-file keeps strangers out, and --netperf alone lets them in: \
             give --netperf-passphrase too"
        );
        ensure!(
            !has_key || (options.ttcp.is_none() && options.ttcp_source.is_none()),
            "--key-file keeps strangers out, and --ttcp and --ttcp-source let them in: \
             ttcp has no way to prove anything"
        );
        Ok(())
    };
    checked().map_err(Failure::usage)?;
    Ok(ServeOptions {
        netperf: options
            .netperf
            .map(|port| NetperfOptions { port, passphrase }),
        ttcp_sink: options.ttcp,
        ttcp_source: options.ttcp_source,
        stamp: options.stamp.map(|port| StampOptions {
            port,
            allowed: options.stamp_allow.clone(),
        }),
        ..serve
    })
}

fn entrance(options: &ListenOptions) -> anyhow::Result<Entrance> {
    if options.inetd {
        return Ok(Entrance::Inherited);
    }
    let family = options.family.chosen();
    match (options.bind, family) {
        (Some(address @ IpAddr::V6(_)), Some(Family::Ipv4)) => {
            bail!("--bind {address} cannot be used with -4: it is an IPv6 address")
        }
        (Some(address @ IpAddr::V4(_)), Some(Family::Ipv6)) => {
            bail!("--bind {address} cannot be used with -6: it is an IPv4 address")
        }
        (address, family) => Ok(Entrance::Port {
            port: options.port.unwrap_or(DEFAULT_PORT),
            address,
            family,
        }),
    }
}

/// Settings of a host are changed for nobody who has not proved a key.
fn allow_treatments(options: &LimitOptions) -> anyhow::Result<bool> {
    ensure!(
        options.key_file.is_some() || !options.allow_treatments,
        "--allow-treatments needs --key-file: settings of this host are changed only for clients \
         with its key"
    );
    Ok(options.allow_treatments)
}

fn limits(options: &LimitOptions) -> Limits {
    let clients = options.max_clients.unwrap_or(DEFAULT_CLIENTS);
    let streams = options.max_streams.unwrap_or(MAX_FLOWS);
    let seconds = options
        .max_duration
        .unwrap_or(DEFAULT_DURATION)
        .as_secs_f64();
    let rate_bps = options.max_rate.map(|rate| rate.0);
    let connections = options.max_connections.unwrap_or(DEFAULT_CONNECTIONS).0;
    Limits {
        clients,
        streams,
        seconds,
        rate_bps,
        connections,
    }
}

const DEFAULT_CLIENTS: u32 = 64;
/// What `capacity` may hold here: about 1 GB of kernel memory for a client that asks for all of it.
const DEFAULT_CONNECTIONS: Count = Count(100_000);
/// Longer tests are for owners who ask for them.
const DEFAULT_DURATION: Span = Span(Duration::from_secs(3600));

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    /// What `serve` with these options would be, or all that is said of them.
    fn served(options: &str) -> Result<(Entrance, Limits), String> {
        let words = ["linerate", "serve"]
            .into_iter()
            .chain(options.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Serve(args) = cli.command else {
            panic!("serve was asked for");
        };
        let entrance = entrance(&args.listen).map_err(|error| error.to_string())?;
        let limits = limits(&args.limits);
        allow_treatments(&args.limits).map_err(|error| error.to_string())?;
        Ok((entrance, limits))
    }

    #[test]
    fn an_endpoint_is_bounded_by_default() {
        let (entrance, limits) = served("").unwrap();
        let everywhere = Entrance::Port {
            port: 5201,
            address: None,
            family: None,
        };
        assert_eq!(entrance, everywhere);
        let default = Limits {
            clients: 64,
            streams: 256,
            seconds: 3600.0,
            rate_bps: None,
            connections: 100_000,
        };
        assert_eq!(limits, default);
    }

    #[test]
    fn the_owners_limits_are_taken() {
        let line = "--max-clients 3 --max-streams 8 --max-duration 2min --max-rate 1gbit \
                    --max-connections 2M";
        let owners = Limits {
            clients: 3,
            streams: 8,
            seconds: 120.0,
            rate_bps: Some(1_000_000_000),
            connections: 2_000_000,
        };
        assert_eq!(served(line).unwrap().1, owners);
    }

    #[test]
    fn what_an_endpoint_cannot_be_is_refused() {
        for (line, words) in [
            ("--inetd --port 1", ["--inetd", "--port"]),
            ("--inetd --bind ::1", ["--inetd", "--bind"]),
            ("--inetd -4", ["--inetd", "-4"]),
            ("--inetd --json-stream", ["--inetd", "--json-stream"]),
            ("-4 -6", ["-4", "-6"]),
            ("-4 --bind ::1", ["-4", "--bind"]),
            ("-6 --bind 127.0.0.1", ["-6", "--bind"]),
            ("--max-clients 0", ["--max-clients", "1 to 10000"]),
            ("--max-streams 257", ["--max-streams", "1 to 256"]),
            ("--max-duration 0", ["--max-duration", "10ms"]),
            ("--max-connections 11M", ["--max-connections", "0 to 10M"]),
            ("--allow-treatments", ["--allow-treatments", "--key-file"]),
            ("--inetd --netperf", ["--inetd", "--netperf"]),
            ("--inetd --ttcp=5", ["--inetd", "--ttcp"]),
            ("--inetd --stamp", ["--inetd", "--stamp"]),
            ("--stamp-allow 192.0.2.0/24", ["required", "--stamp"]),
            (
                "--stamp --stamp-allow 192.0.2.0/33",
                ["192.0.2.0/33", "/32"],
            ),
            ("--netperf-passphrase f", ["required", "--netperf"]),
        ] {
            let message = served(line).expect_err(line);
            for word in words {
                assert!(message.contains(word), "{line}: {message}");
            }
        }
        assert_eq!(served("--inetd").unwrap().0, Entrance::Inherited);
        assert!(served("--allow-treatments --key-file k").is_ok());
    }

    #[test]
    fn a_key_is_got_round_by_no_other_tool() {
        let none = || OtherOptions {
            netperf: None,
            netperf_passphrase: None,
            ttcp: None,
            ttcp_source: None,
            stamp: None,
            stamp_allow: Vec::new(),
        };
        let others = |options: &OtherOptions, has_key| {
            let serve = ServeOptions::within(served("").unwrap().1);
            with_others(serve, options, has_key)
        };
        assert!(others(&none(), true).is_ok());
        let doors = [
            OtherOptions {
                netperf: Some(12865),
                ..none()
            },
            OtherOptions {
                ttcp: Some(5001),
                ..none()
            },
            OtherOptions {
                ttcp_source: Some(5002),
                ..none()
            },
        ];
        for door in doors {
            assert!(others(&door, false).is_ok(), "{door:?}");
            assert!(others(&door, true).is_err(), "{door:?}");
        }
    }
}
