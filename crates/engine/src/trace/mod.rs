//! The route to a host: core's strategies driven with time and packets.
//!
//! | module | what is in it |
//! |---|---|
//! | `channel` | the sockets that this host allows: probes out, answers in |
//! | `findings` | the MTU, all paths, rates of links, names; what can go wrong |
//! | `syn` | TCP probes without privilege |

mod channel;
mod findings;
mod syn;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use channel::Method;
use channel::{ProbeChannel, Way};
use findings::HopNames;
pub use findings::TraceError;
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::trace::{
    Answer, AsTable, DEFAULT_PORT_TCP, DEFAULT_PORT_UDP, HopDocument, PathEnd, PathFinder, PathMtu,
    Probe, ProbeKind, ReverseDocument, TraceConfig, TraceDocument, TraceHeader, TraceOutcome,
    Tracer, Watch, WatchDocument,
};
use linerate_core::units::{Nanos, format_rfc3339};
use linerate_sys::probe::ProbeSocket;
use linerate_sys::socket;

use crate::clock::now_ns;
use crate::stop::Stop;

/// How long to wait for names after the last answer.
const NAMES_WAIT: Duration = Duration::from_secs(1);
/// The most probes to send before reading answers again.
const MAX_IN_A_ROW: usize = 10;
/// A stop is noticed within this.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Target, probes and limits of a trace.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// The target as the user named it.
    pub host: String,
    /// The strategy's part, the target's address too.
    pub config: TraceConfig,
    /// Local address to send from; the route's if there is none.
    pub source: Option<IpAddr>,
    /// Interface to send through.
    pub device: Option<String>,
    /// Target port of TCP, first one of UDP; the usual one if there is none.
    pub port: Option<u16>,
    /// Look up names.
    pub names: bool,
    /// Find all equal-cost paths with this confidence, 0.5 to 0.9999.
    pub paths: Option<f64>,
    /// Find what fits through the path.
    pub mtu: bool,
    /// Estimate the rates of links; takes some 20 s.
    pub bandwidth: bool,
    /// Table of networks by which hops are given their origin.
    pub origins: Option<Arc<AsTable>>,
    /// What sessions are drawn from.
    pub seed: u64,
}

impl TraceOptions {
    /// One trace with names and nothing else.
    pub fn new(host: String, config: TraceConfig) -> Self {
        Self {
            host,
            config,
            source: None,
            device: None,
            port: None,
            names: true,
            paths: None,
            mtu: false,
            bandwidth: false,
            origins: None,
            seed: 0,
        }
    }
}

/// How often a watch goes round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchPace {
    /// Rounds; without a number it goes on until it is stopped.
    pub count: Option<u64>,
    /// From the beginning of a round to that of the next.
    pub interval: Duration,
}

/// Whether this host lets the caller send echo requests to `target`, with privilege or without.
pub fn may_send_echo(target: IpAddr) -> bool {
    let any = socket::any(&SocketAddr::new(target, 0));
    ProbeSocket::icmp(any, None).is_ok() || ProbeSocket::echo(any, None).is_ok()
}

/// Traces the route once.
///
/// # Errors
/// [`TraceError`]; that the target does not answer is none.
pub fn trace(options: &TraceOptions, stop: &Stop) -> Result<TraceDocument, TraceError> {
    let mut site = RoundContext::new(options, stop)?;
    let outcome = site.round(&options.config, options.seed)?;
    let mut document = site.document(options, &outcome);
    if options.mtu {
        document.mtu = site.mtu(options, &outcome)?;
    }
    if let Some(confidence) = options.paths {
        document.paths = Some(site.paths(options, confidence)?);
    }
    if options.bandwidth {
        document.link_rates = site.rates(options, &outcome)?;
    }
    site.name_hops(options, &mut document, NAMES_WAIT);
    Ok(document)
}

/// Puts the way back beside the way there: names, networks, and what both say together.
pub fn join_reverse(
    document: &mut TraceDocument,
    mut reverse: ReverseDocument,
    options: &TraceOptions,
) {
    if let Some(back) = &mut reverse.trace
        && options.names
    {
        let mut names = HopNames::new();
        let addresses = back.hops.iter().filter_map(|hop| hop.address);
        addresses.for_each(|address| names.ask(address));
        let found = names.finish(NAMES_WAIT);
        set_names(&mut back.hops, &found);
    }
    reverse.conclude(document);
    document.reverse = Some(reverse);
    if let Some(table) = &options.origins {
        document.set_origins(table);
    }
}

