//! The evidence about one direction of a bulk transfer: all that the rules see.
//!
//! [`views`] fills it from the record of a run; [`crate::connection`] from a connection of another
//! program, of which one end was watched or the packets were captured.

use std::net::{IpAddr, SocketAddr};

use crate::link::PathSpec;
use crate::plan::{Direction, End, Protocol, Role, StreamTest, Test, Traffic, Workload};
use crate::record::{
    EndReport, HostFacts, Leg, PathTrain, Record, StepRates, TcpEvidence, TcpReceiver, TcpSender,
    UdpEvidence,
};
use crate::remedy::{Name, Run, Target, shell_safe};
use crate::units::{BitRate, ByteCount, DEFAULT_PORT, EndpointName, Family};

/// The evidence about one direction of a bulk transfer.
///
/// What was not seen is `None` or missing in its list, never zero. An end that was not seen has no
/// report, and nothing is known of its host; if only packets were seen, both ends lack a report and
/// `flows` has what the packets tell of the kernels' figures.
///
/// From the options of a run the evidence takes only sizes, protocol, streams and extent; options
/// of sockets and applications are for remedies alone, since the evidence must come from the
/// kernel.
#[derive(Debug, Clone)]
pub(crate) struct View<'a> {
    /// The direction of the payload. `up`: the client sends, or the host where another program's
    /// connection was seen.
    pub(crate) direction: Direction,
    /// Whether the other direction ran at the same time.
    pub(crate) is_both: bool,
    /// The transport protocol.
    pub(crate) protocol: Protocol,
    /// Address family.
    pub(crate) family: Family,
    /// Time over which the figures were taken, seconds.
    pub(crate) seconds: f64,
    /// Whether this time began with the first data, so that slow start is in it.
    pub(crate) has_slow_start: bool,
    /// Goodput over all flows, payload bits per second; see [`View::counts_acknowledged`].
    pub(crate) throughput_bps: f64,
    /// How even the rate was, in steps of usually 100 ms.
    pub(crate) steps: Option<StepRates>,
    /// The rates of longer intervals, payload bits per second.
    pub(crate) interval_rates_bps: Vec<f64>,
    /// Payload bytes and TCP's figures of each flow, at either end.
    pub(crate) flows: Vec<(u64, &'a TcpEvidence)>,
    /// Payload bytes and TCP's figures over all flows.
    pub(crate) total: (u64, Option<&'a TcpEvidence>),
    /// The flows whose sender's kernel was read, or is known from packets; none if its figures do
    /// not cover the transfer (several MPTCP subflows).
    pub(crate) tcp: Vec<TcpFlow<'a>>,
    /// UDP's flows, as the receiver counted them.
    pub(crate) udp: Vec<&'a UdpEvidence>,
    /// The cost at the sending end.
    pub(crate) sender: Option<&'a EndReport>,
    /// The cost at the receiving end.
    pub(crate) receiver: Option<&'a EndReport>,
    /// The sending end's host.
    pub(crate) sender_host: Option<&'a HostFacts>,
    /// The receiving end's host.
    pub(crate) receiver_host: Option<&'a HostFacts>,
    /// Whether both ends run on one kernel, so that host-wide figures count both.
    pub(crate) has_one_kernel: bool,
    /// The packet train that was sent in this direction before the run.
    pub(crate) train: Option<PathTrain>,
    /// The test that was asked for; `None` for a connection of another program.
    pub(crate) asked: Option<&'a Test>,
    /// The other end, as a command names it.
    pub(crate) target: Target,
    /// Addresses of both ends, the client's first.
    pub(crate) addresses: [Option<IpAddr>; 2],
}

/// One TCP flow whose sender's figures are known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpFlow<'a> {
    /// Payload received, bytes.
    pub(crate) bytes: u64,
    /// The figures of the sender's kernel.
    pub(crate) tcp: &'a TcpSender,
    /// The figures of the receiver's kernel.
    pub(crate) receiver: Option<&'a TcpReceiver>,
}

/// The directions of a bulk transfer; none for requests and responses, whose limit is not a rate.
pub(super) fn views(record: &Record) -> Vec<View<'_>> {
    if record.workload != Workload::Stream {
        return Vec::new();
    }
    record.legs.iter().filter_map(|leg| view(record, leg)).collect()
}

fn view<'a>(record: &'a Record, leg: &'a Leg) -> Option<View<'a>> {
    let is_both = record.legs.len() > 1;
    let [sender_host, receiver_host] = record.environment.hosts_of(leg.direction);
    let flows = record.flows_of(leg);
    let mut udp: Vec<_> = record.flows_of(leg).filter_map(|flow| flow.udp.as_ref()).collect();
    if udp.is_empty() {
        udp.extend(&leg.udp);
    }
    let view = View {
        direction: leg.direction,
        is_both,
        protocol: record.protocol,
        family: record.family,
        seconds: record.seconds,
        has_slow_start: record.plan.warm_up.as_secs_f64() <= 0.0,
        throughput_bps: leg.throughput_bps?,
        steps: leg.steps,
        interval_rates_bps: record.intervals_of(leg).map(|it| it.throughput_bps).collect(),
        flows: flows.filter_map(|flow| Some((flow.bytes, flow.tcp.as_ref()?))).collect(),
        total: (leg.bytes, leg.tcp.as_ref()),
        tcp: Vec::new(),
        udp,
        sender: leg.sender.as_ref(),
        receiver: leg.receiver.as_ref(),
        sender_host,
        receiver_host,
        has_one_kernel: record.environment.shared_kernel,
        train: record.path_train.filter(|_| !is_both),
        asked: Some(&record.plan),
        target: target(record),
        addresses: addresses(record),
    };
    Some(view.with_senders())
}

