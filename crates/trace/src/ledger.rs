//! The probes that were sent, and the assignment of answers to them.

use std::net::IpAddr;

use super::probe::{Answer, AnswerKind, MplsLabel, ProbeId, Quoted};
use linerate_units::Nanos;

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
