//! One direction of a record, as the rules see it.

use std::net::{IpAddr, SocketAddr};

use crate::plan::{Direction, Role, Workload};
use crate::record::{
    EndReport, HostFacts, Interval, Leg, PathTrain, Record, TcpEvidence, TcpReceiver, TcpSender,
    UdpEvidence,
};

/// One direction of a bulk transfer.
///
/// From the plan the evidence takes only what the record of another program's connection has, too:
/// sizes, protocol, streams, extent. Options of sockets and applications are for remedies alone:
/// the evidence must come from the kernel.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The record.
    pub record: &'a Record,
    /// The direction.
    pub leg: &'a Leg,
    /// Goodput, payload bits per second.
    pub throughput_bps: f64,
    /// TCP's flows; empty if their evidence does not cover the transfer (several MPTCP subflows),
    /// or if the sender's kernel was not read.
    pub tcp: Vec<TcpFlow<'a>>,
    /// UDP's flows.
    pub udp: Vec<&'a UdpEvidence>,
    /// The sending end's host.
    pub sender_host: Option<&'a HostFacts>,
    /// The receiving end's host.
    pub receiver_host: Option<&'a HostFacts>,
}

/// One TCP flow.
#[derive(Debug, Clone, Copy)]
pub struct TcpFlow<'a> {
    /// Payload received, bytes.
    pub bytes: u64,
    /// The figures of the sender's kernel.
    pub tcp: &'a TcpSender,
    /// The figures of the receiver's kernel.
    pub receiver: Option<&'a TcpReceiver>,
}

/// The directions of a bulk transfer; none for requests and responses, whose limit is not a rate.
pub fn views(record: &Record) -> Vec<View<'_>> {
    if record.workload != Workload::Stream {
        return Vec::new();
    }
    let legs = record.legs.iter();
    legs.filter_map(|leg| view(record, leg)).collect()
}

fn view<'a>(record: &'a Record, leg: &'a Leg) -> Option<View<'a>> {
    let [sender_host, receiver_host] = record.hosts_of(leg);
    Some(View {
        record,
        leg,
        throughput_bps: leg.throughput_bps?,
        tcp: tcp_flows(record, leg),
        udp: udp_flows(record, leg),
        sender_host,
        receiver_host,
    })
}

impl<'a> View<'a> {
    /// The sending end.
    pub(super) fn sender(&self) -> Option<&'a EndReport> {
        self.leg.sender.as_ref()
    }

    /// The receiving end.
    pub(super) fn receiver(&self) -> Option<&'a EndReport> {
        self.leg.receiver.as_ref()
    }

    /// The figures of the receivers' kernels, if those of the senders were not read.
    pub(super) fn receivers_alone(&self) -> Vec<&'a TcpReceiver> {
        if self.leg.tcp_sender().is_some() {
            return Vec::new();
        }
        let flows = self.record.flows_of(self.leg);
        let evidence = flows.filter_map(|flow| flow.tcp.as_ref());
        evidence.filter_map(|tcp| tcp.receiver.as_ref()).collect()
    }

    /// Whether both directions ran at the same time.
    pub(super) fn is_both(&self) -> bool {
        self.record.legs.len() > 1
    }

    /// Whether both ends run on one kernel, so that host-wide figures count both.
    pub(super) fn has_one_kernel(&self) -> bool {
        self.record.environment.shared_kernel
    }

    /// Whether only packets were seen: the sender is known as far as its packets show.
    pub(super) fn is_of_packets(&self) -> bool {
        let unread = self.sender().is_none() && self.receiver().is_none();
        let packets = |flow: &TcpFlow<'_>| flow.tcp.pmtu_bytes == 0;
        unread && !self.tcp.is_empty() && self.tcp.iter().all(packets)
    }

    /// Whether bytes were counted as they were acknowledged, since the receiver's end was not seen.
    pub(super) fn counts_acknowledged(&self) -> bool {
        self.receiver().is_none()
    }

    /// The packet train that was sent before the run.
    pub(super) fn train(&self) -> Option<PathTrain> {
        self.record.path_train.filter(|_| !self.is_both())
    }

    /// The figures of the receiver's kernel for each TCP flow, whether the sender's was read or
    /// not.
    pub(super) fn tcp_receivers(&self) -> Vec<&'a TcpReceiver> {
        let flows = self.record.flows_of(self.leg);
        let mut all: Vec<_> =
            flows.filter_map(|flow| flow.tcp.as_ref()?.receiver.as_ref()).collect();
        if all.is_empty() {
            all.extend(self.leg.tcp.iter().filter_map(|tcp| tcp.receiver.as_ref()));
        }
        all
    }

    /// The intervals of this direction.
    pub(super) fn intervals(&self) -> impl Iterator<Item = &'a Interval> {
        self.record.intervals_of(self.leg)
    }

    /// The emulated path as `--lab` reads it.
    pub(super) fn lab(&self) -> Option<&'a str> {
        let lab = self.record.environment.lab.as_ref();
        lab.map(|lab| lab.spec.as_str())
    }

    /// Port of the endpoint.
    pub(super) fn port(&self) -> Option<u16> {
        let peer: SocketAddr = self.record.peer.parse().ok()?;
        Some(peer.port())
    }

    /// Address of an end, as the client sees it.
    pub(super) fn address(&self, role: Role) -> Option<IpAddr> {
        let first = self.record.flows.first();
        let is_client = (role == Role::Sender) != (self.leg.direction == Direction::Down);
        let address: Option<SocketAddr> = if is_client {
            first.and_then(|flow| flow.local.parse().ok())
        } else {
            let told = first.and_then(|flow| flow.remote.parse().ok());
            told.or_else(|| self.record.peer.parse().ok())
        };
        address.map(|address| address.ip())
    }
}

/// The evidence of each flow, or the totals as one flow if the record has no flows.
fn tcp_flows<'a>(record: &'a Record, leg: &'a Leg) -> Vec<TcpFlow<'a>> {
    let flows = record.flows_of(leg).map(|flow| (flow.bytes, &flow.tcp));
    let read = |(bytes, tcp): (u64, &'a Option<_>)| TcpFlow::new(bytes, tcp.as_ref()?);
    let mut flows: Vec<_> = flows.filter_map(read).collect();
    if flows.is_empty() {
        flows.extend(read((leg.bytes, &leg.tcp)));
    }
    if flows.iter().any(|flow| flow.tcp.subflows.is_some_and(|n| n > 1)) {
        flows.clear();
    }
    flows
}

impl<'a> TcpFlow<'a> {
    fn new(bytes: u64, tcp: &'a TcpEvidence) -> Option<Self> {
        Some(Self { bytes, tcp: tcp.sender()?, receiver: tcp.receiver.as_ref() })
    }

    /// Whether the application fixed the receive buffer.
    pub(super) fn has_fixed_window(&self) -> bool {
        self.receiver.is_some_and(|receiver| receiver.buffer_locked)
    }
}

fn udp_flows<'a>(record: &'a Record, leg: &'a Leg) -> Vec<&'a UdpEvidence> {
    let mut flows: Vec<_> = record.flows_of(leg).filter_map(|flow| flow.udp.as_ref()).collect();
    if flows.is_empty() {
        flows.extend(&leg.udp);
    }
    flows
}
