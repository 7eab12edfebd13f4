//! Probes and answers, what has been sent, and why answers are missing.

use std::net::IpAddr;

use linerate_units::{Dscp, Ecn, Nanos, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number of a probe, from 0 in the order of sending; no two probes of a trace have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u16);

/// The protocol of the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// UDP datagrams to ports where nobody should listen.
    #[default]
    Udp,
    /// ICMP or ICMPv6 echo requests.
    Icmp,
    /// TCP SYN segments to one port.
    Tcp,
}

words! {
    ProbeKind word { "udp" Udp, "icmp" Icmp, "tcp" Tcp }
}

/// A packet to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Its number.
    pub id: ProbeId,
    /// TTL or hop limit, 1–255.
    pub ttl: u8,
    /// The flow: routers that balance by flow send all probes of one flow the same way.
    pub flow: u16,
    /// Length from the IP header on, bytes.
    pub size: u16,
    /// The protocol.
    pub kind: ProbeKind,
    /// DSCP that it is sent with.
    pub dscp: Dscp,
    /// The ECN codepoint it is sent with.
    pub ecn: Ecn,
}

impl Probe {
    /// The TOS octet or traffic class that it is sent with.
    pub fn traffic_class(&self) -> u8 {
        self.dscp.octet() | ecn_bits(self.ecn)
    }
}

/// The two ECN bits of a traffic class (RFC 3168, section 5).
pub(super) fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

/// The probe that an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProbeIdentity {
    /// The probe's number.
    pub sequence: u16,
    /// The session; `None` if the answer quotes too little.
    pub session: Option<u16>,
    /// The flow; `None` if the answer lacks it or it was rewritten.
    pub flow: Option<u16>,
}

/// An answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The probe that it belongs to.
    pub identity: ProbeIdentity,
    /// Who sent it.
    pub from: IpAddr,
    /// Kind of the answer.
    pub kind: AnswerKind,
    /// TTL or hop limit on arrival, if known.
    pub reply_ttl: Option<u8>,
    /// The probe's header when the answer was made.
    pub quoted: Quoted,
    /// The probe's label stack at that point (RFC 4950), top first.
    pub mpls: Vec<MplsLabel>,
}

/// Kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AnswerKind {
    /// A router discarded the probe because its TTL was used up.
    TimeExceeded,
    /// The probe cannot be delivered; see [`super::unreachable_reason`].
    Unreachable {
        /// Code of ICMP type 3 or ICMPv6 type 1.
        code: u8,
    },
    /// It was delivered, and no socket uses its port.
    PortUnreachable,
    /// The probe does not fit the next link.
    TooBig {
        /// MTU of the link, bytes from the IP header; 0 from routers older than RFC 1191.
        mtu: u32,
    },
    /// The target answered the echo request.
    EchoReply,
    /// The target accepts connections at the port.
    TcpSynAck,
    /// The target refuses connections at the port.
    TcpRst,
}

impl AnswerKind {
    /// Whether only the packet's destination sends this.
    pub fn is_of_destination(self) -> bool {
        matches!(self, Self::PortUnreachable | Self::EchoReply | Self::TcpSynAck | Self::TcpRst)
    }

    /// Whether it is an answer of the protocol itself and not an ICMP error, so that only the
    /// target can send it.
    pub(super) fn is_direct(self) -> bool {
        matches!(self, Self::EchoReply | Self::TcpSynAck | Self::TcpRst)
    }

    /// Whether a router reports that the probe goes no further.
    pub(super) fn is_end(self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TooBig { .. })
    }
}

/// A probe's header when its answer was made; `None` if the answer does not contain the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quoted {
    /// TOS octet or traffic class: DSCP and ECN.
    pub traffic_class: Option<u8>,
    /// The TTL on arrival: 1, or 0 if it was decremented first. A higher one means that routers did
    /// not decrement it.
    pub ttl: Option<u8>,
    /// Whether a NAT rewrote an address, a port or a checksum.
    pub is_translated: Option<bool>,
}

/// One entry of an MPLS label stack (RFC 3032, section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MplsLabel {
    /// The label, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits (RFC 5462).
    pub traffic_class: u8,
    /// Whether it is the last of the stack.
    pub is_bottom: bool,
    /// Its TTL.
    pub ttl: u8,
}

// The probes that were sent, and the assignment of answers to them.

/// Maximum number of probes of a trace, so that their numbers fit a checksum.
pub const MAX_PROBES: u16 = 60_000;

/// The first answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Time from sending to receiving.
    pub rtt: Nanos,
    /// Sender of the answer.
    pub from: IpAddr,
    /// Kind of the answer.
    pub kind: AnswerKind,
    /// TTL with which it arrived.
    pub reply_ttl: Option<u8>,
    /// The probe's header at that point.
    pub quoted: Quoted,
    /// The probe's label stack at that point.
    pub mpls: Vec<MplsLabel>,
    /// Whether it came after the wait for it had ended.
    pub is_late: bool,
}

