//! The strategy for one path: all TTLs at once, then once more those with missing answers.

use std::collections::VecDeque;

use super::config::{ConfigError, TraceConfig};
use super::outcome::{self, TraceOutcome};
use super::probe::{Answer, AnswerKind, Probe, ProbeId, ProbeLedger};
use linerate_units::{Nanos, SplitMix64};

/// Allowance on top of two RTTs, because routers answer on their slow path.
pub(super) const ANSWER_ALLOWANCE: Nanos = Nanos::from_millis(50);
/// Minimum wait for a hop behind the last answer, which may be far away.
const MIN_WAIT_BEYOND: Nanos = Nanos::from_millis(1_000);
/// Number of hops behind the last answer that are probed again, besides the last TTL.
const ASKED_BEYOND: u8 = 4;
/// A hop whose wait has ended this long ago, because the path seemed to end before it, is not
/// probed again.
const TOO_LATE: Nanos = Nanos::from_millis(100);
/// Maximum number of probes that are sent at once after the caller was late.
const CATCH_UP: u64 = 10;

/// A trace of one path as a state machine; the [module](super) explains what it sends when.
///
/// After each call that changes it, the driver sends what [`Tracer::poll_transmit`] gives until
/// there is no more, and calls [`Tracer::handle_timeout`] at [`Tracer::poll_timeout`], until
/// [`Tracer::is_done`].
#[derive(Debug, Clone)]
pub struct Tracer {
    config: TraceConfig,
    ledger: ProbeLedger,
    /// The hops, from the lowest TTL.
    hops: Vec<HopState>,
    /// Number of probes of the first round that were sent.
    sent_first: usize,
    /// TTLs to be probed again.
    again: VecDeque<u8>,
    /// When the next probe may be sent.
    next_due: Nanos,
    started: Nanos,
    /// The latest time that the caller passed.
    now: Nanos,
    /// The lowest TTL at which the target answered.
    reached: Option<u8>,
    /// The lowest TTL at which a router reported that the probe goes no further.
    stopped: Option<u8>,
    /// The highest TTL at which a router answered that the TTL was used up.
    farthest: u8,
}

#[derive(Debug, Clone, Default)]
struct HopState {
    probes: Vec<ProbeId>,
    last_sent: Nanos,
    asked_again: u8,
    least_rtt: Option<Nanos>,
    /// Whether nothing more is sent or awaited.
    is_closed: bool,
}

