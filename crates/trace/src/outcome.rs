//! The result of a trace of one path.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::TraceConfig;
use super::probe::{
    AnswerKind, HopFate, ProbeId, ProbeKind, ProbeLedger, Reply, Sent, Tally, fates,
};
use linerate_units::Nanos;

/// The result of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOutcome {
    /// Destination address.
    pub target: IpAddr,
    /// The protocol of the probes.
    pub kind: ProbeKind,
    /// The hops from the lowest TTL to the end of the path; without an end, up to the last one that
    /// answered.
    pub hops: Vec<Hop>,
    /// How the path ends.
    pub end: PathEnd,
    /// Number of probes sent, including those past the end.
    pub sent: u32,
    /// Number of probes that were answered.
    pub answered: u32,
    /// Number of answers that came after the wait for them.
    pub late: u32,
    /// Number of further answers to the same probe.
    pub duplicates: u32,
    /// Number of answers that quote none of our probes.
    pub foreign: u32,
    /// Time from the start to the last event.
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
        /// Its TTL.
        ttl: u8,
    },
    /// A router reports that the target cannot be reached.
    Unreachable {
        /// TTL of the router.
        ttl: u8,
        /// Code of ICMP type 3 or ICMPv6 type 1.
        code: u8,
    },
    /// The probes do not fit a link.
    TooBig {
        /// TTL to which the router before the link answered.
        ttl: u8,
        /// MTU of the link, bytes from the IP header; 0 if it is not reported.
        mtu: u32,
    },
    /// Routing loop: the same routers answer again at higher TTLs.
    Loop {
        /// TTL of the first router in it.
        from_ttl: u8,
        /// Number of routers in it.
        length: u8,
    },
    /// Routers answered up to the highest TTL: the path is longer.
    HopLimit,
    /// Nobody answers beyond a hop: the target is silent, or the path is interrupted there.
    Silent {
        /// TTL of the last answer.
        after_ttl: u8,
    },
    /// Nobody answered at all.
    NoAnswer,
}

/// The result for one TTL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The TTL.
    pub ttl: u8,
    /// Its probes in the order of sending.
    pub probes: Vec<ProbeOutcome>,
    /// Why answers are missing.
    pub fate: HopFate,
    /// The lowest TTL at which one of its addresses answered before: a loop, or a router that does
    /// not decrement the TTL.
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
        let replies = self.replies();
        replies.map(|reply| reply.rtt.0 as f64 / 1e3).collect()
    }
}

/// A probe with its answer.
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

/// Makes the result of a trace from `started` until `now`; `end` is the highest TTL that counts.
pub(super) fn assemble(
    config: &TraceConfig,
    ledger: &ProbeLedger,
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
        let hop = &mut hops[usize::from(sent.ttl - config.first)];
        hop.probes.push(probe(id, sent, started));
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
        sent: ledger.len(),
        answered,
        late,
        duplicates: ledger.counts().duplicates,
        foreign: ledger.counts().foreign,
        elapsed: now - started,
    }
}

fn empty_hop(ttl: u8) -> Hop {
    Hop { ttl, probes: Vec::new(), fate: HopFate::Silent, repeats: None }
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

fn tallies(ledger: &ProbeLedger, config: &TraceConfig, end: u8) -> Vec<Tally> {
    let none = Tally { sent: 0, missing: 0, is_tail_missing: true, answered_later: false };
    let mut tallies = vec![none; usize::from(end.saturating_sub(config.first)) + 1];
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
        let is_same = |hop: &&Hop| hop.replies().any(|reply| addresses.contains(&reply.from));
        let earlier = hops[..place].iter().find(is_same);
        hops[place].repeats = earlier.map(|hop| hop.ttl);
    }
}

fn path_end(hops: &[Hop], ledger: &ProbeLedger, config: &TraceConfig) -> PathEnd {
    let Some(last) = hops.iter().rfind(|hop| hop.replies().next().is_some()) else {
        return PathEnd::NoAnswer;
    };
    let ttl = last.ttl;
    if last.replies().any(|reply| ledger.is_from_target(reply)) {
        return PathEnd::Reached { ttl };
    }
    let mut kinds = last.replies().map(|reply| reply.kind);
    match kinds.find(|kind| kind.is_end()) {
        Some(AnswerKind::Unreachable { code }) => PathEnd::Unreachable { ttl, code },
        Some(AnswerKind::TooBig { mtu }) => PathEnd::TooBig { ttl, mtu },
        _ => match circle(hops) {
            Some((from_ttl, length)) => PathEnd::Loop { from_ttl, length },
            None if ttl == config.hops => PathEnd::HopLimit,
            None => PathEnd::Silent { after_ttl: ttl },
        },
    }
}

/// A loop at the end: its first TTL and its length. It must repeat twice and have two routers: a
/// single router that answers repeatedly may not decrement the TTL.
fn circle(hops: &[Hop]) -> Option<(u8, u8)> {
    let mut answered: Vec<_> = hops.iter().map(|hop| (hop.ttl, hop.addresses())).collect();
    answered.retain(|(_, addresses)| !addresses.is_empty());
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
    // The distance in TTLs, so that silent routers in the loop count.
    let ttls = answered[start + length].0 - answered[start].0;
    Some((answered[start].0, ttls))
}