/// A probe with its answer.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) ttl: u8,
    pub(super) flow: u16,
    /// 0 for the first round, then 1 and up.
    pub(super) attempt: u8,
    pub(super) at: Nanos,
    pub(super) is_given_up: bool,
    pub(super) reply: Option<Reply>,
}

impl Sent {
    pub(super) fn is_outstanding(&self) -> bool {
        self.reply.is_none() && !self.is_given_up
    }
}

/// All probes of a trace.
#[derive(Debug, Clone)]
pub(super) struct ProbeLedger {
    target: IpAddr,
    session: u16,
    sent: Vec<Sent>,
    counts: Counts,
}

/// Numbers of answers that were not the first to one of our probes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) duplicates: u32,
    pub(super) foreign: u32,
}

impl ProbeLedger {
    pub(super) fn new(target: IpAddr, session: u16) -> Self {
        Self { target, session, sent: Vec::new(), counts: Counts::default() }
    }

    pub(super) fn session(&self) -> u16 {
        self.session
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn is_full(&self) -> bool {
        self.sent.len() >= usize::from(MAX_PROBES)
    }

    /// Adds a probe that is sent now; `None` when the numbers have run out.
    pub(super) fn send(&mut self, at: Nanos, ttl: u8, flow: u16, attempt: u8) -> Option<ProbeId> {
        if self.is_full() {
            return None;
        }
        let id = ProbeId(u16::try_from(self.sent.len()).ok()?);
        self.sent.push(Sent { ttl, flow, attempt, at, is_given_up: false, reply: None });
        Some(id)
    }

    /// Adds an answer, if it is the first to one of our probes, and returns that probe.
    pub(super) fn take(&mut self, received: Nanos, answer: Answer) -> Option<ProbeId> {
        let identity = answer.identity;
        let is_ours = identity.session.is_none_or(|one| one == self.session)
            && (!answer.kind.is_direct() || answer.from == self.target);
        let sent = self.sent.get_mut(usize::from(identity.sequence));
        let is_sent = |sent: &&mut Sent| identity.flow.is_none_or(|flow| flow == sent.flow);
        let Some(sent) = sent.filter(|sent| is_ours && is_sent(sent)) else {
            self.counts.foreign = self.counts.foreign.saturating_add(1);
            return None;
        };
        if sent.reply.is_some() {
            self.counts.duplicates = self.counts.duplicates.saturating_add(1);
            return None;
        }
        sent.reply = Some(Reply {
            rtt: received - sent.at,
            from: answer.from,
            kind: answer.kind,
            reply_ttl: answer.reply_ttl,
            quoted: answer.quoted,
            mpls: answer.mpls,
            is_late: sent.is_given_up,
        });
        Some(ProbeId(identity.sequence))
    }

    /// Corrects the time at which a probe was sent, for instance by the kernel's time stamp.
    pub(super) fn correct(&mut self, id: ProbeId, at: Nanos) {
        if let Some(sent) = self.sent.get_mut(usize::from(id.0))
            && sent.reply.is_none()
        {
            sent.at = at;
        }
    }

    /// Ends the wait for a probe's answer.
    pub(super) fn give_up(&mut self, id: ProbeId) {
        if let Some(sent) = self.sent.get_mut(usize::from(id.0)) {
            sent.is_given_up = true;
        }
    }

    /// Returns a probe of this ledger.
    pub(super) fn get(&self, id: ProbeId) -> &Sent {
        &self.sent[usize::from(id.0)]
    }

    /// Whether the target itself sent this answer.
    pub(super) fn is_from_target(&self, reply: &Reply) -> bool {
        let is_target = reply.from == self.target && reply.kind != AnswerKind::TimeExceeded;
        is_target || reply.kind.is_of_destination()
    }

    /// All probes, in the order of sending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ProbeId, &Sent)> {
        (0u16..).map(ProbeId).zip(&self.sent)
    }

    /// Number of probes that were sent, at most [`MAX_PROBES`].
    pub(super) fn len(&self) -> u32 {
        self.sent.len() as u32
    }
}

// Missing answers: silence, a limit of answers, or loss.

/// Significance level: below it, missing answers are not attributed to loss.
const SIGNIFICANT: f64 = 0.05;

/// The reason for a hop's missing answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HopFate {
    /// None is missing.
    Answers,
    /// The hop answers the first probes of a burst and again later, while hops beyond it miss no
    /// answer: it limits its answers.
    RateLimited,
    /// Answers are missing here and at a similar share beyond: packets are lost, on the way or on
    /// the way back.
    Lossy,
    /// Some are missing for an unknown reason.
    SomeMissing,
    /// The hop answered nothing.
    Silent,
}

/// The answers of one hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    /// Number of probes of the first round.
    pub(super) sent: u32,
    /// Number of probes without an answer.
    pub(super) missing: u32,
    /// Whether the answered probes are those that were sent first.
    pub(super) is_tail_missing: bool,
    /// Whether it answered later probes.
    pub(super) answered_later: bool,
}