/// Traces the route again and again; `shown` sees the document after each round.
///
/// # Errors
/// [`TraceError`]; that the target does not answer is none.
pub fn watch(
    options: &TraceOptions,
    pace: WatchPace,
    stop: &Stop,
    shown: &mut dyn FnMut(&TraceDocument),
) -> Result<TraceDocument, TraceError> {
    let mut site = RoundContext::new(options, stop)?;
    let mut rounds = Watch::new();
    let started = now_ns();
    let mut last: Option<TraceDocument> = None;
    loop {
        let begun = Nanos(now_ns() - started);
        let seed = options.seed.wrapping_add(rounds.rounds());
        let config = site.shortened(&options.config);
        let outcome = site.round(&config, seed)?;
        // A round that was stopped has lost nothing.
        if let Some(last) = last.take_if(|_| stop.is_requested()) {
            return Ok(last);
        }
        site.note_end(&outcome);
        rounds.add(begun, &outcome);
        let mut document = site.document(options, &outcome);
        let watched = WatchDocument::new(&rounds, &site.found_names());
        document.set_watch(watched, begun.0 as f64 / 1e9);
        let is_last = pace.count.is_some_and(|count| rounds.rounds() >= count);
        let wait = if is_last { NAMES_WAIT } else { Duration::ZERO };
        site.name_hops(options, &mut document, wait);
        shown(&document);
        if is_last || stop.is_requested() {
            return Ok(document);
        }
        let next = started + begun.0 + crate::clock::nanos(pace.interval);
        pause_until(next, stop);
        if stop.is_requested() {
            return Ok(document);
        }
        last = Some(document);
    }
}

fn set_names(hops: &mut [HopDocument], names: &BTreeMap<IpAddr, String>) {
    for hop in hops {
        hop.name = hop.address.and_then(|address| names.get(&address).cloned());
    }
}

fn pause_until(at_ns: u64, stop: &Stop) {
    while !stop.is_requested() {
        let left = Duration::from_nanos(at_ns.saturating_sub(now_ns()));
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(MAX_WAIT));
    }
}

/// What the rounds of a trace have in common.
struct RoundContext<'a> {
    way: Way,
    stop: &'a Stop,
    names: Option<HopNames>,
    known: BTreeMap<IpAddr, String>,
    started_at: String,
    method: Option<Method>,
    /// The highest TTL that the rounds of a watch have shown to be of use.
    highest: Option<u8>,
}

impl<'a> RoundContext<'a> {
    fn new(options: &TraceOptions, stop: &'a Stop) -> Result<Self, TraceError> {
        options.config.check()?;
        let kind = options.config.kind;
        let port = options.port.unwrap_or(match kind {
            ProbeKind::Tcp => DEFAULT_PORT_TCP,
            ProbeKind::Udp | ProbeKind::Icmp => DEFAULT_PORT_UDP,
        });
        let ends = (options.config.target, options.source);
        Ok(Self {
            way: Way::find(ends, options.device.clone(), (kind, port))?,
            stop,
            names: options.names.then(HopNames::new),
            known: BTreeMap::new(),
            started_at: format_rfc3339(SystemTime::now()),
            method: None,
            highest: None,
        })
    }

    fn round(&mut self, config: &TraceConfig, seed: u64) -> Result<TraceOutcome, TraceError> {
        let mut tracer = Tracer::new(config.clone(), Nanos(now_ns()), seed)?;
        self.drive(&mut tracer)?;
        Ok(tracer.finish())
    }

