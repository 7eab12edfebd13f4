//! What came of a trace of one path.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::TraceConfig;
use super::ledger::{Ledger, Reply, Sent};
use super::missing::{HopFate, Tally, fates};
use super::probe::{AnswerKind, ProbeId, ProbeKind};
use linerate_units::Nanos;

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOutcome {
    /// Where it was to lead.
    pub target: IpAddr,
    /// The protocol of the probes.
    pub kind: ProbeKind,
    /// Each TTL from the lowest to that of the end; without an end, up to the last one that
    /// answered.
    pub hops: Vec<Hop>,
    /// How the path ends.
    pub end: PathEnd,
    /// Probes sent, past the end too.
    pub sent: u32,
    /// Answers to them, the first ones alone.
    pub answered: u32,
    /// Of these, those that nobody waited for any longer.
    pub late: u32,
    /// Further answers to probes that had been answered.
    pub duplicates: u32,
    /// Answers that quoted none of our probes.
    pub foreign: u32,
    /// From the start to the last thing that happened.
    pub elapsed: Nanos,
}

impl TraceOutcome {
    /// Whether the target itself has answered.
    pub fn is_reached(&self) -> bool {
        matches!(self.end, PathEnd::Reached { .. })
    }
}

/// How a path ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum PathEnd {
    /// The target answered.
    Reached {
        /// Its distance.
        ttl: u8,
    },
    /// A router says that it goes no further.
    Unreachable {
        /// At this distance.
        ttl: u8,
        /// Code of ICMP type 3 or ICMPv6 type 1.
        code: u8,
    },
    /// The probes do not fit a link.
    TooBig {
        /// The router before it answered to this TTL.
        ttl: u8,
        /// What would fit, bytes from the IP header on; 0 if it does not say.
        mtu: u32,
    },
    /// The same routers again and again.
    Loop {
        /// TTL of the first router in it.
        from_ttl: u8,
        /// Number of routers in it.
        length: u8,
    },
    /// Routers answered up to the highest TTL: the path is longer.
    HopLimit,
    /// Nobody answers beyond a hop: the target is silent, or the path is cut there.
    Silent {
        /// TTL of the last answer.
        after_ttl: u8,
    },
    /// Nobody answered at all.
    NoAnswer,
}

/// What is known of one TTL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The TTL.
    pub ttl: u8,
    /// Its probes in the order of sending.
    pub probes: Vec<ProbeOutcome>,
    /// Why answers are missing.
    pub fate: HopFate,
    /// The lowest TTL at which one of its addresses answered before: a loop, or a router that does
    /// not count.
    pub repeats: Option<u8>,
}

impl Hop {
    /// Its answers in the order of sending.
    pub fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.probes.iter().filter_map(|probe| probe.reply.as_ref())
    }

    /// Addresses that answered, in the order of their first answers.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for reply in self.replies() {
            if !addresses.contains(&reply.from) {
                addresses.push(reply.from);
            }
        }
        addresses
    }

    /// RTTs of its answers, microseconds, in the order of sending.
    pub fn rtts_us(&self) -> Vec<f64> {
        self.replies()
            .map(|reply| reply.rtt.0 as f64 / 1e3)
            .collect()
    }
}

/// One probe and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// Its number.
    pub id: ProbeId,
    /// Its flow.
    pub flow: u16,
    /// 0 for the first round, then 1 and up.
    pub attempt: u8,
    /// When it was sent, since the start.
    pub sent_at: Nanos,
    /// Its answer.
    pub reply: Option<Reply>,
}

/// The outcome of a trace from `started` until `now` whose highest TTL of interest is `end`.
pub(super) fn assemble(
    config: &TraceConfig,
    ledger: &Ledger,
    end: u8,
    (started, now): (Nanos, Nanos),
) -> TraceOutcome {
    let replies = || ledger.iter().filter_map(|(_, sent)| sent.reply.as_ref());
    let count = |condition: fn(&Reply) -> bool| {
        u32::try_from(replies().filter(|reply| condition(reply)).count()).unwrap_or(u32::MAX)
    };
    let (answered, late) = (count(|_| true), count(|reply| reply.is_late));
    let mut hops: Vec<Hop> = (config.first..=end).map(empty_hop).collect();
    for (id, sent) in ledger.iter().filter(|(_, sent)| sent.ttl <= end) {
        hops[usize::from(sent.ttl - config.first)]
            .probes
            .push(probe(id, sent, started));
    }
    for (hop, fate) in hops.iter_mut().zip(fates(&tallies(ledger, config, end))) {
        hop.fate = fate;
    }
    note_repeats(&mut hops);
    let ending = path_end(&hops, ledger, config);
    let last_answer = hops.iter().rposition(|hop| hop.replies().next().is_some());
    if matches!(ending, PathEnd::Silent { .. } | PathEnd::NoAnswer) {
        hops.truncate(last_answer.map_or(0, |place| place + 1));
    }
    TraceOutcome {
        target: config.target,
        kind: config.kind,
        hops,
        end: ending,
        sent: u32::try_from(ledger.len()).unwrap_or(u32::MAX),
        answered,
        late,
        duplicates: ledger.counts().duplicates,
        foreign: ledger.counts().foreign,
        elapsed: now - started,
    }
}