impl Tally {
    fn is_silent(self) -> bool {
        self.missing == self.sent && !self.answered_later
    }

    /// Whether it looks like a limit; the hops beyond confirm that.
    fn is_suspect(self) -> bool {
        self.missing > 0 && self.is_tail_missing && self.answered_later
    }
}

/// Classifies the missing answers of each hop, from the lowest TTL.
///
/// A loss on the way to a hop is also a loss on the way to all hops beyond it. So the missing
/// answers of a hop are compared with those beyond: the probability that as many fall on its own
/// probes if all are lost alike (hypergeometric, Fisher's exact test), and for a limit also the
/// probability that they are exactly the last ones of the burst. Hops that look limited themselves
/// say nothing about loss and are left out.
pub(super) fn fates(hops: &[Tally]) -> Vec<HopFate> {
    let fate = |(place, hop): (usize, &Tally)| {
        if hop.is_silent() {
            return HopFate::Silent;
        }
        if hop.missing == 0 {
            return HopFate::Answers;
        }
        let beyond = &hops[place + 1..];
        let witnesses = || beyond.iter().filter(|t| !t.is_silent() && !t.is_suspect());
        let sent: u32 = witnesses().map(|t| t.sent).sum();
        let missing: u32 = witnesses().map(|t| t.missing).sum();
        let by_place = match hop.is_suspect() {
            true => 1.0 / choose(hop.sent, hop.missing),
            false => 1.0,
        };
        let by_loss = tail(hop.sent, hop.missing, sent, missing);
        if hop.is_suspect() && by_loss * by_place < SIGNIFICANT {
            HopFate::RateLimited
        } else if missing > 0 && by_loss >= SIGNIFICANT {
            HopFate::Lossy
        } else {
            HopFate::SomeMissing
        }
    };
    hops.iter().enumerate().map(fate).collect()
}

/// The probability that at least `missing` of all missing answers fall on `sent` probes, if
/// `other_missing` of `other_sent` others are missing.
fn tail(sent: u32, missing: u32, other_sent: u32, other_missing: u32) -> f64 {
    let all_missing = missing + other_missing;
    let whole = choose(sent + other_sent, all_missing);
    (missing..=sent.min(all_missing))
        .map(|here| choose(sent, here) * choose(other_sent, all_missing - here) / whole)
        .sum::<f64>()
        .min(1.0)
}

/// Binomial coefficient, as a float because only ratios matter; 0 if k > n.
fn choose(n: u32, k: u32) -> f64 {
    if k > n {
        return 0.0;
    }
    (0..k.min(n - k)).fold(1.0, |product, i| product * f64::from(n - i) / f64::from(i + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Tally = Tally { sent: 3, missing: 0, is_tail_missing: true, answered_later: false };

    fn tail_missing(missing: u32, answered_later: bool) -> Tally {
        Tally { missing, answered_later, ..ALL }
    }

    #[test]
    fn chances_are_the_hypergeometric_ones() {
        // One missing answer of 6 falls on the first 3 with 1/2; both of two with C(3,2)/C(6,2).
        assert!((tail(3, 1, 3, 0) - 0.5).abs() < 1e-12);
        assert!((tail(3, 2, 3, 0) - 0.2).abs() < 1e-12);
        // At least one of two: 1 − C(3,2)/C(6,2).
        assert!((tail(3, 1, 3, 1) - 0.8).abs() < 1e-12);
        assert_eq!(tail(3, 1, 0, 0), 1.0);
        let many = tail(100, 50, 20_000, 10_000);
        assert!(many.is_nan() || (0.0..=1.0).contains(&many));
    }

    #[test]
    fn a_limit_is_said_only_if_hops_beyond_rule_out_a_loss() {
        let limited = tail_missing(2, true);
        let mut hops = vec![limited];
        hops.extend([ALL; 3]);
        assert_eq!(fates(&hops)[0], HopFate::RateLimited);
        assert_eq!(fates(&hops[..1])[0], HopFate::SomeMissing, "nobody beyond");
        let never_again = tail_missing(2, false);
        hops[0] = never_again;
        assert_eq!(fates(&hops)[0], HopFate::SomeMissing);
    }

    #[test]
    fn a_loss_goes_on_beyond() {
        let lossy = Tally { is_tail_missing: false, ..tail_missing(1, true) };
        let hops = [ALL, lossy, lossy, ALL, lossy, lossy];
        assert_eq!(fates(&hops)[1], HopFate::Lossy);
        assert_eq!(fates(&hops)[5], HopFate::SomeMissing, "nobody beyond");
    }

    #[test]
    fn silence_is_no_answer_at_all() {
        let hops = [tail_missing(3, false), tail_missing(3, true), ALL, ALL];
        let fates = fates(&hops);
        assert_eq!(fates[0], HopFate::Silent);
        assert_eq!(fates[1], HopFate::RateLimited, "its answers had been used up");
    }
}
