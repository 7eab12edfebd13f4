//! Results of the requests of a run.

use std::io;

use linerate_core::assemble::ExchangeTotals;
use linerate_core::one_way::{OneWay, Probe};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::stats::LatencyHistogram;
use linerate_core::video::Playback;

use super::exchange::LostEachWay;

/// The times of a transaction of `crr` whose response is complete, by [`crate::clock`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerOutcome {
    pub(crate) began_ns: u64,
    pub(crate) connected_ns: u64,
    pub(crate) answered_ns: u64,
}

/// Results of the requests that were meant to start within the measured time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExchangeOutcome {
    /// From the (intended) start of a request to the end of its response.
    pub(crate) latency: LatencyHistogram,
    /// Open loop: how late this end sent, without the time for which the peer left no room.
    pub(crate) send_lag: Option<LatencyHistogram>,
    /// Requests that were answered.
    pub(crate) transactions: u64,
    /// Open loop: requests that were due in the measured time and never sent.
    pub(crate) not_sent: u64,
    /// Requests that were sent, or tried, and not answered.
    pub(crate) failed: u64,
    /// Failures of connections (`crr`); a transaction may meet several and still succeed.
    pub(crate) failures: Failures,
    /// Length of the measured time, seconds.
    pub(crate) seconds: f64,
    /// Delays from STAMP's answers, of as many answers as are kept.
    pub(crate) probes: Vec<Probe>,
    /// Losses that STAMP's answers show.
    pub(crate) lost: LostEachWay,
    /// From the beginning of a page to its last byte.
    pub(crate) pages: Option<LatencyHistogram>,
    pub(crate) video: Option<Playback>,
}

/// Failures of connections by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) refused: u64,
    pub(crate) timed_out: u64,
    pub(crate) reset: u64,
    /// No local port was free; the transaction waited for one.
    pub(crate) ports_exhausted: u64,
    pub(crate) other: u64,
}

impl ExchangeOutcome {
    /// Adds the results of another flow.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        merge_known(&mut self.send_lag, other.send_lag.as_ref());
        merge_known(&mut self.pages, other.pages.as_ref());
        self.transactions += other.transactions;
        self.not_sent += other.not_sent;
        self.failed += other.failed;
        self.failures.merge(&other.failures);
        self.seconds = self.seconds.max(other.seconds);
        self.probes.extend(&other.probes);
        self.lost.merge(other.lost);
        self.video = self.video.or(other.video);
    }
}

fn merge_known(sum: &mut Option<LatencyHistogram>, other: Option<&LatencyHistogram>) {
    if let Some(other) = other {
        sum.get_or_insert_default().merge(other);
    }
}

impl Failures {
    fn merge(&mut self, other: &Self) {
        self.refused += other.refused;
        self.timed_out += other.timed_out;
        self.reset += other.reset;
        self.ports_exhausted += other.ports_exhausted;
        self.other += other.other;
    }

    /// A caveat for the record, if connections failed.
    pub(crate) fn caveat(&self) -> Option<Caveat> {
        let kinds = [
            (self.refused, "refused"),
            (self.timed_out, "timed out"),
            (self.reset, "reset"),
            (self.ports_exhausted, "without a free local port"),
            (self.other, "failed otherwise"),
        ];
        let met: Vec<String> = kinds
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let remedy = if self.ports_exhausted > 0 {
            "let the endpoint close the connections, or close by reset"
        } else {
            "look at the endpoint's log, and for a device on the path that limits connections"
        };
        let message = format!("attempts to connect or exchange failed: {}", met.join(", "));
        (!met.is_empty()).then(|| Caveat::new(CaveatKind::ConnectionsFailed, message, remedy))
    }

    /// Counts one.
    pub(crate) fn count(&mut self, error: &io::Error) {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionRefused => &mut self.refused,
            io::ErrorKind::TimedOut => &mut self.timed_out,
            // Through a proxy a reset looks like the end of the stream within a response.
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => &mut self.reset,
            io::ErrorKind::AddrNotAvailable => &mut self.ports_exhausted,
            _ => &mut self.other,
        };
        *kind += 1;
    }
}

impl From<&ExchangeOutcome> for ExchangeTotals {
    fn from(outcome: &ExchangeOutcome) -> Self {
        let latency = outcome.latency.summary();
        Self {
            transactions: outcome.transactions,
            failed: outcome.failed,
            not_sent: outcome.send_lag.as_ref().map(|_| outcome.not_sent),
            latency,
            histogram: latency.map(|_| outcome.latency.buckets()),
            send_lag: outcome.send_lag.as_ref().and_then(LatencyHistogram::summary),
            one_way: OneWay::new(&outcome.probes, outcome.lost.known()),
            page: outcome.pages.as_ref().and_then(LatencyHistogram::summary),
            video: outcome.video,
        }
    }
}