impl Tracer {
    /// Starts a trace at `now`. The seed determines the session.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is out of range.
    pub fn new(config: TraceConfig, now: Nanos, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            ledger: ProbeLedger::new(config.target, session_of(seed)),
            hops: vec![HopState::default(); usize::from(config.ttls())],
            sent_first: 0,
            again: VecDeque::new(),
            next_due: now,
            started: now,
            now,
            reached: None,
            stopped: None,
            farthest: 0,
            config,
        })
    }

    /// The random number that its probes carry.
    pub fn session(&self) -> u16 {
        self.ledger.session()
    }

    /// The settings.
    pub fn config(&self) -> &TraceConfig {
        &self.config
    }

    /// The next probe, to be sent at once; `None` if none is due.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Probe> {
        self.now = self.now.max(now);
        if now < self.next_due {
            return None;
        }
        let (ttl, attempt) = self.next_to_send()?;
        let id = self.ledger.send(now, ttl, self.config.flow, attempt)?;
        let gap = self.config.gap();
        let earliest = now - Nanos(gap.0.saturating_mul(CATCH_UP));
        self.next_due = self.next_due.max(earliest) + gap;
        if attempt == 0 {
            self.sent_first += 1;
        } else {
            self.again.pop_front();
        }
        let hop = self.hop_mut(ttl);
        hop.probes.push(id);
        hop.last_sent = now;
        Some(self.config.probe(id, ttl, self.config.flow))
    }

    /// Corrects the time at which a probe was sent to `at`, a time stamp of the kernel. RTTs count
    /// from there.
    pub fn handle_sent(&mut self, id: ProbeId, at: Nanos) {
        self.ledger.correct(id, at);
    }

    /// Takes an answer that arrived at `received`.
    pub fn handle_answer(&mut self, received: Nanos, answer: Answer) {
        self.now = self.now.max(received);
        let Some(id) = self.ledger.take(received, answer) else {
            return;
        };
        let sent = self.ledger.get(id);
        let Some(reply) = &sent.reply else { return };
        let (ttl, rtt, kind) = (sent.ttl, reply.rtt, reply.kind);
        if self.ledger.is_from_target(reply) {
            self.reached = Some(self.reached.map_or(ttl, |lowest| lowest.min(ttl)));
        } else if kind.is_end() {
            self.stopped = Some(self.stopped.map_or(ttl, |lowest| lowest.min(ttl)));
        } else if kind == AnswerKind::TimeExceeded {
            self.farthest = self.farthest.max(ttl);
        }
        let hop = self.hop_mut(ttl);
        hop.least_rtt = Some(hop.least_rtt.map_or(rtt, |least| least.min(rtt)));
        self.settle(ttl);
        self.forget_beyond();
    }

    /// Call at or after [`Tracer::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let expired = self.deadlines().filter(|(_, deadline)| *deadline <= now);
        for (ttl, _) in expired.collect::<Vec<_>>() {
            let probes = self.hop(ttl).probes.clone();
            for id in probes {
                if self.ledger.get(id).is_outstanding() {
                    self.ledger.give_up(id);
                }
            }
            self.settle(ttl);
        }
    }

    /// When to call [`Tracer::handle_timeout`] and then [`Tracer::poll_transmit`]; `None` when it
    /// is done. It may lie in the past: then at once.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let due = self.next_to_send().map(|_| self.next_due);
        let deadlines = self.deadlines().map(|(_, deadline)| deadline);
        deadlines.chain(due).min()
    }

    /// Whether there is nothing more to send or to wait for.
    pub fn is_done(&self) -> bool {
        self.poll_timeout().is_none()
    }

    /// The result; if the trace was stopped before its end, what is known so far.
    pub fn finish(self) -> TraceOutcome {
        let times = (self.started, self.now);
        outcome::assemble(&self.config, &self.ledger, self.end(), times)
    }

    /// The highest TTL that counts.
    fn end(&self) -> u8 {
        let stopped = self.stopped.filter(|ttl| *ttl > self.farthest);
        self.reached.or(stopped).unwrap_or(self.config.hops)
    }

    fn hop(&self, ttl: u8) -> &HopState {
        &self.hops[usize::from(ttl - self.config.first)]
    }

    fn hop_mut(&mut self, ttl: u8) -> &mut HopState {
        &mut self.hops[usize::from(ttl - self.config.first)]
    }

    /// The TTL of the next probe, and its attempt.
    fn next_to_send(&self) -> Option<(u8, u8)> {
        let place = self.sent_first / usize::from(self.config.probes);
        let first_round = u8::try_from(usize::from(self.config.first) + place).ok();
        if let Some(ttl) = first_round.filter(|ttl| *ttl <= self.end()) {
            return Some((ttl, 0));
        }
        let ttl = *self.again.front()?;
        Some((ttl, self.hop(ttl).asked_again))
    }

    /// Removes hops past the end from those that are probed again.
    fn forget_beyond(&mut self) {
        let end = self.end();
        self.again.retain(|ttl| *ttl <= end);
    }

    /// Closes a hop that is complete, or schedules it to be probed again.
    fn settle(&mut self, ttl: u8) {
        let ledger = &self.ledger;
        let hop = self.hop(ttl);
        let mut first_round = 0;
        let mut is_missing = false;
        let mut is_waiting = false;
        let mut last_answered = false;
        for sent in hop.probes.iter().map(|id| ledger.get(*id)) {
            first_round += usize::from(sent.attempt == 0);
            is_missing |= sent.attempt == 0 && sent.reply.is_none();
            is_waiting |= sent.is_outstanding();
            last_answered = sent.attempt > 0 && sent.reply.is_some();
        }
        if first_round < usize::from(self.config.probes) || self.again.contains(&ttl) {
            return;
        }
        let is_in_time = self.now <= hop.last_sent + self.config.timeout + TOO_LATE;
        let has_retries = is_in_time && hop.asked_again < self.config.retries && !last_answered;
        if !is_missing {
            self.hop_mut(ttl).is_closed = true;
        } else if !is_waiting && has_retries && self.is_worth_asking(ttl) {
            self.hop_mut(ttl).asked_again += 1;
            self.again.push_back(ttl);
        } else if !is_waiting {
            self.hop_mut(ttl).is_closed = true;
        }
    }

    /// Whether a hop may answer: behind the last answer there may be none.
    fn is_worth_asking(&self, ttl: u8) -> bool {
        let farthest = self.farthest.max(self.config.first - 1);
        let last_answer = self.reached.unwrap_or(farthest);
        ttl <= self.end()
            && (ttl <= last_answer.saturating_add(ASKED_BEYOND) || ttl == self.config.hops)
    }

    /// The open hops with outstanding probes, and the end of the wait for each, from the highest
    /// TTL.
    fn deadlines(&self) -> impl Iterator<Item = (u8, Nanos)> {
        let largest = self.hops.iter().filter_map(|hop| hop.least_rtt).max();
        let end = self.end();
        let mut beyond = None;
        (self.config.first..=self.config.hops).zip(&self.hops).rev().filter_map(
            move |(ttl, hop)| {
                beyond = hop.least_rtt.or(beyond);
                let is_open = !hop.is_closed && ttl <= end;
                let is_waiting = || {
                    let mut sent = hop.probes.iter().map(|id| self.ledger.get(*id));
                    sent.any(|sent| sent.is_outstanding())
                };
                let wait = wait(beyond, largest, self.config.timeout);
                (is_open && is_waiting()).then(|| (ttl, hop.last_sent + wait))
            },
        )
    }
}

/// How long to wait for a hop, at most `most`: depends on the RTT of the nearest hop from it on
/// that has answered, or else on the largest RTT.
pub(super) fn wait(beyond: Option<Nanos>, largest: Option<Nanos>, most: Nanos) -> Nanos {
    let wait = match (beyond, largest) {
        (Some(rtt), _) => rtt + rtt + ANSWER_ALLOWANCE,
        (None, Some(rtt)) => MIN_WAIT_BEYOND.max(Nanos(rtt.0.saturating_mul(4))),
        (None, None) => most,
    };
    wait.min(most)
}

/// Seeds that differ in one bit give unrelated sessions.
pub(super) fn session_of(seed: u64) -> u16 {
    SplitMix64::new(seed).draw() as u16
}