/// The emulated path, or the endpoint as the user named it. The name of a topology is no path.
fn target(record: &Record) -> Target {
    let is_path = |spec: &&str| shell_safe(spec) && spec.parse::<PathSpec>().is_ok();
    let lab = record.environment.lab.as_ref();
    if let Some(spec) = lab.map(|lab| lab.spec.as_str()).filter(is_path) {
        return Target::Lab(spec.to_owned());
    }
    let named = record.host.parse::<EndpointName>();
    let has_port = named.is_ok_and(|name| name.port.is_some());
    let peer: Option<SocketAddr> = record.peer.parse().ok();
    let is_told = |port: &u16| *port != DEFAULT_PORT && !has_port;
    Target::Endpoint(Name::new(&record.host), peer.map(|peer| peer.port()).filter(is_told))
}

fn addresses(record: &Record) -> [Option<IpAddr>; 2] {
    let address = |text: &str| text.parse().ok().map(|address: SocketAddr| address.ip());
    let first = record.flows.first();
    let server = first.and_then(|flow| address(&flow.remote));
    [first.and_then(|flow| address(&flow.local)), server.or_else(|| address(&record.peer))]
}

impl<'a> View<'a> {
    /// The view with `tcp` from `flows`, or from the total as one flow if there are none.
    pub(crate) fn with_senders(mut self) -> Self {
        let (bytes, total) = self.total;
        let known = |&(bytes, tcp): &(u64, &'a TcpEvidence)| {
            Some(TcpFlow { bytes, tcp: tcp.sender()?, receiver: tcp.receiver.as_ref() })
        };
        self.tcp = self.flows.iter().filter_map(known).collect();
        if self.tcp.is_empty() {
            self.tcp.extend(total.and_then(|tcp| known(&(bytes, tcp))));
        }
        if self.tcp.iter().any(|flow| flow.tcp.subflows.is_some_and(|n| n > 1)) {
            self.tcp.clear();
        }
        self
    }

    /// Whether the sender's kernel was read, or is known from packets.
    pub(super) fn knows_sender(&self) -> bool {
        self.total.1.is_some_and(|tcp| tcp.sender().is_some())
    }

    /// The figures of the receivers' kernels, if those of the senders were not read.
    pub(super) fn receivers_alone(&self) -> Vec<&'a TcpReceiver> {
        if self.knows_sender() { Vec::new() } else { self.flow_receivers().collect() }
    }

    /// The figures of the receiver's kernel for each TCP flow, whether the sender's was read or
    /// not.
    pub(super) fn tcp_receivers(&self) -> Vec<&'a TcpReceiver> {
        let mut all: Vec<_> = self.flow_receivers().collect();
        if all.is_empty() {
            all.extend(self.total.1.and_then(|tcp| tcp.receiver.as_ref()));
        }
        all
    }

    fn flow_receivers(&self) -> impl Iterator<Item = &'a TcpReceiver> {
        self.flows.iter().filter_map(|(_, tcp)| tcp.receiver.as_ref())
    }

    /// Whether only packets were seen: the sender is known as far as its packets show.
    pub(super) fn is_of_packets(&self) -> bool {
        let unread = self.sender.is_none() && self.receiver.is_none();
        let packets = |flow: &TcpFlow<'_>| flow.tcp.pmtu_bytes == 0;
        unread && !self.tcp.is_empty() && self.tcp.iter().all(packets)
    }

    /// Whether bytes were counted as they were acknowledged, since the receiver's end was not seen.
    pub(super) fn counts_acknowledged(&self) -> bool {
        self.receiver.is_none()
    }

    /// The options of the stream that was asked for.
    pub(super) fn stream(&self) -> Option<&'a StreamTest> {
        match &self.asked?.traffic {
            Traffic::Stream(stream) => Some(stream),
            Traffic::Rr(_) | Traffic::Crr(_) => None,
        }
    }

    /// The host that has this role.
    pub(super) fn host(&self, role: Role) -> Option<&'a HostFacts> {
        match role {
            Role::Sender => self.sender_host,
            Role::Receiver => self.receiver_host,
        }
    }

    /// The run of this direction, as a user would type it again.
    pub(crate) fn run(&self) -> Run<'a> {
        let hosts = [End::Client, End::Server].map(|end| self.host(Role::at(end, self.direction)));
        Run {
            target: self.target.clone(),
            family: self.family,
            test: self.asked.map(|asked| Test {
                direction: self.direction,
                protocol: self.protocol,
                streams: self.flow_count() as u32,
                ..asked.clone()
            }),
            sysctls: hosts.map(|host| Some(&host?.sysctls)),
            addresses: self.addresses,
        }
    }
}

impl TcpFlow<'_> {
    /// Whether the application fixed the receive buffer.
    pub(super) fn has_fixed_window(&self) -> bool {
        self.receiver.is_some_and(|receiver| receiver.buffer_locked)
    }
}

// Text of figures, as evidence writes them.

/// A share (0–1) in percent, with two significant digits at least.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        small if small > 0.0 && small < 1.0 => format!("{value:.2} %"),
        few if few > 0.0 && few < 10.0 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// A rate, bits per second.
pub(super) fn bps(value: f64) -> String {
    BitRate(value.round() as u64).to_string()
}

/// A size, bytes.
pub(super) fn bytes(value: f64) -> String {
    ByteCount(value.round() as u64).to_string()
}
