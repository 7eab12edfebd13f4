//! What one run of one program gave, and the figures that are made of it.

use serde::{Deserialize, Serialize};

/// One run, in the same terms for every program.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Payload that the receiver had, bytes.
    pub(crate) bytes: f64,
    /// Length of the run as the program counts it.
    pub(crate) seconds: f64,
    /// Messages or datagrams that the receiver had, or transactions.
    pub(crate) units: f64,
    /// Of the whole life of the sending (or asking) process.
    pub(crate) sender_cpu_s: f64,
    /// Of the whole life of the receiving (or answering) process.
    pub(crate) receiver_cpu_s: f64,
    /// Median round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_us: Option<f64>,
    /// 99th percentile of the round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_us: Option<f64>,
    /// Datagrams lost, percent of those sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loss_percent: Option<f64>,
    /// 99th percentile of the gaps between datagrams over their median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gap_spread: Option<f64>,
    /// How the bytes were handed over, where the program says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
}

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    Goodput,
    UnitsPerSecond,
    /// Of both ends, for so many bytes.
    Cost,
    SenderCost,
    ReceiverCost,
    /// Of both ends, for each message, transaction or connection.
    UnitCost,
    P50,
    P99,
    Loss,
    GapSpread,
}

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput, Gbit/s",
            Self::UnitsPerSecond => "thousands each second",
            Self::Cost => "CPU of both, s/GiB",
            Self::SenderCost => "sender CPU, s/GiB",
            Self::ReceiverCost => "receiver CPU, s/GiB",
            Self::UnitCost => "CPU of both, µs each",
            Self::P50 => "round trip p50, µs",
            Self::P99 => "round trip p99, µs",
            Self::Loss => "loss, %",
            Self::GapSpread => "gaps, p99 ÷ p50",
        }
    }

    /// The figure in the unit of its name; `None` where the run does not have it.
    pub(crate) fn of(self, run: &Measurement) -> Option<f64> {
        let per_gib = |cpu_s: f64| cpu_s / (run.bytes / f64::from(1 << 30));
        let both = run.sender_cpu_s + run.receiver_cpu_s;
        let figure = match self {
            Self::Goodput => run.bytes * 8.0 / run.seconds / 1e9,
            Self::UnitsPerSecond => run.units / run.seconds / 1e3,
            Self::Cost => per_gib(both),
            Self::SenderCost => per_gib(run.sender_cpu_s),
            Self::ReceiverCost => per_gib(run.receiver_cpu_s),
            Self::UnitCost => both * 1e6 / run.units,
            Self::P50 => run.p50_us?,
            Self::P99 => run.p99_us?,
            Self::Loss => run.loss_percent?,
            Self::GapSpread => run.gap_spread?,
        };
        figure.is_finite().then_some(figure)
    }
}
