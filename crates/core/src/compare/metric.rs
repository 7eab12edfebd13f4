//! The figure of a record that is compared.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{Test, Traffic};
use crate::record::Record;
use crate::units::{TextError, suggestion};

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
    use crate::record::{CpuSeconds, EndReport, Leg};

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
