//! The comparison of two treatments: the figure that is compared, the faults that exclude a pair,
//! and the conclusion from all pairs.
//!
//! The test itself is [`linerate_stats::paired`]: pairs in random order, signs that are a fair coin
//! if the change does nothing, looks fixed before the first run.
//!
//! | module | what is in it |
//! |---|---|
//! | `ledger` | every pair that ran, which count, what they amount to |
//! | `document` | the document of a comparison |

mod document;
mod ledger;
#[cfg(test)]
pub(crate) mod samples;

use std::fmt;
use std::str::FromStr;

pub use document::{COMPARISON_SCHEMA, Comparison, IdleLoad, ReadBack, WouldDecide, asked_of_both};
pub use ledger::{ComparedMetric, ComparedPair, Ledger, OneSidedFault, SeenFault, Standing};
pub use linerate_stats::paired::{
    ComparisonVerdict, Conclusion, Design, MAX_METRICS, MAX_PAIRS, MetricConclusion, Observation,
    Order, Schedule, Sequential, Side, log_ratio, observational,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{Test, Traffic};
use crate::record::{CaveatKind, EndReport, Leg, Record, Status};
use crate::units::{TextError, suggestion, words};

// Validity faults.

/// An event that makes a run unfit for a comparison.
///
/// Faults are declared before the first run and looked for in each. A pair with one is excluded
/// whole, whichever of its runs has it: a run that is left out because of its own figure would bend
/// the comparison.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Segments were retransmitted.
    Retransmissions,
    /// Retransmission timeouts.
    Timeouts,
    /// Datagrams were lost on the path.
    Loss,
    /// A receive queue or socket buffer of a host overran.
    BufferOverruns,
    /// Payload arrived other than it was sent.
    Corruption,
    /// Something else used the CPUs of a host, or its hypervisor took them.
    BusyHost,
    /// The clock is not fit for the times measured.
    Clock,
    /// The CPUs of a host were slowed down for heat.
    Thermal,
    /// The run ended early. This fault is always looked for.
    Incomplete,
    /// A figure to compare is missing, or is 0 in one run of the pair alone, so that there is no
    /// ratio. Always looked for.
    NoRatio,
}

/// The faults that a user may declare.
pub const FAULTS: [Fault; 8] = [
    Fault::Retransmissions,
    Fault::Timeouts,
    Fault::Loss,
    Fault::BufferOverruns,
    Fault::Corruption,
    Fault::BusyHost,
    Fault::Clock,
    Fault::Thermal,
];

/// Share of the CPUs that something else may use, percent. A daemon that wakes up takes less, a
/// build more.
const OTHER_LOAD: f64 = 20.0;

// As on the command line and in documents.
words! {
    Fault name {
        "retransmissions" Retransmissions,
        "timeouts" Timeouts,
        "loss" Loss,
        "buffer_overruns" BufferOverruns,
        "corruption" Corruption,
        "busy_host" BusyHost,
        "clock" Clock,
        "thermal" Thermal,
        "incomplete" Incomplete,
        "no_ratio" NoRatio,
    }
}

