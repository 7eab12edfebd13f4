//! The MTU of a path, and where it decreases.
//!
//! A probe of the largest size goes to the target, not to be fragmented. A router that cannot
//! forward it reports the size that would fit (RFC 1191, RFC 8201), and the next probe has that
//! size: one round trip for each narrow link. If a probe vanishes without a message (a black hole,
//! RFC 2923), the same size goes to all hops at once: the narrow link is behind the last hop that
//! answers. Rounds of several sizes at once to the next hop find its MTU. Then the search goes on
//! to the target with that size.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::config::{ConfigError, TraceConfig, check_ranges};
use super::identity::least_size;
use super::outcome::TraceOutcome;
use super::probe::{Answer, AnswerKind, Probe, ProbeId, ProbeKind, ProbeLedger};
use super::tracer::{ANSWER_ALLOWANCE, session_of};
use linerate_units::Nanos;

/// Number of sizes that are tried at once in a black hole.
const AT_ONCE: u16 = 8;
/// Number of times that a probe without an answer is sent.
const ATTEMPTS: u8 = 2;

/// Minimum MTU of IPv4 (RFC 791) and of IPv6 (RFC 8200): lower ones are not believed.
const MIN_V4: u16 = 68;
const MIN_V6: u16 = 1_280;

/// The settings of a [`PathMtu`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MtuConfig {
    /// The trace before it, whose size fits.
    pub trace: TraceConfig,
    /// The hops that answered the trace, with the target as the last.
    pub hops: Vec<(u8, IpAddr)>,
    /// The largest RTT of the trace.
    pub rtt: Nanos,
    /// The size to begin with, bytes from the IP header: the MTU of the device.
    pub most: u16,
}

impl MtuConfig {
    /// The settings after a trace; `None` if it did not reach the target.
    pub fn after(trace: &TraceConfig, outcome: &TraceOutcome, most: u16) -> Option<Self> {
        if !outcome.is_reached() {
            return None;
        }
        let first = |hop: &super::Hop| Some((hop.ttl, *hop.addresses().first()?));
        let rtts = outcome.hops.iter().flat_map(|hop| hop.replies());
        Some(Self {
            trace: trace.clone(),
            hops: outcome.hops.iter().filter_map(first).collect(),
            rtt: rtts.map(|reply| reply.rtt).max()?,
            most,
        })
    }
}

/// The result of a search for the path MTU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MtuOutcome {
    /// The largest size that reached the target, bytes from the IP header; absent if not even the
    /// smallest did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u16>,
    /// The links at which the MTU decreases, from the near end to the far one.
    pub narrowings: Vec<Narrowing>,
    /// Probes sent.
    pub sent: u32,
}

/// A link whose MTU is lower than that of the links before.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Narrowing {
    /// TTL of the router before it; absent if it did not answer the trace with this address.
    pub after_ttl: Option<u8>,
    /// Address of that router, if it sent the message.
    pub address: Option<IpAddr>,
    /// MTU of the link, bytes from the IP header.
    pub mtu_bytes: u16,
    /// Whether a message came: without it TCP stalls, unless it probes by itself (RFC 4821).
    pub is_told: bool,
}

/// A search for the path MTU as a state machine, driven like [`super::Tracer`]. Its probes must not
/// be fragmented, not even by this host.
#[derive(Debug, Clone)]
pub struct PathMtu {
    config: MtuConfig,
    ledger: ProbeLedger,
    phase: Phase,
    round: Vec<Item>,
    /// The size that is tried.
    size: u16,
    next_due: Nanos,
    last_sent: Nanos,
    narrowings: Vec<Narrowing>,
    reached: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// To the target.
    Whole,
    /// To all hops: where does it vanish?
    Locate,
    /// To the hop behind: what passes? `low` does, `high` does not.
    Bisect {
        after: Option<u8>,
        ttl: u8,
        low: u16,
        high: u16,
    },
    Done,
}

/// A probe of a round.
#[derive(Debug, Clone, Copy)]
struct Item {
    ttl: u8,
    size: u16,
    attempts: u8,
    id: Option<ProbeId>,
    result: Option<AnswerKind>,
}

impl Item {
    fn new(ttl: u8, size: u16) -> Self {
        Self { ttl, size, attempts: 0, id: None, result: None }
    }

    /// Whether it got as far as it should.
    fn has_passed(&self) -> bool {
        self.result.is_some_and(|kind| !kind.is_end())
    }

