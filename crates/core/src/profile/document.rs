//! The document of a profile, and how it is built from a record and the profiles of both ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::attribution::{Attribution, Owner, Place, Role, attribute, owner};
use super::count::{End, Layer, count};
use super::projection::{CostModel, Projection, Unprojected};
use super::sample::{EndProfile, FoldedStack};
use crate::plan::Direction;
use crate::record::{Caveat, CaveatKind, Record};

/// Schema of [`ProfileDocument`].
pub const PROFILE_SCHEMA: &str = "linerate.profile/1";

/// The profile of a transfer: its CPU time by layer, at both ends.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileDocument {
    /// [`PROFILE_SCHEMA`].
    pub schema: String,
    /// The end that sent the data; absent if it gave no profile (a caveat says why).
    pub sender: Option<EndLayers>,
    /// The end that received it.
    pub receiver: Option<EndLayers>,
    /// The cost models by transport, on which the projections rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cost_models: Vec<CostModel>,
    /// The projected effects of changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projections: Vec<Projection>,
    /// Changes that cannot be projected here, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_projected: Vec<Unprojected>,
    /// The path beside the disk.
    pub disk: Option<DiskBeside>,
    /// What both ends' profiling took of the busy CPU time of the one kernel that they share,
    /// percent; absent between two hosts, where each end's `overhead` has its own, and where one of
    /// both is not known.
    pub shared_overhead_percent: Option<f64>,
    /// Caveats of the profile; those of the run are in its record.
    pub caveats: Vec<Caveat>,
    /// The run that was profiled.
    pub record: Box<Record>,
}

/// One end: its layers, and the samples that they were counted from.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndLayers {
    /// What is counted here and what is not, in words: which threads, which soft interrupts.
    pub taken: String,
    /// CPU time that this end took for the transfer, seconds: all layers but `idle`.
    pub cpu_seconds: f64,
    /// Samples that are this end's, idle ones left out: all that `functions` were counted from, and
    /// where the kernel was seen the layers, too.
    pub samples: u64,
    /// Samples that do not count: of other processes, of the other end, of the profiler.
    pub foreign_samples: u64,
    /// Packets on the wire that carried the data, retransmissions included; absent where not known.
    pub packets: Option<u64>,
    /// Payload bytes.
    pub bytes: u64,
    /// The layers, largest share first, `idle` last.
    pub layers: Vec<LayerCost>,
    /// The functions in which the time was spent, most first; bounded.
    pub functions: Vec<FunctionCost>,
    /// Share of `cpu_seconds` whose call chain no rule knows, percent.
    pub unattributed_percent: f64,
    /// `cpu_seconds` for each KiB of payload, µs/KiB.
    pub service_demand_us_per_kib: Option<f64>,
    /// Seconds that the run should have been longer for shares that are known to about one
    /// percentage point; absent where it was long enough.
    pub more_seconds: Option<f64>,
    /// The folded samples, from which the layers can be counted again.
    pub profile: EndProfile,
}

/// One layer's share of an end's CPU time.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerCost {
    /// The layer.
    pub layer: Layer,
    /// Samples of it; 0 where the layers are those of the kernel's account.
    pub samples: u64,
    /// Its CPU time, seconds.
    pub cpu_seconds: f64,
    /// Its share of the end's `cpu_seconds`, percent; of `idle`, the share of the host's CPU time
    /// in which nothing ran.
    pub share_percent: f64,
    /// Interval of that share at 95 %, percent; of what was accounted and not sampled it has no
    /// width.
    pub share_interval_percent: [f64; 2],
    /// CPU time for each packet, ns.
    pub ns_per_packet: Option<f64>,
    /// Its interval at 95 %, ns.
    pub ns_per_packet_interval: Option<[f64; 2]>,
    /// CPU time for each byte of payload, ns.
    pub ns_per_byte: Option<f64>,
    /// Its interval at 95 %, ns.
    pub ns_per_byte_interval: Option<[f64; 2]>,
    /// Its part of the end's service demand, µs/KiB.
    pub service_demand_us_per_kib: Option<f64>,
    /// Share of this layer's time that was in a soft interrupt, percent.
    pub softirq_percent: f64,
}

/// One function's share of an end's CPU time, without its callees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionCost {
    /// Its name.
    pub function: String,
    /// The layer that most of its samples are in.
    pub layer: Layer,
    /// Samples.
    pub samples: u64,
    /// Share of the end's samples, percent. Where the kernel was seen that is its share of
    /// `cpu_seconds`; where only user mode was, its share of the time in user mode.
    pub share_percent: f64,
}

/// The path beside this host's disk: a file of the size that was transferred, written and read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskBeside {
    /// Directory in which the file was.
    pub directory: String,
    /// Size of the file.
    pub bytes: u64,
    /// Written and on storage, bits per second.
    pub write_bps: f64,
    /// Read back with nothing of it in memory, bits per second; a file system in memory reads from
    /// there.
    pub read_bps: f64,
    /// Share of the file that came from storage when it was read, percent.
    pub from_storage_percent: f64,
    /// The path over the slower of the two: below 1, the network is what a copy of a file would
    /// wait for.
    pub path_over_disk: f64,
}

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
