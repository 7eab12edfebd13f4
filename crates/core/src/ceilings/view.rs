//! One direction of a record, as the causes look at it.

use std::net::{IpAddr, SocketAddr};

use crate::plan::{Direction, Protocol, Test, Workload};
use crate::record::{
    EndReport, HostFacts, Interval, Leg, PathTrain, Record, TcpEvidence, UdpEvidence,
};
use crate::units::Family;

/// One direction of a bulk transfer.
///
/// Evidence takes from the plan only what a stranger's record tells too: sizes, protocol, streams,
/// extent. What was asked of sockets and applications is for remedies alone: the evidence must come
/// from the kernel.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// Which way the payload goes.
    pub direction: Direction,
    /// Over which transport.
    pub protocol: Protocol,
    /// Over which family.
    pub family: Family,
    /// The endpoint as the user named it.
    pub host: &'a str,
    /// Goodput, payload bits per second.
    pub throughput_bps: f64,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Sizes and extent.
    pub plan: &'a Test,
    /// TCP's flows; empty where their evidence does not cover the transfer (several MPTCP
    /// subflows) or is not the sender's.
    pub tcp: Vec<TcpFlow<'a>>,
    /// Whether the evidence is the sender's; what the receiver's kernel says of the same
    /// connection stands in the record where another tool sends, and explains nothing.
    pub is_of_sender: bool,
    /// UDP's flows.
    pub udp: Vec<&'a UdpEvidence>,
    /// The sending end.
    pub sender: Option<&'a EndReport>,
    /// The receiving end.
    pub receiver: Option<&'a EndReport>,
    /// The sending end's host.
    pub sender_host: Option<&'a HostFacts>,
    /// The receiving end's host.
    pub receiver_host: Option<&'a HostFacts>,
    /// Both ends run on one kernel: host-wide figures count both.
    pub shared_kernel: bool,
    /// The other direction ran at the same time.
    pub both: bool,
    /// Port of the endpoint.
    pub port: Option<u16>,
    /// The emulated path as `--lab` reads it.
    pub lab: Option<&'a str>,
    /// Address that the sender has.
    pub sender_address: Option<IpAddr>,
    /// Address that it sends to.
    pub receiver_address: Option<IpAddr>,
    /// What a packet train found of the path.
    pub train: Option<PathTrain>,
    /// Through the run.
    pub intervals: Vec<&'a Interval>,
}

/// One TCP flow.
#[derive(Debug, Clone, Copy)]
pub struct TcpFlow<'a> {
    /// Payload received, bytes.
    pub bytes: u64,
    /// What the sender's kernel says.
    pub tcp: &'a TcpEvidence,
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
    let direction = leg.direction;
    let [sender_host, receiver_host] = record.hosts_of(leg);
    let both = record.legs.len() > 1;
    let [here, there] = addresses(record);
    let (sender_address, receiver_address) = match direction {
        Direction::Down => (there, here),
        Direction::Up | Direction::Both => (here, there),
    };
    let is_of_sender = is_of_sender(record, leg);
    Some(View {
        direction,
        protocol: record.protocol,
        family: record.family,
        host: &record.host,
        throughput_bps: leg.throughput_bps?,
        seconds: record.seconds,
        plan: &record.plan,
        tcp: if is_of_sender {
            tcp_flows(record, leg)
        } else {
            Vec::new()
        },
        is_of_sender,
        udp: udp_flows(record, leg),
        sender: leg.sender.as_ref(),
        receiver: leg.receiver.as_ref(),
        sender_host,
        receiver_host,
        shared_kernel: record.environment.shared_kernel,
        both,
        port: record.peer.parse().ok().map(|peer: SocketAddr| peer.port()),
        lab: record.environment.lab.as_ref().map(|lab| lab.spec.as_str()),
        sender_address: sender_address.map(|address| address.ip()),
        receiver_address: receiver_address.map(|address| address.ip()),
        train: record.path_train.filter(|_| !both),
        intervals: record.intervals_of(leg).collect(),
    })
}

/// The client's and the endpoint's address; flows tell both as the client sees them.
fn addresses(record: &Record) -> [Option<SocketAddr>; 2] {
    let first = record.flows.first();
    let here = first.and_then(|flow| flow.local.parse().ok());
    let there = first.and_then(|flow| flow.remote.parse().ok());
    [here, there.or_else(|| record.peer.parse().ok())]
}

/// No other tool tells its `TCP_INFO`, and an end that is lost has told nothing.
fn is_of_sender(record: &Record, leg: &Leg) -> bool {
    let server_sends = leg.direction == Direction::Down;
    let is_other_tool = record.via.is_some() && server_sends != record.served;
    !is_other_tool && leg.sender.is_some()
}

/// Each flow's evidence, or the totals as one flow where the record keeps no flows.
fn tcp_flows<'a>(record: &'a Record, leg: &'a Leg) -> Vec<TcpFlow<'a>> {
    let mut flows: Vec<_> = record
        .flows_of(leg)
        .filter_map(|flow| {
            Some(TcpFlow {
                bytes: flow.bytes,
                tcp: flow.tcp.as_ref()?,
            })
        })
        .collect();
    if flows.is_empty() {
        flows.extend(leg.tcp.as_ref().map(|tcp| TcpFlow {
            bytes: leg.bytes,
            tcp,
        }));
    }
    if flows
        .iter()
        .any(|flow| flow.tcp.subflows.is_some_and(|n| n > 1))
    {
        flows.clear();
    }
    flows
}

fn udp_flows<'a>(record: &'a Record, leg: &'a Leg) -> Vec<&'a UdpEvidence> {
    let flows = record.flows_of(leg);
    let mut flows: Vec<_> = flows.filter_map(|flow| flow.udp.as_ref()).collect();
    if flows.is_empty() {
        flows.extend(&leg.udp);
    }
    flows
}
