//! Judges verdicts on other programs' traffic, by the end or the packets that they come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scenario::{Program, Scenario};
use super::score::{Answer, Trial};
use crate::ceilings::Cause;
use crate::connection::{Connection, ConnectionsDocument};
use crate::names::names;

/// Name of the family.
pub const STRANGERS: &str = "strangers";

/// The place where another program's traffic was seen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SeenFrom {
    /// Its sockets at the sender.
    Sender,
    /// Its sockets at the receiver.
    Receiver,
    /// Packets captured at the sender.
    SentPackets,
    /// Packets captured at the receiver.
    ReceivedPackets,
}

impl SeenFrom {
    /// All places.
    pub const ALL: [Self; 4] = [
        Self::Sender,
        Self::Receiver,
        Self::SentPackets,
        Self::ReceivedPackets,
    ];
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Python,
        Self::Iperf3,
        Self::Nginx,
        Self::Socat,
        Self::Ssh,
        Self::Scp,
    ];
}

names! {
    /// The name in files and families.
    SeenFrom::name: Sender "sender", Receiver "receiver", SentPackets "sent_packets",
        ReceivedPackets "received_packets";
    /// The name in descriptions of scenarios.
    Program::words: Python "sockets of Python", Iperf3 "iperf3", Nginx "curl from nginx",
        Socat "socat", Ssh "ssh", Scp "scp";
}

impl Trial {
    /// Judges the verdicts on another program's traffic, one trial for each document.
    ///
    /// From the sender's end the cause is to be named, unless it is the receiver's program or CPU,
    /// which that end cannot know. From the receiver's end `unexplained` is right, too. From
    /// packets the verdict is to be that of the sockets, or the true cause if the sockets had
    /// another one.
    pub fn from_looks(scenario: &Scenario, looks: &[(SeenFrom, ConnectionsDocument)]) -> Vec<Self> {
        let seen = |sight| {
            let document = looks.iter().find(|(at, _)| *at == sight);
            document.and_then(|(_, document)| largest(document))
        };
        let said = |sight| seen(sight).and_then(|one| Some(one.verdict.as_ref()?.cause));
        let sockets = [SeenFrom::Sender, SeenFrom::Receiver].map(said);
        let trial = |(sight, document): &(SeenFrom, ConnectionsDocument)| {
            let scenario = scenario.seen_at(*sight, sockets)?;
            let answer = answer(largest(document));
            let caveats = document.caveats.iter().map(|one| one.message.clone());
            Some(Self {
                seen_from: Some(*sight),
                ..Self::new(&scenario, answer, caveats.collect())
            })
        };
        looks.iter().filter_map(trial).collect()
    }
}

/// The connection with the most payload.
fn largest(document: &ConnectionsDocument) -> Option<&Connection> {
    document.connections.iter().max_by_key(|one| one.bytes())
}

fn answer(connection: Option<&Connection>) -> Answer {
    let verdict = connection.and_then(|one| Some((one, one.verdict.as_ref()?)));
    match verdict {
        Some((connection, verdict)) => Answer::Verdict {
            cause: verdict.cause,
            throughput_bps: connection.throughput_bps,
            confidence: verdict.confidence,
        },
        None => Answer::Failed {
            reason: "nothing was seen of it".to_owned(),
        },
    }
}

impl Scenario {
    /// The scenario with the verdicts that are right from this place. `sockets` are the verdicts
    /// from the sockets of both ends; without them packets are not judged.
    fn seen_at(&self, sight: SeenFrom, sockets: [Option<Cause>; 2]) -> Option<Self> {
        let mut seen = self.clone();
        let of_receiver = [Cause::ApplicationReceive, Cause::CpuReceive].contains(&self.cause);
        match sight {
            SeenFrom::Sender if of_receiver => seen.accepted.push(Cause::Unexplained),
            SeenFrom::Sender => {}
            SeenFrom::Receiver => seen.accepted.push(Cause::Unexplained),
            SeenFrom::SentPackets | SeenFrom::ReceivedPackets => {
                let [sender, receiver] = sockets;
                seen.cause = sender?;
                seen.accepted.extend(receiver);
                seen.accepted.retain(|cause| *cause != Cause::Unexplained);
                seen.accepted.push(self.cause);
                seen.accepted.extend(as_packets_have_it(seen.cause));
                seen.rivals.clear();
            }
        }
        if sight != SeenFrom::Sender {
            seen.family = format!("{}_{}", self.family, sight.name());
        }
        Some(seen)
    }
}

/// Causes that packets cannot distinguish: no packet shows whether a late program waits or works.
fn as_packets_have_it(cause: Cause) -> Option<Cause> {
    match cause {
        Cause::CpuSend => Some(Cause::ApplicationSend),
        Cause::CpuReceive => Some(Cause::ApplicationReceive),
        Cause::QosClass => Some(Cause::PathRate),
        _ => None,
    }
}
