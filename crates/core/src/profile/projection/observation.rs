//! One short run as the model uses it: each end's CPU time, and its count of each term.

use super::state::{PerTerm, Term};
use super::{End, NotProjected};
use crate::plan::{Protocol, SendMethod, Traffic, Workload};
use crate::record::{EndReport, HostFacts, Leg, Record};
use crate::units::Family;

/// One end's CPU time and counts in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndWork {
    /// CPU time of its threads, and of its host's soft interrupts where the host is its alone, ns.
    pub cpu_ns: f64,
    /// The count of each term.
    pub counts: PerTerm,
    /// Share of the CPU time that its threads got of what they wanted, 0–1: the rest others had.
    pub granted: f64,
    /// Number of CPUs that its threads can use at once.
    pub cores: f64,
}

impl EndWork {
    /// Two ends as one: the CPU time of both; events that both counted count once.
    pub(super) fn with(&self, other: &Self) -> Self {
        let cpu_ns = self.cpu_ns + other.cpu_ns;
        let wanted = self.cpu_ns / self.granted + other.cpu_ns / other.granted;
        Self {
            cpu_ns,
            counts: together(&self.counts, &other.counts),
            granted: if wanted > 0.0 { cpu_ns / wanted } else { 1.0 },
            cores: self.cores + other.cores,
        }
    }
}

/// Counts of two ends of one kernel as one: each makes its own calls, copies and checksums;
/// packets, acknowledgements and soft interrupts are the same ones.
fn together(sender: &PerTerm, receiver: &PerTerm) -> PerTerm {
    PerTerm::new(Term::ALL.map(|term| {
        let (a, b) = (sender.at(term), receiver.at(term));
        let is_each = matches!(term, Term::Call | Term::CopiedByte | Term::ChecksummedByte);
        (term, if is_each { a + b } else { a.max(b) })
    }))
}

/// A run of a design.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Its point of the design.
    pub point: String,
    /// Its transport.
    pub protocol: Protocol,
    /// Payload that arrived, bytes.
    pub bytes: f64,
    /// Payload that the sender handed over and sent, bytes: more than arrived where datagrams were
    /// lost.
    pub sent_bytes: f64,
    /// Goodput, payload bits per second.
    pub throughput_bps: f64,
    /// Payload of a segment or datagram, bytes.
    pub segment_bytes: f64,
    /// Headers of IP and transport of each, bytes.
    pub header_bytes: f64,
    /// Both ends have one kernel: its soft interrupts run in either's threads.
    pub shared_kernel: bool,
    /// The sender.
    pub sender: EndWork,
    /// The receiver.
    pub receiver: EndWork,
}

impl Observation {
    /// What a record of one direction of a bulk transfer says. `point` is the name of its place in
    /// the design.
    ///
    /// # Errors
    /// A figure is not there: of requests, of both directions at once, of an older endpoint.
    pub fn new(point: &str, record: &Record) -> Result<Self, NotProjected> {
        let one_way = record.leg().filter(|_| record.workload == Workload::Stream);
        let leg = known(one_way, "single direction of a bulk transfer")?;
        let throughput_bps = known(leg.throughput_bps, "throughput")?;
        let bytes = leg.bytes as f64;
        if !(bytes > 0.0 && throughput_bps > 0.0) {
            return Err(NotProjected::new("nothing arrived"));
        }
        let run = ObservedRun::new(record, leg)?;
        let shared = run.shared;
        Ok(Self {
            point: point.to_owned(),
            protocol: record.protocol,
            bytes,
            sent_bytes: run.sent_bytes,
            throughput_bps,
            segment_bytes: run.segment_bytes,
            header_bytes: run.header_bytes,
            shared_kernel: shared,
            sender: run.end(run.sender, run.sender_host, run.at_sender()),
            receiver: run.end(run.receiver, run.receiver_host, run.at_receiver()),
        })
    }

    /// The work of each end; of two ends on one kernel, both together.
    pub fn works(&self) -> Vec<(End, EndWork)> {
        if self.shared_kernel {
            vec![(End::Both, self.sender.with(&self.receiver))]
        } else {
            vec![(End::Sender, self.sender), (End::Receiver, self.receiver)]
        }
    }
}

/// The figures of a record from which the counts are computed.
struct ObservedRun<'a> {
    record: &'a Record,
    leg: &'a Leg,
    sender: &'a EndReport,
    receiver: &'a EndReport,
    sender_host: &'a HostFacts,
    receiver_host: &'a HostFacts,
    shared: bool,
    flows: f64,
    sent_bytes: f64,
    segment_bytes: f64,
    header_bytes: f64,
    /// Segments or fragments on the wire.
    segments: f64,
    /// Those of them that IP made of larger datagrams, and those that it put together.
    fragments: [f64; 2],
    /// Packets that the sender's TCP or UDP handed to IP.
    aggregates: f64,
    /// Packets that the receiver's IP handed up.
    deliveries: f64,
    acknowledgements: f64,
}

