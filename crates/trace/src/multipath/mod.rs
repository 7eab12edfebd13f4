//! All equal-cost paths: the multipath detection algorithm with node control.
//!
//! Every flow samples the paths. The first flows (6 at 95 %) are sent to all TTLs at once, in the
//! order of [`super::Tracer`]. Then each router must have forwarded so many flows, answered at the
//! next TTL, that the [stopping rule](stopping_point) expects no further router there. Until then,
//! further flows are sent: those known to go through the router, or else new ones, which are first
//! sent to the router's own TTL to see whether they do. At a TTL with a single router, all flows go
//! through it, so that this is not needed.
//!
//! Last, where several routers were found at a TTL, some flows that answered there are sent there
//! once more: as many as the rule asks of a single next router. A router that balances by flow
//! sends them the same way again; one that balances by packet does not.
//!
//! Routers limit their answers (Linux: 6 at once, then one a second). Probes that such a router
//! does not answer are sent again ever more slowly, down to the rate of the limit; the first flows
//! at 95 % are exactly the burst that it allows.

mod graph;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

pub use graph::{Level, Node, PathLink, PathsDocument, RoutedPath};
use linerate_units::Nanos;

use super::config::{ConfigError, TraceConfig, check_ranges};
use super::identity::MAX_FLOWS;
use super::probe::{Answer, AnswerKind, Probe, ProbeId, ProbeLedger};
use super::tracer::{session_of, wait};

/// Maximum number of probes of a flow at a TTL that has answered. At a silent TTL, the first flow
/// has two.
const ATTEMPTS: u8 = 10;
const ATTEMPTS_IN_SILENCE: u8 = 2;
/// Interval between probes to a TTL with missing answers: it grows from the first to just above a
/// limit of one a second.
const FIRST_INTERVAL: Nanos = Nanos::from_millis(100);
const LONGEST_INTERVAL: Nanos = Nanos::from_millis(1_100);

/// The settings of a [`PathFinder`].
#[derive(Debug, Clone, PartialEq)]
pub struct MultipathConfig {
    /// Target, kind, TTLs, size, marks, timeout and rate. Its flow is the first one; its numbers of
    /// probes and retries are ignored.
    pub trace: TraceConfig,
    /// Confidence of the stopping rule at each router, 0.5 to 0.9999; usual are 0.95 and 0.99.
    pub confidence: f64,
    /// Maximum number of flows, 1 to [`MAX_FLOWS`] less the first flow.
    pub most_flows: u16,
    /// Maximum time.
    pub longest: Nanos,
}

impl MultipathConfig {
    /// The defaults: 95 %, 256 flows, a minute.
    pub fn new(trace: TraceConfig) -> Self {
        Self { trace, confidence: 0.95, most_flows: 256, longest: Nanos::from_millis(60_000) }
    }

    /// Checks the range of every setting.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting and its range; the confidence is in parts of 10,000 there.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.trace.check()?;
        let most = u64::from(MAX_FLOWS - self.trace.flow);
        // The conversion of a float saturates, and converts NaN to 0.
        let confidence = (self.confidence * 1e4).round() as u64;
        check_ranges(&[
            ("the number of flows", self.most_flows.into(), 1, most),
            ("the confidence in 1/10,000", confidence, 5_000, 9_999),
        ])
    }
}

/// A search for all paths as a state machine, driven like [`super::Tracer`].
#[derive(Debug, Clone)]
pub struct PathFinder {
    config: MultipathConfig,
    ledger: ProbeLedger,
    /// The cells, by TTL and flow.
    cells: BTreeMap<(u8, u16), FlowCell>,
    /// The TTLs, from the lowest.
    levels: Vec<LevelState>,
    /// Number of flows in use, from the first one.
    flows: u16,
    next_due: Nanos,
    started: Nanos,
    now: Nanos,
    /// The lowest TTL at which the target answered.
    reached: Option<u8>,
    /// Whether it had to stop before the stopping rule was met.
    is_bounded: bool,
    /// Whether flows were sent once more to the TTLs with several routers.
    is_confirmed: bool,
}

