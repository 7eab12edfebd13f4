//! What became of the requests of a run.

use std::io;

use linerate_core::assemble::ExchangeTotals;
use linerate_core::one_way::{OneWay, Probe};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::stats::LatencyHistogram;
use linerate_core::video::Playback;

use super::exchange::LostEachWay;

/// A transaction of `crr` that has its whole response, by [`crate::clock`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) began_ns: u64,
    pub(crate) connected_ns: u64,
    pub(crate) answered_ns: u64,
}

/// What became of the requests that were meant to start within the measured time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExchangeOutcome {
    /// From the (intended) start of a request to its whole response.
    pub(crate) latency: LatencyHistogram,
    /// Open loop: how late the generator itself sent. Time for which the peer left no room is not
    /// in it.
    pub(crate) send_lag: Option<LatencyHistogram>,
    /// Answered.
    pub(crate) transactions: u64,
    /// Open loop: due in the measured time and never sent.
    pub(crate) not_sent: u64,
    /// Sent, or tried, without an answer.
    pub(crate) failed: u64,
    /// Why connections failed (`crr`); one transaction may meet several, and survive.
    pub(crate) failures: Failures,
    /// Length of the measured time.
    pub(crate) seconds: f64,
    /// STAMP's answers, or as many of them as are kept.
    pub(crate) probes: Vec<Probe>,
    /// What they tell of losses.
    pub(crate) lost: LostEachWay,
    /// From a page's beginning to its last byte.
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
    /// Adds another flow's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        if let Some(lag) = &other.send_lag {
            self.send_lag
                .get_or_insert_with(LatencyHistogram::new)
                .merge(lag);
        }
        self.transactions += other.transactions;
        self.not_sent += other.not_sent;
        self.failed += other.failed;
        self.failures.merge(&other.failures);
        self.seconds = self.seconds.max(other.seconds);
        self.probes.extend(&other.probes);
        self.lost.merge(other.lost);
        if let Some(pages) = &other.pages {
            self.pages
                .get_or_insert_with(LatencyHistogram::new)
                .merge(pages);
        }
        self.video = self.video.or(other.video);
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

    /// What connections met, for the record.
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
            // An end in the middle of a response is what a reset looks like from behind a proxy.
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
            send_lag: outcome
                .send_lag
                .as_ref()
                .and_then(LatencyHistogram::summary),
            one_way: OneWay::new(&outcome.probes, outcome.lost.known()),
            page: outcome.pages.as_ref().and_then(LatencyHistogram::summary),
            video: outcome.video,
        }
    }
}
