//! Repeated traces of a path: the report of mtr, and changes of the path.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::asn::Origin;
use super::outcome::{Hop, PathEnd, TraceOutcome};
use linerate_stats::{Jitter, LatencyHistogram};
use linerate_units::Nanos;

/// Number of recent probes that are kept for each hop.
const RECENT: usize = 60;
/// Maximum number of changes that are kept; the oldest are dropped.
const MAX_CHANGES: usize = 1_000;

/// The statistics of a path over several rounds.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    hops: BTreeMap<u8, HopHistory>,
    changes: VecDeque<PathChange>,
    forgotten: u64,
    rounds: u64,
}

/// A change of the router at a TTL since the round before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathChange {
    /// When the round began in which it was seen, seconds since the watch began.
    pub at_s: f64,
    /// The TTL.
    pub ttl: u8,
    /// Who answered there until then.
    pub from: IpAddr,
    /// Who answers now.
    pub to: IpAddr,
}

/// Rounds of a trace, one after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchDocument {
    /// How many.
    pub rounds: u64,
    /// Each TTL, from the lowest on.
    pub rows: Vec<WatchRow>,
    /// The last changes of the path, the oldest first.
    pub changes: Vec<PathChange>,
    /// How many older changes are no longer kept.
    pub forgotten_changes: u64,
}

impl WatchDocument {
    /// The document of the rounds so far.
    pub fn new(watch: &Watch, names: &BTreeMap<IpAddr, String>) -> Self {
        let mut document = Self {
            rounds: watch.rounds(),
            rows: watch.rows(),
            changes: watch.changes().copied().collect(),
            forgotten_changes: watch.forgotten_changes(),
        };
        document.set_names(names);
        document
    }

    /// Writes names that were found later.
    pub fn set_names(&mut self, names: &BTreeMap<IpAddr, String>) {
        for row in &mut self.rows {
            row.name = row.address.and_then(|address| names.get(&address).cloned());
        }
    }
}

/// One line of the report: the columns of mtr's, with jitter and quantiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchRow {
    /// The TTL.
    pub ttl: u8,
    /// Who answered there last; absent for a silent hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Network that the address belongs to, by the given table of networks.
    #[serde(flatten)]
    pub origin: Option<Origin>,
    /// Share of probes without an answer, percent. At a hop that limits its answers this is no
    /// loss: look at those beyond.
    pub loss_percent: f64,
    /// Probes sent.
    pub sent: u64,
    /// The figures of the answers; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<WatchRtt>,
    /// RTTs of the last probes, at most 60, the newest last, microseconds; `null` for one without
    /// an answer.
    pub recent_us: Vec<Option<f64>>,
}

/// RTTs of a hop, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchRtt {
    /// Round trip of the last answer.
    pub last: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The least.
    pub best: f64,
    /// The largest.
    pub worst: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Median.
    pub p50: f64,
    /// 99 % quantile.
    pub p99: f64,
    /// Smoothed difference of one RTT to the next (RFC 3550, section 6.4.1); 0 before the second.
    pub jitter: f64,
}

#[derive(Debug, Clone, Default)]
struct HopHistory {
    address: Option<IpAddr>,
    sent: u64,
    answered: Option<Answered>,
    recent: VecDeque<Option<f64>>,
}

/// Figures of the answers so far.
#[derive(Debug, Clone)]
struct Answered {
    histogram: LatencyHistogram,
    jitter: Jitter,
    last: f64,
    least: f64,
    largest: f64,
    count: f64,
    mean: f64,
    /// Sum of squared distances from the mean (Welford, 1962).
    squares: f64,
}

impl Watch {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A round that began at `at`, counted from the beginning of the watch.
    pub fn add(&mut self, at: Nanos, outcome: &TraceOutcome) {
        self.rounds += 1;
        for hop in &outcome.hops {
            self.note_change(at, hop);
            let history = self.hops.entry(hop.ttl).or_default();
            for probe in &hop.probes {
                let rtt = probe.reply.as_ref().map(|reply| reply.rtt);
                history.add(at + probe.sent_at, rtt);
            }
        }
        self.note_silence(at, outcome);
    }