/// One flow at one TTL.
#[derive(Debug, Clone, Default)]
struct FlowCell {
    probes: Vec<ProbeId>,
    state: CellState,
    from: Option<IpAddr>,
    /// Whether the flow ends there.
    is_end: bool,
}

impl FlowCell {
    /// Changes the state of a flow that has not answered there; an answer is final.
    fn set_unanswered(&mut self, state: CellState) {
        if self.from.is_none() {
            self.state = state;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CellState {
    #[default]
    Queued,
    Waiting,
    Answered,
    /// No answer; not probed again.
    Failed,
}

#[derive(Debug, Clone, Default)]
struct LevelState {
    queue: VecDeque<u16>,
    /// Outstanding flows, by their time of sending.
    waiting: VecDeque<(Nanos, u16)>,
    next_due: Nanos,
    interval: Nanos,
    least_rtt: Option<Nanos>,
}

impl LevelState {
    fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.waiting.is_empty()
    }
}

impl PathFinder {
    /// Starts a search at `now`. The seed determines the session.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is out of range.
    pub fn new(config: MultipathConfig, now: Nanos, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let first_flows = stopping_point(1, config.confidence).min(usize::from(config.most_flows));
        let mut finder = Self {
            ledger: ProbeLedger::new(config.trace.target, session_of(seed)),
            cells: BTreeMap::new(),
            levels: vec![LevelState::default(); usize::from(config.trace.ttls())],
            flows: u16::try_from(first_flows).unwrap_or(config.most_flows),
            next_due: now,
            started: now,
            now,
            reached: None,
            is_bounded: false,
            is_confirmed: false,
            config,
        };
        for ttl in finder.config.trace.first..=finder.config.trace.hops {
            for flow in 0..finder.flows {
                finder.enqueue(ttl, flow);
            }
        }
        Ok(finder)
    }

    /// The random number that its probes carry.
    pub fn session(&self) -> u16 {
        self.ledger.session()
    }

    /// The next probe, to be sent at once; `None` if none is due.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Probe> {
        self.now = self.now.max(now);
        if now < self.next_due {
            return None;
        }
        let ttls = self.config.trace.first..=self.config.trace.hops;
        let is_due = |level: &LevelState| !level.queue.is_empty() && level.next_due <= now;
        let (ttl, level) = ttls.zip(&mut self.levels).find(|(_, level)| is_due(level))?;
        let flow = *level.queue.front()?;
        let cell = self.cells.get_mut(&(ttl, flow))?;
        let attempt = u8::try_from(cell.probes.len()).unwrap_or(u8::MAX);
        let number = self.config.trace.flow + flow;
        let id = self.ledger.send(now, ttl, number, attempt)?;
        cell.probes.push(id);
        cell.set_unanswered(CellState::Waiting);
        level.queue.pop_front();
        level.waiting.push_back((now, flow));
        level.next_due = now + level.interval;
        self.next_due = now + self.config.trace.gap();
        Some(self.config.trace.probe(id, ttl, number))
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
        let (ttl, flow) = (sent.ttl, sent.flow - self.config.trace.flow);
        let (rtt, from) = (reply.rtt, reply.from);
        let is_target = self.ledger.is_from_target(reply);
        let is_end = is_target || reply.kind != AnswerKind::TimeExceeded;
        let level = self.level_mut(ttl);
        level.waiting.retain(|(_, waiting)| *waiting != flow);
        // An answer to an earlier probe may come when the next one is queued.
        level.queue.retain(|queued| *queued != flow);
        level.least_rtt = Some(level.least_rtt.map_or(rtt, |least| least.min(rtt)));
        // A flow that is sent once more has its place already.
        if let Some(cell) = self.cells.get_mut(&(ttl, flow)).filter(|cell| cell.from.is_none()) {
            cell.state = CellState::Answered;
            cell.from = Some(from);
            cell.is_end = is_end;
            if is_target && self.reached.is_none_or(|lowest| ttl < lowest) {
                self.reached = Some(ttl);
                self.hold_beyond(ttl);
            }
            if is_end {
                self.end_flow(ttl, flow);
            }
        }
        self.plan_around(ttl);
    }

    /// Call at or after [`PathFinder::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        if now >= self.started + self.config.longest || self.ledger.is_full() {
            self.abandon();
            return;
        }
        let deadlines: Vec<(u8, Nanos)> = self.waits().collect();
        for (ttl, wait) in deadlines {
            self.expire(ttl, wait, now);
        }
    }

    /// When to call [`PathFinder::handle_timeout`] and then [`PathFinder::poll_transmit`]; `None`
    /// when it is done. It may lie in the past: then at once.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let queues = self.levels.iter().filter(|level| !level.queue.is_empty());
        let due = queues.map(|level| level.next_due.max(self.next_due)).min();
        let deadline = |(ttl, wait)| Some(self.level(ttl).waiting.front()?.0 + wait);
        let deadline = self.waits().filter_map(deadline).min();
        let next = due.into_iter().chain(deadline).min()?;
        Some(next.min(self.started + self.config.longest))
    }

    /// Number of answers so far that quote none of its probes.
    pub fn foreign(&self) -> u32 {
        self.ledger.counts().foreign
    }

    /// Whether there is nothing more to send or to wait for.
    pub fn is_done(&self) -> bool {
        !self.levels.iter().any(LevelState::is_busy)
    }

    /// The result; if the search was stopped before its end, what is known so far.
    pub fn finish(mut self) -> PathsDocument {
        self.is_bounded |= !self.is_done();
        graph::assemble(&self)
    }

    fn level(&self, ttl: u8) -> &LevelState {
        &self.levels[usize::from(ttl - self.config.trace.first)]
    }

    fn level_mut(&mut self, ttl: u8) -> &mut LevelState {
        &mut self.levels[usize::from(ttl - self.config.trace.first)]
    }

    /// Queues a flow at a TTL to which it was not sent before.
    fn enqueue(&mut self, ttl: u8, flow: u16) {
        if let Entry::Vacant(cell) = self.cells.entry((ttl, flow)) {
            cell.insert(FlowCell::default());
            self.level_mut(ttl).queue.push_back(flow);
        }
    }

    /// The target is at this TTL: probes queued for higher TTLs are not sent, unless a flow proves
    /// to be longer.
    fn hold_beyond(&mut self, ttl: u8) {
        for beyond in (ttl..=self.config.trace.hops).skip(1) {
            let queued = std::mem::take(&mut self.level_mut(beyond).queue);
            for flow in queued {
                let is_new = |cell: &FlowCell| cell.probes.is_empty();
                if self.cells.get(&(beyond, flow)).is_some_and(is_new) {
                    self.cells.remove(&(beyond, flow));
                } else if let Some(cell) = self.cells.get_mut(&(beyond, flow)) {
                    cell.set_unanswered(CellState::Failed);
                }
            }
        }
    }

    /// A flow ends at this TTL: its probes to higher TTLs are no longer awaited.
    fn end_flow(&mut self, ttl: u8, flow: u16) {
        for beyond in (ttl..=self.config.trace.hops).skip(1) {
            let level = self.level_mut(beyond);
            level.waiting.retain(|(_, waiting)| *waiting != flow);
            level.queue.retain(|queued| *queued != flow);
            if let Some(cell) = self.cells.get_mut(&(beyond, flow))
                && cell.from.is_none()
            {
                cell.state = CellState::Failed;
            }
        }
    }

    /// The TTLs with outstanding probes, and how long they are awaited.
    fn waits(&self) -> impl Iterator<Item = (u8, Nanos)> {
        let most = self.config.trace.timeout;
        let largest = self.levels.iter().filter_map(|level| level.least_rtt).max();
        let mut beyond = None;
        (self.config.trace.first..=self.config.trace.hops).zip(&self.levels).rev().filter_map(
            move |(ttl, level)| {
                beyond = level.least_rtt.or(beyond);
                (!level.waiting.is_empty()).then(|| (ttl, wait(beyond, largest, most)))
            },
        )
    }

    /// Ends the wait for overdue probes at a TTL, and queues them again if that may help.
    fn expire(&mut self, ttl: u8, wait: Nanos, now: Nanos) {
        let mut is_any = false;
        while let Some((sent, flow)) = self.level(ttl).waiting.front().copied() {
            if sent + wait > now {
                break;
            }
            is_any = true;
            self.level_mut(ttl).waiting.pop_front();
            let has_answered = self.level(ttl).least_rtt.is_some();
            let attempts = match (has_answered, flow) {
                (true, _) => ATTEMPTS,
                (false, 0) if !self.is_behind_all(ttl) => ATTEMPTS_IN_SILENCE,
                (false, _) => 1,
            };
            let Some(cell) = self.cells.get_mut(&(ttl, flow)) else {
                continue;
            };
            let is_last = cell.probes.len() >= usize::from(attempts);
            cell.set_unanswered(match is_last {
                true => CellState::Failed,
                false => CellState::Queued,
            });
            if let Some(id) = cell.probes.last() {
                self.ledger.give_up(*id);
            }
            if !is_last {
                self.level_mut(ttl).queue.push_back(flow);
            }
        }
        if is_any {
            let level = self.level_mut(ttl);
            if level.least_rtt.is_some() {
                let doubled = level.interval + level.interval;
                level.interval = doubled.clamp(FIRST_INTERVAL, LONGEST_INTERVAL);
            }
            self.plan_around(ttl);
        }
    }

    /// Whether no TTL from there on has answered so far.
    fn is_behind_all(&self, ttl: u8) -> bool {
        let place = usize::from(ttl - self.config.trace.first);
        let mut levels = self.levels[place..].iter();
        levels.all(|level| level.least_rtt.is_none())
    }

    /// Ends the search with what is known.
    fn abandon(&mut self) {
        self.is_bounded |= !self.is_done();
        for level in &mut self.levels {
            level.queue.clear();
            level.waiting.clear();
        }
        for cell in self.cells.values_mut() {
            if matches!(cell.state, CellState::Queued | CellState::Waiting) {
                cell.state = CellState::Failed;
            }
        }
    }
}

