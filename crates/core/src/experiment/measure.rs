//! One run of a cell, as the file of records and the document have it, and the figure of it that a
//! column or a finding names.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::workload::SPECIAL_FIGURES;
use crate::compare::Metric;
use crate::load::LOAD_FIGURES;
use crate::record::{LabDirection, Record};
use crate::units::TextError;

/// A run of a cell and its results.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The level of each factor, by name.
    pub levels: BTreeMap<String, String>,
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// Which attempt at that repeat it is, from 1: a run with a validity fault is made again.
    pub attempt: u32,
    /// The treatments in force, or `none`.
    pub treatments: String,
    /// Validity faults, in words with their figures. A run with one counts for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Why the run failed. A failed run is not evaluated.
    pub error: Option<String>,
    /// Figures that no record has, by name: of a workload that is not a network test, and
    /// `qos_packet_ns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// The record of a network test.
    pub record: Option<Box<Record>>,
}

impl Run {
    /// Reads what [`Self::to_json`] wrote. Here, because the code of a record is large, and each
    /// crate that reads one by itself has it again.
    ///
    /// # Errors
    /// The text is not JSON, or not a run.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// The run as JSON on one line, without a newline.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("runs have string keys")
    }

    /// Whether its figures count.
    pub fn counts(&self) -> bool {
        self.faults.is_empty() && self.error.is_none()
    }
}

/// A figure of a run: of its record ([`Metric`]), of the emulated links, or of a workload that is
/// no network test.
#[derive(Debug, Clone, PartialEq)]
pub enum Measure {
    /// A figure of a record; a special workload's of the same name stands beside it.
    Record(Metric),
    /// `lab.up.corrupted`: a counter of the emulated links, one direction of each, summed.
    Lab {
        /// The direction: `up` or `down`.
        direction: &'static str,
        /// The counter, a key of [`LabDirection`].
        key: String,
    },
    /// A figure that no record has: of a special workload, of a load, or [`QOS_PACKET_NS`].
    Special(&'static str),
}

/// Nanoseconds that the program of the client's `qos` treatment takes for a packet like those of
/// the test. It is measured after the run, where a column or a finding asks for it.
pub const QOS_PACKET_NS: &str = "qos_packet_ns";

impl Measure {
    /// Its value in a run, in the unit that its name says; `None` where the run has no such figure.
    pub fn of(&self, run: &Run) -> Option<f64> {
        let own = run.figures.get(&self.to_string()).copied();
        own.or_else(|| match (self, &run.record) {
            (Self::Record(metric), Some(record)) => metric.of(record),
            (Self::Lab { direction, key }, Some(record)) => lab_sum(record, direction, key),
            (Self::Special(_), _) | (_, None) => None,
        })
        .filter(|value| value.is_finite())
    }
}

impl FromStr for Measure {
    type Err = TextError;

    /// Reads the path of a figure.
    fn from_str(text: &str) -> Result<Self, TextError> {
        if let Some(counter) = lab_counter(text) {
            return Ok(counter);
        }
        let mut own = (SPECIAL_FIGURES.iter().chain(LOAD_FIGURES)).chain(&[QOS_PACKET_NS]);
        match (text.parse(), own.find(|name| **name == text)) {
            (Ok(metric), _) => Ok(Self::Record(metric)),
            (Err(_), Some(name)) => Ok(Self::Special(name)),
            (Err(error), None) => Err(error),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(metric) => metric.fmt(f),
            Self::Lab { direction, key } => write!(f, "lab.{direction}.{key}"),
            Self::Special(name) => f.write_str(name),
        }
    }
}

fn lab_counter(text: &str) -> Option<Measure> {
    let (direction, key) = text.strip_prefix("lab.")?.split_once('.')?;
    let direction = ["up", "down"].into_iter().find(|d| *d == direction)?;
    // Those that may be absent, too.
    let all = LabDirection {
        lateness_p50_us: Some(0.0),
        lateness_p99_us: Some(0.0),
        ..LabDirection::default()
    };
    serde_json::to_value(all).ok()?.get(key)?;
    Some(Measure::Lab { direction, key: key.to_owned() })
}

fn lab_sum(record: &Record, direction: &str, key: &str) -> Option<f64> {
    let links = &record.environment.lab.as_ref()?.links;
    let counts = links.iter().filter_map(|link| {
        let end = match direction {
            "up" => &link.up,
            _ => &link.down,
        };
        serde_json::to_value(end).ok()?.get(key)?.as_f64()
    });
    let counts: Vec<f64> = counts.collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use schemars::schema_for;

    use super::*;

    #[test]
    fn every_count_of_a_link_is_a_figure() {
        let schema = schema_for!(LabDirection).to_value();
        let keys = schema["properties"].as_object().unwrap().keys();
        for key in keys {
            let figure = lab_counter(&format!("lab.up.{key}"));
            assert!(figure.is_some(), "{key}");
        }
        assert!(lab_counter("lab.up.luck").is_none());
    }
}