    fn is_awaited(&self) -> bool {
        self.id.is_some() && self.result.is_none()
    }

    fn is_to_send(&self) -> bool {
        self.id.is_none() && self.result.is_none() && self.attempts < ATTEMPTS
    }
}

impl PathMtu {
    /// Starts a search at `now`. The seed determines the session.
    ///
    /// # Errors
    /// [`ConfigError`] if the trace's configuration is out of range, the largest size is below that
    /// of its probes, or no hop answered.
    pub fn new(config: MtuConfig, now: Nanos, seed: u64) -> Result<Self, ConfigError> {
        config.trace.check()?;
        let least = least_size(config.trace.kind, config.trace.target).max(config.trace.size);
        check_ranges(&[
            ("the largest size", config.most.into(), least.into(), 65_535),
            ("the number of hops", config.hops.len() as u64, 1, 255),
        ])?;
        let mut search = Self {
            ledger: ProbeLedger::new(config.trace.target, session_of(seed)),
            phase: Phase::Whole,
            round: Vec::new(),
            size: config.most,
            next_due: now,
            last_sent: now,
            narrowings: Vec::new(),
            reached: None,
            config,
        };
        search.enter(Phase::Whole);
        Ok(search)
    }

    /// The random number that its probes carry.
    pub fn session(&self) -> u16 {
        self.ledger.session()
    }