    /// Feeds a strategy until it is done or the user stops it.
    fn drive(&mut self, strategy: &mut impl Strategy) -> Result<(), TraceError> {
        let mut channel = ProbeChannel::open(&mut self.way, strategy.session())?;
        self.method = Some(channel.method());
        while strategy.poll_timeout().is_some() && !self.stop.is_requested() {
            // What has come by now is read before anybody is given up: this process may have slept.
            let now = Nanos(now_ns());
            let names = &mut self.names;
            channel.receive(&mut |at, answer: Answer| {
                if let Some(names) = names {
                    names.ask(answer.from);
                }
                strategy.handle_answer(at, answer);
            })?;
            if strategy.poll_timeout().is_some_and(|due| due <= now) {
                strategy.handle_timeout(now);
            }
            // Where sending is slower than the rate, answers have their turn all the same: one may
            // end it.
            for _ in 0..MAX_IN_A_ROW {
                let Some(probe) = strategy.poll_transmit(Nanos(now_ns())) else {
                    break;
                };
                channel.send(&probe)?;
            }
            let due = strategy.poll_timeout().map_or(0, |due| due.0);
            let left = Duration::from_nanos(due.saturating_sub(now_ns()));
            if !left.is_zero() {
                channel.wait(left.min(MAX_WAIT))?;
            }
        }
        Ok(())
    }

    fn document(&self, options: &TraceOptions, outcome: &TraceOutcome) -> TraceDocument {
        let method = self.method.map_or("", Method::name);
        let header = TraceHeader {
            started_at: self.started_at.clone(),
            host: options.host.clone(),
            source: Some(self.way.source),
            method: method.to_owned(),
            port: (self.way.kind != ProbeKind::Icmp).then_some(self.way.port),
            seed: options.seed,
            names: self.known.clone(),
        };
        let mut document = TraceDocument::new(header, &options.config, outcome);
        document.caveats = self.caveats();
        document
    }

    fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        if let Some(blind) = self.method.and_then(Method::blind_spot) {
            let remedy = "run as root, or give the program CAP_NET_RAW";
            caveats.push(Caveat::new(CaveatKind::NotReadable, blind, remedy));
        }
        if self.stop.is_requested() {
            caveats.push(Caveat::new(CaveatKind::Partial, "interrupted", ""));
        }
        caveats
    }

    /// The names that have been found so far.
    fn found_names(&mut self) -> BTreeMap<IpAddr, String> {
        if let Some(names) = &mut self.names {
            self.known = names.finish(Duration::ZERO);
        }
        self.known.clone()
    }

    /// Names in the document, after waiting for them.
    fn name_hops(&mut self, options: &TraceOptions, document: &mut TraceDocument, wait: Duration) {
        if let Some(table) = &options.origins {
            document.set_origins(table);
        }
        let Some(names) = &mut self.names else { return };
        self.known = names.finish(wait);
        set_names(&mut document.hops, &self.known);
        if let Some(watch) = &mut document.watch {
            watch.set_names(&self.known);
        }
    }

    /// A watch does not ask beyond the target in each round: the target would have to answer it
    /// all.
    fn shortened(&self, config: &TraceConfig) -> TraceConfig {
        let hops = self.highest.map_or(config.hops, |highest| highest.min(config.hops));
        TraceConfig { hops: hops.max(config.first), ..config.clone() }
    }

    fn note_end(&mut self, outcome: &TraceOutcome) {
        self.highest = match outcome.end {
            PathEnd::Reached { ttl } => Some(ttl),
            // The path has become longer.
            PathEnd::HopLimit => None,
            _ => self.highest,
        };
    }
}

// The common interface of the state machines that send probes.

/// What says when to send what, and learns from the answers.
trait Strategy {
    fn session(&self) -> u16;
    fn poll_transmit(&mut self, now: Nanos) -> Option<Probe>;
    fn handle_answer(&mut self, received: Nanos, answer: Answer);
    fn handle_timeout(&mut self, now: Nanos);
    fn poll_timeout(&self) -> Option<Nanos>;
}

macro_rules! strategy {
    ($machine:ty) => {
        impl Strategy for $machine {
            fn session(&self) -> u16 {
                <$machine>::session(self)
            }

            fn poll_transmit(&mut self, now: Nanos) -> Option<Probe> {
                <$machine>::poll_transmit(self, now)
            }

            fn handle_answer(&mut self, received: Nanos, answer: Answer) {
                <$machine>::handle_answer(self, received, answer);
            }

            fn handle_timeout(&mut self, now: Nanos) {
                <$machine>::handle_timeout(self, now);
            }

            fn poll_timeout(&self) -> Option<Nanos> {
                <$machine>::poll_timeout(self)
            }
        }
    };
}

strategy!(Tracer);
strategy!(PathFinder);
strategy!(PathMtu);