impl<'a> ObservedRun<'a> {
    fn new(record: &'a Record, leg: &'a Leg) -> Result<Self, NotProjected> {
        let sender = known(leg.sender.as_ref(), "sender")?;
        let receiver = known(leg.receiver.as_ref(), "receiver")?;
        let hosts = record.environment.hosts_of(leg.direction);
        let [sender_host, receiver_host] =
            hosts.map(|host| known(host, "environment of the endpoint"));
        let (sender_host, receiver_host) = (sender_host?, receiver_host?);
        let mut run = Self {
            record,
            leg,
            sender,
            receiver,
            sender_host,
            receiver_host,
            shared: record.environment.shared_kernel,
            flows: f64::from(record.plan.streams),
            sent_bytes: leg.bytes as f64,
            segment_bytes: 0.0,
            header_bytes: 0.0,
            segments: 0.0,
            fragments: [0.0; 2],
            aggregates: of_ip(sender, "OutRequests"),
            deliveries: of_ip(receiver, "InDelivers"),
            acknowledgements: 0.0,
        };
        match record.protocol {
            Protocol::Udp => run.count_datagrams()?,
            Protocol::Tcp | Protocol::Mptcp => run.count_segments()?,
        }
        if run.aggregates <= 0.0 || run.deliveries <= 0.0 {
            let what = "count of packets at IP, as an older endpoint has none";
            return Err(NotProjected::lacks(what));
        }
        Ok(run)
    }

    fn count_segments(&mut self) -> Result<(), NotProjected> {
        let tcp = known(self.leg.tcp_sender(), "TCP evidence")?;
        self.segments = known(tcp.data_segments_out, "count of segments")? as f64;
        self.acknowledgements = tcp.segments_in.unwrap_or(0) as f64;
        self.segment_bytes = f64::from(tcp.mss_bytes);
        self.header_bytes = f64::from(tcp.pmtu_bytes) - self.segment_bytes;
        if self.in_one_namespace() {
            // Both ends count into the same counters: the acknowledgements are in either's.
            self.aggregates -= self.acknowledgements;
            self.deliveries -= self.acknowledgements;
        }
        // With a cleared DF bit and an MSS below the path's, headers are what they always are.
        if !(self.header_bytes > 0.0 && self.header_bytes < MAX_HEADERS) {
            self.header_bytes = ip_header(self.record.family) + TCP_HEADER;
        }
        Ok(())
    }

    fn count_datagrams(&mut self) -> Result<(), NotProjected> {
        let udp = known(self.leg.udp.as_ref(), "UDP evidence")?;
        self.segment_bytes = udp.datagram_bytes as f64;
        self.sent_bytes = udp.sent as f64 * self.segment_bytes;
        self.header_bytes = ip_header(self.record.family) + UDP_HEADER;
        let fragments = of_ip(self.sender, "FragCreates");
        self.fragments = [fragments, of_ip(self.receiver, "ReasmReqds")];
        let sent = self.aggregates.max(udp.sent as f64);
        // Whole ones are not counted as fragments.
        self.segments = if fragments > 0.0 { fragments } else { sent };
        self.deliveries = of_ip(self.receiver, "InDelivers").max(udp.received as f64);
        Ok(())
    }

    fn in_one_namespace(&self) -> bool {
        let device = self.sender_host.device.as_ref();
        self.shared && device.is_some_and(|device| device.name == "lo")
    }

    fn end(&self, end: &EndReport, host: &HostFacts, counts: PerTerm) -> EndWork {
        let threads = end.cpu_seconds.total();
        // Without its own account of interrupt time a kernel charges the thread that was there
        // (kernel/sched/cputime.c), so that soft interrupts are in the threads' time already where
        // one kernel serves both ends.
        let apart = end.softirq_seconds.unwrap_or(0.0);
        let softirq = if self.shared { 0.0 } else { apart };
        let delayed = end.run_delay_us.unwrap_or(0) as f64 / 1e6 * self.flows;
        let wanted = threads + delayed;
        let granted = (threads / wanted).max(MIN_GRANTED);
        EndWork {
            cpu_ns: (threads + softirq) * 1e9,
            counts,
            granted: if wanted > 0.0 { granted } else { 1.0 },
            cores: self.flows.min(host.cpu.usable.max(1.0)),
        }
    }

