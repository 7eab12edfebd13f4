//! The one door to the engine: what is resolved and checked goes in, a document comes out.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, anyhow};
use linerate_core::foreign::Tool;
use linerate_core::load::{LoadDocument, Mix};
use linerate_core::plan::Plan;
use linerate_core::record::{Check, Interval, Record, Sweep};
use linerate_core::session::message::Limits;
use linerate_core::units::{Family, printable};
use linerate_core::wire::Key;
use linerate_engine::{
    Campaign, Category, CheckOptions, Endpoint, Iperf3Access, MeasureError, NetperfOptions,
    Observer, Partner, ServeEvent, ServeOptions, StampOptions, Stop, Target, stop_on_signal,
};
use serde_json::json;

use linerate_report::Document;

use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::watch;

/// What `serve` is to do.
#[derive(Debug)]
pub(crate) struct Service {
    /// Where clients come from.
    pub(crate) entrance: Entrance,
    /// What the owner allows.
    pub(crate) limits: Limits,
    /// What all tests may hold in memory, bytes; without it what the host allows.
    pub(crate) max_memory: Option<u64>,
    /// The key that clients must have.
    pub(crate) key: Option<Key>,
    /// Who may test by iperf3's protocol.
    pub(crate) iperf3: Option<Iperf3Access>,
    /// They may change settings of this host.
    pub(crate) allow_treatments: bool,
    /// They may have this host profiled.
    pub(crate) allow_profiles: bool,
    /// Ends after one client.
    pub(crate) one_off: bool,
    /// Clients of other tools that have ports of their own.
    pub(crate) others: Others,
    /// One JSON line on stdout for each event.
    pub(crate) json_stream: bool,
    /// No lines about clients on stderr.
    pub(crate) quiet: bool,
}

/// Clients of other tools that an endpoint serves on ports of their own.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// netperf's.
    pub(crate) netperf: Option<NetperfOptions>,
    /// ttcp's that send.
    pub(crate) ttcp_sink: Option<u16>,
    /// Those that receive.
    pub(crate) ttcp_source: Option<u16>,
    /// STAMP's senders.
    pub(crate) stamp: Option<StampOptions>,
}

/// Where clients of an endpoint come from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// Standard input, or systemd's descriptor, is a listening socket.
    Inherited,
    /// A port of this host.
    Port {
        /// 0 takes a free one.
        port: u16,
        /// The address to listen on; without one, all.
        address: Option<IpAddr>,
        /// The only family, if there is one.
        family: Option<Family>,
    },
}

/// The engine's looker-on: shows intervals, and ends the run when nobody reads them any more,
/// unless its document is kept in a file.
struct Shown {
    progress: Progress,
    is_kept: bool,
}

impl Observer for Shown {
    fn phase(&mut self, text: &str) {
        self.progress.phase(text);
    }

    fn interval(&mut self, interval: &Interval) -> bool {
        // Why it could not be shown is said when the document cannot be printed either.
        self.progress.interval(interval).is_ok() || self.is_kept
    }

    fn takes(&mut self, left: [Duration; 2]) {
        self.progress.takes(left);
    }
}

/// Runs a plan against an endpoint. What ends it early is in the document as a caveat, and in the
/// error beside it.
///
/// # Errors
/// Nothing was measured: refused, unreachable, timed out, or this host lacks something.
pub(crate) fn plan(
    target: &Target,
    via: Option<Tool>,
    plan: &Plan,
    progress: Progress,
    is_kept: bool,
) -> Result<(Measured, Option<Failure>), Failure> {
    let mut client = Partner::connect(target.clone(), via, signals()?).map_err(failure)?;
    let mut shown = Shown { progress, is_kept };
    let campaign = client.run_plan(plan, &mut shown).map_err(failure)?;
    Ok(document(campaign, plan))
}

/// What a plan leaves: a record, or several in a sweep.
#[derive(Debug)]
pub(crate) enum Measured {
    Record(Box<Record>),
    Sweep(Box<Sweep>),
}

impl Measured {
    /// As it is printed.
    pub(crate) fn document(&mut self) -> &mut dyn Document {
        match self {
            Self::Record(record) => &mut **record,
            Self::Sweep(sweep) => &mut **sweep,
        }
    }
}

fn document(campaign: Campaign, plan: &Plan) -> (Measured, Option<Failure>) {
    let Campaign {
        mut rows,
        figures,
        caveats,
        error,
    } = campaign;
    let failed = error.map(failure);
    let single =
        plan.tests.len() == 1 && matches!(plan.repeats, linerate_core::plan::Repeats::Times(1));
    if single && let Some(record) = rows.pop() {
        return (Measured::Record(Box::new(record)), failed);
    }
    let sweep = Sweep::new(rows, figures, caveats);
    (Measured::Sweep(Box::new(sweep)), failed)
}

/// Examines a path.
///
/// # Errors
/// As [`plan`].
pub(crate) fn check(
    options: &CheckOptions,
    progress: Progress,
) -> Result<(Check, Option<Failure>), Failure> {
    let mut shown = Shown {
        progress,
        is_kept: true,
    };
    let (check, error) =
        linerate_engine::check(options, &signals()?, &mut shown).map_err(failure)?;
    Ok((check, error.map(failure)))
}