// The stopping rule of multipath detection.

/// Maximum number of successors of a router that can be distinguished.
const MAX_SUCCESSORS: usize = 128;

/// Number of flows through a router that must be seen at `successors` next routers before the rule
/// concludes, at this confidence (0.5 to 0.9999), that there is no further one.
///
/// If there were one more, and each flow took any of the `successors + 1` with the same
/// probability, the probability that so many flows miss at least one of them would be at most `1 −
/// confidence` (Augustin, Friedman and Teixeira, "Multipath tracing with Paris traceroute", 2007).
/// At 95 %: 6, 11, 16, 21, 27, 33, … for 1, 2, 3, … successors. This is the error for one router;
/// the errors of the routers of a path add up. No successor at all counts as one; from 128 on the
/// number no longer grows.
pub fn stopping_point(successors: usize, confidence: f64) -> usize {
    let kinds = successors.clamp(1, MAX_SUCCESSORS) + 1;
    let confidence = confidence.clamp(0.5, 0.9999);
    // seen[j]: the probability that j kinds have been seen so far (coupon collector).
    let mut seen = vec![0.0; kinds + 1];
    seen[0] = 1.0;
    let mut flows = 0;
    while seen[kinds] < confidence {
        for j in (1..=kinds).rev() {
            let again = j as f64 / kinds as f64;
            let new = (kinds - j + 1) as f64 / kinds as f64;
            seen[j] = seen[j] * again + seen[j - 1] * new;
        }
        seen[0] = 0.0;
        flows += 1;
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_table_at_95_percent() {
        let published = [6, 11, 16, 21, 27, 33, 38, 44, 51, 57, 63, 70, 76, 83, 90, 96];
        let computed: Vec<usize> = (1..=16).map(|k| stopping_point(k, 0.95)).collect();
        assert_eq!(computed, published);
    }

    #[test]
    fn two_next_routers_need_what_coins_say() {
        // 2^(1−n) at most 1 %: n = 8.
        assert_eq!(stopping_point(1, 0.99), 8);
        assert_eq!(stopping_point(0, 0.99), 8);
        assert!(stopping_point(2, 0.99) > stopping_point(2, 0.95));
    }

    #[test]
    fn absurd_arguments_end() {
        assert!(stopping_point(usize::MAX, 1.0) < 5_000);
        assert!(stopping_point(3, f64::NEG_INFINITY) > 0);
    }
}