    fn at_sender(&self) -> PerTerm {
        let copied = match &self.record.plan.traffic {
            Traffic::Stream(stream) if stream.send == SendMethod::ZeroCopy => 0.0,
            _ => self.sent_bytes,
        };
        let by_device = offload(self.sender_host, CHECKSUMS);
        let checksummed = if by_device { 0.0 } else { self.sent_bytes };
        let mut counts = PerTerm::new([
            (Term::Call, self.record.messages.unwrap_or(0) as f64),
            (Term::Packet, self.cut()),
            (Term::Fragment, self.fragments[0]),
            (Term::Aggregate, self.aggregates),
            (Term::Byte, self.sent_bytes),
            (Term::CopiedByte, copied),
            (Term::ChecksummedByte, checksummed),
            (Term::Acknowledgement, self.acknowledgements),
            (Term::Interrupt, softirqs(self.sender)),
        ]);
        if self.record.protocol == Protocol::Udp {
            counts.set(Term::Call, self.sent_bytes / self.segment_bytes);
        }
        if self.shared {
            counts.set(Term::Delivery, self.deliveries);
        }
        counts
    }

    fn at_receiver(&self) -> PerTerm {
        let bytes = self.leg.bytes as f64;
        let is_read = self.receiver.method.as_deref() != Some("discard");
        // What the sender's device left undone on a path without a wire, nobody has done.
        let verified = if self.shared {
            !offload(self.sender_host, CHECKSUMS)
        } else {
            !offload(self.receiver_host, RECEIVED_CHECKSUMS)
        };
        let arrived = bytes / self.sent_bytes;
        let (cut, on_wire) = (self.cut(), self.segments);
        let packets = if self.shared { cut } else { on_wire };
        let mut counts = PerTerm::new([
            (Term::Call, self.receiver.calls.unwrap_or(0) as f64),
            (Term::Packet, packets * arrived),
            (Term::Fragment, self.fragments[1]),
            (Term::Delivery, self.deliveries),
            (Term::Byte, bytes),
            (Term::CopiedByte, if is_read { bytes } else { 0.0 }),
            (Term::ChecksummedByte, if verified { bytes } else { 0.0 }),
            (Term::Acknowledgement, self.acknowledgements),
            (Term::Interrupt, softirqs(self.receiver)),
        ]);
        if self.shared {
            counts.set(Term::Aggregate, self.aggregates);
        }
        counts
    }

    /// Packets that the sender's CPU carries by itself.
    fn cut(&self) -> f64 {
        match self.record.protocol {
            Protocol::Tcp | Protocol::Mptcp if offload(self.sender_host, SEGMENTATION) => {
                self.aggregates
            }
            _ => self.segments.max(self.aggregates),
        }
    }
}

fn softirqs(end: &EndReport) -> f64 {
    end.receive_softirqs.unwrap_or(0) as f64
}

fn known<T>(figure: Option<T>, what: &str) -> Result<T, NotProjected> {
    figure.ok_or_else(|| NotProjected::lacks(what))
}

/// IP's header without options, bytes.
fn ip_header(family: Family) -> f64 {
    match family {
        Family::Ipv4 => 20.0,
        Family::Ipv6 => 40.0,
    }
}

/// A counter of IPv4 and IPv6 together.
pub(super) fn of_ip(end: &EndReport, name: &str) -> f64 {
    let counter = |family: &str| end.counters.get(&format!("{family}{name}")).copied();
    (counter("Ip").unwrap_or(0) + counter("Ip6").unwrap_or(0)) as f64
}

/// Whether the device of the path has one of these on; one of which nothing is known has.
fn offload(host: &HostFacts, names: &[&str]) -> bool {
    let Some(device) = &host.device else {
        return true;
    };
    let known = Vec::from_iter(names.iter().filter_map(|name| device.offloads.get(*name)));
    known.is_empty() || known.contains(&&true)
}

/// Names of the offload in ethtool; a driver has one of them.
const CHECKSUMS: &[&str] = &["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
const RECEIVED_CHECKSUMS: &[&str] = &["rx-checksum"];
const SEGMENTATION: &[&str] = &["tx-tcp-segmentation"];
/// A thread that got less of a CPU than this of what it wanted has nothing to tell.
const MIN_GRANTED: f64 = 1e-3;
/// Largest headers, bytes: IPv6 with every option of TCP.
const MAX_HEADERS: f64 = 100.0;
/// TCP's header with time stamps, bytes.
const TCP_HEADER: f64 = 32.0;
/// UDP's header, bytes.
const UDP_HEADER: f64 = 8.0;
