//! Connections beside the load: each is made, used once and closed.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use linerate_core::plan::{Direction, ExchangeTest, Extent, SocketOptions, Test, Traffic};
use linerate_core::responsiveness::Probe;
use linerate_core::units::Span;

use super::Request;
use crate::client::Client;
use crate::clock::{nanos, now_ns};
use crate::error::MeasureError;
use crate::join::joined;
use crate::measure::outcome::AnswerOutcome;
use crate::stop::Stop;

/// Probes under way.
pub(super) struct Probes<'scope> {
    told: Receiver<AnswerOutcome>,
    answers: Vec<AnswerOutcome>,
    thread: ScopedJoinHandle<'scope, Result<(), MeasureError>>,
}

/// Most probes for each second (the draft's MPS).
const MAX_PER_S: f64 = 100.0;
/// Fewest, on a slow path.
const MIN_PER_S: f64 = 4.0;
/// Share of what the path carries that the probes may have (the draft's PTC).
const SHARE: f64 = 0.05;
/// What a probe sends each way: six packets of TCP without payload or with little, Ethernet's
/// header on each.
const PROBE_BITS: f64 = 6.0 * 80.0 * 8.0;
/// Each flow makes one connection after the other: so many are under way at once.
const FLOWS: u32 = 16;
/// Longest wait for the first answer.
const FIRST: Duration = Duration::from_secs(10);

impl<'scope> Probes<'scope> {
    /// From now on, until `over`.
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        client: &'env mut Client,
        request: &Request,
        over: &'env Stop,
    ) -> Self {
        let (tell, told) = mpsc::channel();
        let limits = &client.welcome().limits;
        let longest = Duration::try_from_secs_f64(limits.seconds).unwrap_or(Duration::MAX);
        let test = probe_test(request, FLOWS.min(limits.streams), longest);
        let thread = scope.spawn(move || {
            let outcome = client.run_told(&test, tell, &mut |_| !over.is_requested())?;
            match outcome.error {
                Some(MeasureError::Interrupted) if over.is_requested() => Ok(()),
                Some(error) => Err(error),
                None => Ok(()),
            }
        });
        Self { told, answers: Vec::new(), thread }
    }

    /// Waits for the first answer.
    pub(super) fn first(&mut self) -> bool {
        let first = self.told.recv_timeout(FIRST);
        self.answers.extend(first.ok());
        !self.answers.is_empty()
    }

    /// Takes answers for so long; false if no more will come.
    pub(super) fn take(&mut self, time: Duration) -> bool {
        let until_ns = now_ns() + nanos(time);
        loop {
            let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
            match self.told.recv_timeout(left) {
                Ok(answer) => self.answers.push(answer),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Mean round trip of those that have ended since then, µs.
    pub(super) fn round_trip_us(&self, since_ns: u64) -> Option<f64> {
        let ended = between(&self.answers, since_ns, u64::MAX);
        let mean = ended.iter().map(|probe| probe.round_trip_us()).sum::<f64>();
        (!ended.is_empty()).then(|| mean / ended.len() as f64)
    }

    /// All that ended, when the session is through with them.
    ///
    /// # Errors
    /// They could not be begun, or ended early.
    pub(super) fn end(self) -> Result<Vec<AnswerOutcome>, MeasureError> {
        joined(self.thread.join()).map(|()| self.answers)
    }
}

/// Probes that ended between two times.
pub(super) fn between(answers: &[AnswerOutcome], from_ns: u64, to_ns: u64) -> Vec<Probe> {
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let ended = answers.iter().filter(|answer| (from_ns..to_ns).contains(&answer.answered_ns));
    let probe = |answer: &AnswerOutcome| Probe {
        connect_us: us(answer.began_ns, answer.connected_ns),
        request_us: us(answer.connected_ns, answer.answered_ns),
    };
    ended.map(probe).collect()
}

fn probe_test(request: &Request, flows: u32, longest: Duration) -> Test {
    let affordable = request.rate_bps.map(|bps| bps * SHARE / PROBE_BITS);
    let rate = affordable.map_or(MAX_PER_S, |rate| rate.clamp(MIN_PER_S, MAX_PER_S));
    let load = &request.load;
    Test {
        traffic: Traffic::Crr(ExchangeTest { rate_per_s: Some(rate), ..ExchangeTest::new(1, 1) }),
        direction: Direction::Up,
        streams: flows,
        extent: Extent::Time(Span(request.longest().min(longest))),
        warm_up: Span(Duration::ZERO),
        interval: Span(request.interval),
        // What is asked of the load's sockets is not asked of these.
        options: SocketOptions { nodelay: true, ..SocketOptions::default() },
        ..load.clone()
    }
}