fn empty_hop(ttl: u8) -> Hop {
    Hop {
        ttl,
        probes: Vec::new(),
        fate: HopFate::Silent,
        repeats: None,
    }
}

fn probe(id: ProbeId, sent: &Sent, started: Nanos) -> ProbeOutcome {
    ProbeOutcome {
        id,
        flow: sent.flow,
        attempt: sent.attempt,
        sent_at: sent.at - started,
        reply: sent.reply.clone(),
    }
}

fn tallies(ledger: &Ledger, config: &TraceConfig, end: u8) -> Vec<Tally> {
    let mut tallies = vec![
        Tally {
            sent: 0,
            missing: 0,
            is_tail_missing: true,
            answered_later: false,
        };
        usize::from(end.saturating_sub(config.first)) + 1
    ];
    for (_, sent) in ledger.iter().filter(|(_, sent)| sent.ttl <= end) {
        let tally = &mut tallies[usize::from(sent.ttl - config.first)];
        let is_answered = sent.reply.is_some();
        if sent.attempt > 0 {
            tally.answered_later |= is_answered;
        } else {
            tally.is_tail_missing &= !(is_answered && tally.missing > 0);
            tally.sent += 1;
            tally.missing += u32::from(!is_answered);
        }
    }
    tallies
}

fn note_repeats(hops: &mut [Hop]) {
    for place in 1..hops.len() {
        let addresses = hops[place].addresses();
        let earlier = hops[..place]
            .iter()
            .find(|hop| hop.replies().any(|reply| addresses.contains(&reply.from)));
        hops[place].repeats = earlier.map(|hop| hop.ttl);
    }
}

fn path_end(hops: &[Hop], ledger: &Ledger, config: &TraceConfig) -> PathEnd {
    let Some(last) = hops.iter().rfind(|hop| hop.replies().next().is_some()) else {
        return PathEnd::NoAnswer;
    };
    if last.replies().any(|reply| ledger.is_from_target(reply)) {
        return PathEnd::Reached { ttl: last.ttl };
    }
    let ends = last
        .replies()
        .map(|reply| reply.kind)
        .find(|kind| kind.is_end());
    match ends {
        Some(AnswerKind::Unreachable { code }) => PathEnd::Unreachable {
            ttl: last.ttl,
            code,
        },
        Some(AnswerKind::TooBig { mtu }) => PathEnd::TooBig { ttl: last.ttl, mtu },
        _ => match circle(hops) {
            Some((from_ttl, length)) => PathEnd::Loop { from_ttl, length },
            None if last.ttl == config.hops => PathEnd::HopLimit,
            None => PathEnd::Silent {
                after_ttl: last.ttl,
            },
        },
    }
}

/// A loop at the end: its first TTL and length. It must go round twice, and have two routers: one
/// that answers again and again may as well be one that does not count.
fn circle(hops: &[Hop]) -> Option<(u8, u8)> {
    let answered: Vec<(u8, Vec<IpAddr>)> = hops
        .iter()
        .map(|hop| (hop.ttl, hop.addresses()))
        .filter(|(_, addresses)| !addresses.is_empty())
        .collect();
    let is_same = |a: usize, b: usize| answered[a].1.iter().any(|x| answered[b].1.contains(x));
    let count = answered.len();
    let length = (2..=count / 2).find(|length| {
        let goes_round = (count - length..count).all(|place| is_same(place, place - length));
        goes_round && !is_same(count - 1, count - 2)
    })?;
    let mut start = count - length;
    while start > 0 && is_same(start - 1, start - 1 + length) {
        start -= 1;
    }
    // The distance in TTLs: silent routers in the loop count too.
    let ttls = answered[start + length].0 - answered[start].0;
    Some((answered[start].0, ttls))
}
