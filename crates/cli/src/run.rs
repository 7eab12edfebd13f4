//! The one door to the engine: what is resolved and checked goes in, a document comes out.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use linerate_core::foreign::Tool;
use linerate_core::load::{LoadDocument, Mix};
use linerate_core::plan::Plan;
use linerate_core::record::{Check, Record, Sweep};
use linerate_core::units::{Family, printable};
use linerate_engine::{
    Campaign, CheckOptions, Endpoint, Partner, ServeEvent, ServeOptions, Slot, Stop, Target,
    stop_on_signal,
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
    /// Who is served, and what the owner allows; where clients come from is not in them.
    pub(crate) options: ServeOptions,
    /// One JSON line on stdout for each event.
    pub(crate) json_stream: bool,
    /// No lines about clients on stderr.
    pub(crate) quiet: bool,
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
    let mut client = Partner::connect(target.clone(), via, signals()?)?;
    let campaign = client.run_plan(plan, &mut progress.keeps(is_kept))?;
    Ok(document(campaign, plan))
}

/// Longest wait for the slot of an endpoint: a monitor has other paths to look after.
const SLOT_PATIENCE: Duration = Duration::from_secs(60);

/// The endpoint's slot, for a test that takes about so many seconds.
///
/// # Errors
/// Another client has it for longer than one waits, or the endpoint is not to be reached.
pub(crate) fn slot(
    target: &Target,
    seconds: u64,
    progress: &mut Progress,
) -> Result<Slot, Failure> {
    // It is given back when the test is over; a slow one is to keep it.
    let lasts = Duration::from_secs(2 * seconds + 10);
    let mut told = |left: Duration| {
        let left = left.as_secs() + 1;
        progress.phase(&format!(
            "waiting: another client has the endpoint's slot, for {left} s more at most"
        ));
    };
    Slot::take(target.clone(), lasts, SLOT_PATIENCE, &signals()?, &mut told).map_err(Failure::from)
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
    let failed = error.map(Failure::from);
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
    let mut shown = progress.keeps(true);
    let (check, error) = linerate_engine::check(options, &signals()?, &mut shown)?;
    Ok((check, error.map(Failure::from)))
}

/// Looks for a congestion control before anything is sent.
///
/// # Errors
/// This host's kernel knows none of that name.
pub(crate) fn knows_congestion(name: &str) -> Result<(), Failure> {
    linerate_engine::knows_congestion(name).map_err(Failure::from)
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
    let mut shown = progress.keeps(true);
    let loaded = linerate_engine::load(targets, mix, seed, &signals()?, &mut shown);
    let (document, error) = loaded?;
    Ok((document, error.map(Failure::from)))
}

/// Answers clients until a signal ends it.
///
/// # Errors
/// The port cannot be had, or this host lacks something.
pub(crate) fn serve(service: Service) -> Result<(), Failure> {
    let stop = signals()?;
    let mut options = service.options;
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
    }?;
    let log = Log {
        json: service.json_stream,
        quiet: service.quiet,
    };
    if options.allow_treatments {
        watch::prepare().iter().for_each(|note| log.say(note));
    }
    log.started(&endpoint)?;
    endpoint
        .serve(&stop, move |event| log.event(&event))
        .map_err(Failure::from)
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