    /// Hops behind the last answer are not in the outcome, but those known from earlier rounds were
    /// asked, too.
    fn note_silence(&mut self, at: Nanos, outcome: &TraceOutcome) {
        if !matches!(outcome.end, PathEnd::Silent { .. } | PathEnd::NoAnswer) {
            return;
        }
        let last = outcome.hops.last().map_or(0, |hop| hop.ttl);
        let probes = outcome.hops.iter().map(|hop| hop.probes.len()).max();
        for (_, history) in self.hops.range_mut(last.saturating_add(1)..) {
            for _ in 0..probes.unwrap_or(1) {
                history.add(at, None);
            }
        }
    }

    /// How many rounds there were.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The report, from the lowest TTL on.
    pub fn rows(&self) -> Vec<WatchRow> {
        let rows = self.hops.iter();
        rows.map(|(ttl, history)| history.row(*ttl)).collect()
    }

    /// The last changes of the path, the oldest first.
    pub fn changes(&self) -> impl Iterator<Item = &PathChange> {
        self.changes.iter()
    }

    /// How many older changes are no longer kept.
    pub fn forgotten_changes(&self) -> u64 {
        self.forgotten
    }

    /// A hop that is silent for a round is no change, nor one of several addresses whose order
    /// changes.
    fn note_change(&mut self, at: Nanos, hop: &Hop) {
        let addresses = hop.addresses();
        let Some(&to) = addresses.first() else { return };
        let history = self.hops.entry(hop.ttl).or_default();
        let before = history.address.replace(to);
        if let Some(from) = before.filter(|from| !addresses.contains(from)) {
            if self.changes.len() == MAX_CHANGES {
                self.changes.pop_front();
                self.forgotten += 1;
            }
            self.changes.push_back(PathChange { at_s: at.0 as f64 / 1e9, ttl: hop.ttl, from, to });
        } else if let Some(same) = before {
            history.address = Some(same);
        }
    }
}

impl HopHistory {
    fn add(&mut self, sent: Nanos, rtt: Option<Nanos>) {
        self.sent += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(rtt.map(us));
        if let Some(rtt) = rtt {
            let answered = self.answered.get_or_insert_with(|| Answered::new(us(rtt)));
            answered.add(sent, rtt);
        }
    }

    fn row(&self, ttl: u8) -> WatchRow {
        let answered = self.answered.as_ref().map_or(0.0, |a| a.count);
        let sent = self.sent.max(1) as f64;
        WatchRow {
            ttl,
            address: self.address,
            name: None,
            origin: None,
            loss_percent: 100.0 * (1.0 - answered / sent),
            sent: self.sent,
            rtt_us: self.answered.as_ref().and_then(Answered::figures),
            recent_us: self.recent.iter().copied().collect(),
        }
    }
}

impl Answered {
    fn new(first: f64) -> Self {
        Self {
            histogram: LatencyHistogram::new(),
            jitter: Jitter::default(),
            last: first,
            least: first,
            largest: first,
            count: 0.0,
            mean: 0.0,
            squares: 0.0,
        }
    }

    fn add(&mut self, sent: Nanos, rtt: Nanos) {
        let value = us(rtt);
        self.histogram.record_ns(rtt.0);
        self.jitter.on_packet(sent.0, (sent + rtt).0);
        self.last = value;
        self.least = self.least.min(value);
        self.largest = self.largest.max(value);
        self.count += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (value - self.mean);
    }

    fn figures(&self) -> Option<WatchRtt> {
        let summary = self.histogram.summary()?;
        Some(WatchRtt {
            last: self.last,
            mean: self.mean,
            best: self.least,
            worst: self.largest,
            deviation: (self.squares / (self.count - 1.0).max(1.0)).sqrt(),
            p50: summary.p50,
            p99: summary.p99,
            jitter: self.jitter.ns().unwrap_or(0.0) / 1e3,
        })
    }
}

fn us(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}