    /// The next probe, to be sent at once; `None` if none is due.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Probe> {
        if now < self.next_due {
            return None;
        }
        let trace = &self.config.trace;
        let item = self.round.iter_mut().find(|item| item.is_to_send())?;
        let id = self.ledger.send(now, item.ttl, trace.flow, item.attempts)?;
        item.id = Some(id);
        item.attempts += 1;
        self.last_sent = now;
        self.next_due = now + trace.gap();
        Some(Probe { size: item.size, ..trace.probe(id, item.ttl, trace.flow) })
    }

    /// Takes an answer that arrived at `received`.
    pub fn handle_answer(&mut self, received: Nanos, answer: Answer) {
        let (kind, from) = (answer.kind, answer.from);
        let Some(id) = self.ledger.take(received, answer) else {
            return;
        };
        let Some(item) = self.round.iter_mut().find(|item| item.id == Some(id)) else {
            return;
        };
        item.result = Some(kind);
        let size = item.size;
        if let AnswerKind::TooBig { mtu } = kind
            && let Some(mtu) = self.believable(mtu, size)
        {
            let mut hops = self.config.hops.iter();
            let router = hops.find(|(_, address)| *address == from);
            let after_ttl = router.map(|(ttl, _)| *ttl);
            self.narrowed(Narrowing {
                after_ttl,
                address: Some(from),
                mtu_bytes: mtu,
                is_told: true,
            });
        } else {
            self.conclude();
        }
    }

    /// Call at or after [`PathMtu::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        for item in &mut self.round {
            if item.result.is_none()
                && let Some(id) = item.id.take()
            {
                self.ledger.give_up(id);
            }
        }
        self.conclude();
    }

    /// When to call [`PathMtu::handle_timeout`] and then [`PathMtu::poll_transmit`]; `None` when it
    /// is done.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.round.iter().any(Item::is_to_send) {
            return Some(self.next_due);
        }
        self.deadline()
    }

    /// Whether there is nothing more to send or to wait for.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// The result.
    pub fn finish(self) -> MtuOutcome {
        MtuOutcome { mtu_bytes: self.reached, narrowings: self.narrowings, sent: self.ledger.len() }
    }

    /// Time until which answers are awaited; `None` until the round is sent.
    fn deadline(&self) -> Option<Nanos> {
        let is_waiting = self.round.iter().any(Item::is_awaited);
        let is_sent = !self.round.iter().any(Item::is_to_send);
        let rtt = self.config.rtt;
        let wait = (rtt + rtt + ANSWER_ALLOWANCE).min(self.config.trace.timeout);
        (is_waiting && is_sent).then(|| self.last_sent + wait)
    }

    fn distance(&self) -> u8 {
        self.config.hops.last().map_or(1, |(ttl, _)| *ttl)
    }

    /// The MTU of a message, if it is plausible: below the size that did not fit, and not below the
    /// minimum of the family.
    fn believable(&self, mtu: u32, size: u16) -> Option<u16> {
        let is_v4 = self.config.trace.target.is_ipv4();
        let least = if is_v4 { MIN_V4 } else { MIN_V6 };
        let mtu = u16::try_from(mtu).ok()?;
        (mtu < size && mtu >= least.max(self.config.trace.size)).then_some(mtu)
    }

    fn narrowed(&mut self, narrowing: Narrowing) {
        self.size = narrowing.mtu_bytes;
        self.narrowings.push(narrowing);
        self.enter(Phase::Whole);
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.round = match phase {
            Phase::Whole => vec![Item::new(self.distance(), self.size)],
            Phase::Locate => {
                let ttls = self.config.hops.iter().map(|(ttl, _)| *ttl);
                ttls.map(|ttl| Item::new(ttl, self.size)).collect()
            }
            Phase::Bisect { ttl, low, high, .. } => {
                let sizes = sizes_between(low, high);
                sizes.map(|size| Item::new(ttl, size)).collect()
            }
            Phase::Done => Vec::new(),
        };
    }

    /// Goes on when all probes of a round are sent and none is awaited.
    fn conclude(&mut self) {
        let is_open = |item: &Item| item.is_to_send() || item.is_awaited();
        if self.round.iter().any(is_open) {
            return;
        }
        match self.phase {
            Phase::Whole if self.round.iter().all(Item::has_passed) => {
                self.reached = Some(self.size);
                self.enter(Phase::Done);
            }
            // The size of the trace fitted before: the path has changed, or answers are lost.
            Phase::Whole if self.size <= self.config.trace.size => self.enter(Phase::Done),
            Phase::Whole => self.enter(Phase::Locate),
            Phase::Locate => self.located(),
            Phase::Bisect { after, ttl, low, high } => self.bisected(after, ttl, low, high),
            Phase::Done => {}
        }
    }

    fn located(&mut self) {
        let last_passed = self.round.iter().rposition(Item::has_passed);
        let behind = last_passed.map_or(0, |place| place + 1);
        match self.round.get(behind).map(|item| item.ttl) {
            // It reached the target after all: the loss was accidental.
            None => self.enter(Phase::Whole),
            Some(ttl) => self.enter(Phase::Bisect {
                after: last_passed.map(|place| self.round[place].ttl),
                ttl: self.asked_for_sizes(ttl),
                low: self.config.trace.size,
                high: self.size,
            }),
        }
        // Accidental losses must not repeat the search forever.
        if self.ledger.len() > MAX_PROBES {
            self.enter(Phase::Done);
        }
        // Between two adjacent sizes there is nothing to try.
        self.conclude();
    }

    /// The hop that is probed with many sizes: routers limit their errors, but a target does not
    /// limit its echo replies.
    fn asked_for_sizes(&self, behind: u8) -> u8 {
        let target = self.round.last().map(|item| item.ttl);
        match (self.config.trace.kind, target) {
            (ProbeKind::Icmp, Some(target)) => target,
            _ => behind,
        }
    }

    fn bisected(&mut self, after: Option<u8>, ttl: u8, low: u16, high: u16) {
        let passed = self.round.iter().filter(|item| item.has_passed());
        let low = passed.map(|item| item.size).max().unwrap_or(low);
        let sizes = self.round.iter().map(|item| item.size);
        let high = sizes.filter(|size| *size > low).min().unwrap_or(high);
        if high - low > 1 {
            self.enter(Phase::Bisect { after, ttl, low, high });
            return;
        }
        self.narrowed(Narrowing {
            after_ttl: after,
            address: None,
            mtu_bytes: low,
            is_told: false,
        });
    }
}

/// Maximum number of probes, more than any search needs.
const MAX_PROBES: u32 = 2_000;

/// Up to [`AT_ONCE`] sizes that divide the range evenly.
fn sizes_between(low: u16, high: u16) -> impl Iterator<Item = u16> {
    let between = high.saturating_sub(low).saturating_sub(1);
    let count = between.min(AT_ONCE);
    (1..=count).map(move |i| {
        let part = u32::from(between + 1) * u32::from(i) / u32::from(count + 1);
        low + part.max(1) as u16
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_cut_the_range_and_are_never_its_ends() {
        for (low, high) in [(60, 1_500), (60, 62), (60, 65), (1, 65_535), (9, 10)] {
            let sizes: Vec<u16> = sizes_between(low, high).collect();
            assert!(sizes.iter().all(|size| low < *size && *size < high), "{sizes:?}");
            assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
            assert_eq!(sizes.len(), usize::from((high - low - 1).min(AT_ONCE)));
        }
    }
}