impl Fault {
    /// What of it a record shows, in words with its figure. [`Fault::NoRatio`] is of a pair, and
    /// shows in no record.
    pub fn seen_in(self, record: &Record) -> Option<String> {
        match self {
            Self::Retransmissions => retransmissions(record),
            Self::Timeouts => {
                let timeouts = sum(record, |leg| leg.tcp_sender()?.timeouts)?;
                counted(timeouts, "retransmission timeouts")
            }
            Self::Loss => {
                let lost = sum(record, |leg| Some(leg.udp.as_ref()?.lost))?;
                counted(lost, "datagrams lost")
            }
            Self::BufferOverruns => overruns(record),
            Self::Corruption => counted(record.corrupted_bytes?, "bytes arrived changed"),
            Self::BusyHost => caveat(record, CaveatKind::BusyHost).or_else(|| other_load(record)),
            Self::Clock => caveat(record, CaveatKind::Clock),
            Self::Thermal => throttles(record),
            Self::Incomplete => (record.status == Status::Partial).then(|| {
                caveat(record, CaveatKind::Partial)
                    .unwrap_or_else(|| "the run ended before its time".to_owned())
            }),
            Self::NoRatio => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = TextError;

    fn from_str(word: &str) -> Result<Self, TextError> {
        let found = FAULTS.into_iter().find(|fault| fault.name() == word);
        found.ok_or_else(|| {
            let word: String = word.chars().take(40).collect();
            let names = FAULTS.map(Fault::name);
            let hint = suggestion(&word, names)
                .unwrap_or_else(|| format!("they are {}", names.join(", ")));
            TextError::new(&word, format!("there is no such fault; {hint}"))
        })
    }
}

/// The sum over the directions that have the figure.
fn sum(record: &Record, figure: impl Fn(&Leg) -> Option<u64>) -> Option<u64> {
    let figures = record.legs.iter().filter_map(figure);
    figures.reduce(u64::saturating_add)
}

fn counted(count: u64, what: &str) -> Option<String> {
    (count > 0).then(|| format!("{count} {what}"))
}

/// Segments retransmitted because they were lost. Those that the receiver reported to have had
/// already (DSACK) were not: packets had overtaken each other, as they do over a virtual device
/// when a thread moves to another CPU.
fn retransmissions(record: &Record) -> Option<String> {
    let lost = |leg: &Leg| {
        let spurious = leg.tcp_sender().and_then(|tcp| tcp.dsack_duplicates);
        let all = leg.tcp.as_ref()?.retransmitted_segments()?;
        Some(all.saturating_sub(spurious.unwrap_or(0)))
    };
    let lost = sum(record, lost)?;
    counted(lost, "retransmitted segments")
}

/// Drops of socket buffers and receive queues, at both ends.
fn overruns(record: &Record) -> Option<String> {
    let socket = sum(record, |leg| leg.udp.as_ref()?.socket_drops).unwrap_or(0);
    if let Some(words) = counted(socket, "datagrams dropped by the receiver's socket") {
        return Some(words);
    }
    record.ends().find_map(|(_, end)| {
        let dropped =
            counted(end.softnet_dropped.unwrap_or(0), "packets dropped by a receive queue");
        dropped.or_else(|| {
            OVERRUN_COUNTERS.iter().find_map(|name| {
                let count = end.counters.get(*name).copied().unwrap_or(0);
                (count > 0).then(|| format!("{name} rose by {count}"))
            })
        })
    })
}

/// The kernel's counters of buffers that were full.
const OVERRUN_COUNTERS: [&str; 4] =
    ["UdpRcvbufErrors", "TcpExtTCPBacklogDrop", "TcpExtTCPRcvQDrop", "TcpExtPruneCalled"];

fn caveat(record: &Record, kind: CaveatKind) -> Option<String> {
    let found = record.caveats.iter().find(|caveat| caveat.kind == kind)?;
    Some(found.message.clone())
}

/// What neither the test's threads nor soft interrupts used. On one kernel the other end, and the
/// emulator of the path, are among what is counted: nothing can be said there.
fn other_load(record: &Record) -> Option<String> {
    if record.environment.shared_kernel {
        return None;
    }
    record.ends().find_map(|(name, end)| {
        let percent = other_percent(end, record.seconds)?;
        (percent > OTHER_LOAD)
            .then(|| format!("something else used {percent:.0} % of the {name}'s CPUs"))
    })
}

/// Why a run tells more of a host that had no CPU for it than of the path, if it does: the
/// hypervisor took the CPUs, or the data threads waited for one while something else used them.
pub fn starved(record: &Record) -> Option<String> {
    if record.seconds < LEAST_SECONDS {
        return None;
    }
    let stolen = caveat(record, CaveatKind::BusyHost);
    stolen.or_else(|| {
        let waited_us = record.ends().filter_map(|(_, end)| end.run_delay_us);
        let percent = waited_us.max()? as f64 / (1e4 * record.seconds);
        let load = other_load(record).filter(|_| percent >= WAITED)?;
        Some(format!(
            "{load}, and the test's threads waited for one for {percent:.0} % of the time"
        ))
    })
}

/// Measured time from which on the kernel's counts of CPU time, in ticks of 10 ms, tell: a tick is
/// 1 % of a CPU.
const LEAST_SECONDS: f64 = 1.0;
/// Share of its time that a data thread may wait for a CPU, percent: it can lower a rate by as much,
/// and single runs differ by 5 % without a change (`record::baseline`).
const WAITED: f64 = 5.0;

fn other_percent(end: &EndReport, seconds: f64) -> Option<f64> {
    let own = end.cpu_seconds.total() + end.softirq_seconds?;
    let whole = f64::from(end.cpus) * seconds;
    (whole > 0.0).then_some(end.host_cpu_percent? - 100.0 * own / whole)
}

/// The number of thermal throttle events; `None` where the host does not count them.
fn throttles(record: &Record) -> Option<String> {
    record.ends().find_map(|(name, end)| {
        let throttles = end.thermal_throttles?;
        counted(throttles, &format!("thermal throttles of the {name}'s CPUs"))
    })
}

// The figure that is compared.

/// A figure of a [`Record`], by its path: `throughput_bps`, `latency_us.p99`,
/// `receiver.cpu_seconds`, `sender.counters.TcpExtTCPTimeouts`; of one of two directions
/// `legs.up.tcp.retransmitted_segments`.
///
/// Every number that a run measured is one, in the unit that its key names. What was asked for
/// (`plan`, `seed`), what the hosts are (`environment`) and what was concluded (`verdict`) are
/// none. The two halves of a CPU time are figures, and so is their sum, by the name of the whole.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Metric(String);

impl Metric {
    /// Its value in a record, in the unit that its key names; `None` where the run has no such
    /// figure. A counter of the kernel that is not there did not change: 0, if the end has been
    /// heard at all.
    pub fn of(&self, record: &Record) -> Option<f64> {
        let record = serde_json::to_value(record).ok()?;
        let mut place = &record;
        let mut was_counters = false;
        for key in self.0.split('.') {
            let entry = match place {
                Value::Array(legs) => legs.iter().find(|leg| leg["direction"] == key),
                object => object.get(key),
            };
            match entry {
                Some(next) => place = next,
                None if was_counters => return Some(0.0),
                // A map without entries is left out of the document.
                None if key == COUNTERS => {
                    was_counters = true;
                    continue;
                }
                None => return None,
            }
            was_counters = key == COUNTERS;
        }
        number(place)
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is of the path's responsiveness, for which flows are added to a path until it is
    /// busy.
    pub fn is_responsiveness(&self) -> bool {
        self.0.starts_with(RESPONSIVENESS)
    }

    /// What a test is run for, unless something else is asked: the rate of a transfer, the
    /// transactions or connections of a closed loop, and of an open one, whose rate is given, the
    /// median latency.
    pub fn headline(test: &Test) -> Self {
        let path = match &test.traffic {
            Traffic::Stream(_) => "throughput_bps",
            Traffic::Rr(exchange) | Traffic::Crr(exchange) if exchange.rate_per_s.is_some() => {
                "latency_us.p50"
            }
            Traffic::Rr(_) => "transactions_per_s",
            Traffic::Crr(_) => "connections_per_s",
        };
        Self(path.to_owned())
    }

    /// The paths of all figures, in alphabetical order; `*` stands for any name.
    pub fn known() -> impl Iterator<Item = &'static str> {
        // As the schema of a record has them, which a test holds it to: the schema's own code would
        // be a part of the program for this alone.
        include_str!("figures.txt").lines()
    }
}

impl FromStr for Metric {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let text = if text == RPM[0] { RPM[1] } else { text };
        if Self::known().any(|known| matches(known, text)) {
            return Ok(Self(text.to_owned()));
        }
        let why = format!("there is no such figure in a record; {}", hint(text));
        Err(TextError::new(text, why))
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Metric {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        text.parse()
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.0
    }
}

/// Figures of the responsiveness test.
const RESPONSIVENESS: &str = "responsiveness.";
/// The short name of the round trips per minute, and their path.
const RPM: [&str; 2] = ["rpm", "responsiveness.rpm"];
/// The kernel's counters, by their own names.
const COUNTERS: &str = "counters";
/// The directions, by their names.
const LEGS: &str = "legs";
/// An error shows at most this many characters of a path.
const MAX_SHOWN: usize = 60;

/// A number, or the sum of the two halves of a CPU time.
fn number(value: &Value) -> Option<f64> {
    if let Some(number) = value.as_f64() {
        return Some(number);
    }
    Some(value.get("user")?.as_f64()? + value.get("system")?.as_f64()?)
}

fn matches(known: &str, text: &str) -> bool {
    match known.strip_suffix('*') {
        Some(prefix) => text.strip_prefix(prefix).is_some_and(is_counter),
        None => known == text,
    }
}

/// Whether it can be the name of a counter, such as `TcpExtTCPTimeouts`.
fn is_counter(name: &str) -> bool {
    (1..=MAX_SHOWN).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The nearest path, or else the usual ones.
fn hint(text: &str) -> String {
    let usual = Metric::known()
        .filter(|known| !known.starts_with(LEGS) && !known.starts_with(RESPONSIVENESS));
    suggestion(text, usual).unwrap_or_else(|| {
        "such are throughput_bps, transactions_per_s, latency_us.p99, sender.cpu_seconds, \
         tcp.retransmitted_segments, udp.lost"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use schemars::schema_for;

    use super::*;
    use crate::compare::samples::record;
    use crate::plan::Direction;
    use crate::record::{Caveat, CpuSeconds, EndReport, Leg, TcpSender, UdpEvidence};

    #[test]
    fn faults_read_back_as_they_are_written() {
        for fault in FAULTS {
            assert_eq!(fault.name().parse(), Ok(fault));
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.name());
        }
        for never in [Fault::Incomplete, Fault::NoRatio] {
            assert!(never.name().parse::<Fault>().is_err());
        }
    }

    #[test]
    fn an_unknown_fault_is_answered_by_the_nearest_or_by_all() {
        let error = "retransmission".parse::<Fault>().unwrap_err().to_string();
        assert!(error.ends_with("did you mean `retransmissions`?"), "{error}");
        let error = "rain".parse::<Fault>().unwrap_err().to_string();
        assert!(error.ends_with("corruption, busy_host, clock, thermal"), "{error}");
    }

    #[test]
    fn a_clean_run_has_no_fault() {
        for fault in FAULTS.into_iter().chain([Fault::Incomplete]) {
            assert_eq!(fault.seen_in(&record(1e6)), None, "{fault}");
        }
    }

    #[test]
    fn each_fault_is_seen_in_its_own_figure() {
        let mut bad = record(1e6);
        bad.status = Status::Partial;
        bad.corrupted_bytes = Some(4);
        bad.caveats = vec![Caveat::new(CaveatKind::Clock, "hpet", "")];
        let tcp =
            TcpSender { retransmitted_segments: 3, timeouts: Some(1), ..TcpSender::default() };
        bad.legs[0].tcp = Some(tcp.clone().into());
        bad.legs[0].udp =
            Some(UdpEvidence { lost: 2, socket_drops: Some(9), ..UdpEvidence::default() });
        bad.legs[0].sender = Some(EndReport {
            cpus: 4,
            host_cpu_percent: Some(70.0),
            softirq_seconds: Some(0.1),
            cpu_seconds: CpuSeconds { user: 0.2, system: 0.7 },
            ..EndReport::default()
        });
        let seen = |fault: Fault| fault.seen_in(&bad).unwrap_or_default();
        assert_eq!(seen(Fault::Retransmissions), "3 retransmitted segments");
        let overtaken = |spurious: u64| {
            let mut record = bad.clone();
            let dsack_duplicates = Some(spurious);
            record.legs[0].tcp = Some(TcpSender { dsack_duplicates, ..tcp.clone() }.into());
            Fault::Retransmissions.seen_in(&record)
        };
        assert_eq!(overtaken(2).unwrap(), "1 retransmitted segments");
        assert_eq!(overtaken(3), None);
        assert_eq!(seen(Fault::Timeouts), "1 retransmission timeouts");
        assert_eq!(seen(Fault::Loss), "2 datagrams lost");
        assert_eq!(seen(Fault::BufferOverruns), "9 datagrams dropped by the receiver's socket");
        assert_eq!(seen(Fault::Corruption), "4 bytes arrived changed");
        assert_eq!(seen(Fault::Clock), "hpet");
        assert_eq!(seen(Fault::Incomplete), "the run ended before its time");
        // One CPU of four was the test's own: 45 % of the 70 % are somebody else's.
        assert_eq!(seen(Fault::BusyHost), "something else used 45 % of the sender's CPUs");
    }

    #[test]
    fn an_overrun_is_seen_in_the_hosts_counters_without_a_socket() {
        let mut bad = record(1e6);
        bad.legs[0].receiver = Some(EndReport {
            counters: [("TcpExtTCPRcvQDrop".to_owned(), 5)].into(),
            ..EndReport::default()
        });
        let seen = Fault::BufferOverruns.seen_in(&bad);
        assert_eq!(seen.as_deref(), Some("TcpExtTCPRcvQDrop rose by 5"));
    }

    #[test]
    fn heat_is_a_fault_where_it_is_counted() {
        let mut warm = record(1e6);
        let throttled =
            |count| Some(EndReport { thermal_throttles: Some(count), ..EndReport::default() });
        warm.legs[0].receiver = throttled(0);
        assert_eq!(Fault::Thermal.seen_in(&warm), None);
        warm.legs[0].receiver = throttled(3);
        assert_eq!(
            Fault::Thermal.seen_in(&warm).as_deref(),
            Some("3 thermal throttles of the receiver's CPUs")
        );
    }

    #[test]
    fn a_host_is_starved_where_its_cpus_were_taken_and_the_test_waited() {
        let run = |host_cpu_percent, run_delay_us| {
            let mut run = record(1e6);
            run.seconds = 10.0;
            run.legs[0].receiver = Some(EndReport {
                cpus: 2,
                host_cpu_percent: Some(host_cpu_percent),
                softirq_seconds: Some(0.0),
                run_delay_us: Some(run_delay_us),
                ..EndReport::default()
            });
            run
        };
        let why = starved(&run(100.0, 600_000)).expect("6 % of 10 s, with other load");
        assert!(why.ends_with("waited for one for 6 % of the time"), "{why}");
        // Other load that leaves it a CPU; and a test that waits for nobody but itself.
        assert_eq!(starved(&run(60.0, 400_000)), None);
        assert_eq!(starved(&run(10.0, 600_000)), None);
        assert_eq!(starved(&Record { seconds: 0.1, ..run(100.0, 60_000) }), None);
        let mut stolen = run(10.0, 0);
        let why = "the hypervisor took 7.0 % of the CPUs for others";
        stolen.caveats.push(Caveat::new(CaveatKind::BusyHost, why, ""));
        assert_eq!(starved(&stolen).as_deref(), Some(why));
    }

    #[test]
    fn on_one_kernel_the_other_end_is_no_stranger() {
        let mut local = record(1e6);
        local.environment.shared_kernel = true;
        local.legs[0].sender = Some(EndReport {
            cpus: 1,
            host_cpu_percent: Some(100.0),
            softirq_seconds: Some(0.0),
            ..EndReport::default()
        });
        assert_eq!(Fault::BusyHost.seen_in(&local), None);
    }

    /// Parts of a record that nobody measured, or that follow from what was measured.
    const NOT_MEASURED: [&str; 5] = ["plan", "seed", "environment", "verdict", "remedy"];

    #[test]
    fn figures_are_the_numbers_of_a_records_schema() {
        let schema = schema_for!(Record).to_value();
        let mut paths = Vec::new();
        collect(&schema, &schema, "", &mut paths);
        paths.sort();
        let figures = paths.join("\n") + "\n";
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            let place = concat!(env!("CARGO_MANIFEST_DIR"), "/src/compare/figures.txt");
            std::fs::write(place, &figures).unwrap();
        }
        let known: Vec<_> = Metric::known().collect();
        assert!(
            known.join("\n") + "\n" == figures,
            "UPDATE_SCHEMAS=1 cargo test -p linerate-core figures_are, then once more"
        );
    }

    /// Adds the paths of all numbers below a node of the schema. Of lists only the legs are
    /// entered: the others' entries have no names.
    fn collect(root: &Value, node: &Value, path: &str, paths: &mut Vec<String>) {
        let node = resolved(root, node);
        if is_number(node) {
            paths.push(path.to_owned());
        }
        let properties = node.get("properties").and_then(Value::as_object);
        if let Some(properties) = properties {
            if properties.contains_key("user") && properties.contains_key("system") {
                paths.push(path.to_owned());
            }
            for (key, property) in properties {
                if !NOT_MEASURED.contains(&key.as_str()) {
                    collect(root, property, &below(path, key), paths);
                }
            }
        }
        if let Some(entry) = node.get("additionalProperties").filter(|e| e.is_object()) {
            collect(root, entry, &below(path, "*"), paths);
        }
        if let Some(leg) = node.get("items").filter(|_| path == LEGS) {
            for direction in ["up", "down"] {
                collect(root, leg, &below(path, direction), paths);
            }
        }
    }

    fn below(path: &str, key: &str) -> String {
        match path {
            "" => key.to_owned(),
            _ => format!("{path}.{key}"),
        }
    }

    /// The definition behind a reference, be it one that may be absent.
    fn resolved<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
        let alternatives = node.get("anyOf").and_then(Value::as_array);
        let alternative =
            alternatives.and_then(|all| all.iter().find(|one| one.get("$ref").is_some()));
        let node = alternative.unwrap_or(node);
        let pointer = node.get("$ref").and_then(Value::as_str);
        pointer.and_then(|pointer| root.pointer(pointer.trim_start_matches('#'))).unwrap_or(node)
    }

    fn is_number(node: &Value) -> bool {
        let is = |kind: &Value| kind == "number" || kind == "integer";
        match node.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().any(is),
            Some(kind) => is(kind),
            None => false,
        }
    }

    fn metric(path: &str) -> Metric {
        path.parse().unwrap()
    }

    #[test]
    fn every_part_of_a_record_that_was_measured_has_figures() {
        for path in [
            "throughput_bps",
            "seconds",
            "latency_us.p99",
            "send_lag_us.max",
            "sender.cpu_seconds",
            "sender.cpu_seconds.user",
            "receiver.host_cpu_percent",
            "receiver.counters.TcpExtTCPTimeouts",
            "tcp.retransmitted_segments",
            "udp.gaps_us.p50",
            "legs.down.tcp.rtt_mean_us",
            "responsiveness.added_us",
            "legs.up.sender.counters.TcpRetransSegs",
        ] {
            assert_eq!(metric(path).as_str(), path);
        }
        assert_eq!(metric("rpm").as_str(), "responsiveness.rpm");
        assert!(Metric::known().count() > 200);
    }

    #[test]
    fn keys_that_were_not_measured_are_no_figures() {
        for path in [
            "",
            ".",
            "seed",
            "plan.streams",
            "environment.client.cpu.count",
            "verdict.predicted_bps",
            "intervals",
            "tcp",
            "tcp.options",
            "sender.method",
            "sender.counters",
            "sender.counters.*",
            "sender.counters.a.b",
            "legs.throughput_bps",
        ] {
            assert!(path.parse::<Metric>().is_err(), "{path}");
        }
    }

    #[test]
    fn an_unknown_figure_is_answered_by_the_nearest() {
        for (text, hint) in [
            ("throughput_bp", "did you mean `throughput_bps`?"),
            (
                "p99",
                "did you mean `latency_us.p99` or `one_way.down_us.p99` or `one_way.up_us.p99` or",
            ),
            ("latency_ms.p99", "did you mean `latency_us.p99`?"),
            ("speed", "such are throughput_bps"),
        ] {
            let message = text.parse::<Metric>().unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
        }
    }

    #[test]
    fn the_value_is_the_records_and_absent_where_the_record_has_none() {
        let mut sample = record(5e6);
        sample.legs[0].sender = Some(EndReport {
            cpu_seconds: CpuSeconds { user: 0.25, system: 1.5 },
            counters: [("TcpRetransSegs".to_owned(), 7)].into(),
            ..EndReport::default()
        });
        let value = |path: &str| metric(path).of(&sample);
        assert_eq!(value("throughput_bps"), Some(5e6));
        assert_eq!(value("sender.cpu_seconds"), Some(1.75));
        assert_eq!(value("sender.cpu_seconds.system"), Some(1.5));
        assert_eq!(value("sender.counters.TcpRetransSegs"), Some(7.0));
        assert_eq!(value("sender.counters.TcpExtTCPTimeouts"), Some(0.0));
        assert_eq!(value("receiver.counters.TcpRetransSegs"), None);
        assert_eq!(value("latency_us.p99"), None);
    }

    #[test]
    fn each_of_two_directions_has_its_own_figures() {
        let mut sample = record(5e6);
        sample.legs.push(Leg { throughput_bps: Some(2e6), ..Leg::new(Direction::Down) });
        assert_eq!(metric("throughput_bps").of(&sample), Some(7e6));
        assert_eq!(metric("legs.up.throughput_bps").of(&sample), Some(5e6));
        assert_eq!(metric("legs.down.throughput_bps").of(&sample), Some(2e6));
        assert_eq!(metric("legs.down.throughput_bps").of(&record(5e6)), None);
    }

    #[test]
    fn a_host_without_changed_counters_counts_zero() {
        let mut sample = record(5e6);
        sample.legs[0].receiver = Some(EndReport::default());
        let value = metric("receiver.counters.TcpRetransSegs").of(&sample);
        assert_eq!(value, Some(0.0));
    }

    proptest! {
        #[test]
        fn no_text_is_too_much_for_the_parser(text in "\\PC{0,80}") {
            if let Err(error) = text.parse::<Metric>() {
                prop_assert!(error.to_string().len() < 600);
            }
        }
    }
}