/// Runs a mix of tests.
///
/// # Errors
/// As [`plan`].
pub(crate) fn load(
    targets: &[Target],
    mix: &Mix,
    seed: u64,
    progress: Progress,
) -> Result<(LoadDocument, Option<Failure>), Failure> {
    let mut shown = Shown {
        progress,
        is_kept: true,
    };
    let loaded = linerate_engine::load(targets, mix, seed, &signals()?, &mut shown);
    let (document, error) = loaded.map_err(failure)?;
    Ok((document, error.map(failure)))
}

/// Answers clients until a signal ends it.
///
/// # Errors
/// The port cannot be had, or this host lacks something.
pub(crate) fn serve(service: Service) -> Result<(), Failure> {
    let stop = signals()?;
    let mut options = ServeOptions {
        max_memory: service.max_memory,
        key: service.key,
        iperf3: service.iperf3.map(Arc::new),
        allow_treatments: service.allow_treatments,
        allow_profiles: service.allow_profiles,
        one_off: service.one_off,
        netperf: service.others.netperf,
        ttcp_sink: service.others.ttcp_sink,
        ttcp_source: service.others.ttcp_source,
        stamp: service.others.stamp,
        ..ServeOptions::within(service.limits)
    };
    let endpoint = match service.entrance {
        Entrance::Inherited => {
            let listener = linerate_engine::inherited_listener()
                .context("--inetd")
                .map_err(Failure::usage)?;
            Endpoint::from_listener(listener, &options)
        }
        Entrance::Port {
            port,
            address,
            family,
        } => {
            options.port = port;
            options.bind = address;
            options.family = family;
            Endpoint::bind(&options)
        }
    }
    .map_err(failure)?;
    let log = Log {
        json: service.json_stream,
        quiet: service.quiet,
    };
    if service.allow_treatments {
        watch::before_treating()
            .iter()
            .for_each(|note| log.say(note));
    }
    log.started(&endpoint)?;
    endpoint
        .serve(&stop, move |event| log.event(&event))
        .map_err(failure)
}

/// What an endpoint says of itself and its clients.
#[derive(Clone, Copy)]
struct Log {
    json: bool,
    quiet: bool,
}

impl Log {
    fn started(self, endpoint: &Endpoint) -> Result<(), Failure> {
        let addresses: Vec<String> = endpoint
            .addresses()
            .iter()
            .map(ToString::to_string)
            .collect();
        for note in endpoint.notes() {
            self.say(note);
        }
        self.say(&format!("listening on {}", addresses.join(" and ")));
        for (tool, address) in endpoint.foreign_addresses() {
            self.say(&format!("listening on {address} for {tool}"));
        }
        if self.json {
            output::print(&format!(
                "{}\n",
                json!({"event": "listening", "addresses": addresses, "others": others(endpoint)})
            ))?;
        }
        Ok(())
    }

    fn event(self, event: &ServeEvent) {
        let (name, peer, text) = match event {
            ServeEvent::Connected { peer } => ("connected", peer, String::new()),
            ServeEvent::Tested { peer, summary } => ("tested", peer, summary.clone()),
            ServeEvent::Served { peer, summary, .. } => ("tested", peer, summary.clone()),
            // Nobody has asked for it here.
            ServeEvent::Running { .. } => return,
            ServeEvent::Treated { peer, read_back } => ("treated", peer, read_back.join("; ")),
            ServeEvent::Untreated { peer, error } => {
                ("untreated", peer, error.clone().unwrap_or_default())
            }
            ServeEvent::Disconnected { peer, reason } => {
                ("disconnected", peer, reason.clone().unwrap_or_default())
            }
            ServeEvent::Refused { peer, reason } => ("refused", peer, reason.clone()),
        };
        self.say(&format!(
            "{peer} {name}{}{text}",
            if text.is_empty() { "" } else { ": " }
        ));
        if self.json {
            let mut line = json!({"event": name, "peer": peer.to_string(), "message": text});
            if let ServeEvent::Served { record, .. } = event {
                line["record"] = json!(record);
            }
            // Nobody reads it: the endpoint serves on.
            let _ = output::print(&format!("{line}\n"));
        }
    }

    fn say(self, text: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "linerate: {}", printable(text));
        }
    }
}

/// The addresses for each other tool, by its name.
fn others(endpoint: &Endpoint) -> BTreeMap<&'static str, Vec<String>> {
    let mut others: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (tool, address) in endpoint.foreign_addresses() {
        others.entry(tool).or_default().push(address.to_string());
    }
    others
}

/// What Ctrl-C and its kin request, of all runs of this process.
///
/// # Errors
/// They cannot be caught.
pub(crate) fn signals() -> Result<Stop, Failure> {
    static STOP: OnceLock<Stop> = OnceLock::new();
    if let Some(stop) = STOP.get() {
        return Ok(stop.clone());
    }
    let stop = stop_on_signal()
        .context("cannot catch signals")
        .map_err(Failure::unsupported)?;
    Ok(STOP.get_or_init(|| stop).clone())
}

/// An error of the engine's with its exit status.
pub(crate) fn failure(error: MeasureError) -> Failure {
    failure_of(error.category(), anyhow!(error))
}

/// An error of the engine's with the exit status that it deserves.
pub(crate) fn failure_of(category: Category, error: anyhow::Error) -> Failure {
    match category {
        Category::Failed => Failure::failed(error),
        Category::Usage => Failure::usage(error),
        Category::Missing => Failure::unsupported(error),
    }
}
