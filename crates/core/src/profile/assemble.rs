//! Builds the document from a record and the profiles of both ends.

use super::attribution::{Attribution, Owner, Place, Role, attribute, owner};
use super::count::{End, count};
use super::document::{EndLayers, PROFILE_SCHEMA, ProfileDocument};
use super::sample::{EndProfile, FoldedStack};
use crate::plan::Direction;
use crate::record::{Caveat, CaveatKind, Record};

impl ProfileDocument {
    /// The document of a run of one direction, with what each end's profiler took.
    pub fn new(record: Record, client: Option<EndProfile>, server: Option<EndProfile>) -> Self {
        let (sender, receiver) = match record.direction {
            Direction::Up | Direction::Both => (client, server),
            Direction::Down => (server, client),
        };
        let peer = place(&record);
        let packets = packets(&record);
        let bytes = record.bytes();
        let end = |role| End { role, peer, packets, bytes };
        let sender = sender.map(|profile| count(profile, end(role(&record, Role::Sender))));
        let receiver = receiver.map(|profile| count(profile, end(role(&record, Role::Receiver))));
        Self {
            schema: PROFILE_SCHEMA.to_owned(),
            shared_overhead_percent: shared_overhead(peer, &sender, &receiver),
            caveats: caveats(&record, &sender, &receiver),
            sender,
            receiver,
            cost_models: Vec::new(),
            projections: Vec::new(),
            not_projected: Vec::new(),
            disk: None,
            record: Box::new(record),
        }
    }

    /// The stacks that are an end's own work, each with its layer.
    pub fn stacks(&self, which: Role) -> impl Iterator<Item = (&FoldedStack, Attribution)> {
        let end = match which {
            Role::Receiver => &self.receiver,
            Role::Sender => &self.sender,
        };
        let role = role(&self.record, which);
        let peer = place(&self.record);
        let stacks = end.iter().flat_map(|end| &end.profile.folded);
        stacks
            .filter(move |stack| owner(stack, role, peer) == Owner::This)
            .map(|stack| (stack, attribute(stack)))
    }
}

fn role(record: &Record, one_way: Role) -> Option<Role> {
    (record.direction != Direction::Both).then_some(one_way)
}

fn place(record: &Record) -> Place {
    if record.environment.shared_kernel { Place::Here } else { Place::Elsewhere }
}

/// The overhead of two ends on one kernel, which share its CPUs.
fn shared_overhead(
    peer: Place,
    sender: &Option<EndLayers>,
    receiver: &Option<EndLayers>,
) -> Option<f64> {
    let percent = |end: &Option<EndLayers>| end.as_ref()?.profile.overhead.percent;
    match peer {
        Place::Here => Some(percent(sender)? + percent(receiver)?),
        Place::Elsewhere => None,
    }
}

/// Segments with payload, as the sender's kernel counted them, or datagrams.
fn packets(record: &Record) -> Option<u64> {
    let sent = record.legs.iter().filter_map(|leg| {
        let segments = leg.tcp_sender().and_then(|tcp| tcp.data_segments_out);
        segments.or_else(|| leg.udp.as_ref().map(|udp| udp.sent))
    });
    sent.reduce(u64::saturating_add)
}

fn caveats(
    record: &Record,
    sender: &Option<EndLayers>,
    receiver: &Option<EndLayers>,
) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    for (name, end) in [("sender", sender), ("receiver", receiver)] {
        match end {
            None => caveats.push(Caveat::new(
                CaveatKind::Partial,
                format!("the {name} gave no profile; the other end's is shown"),
                "use the same version of linerate at both ends, and an endpoint without \
                 --no-profile",
            )),
            Some(end) => caveats.extend(doubts(name, end)),
        }
    }
    if record.environment.shared_kernel && sender.is_some() && receiver.is_some() {
        caveats.push(Caveat::new(
            CaveatKind::SharedKernel,
            "both ends run on one kernel: soft interrupts are shared out by their call chains, and \
             where these do not tell they count as the receiver's",
            "profile a path between two hosts for shares that need no such rule",
        ));
    }
    caveats
}

/// Of one end: what its profiler says itself, too few samples, too much that is not known.
fn doubts(name: &str, end: &EndLayers) -> Vec<Caveat> {
    let mut doubts = end.profile.caveats.clone();
    let samples = end.samples;
    if let Some(more) = end.more_seconds {
        doubts.push(Caveat::new(
            CaveatKind::TooShort,
            format!("{name}: {samples} samples do not tell shares to one percentage point"),
            format!("run for {:.0} more seconds", more.ceil()),
        ));
    }
    let are_sampled = samples > 0 && end.profile.how.tells_layers();
    let percent = end.unattributed_percent;
    if are_sampled && percent > MAX_UNATTRIBUTED {
        doubts.push(Caveat::new(
            CaveatKind::NotReadable,
            format!("{name}: {percent:.1} % of its time is unattributed"),
            "--by function shows what it was",
        ));
    }
    doubts
}

/// Percent of an end's time without a layer that are no reason to doubt the others.
const MAX_UNATTRIBUTED: f64 = 2.0;
