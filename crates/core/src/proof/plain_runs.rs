//! What the plain runs of one direction showed: all that interventions and predictions see.

use crate::ceilings::formulas::{
    ETHERNET_HEADER_BYTES, TCP_HEADER_BYTES, TIMESTAMP_BYTES, UDP_HEADER_BYTES, ip_header_bytes,
};
use crate::plan::{Direction, Protocol};
use crate::record::{
    EndReport, HostFacts, Leg, PathTrain, QosClass, QosEvidence, Record, TcpReceiver, TcpSender,
};
use crate::units::Family;

/// What the plain runs of one direction showed; what is not known is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlainRuns {
    /// Goodput over all flows, payload bits per second.
    pub rate_bps: f64,
    /// The smallest RTT, seconds.
    pub rtt_min_s: Option<f64>,
    /// The mean RTT under load, seconds.
    pub rtt_s: Option<f64>,
    /// Address family: the size of IP's header; IPv4's if it is not known.
    pub family: Option<Family>,
    /// Payload of a full segment, bytes.
    pub mss_bytes: Option<f64>,
    /// The window that the receiver offers each flow, bytes; that of another tool at its widest.
    pub receive_window_bytes: Option<f64>,
    /// The most that the receiving end may offer, bytes.
    pub max_receive_window_bytes: Option<f64>,
    /// `SO_SNDBUF` of each flow as an application would ask for it: half of what the kernel says.
    pub send_buffer_bytes: Option<f64>,
    /// The most that an application may ask for at the sender (`net.core.wmem_max`), bytes.
    pub max_send_buffer_bytes: Option<f64>,
    /// The sender's congestion control.
    pub congestion: Option<String>,
    /// The algorithms that the sender may use without privileges.
    pub allowed_congestion: Vec<String>,
    /// Segments retransmitted over segments sent; of UDP, datagrams lost.
    pub retransmitted_share: Option<f64>,
    /// Times that the senders of all flows met losses: each may have many segments.
    pub loss_events: Option<f64>,
    /// Whether no segment was retransmitted or marked since the connections began.
    pub never_lost: Option<bool>,
    /// The lowest limit of a flow's pace that was read (its socket's, or `maxrate` of the device's
    /// `fq`); infinite if none is set.
    pub max_pacing_bps: Option<f64>,
    /// Whether a class of the sender's own host sent all that it may.
    pub is_class_full: Option<bool>,
    /// Share of the time that the busiest data thread of sender and receiver ran or waited for a
    /// CPU.
    pub thread_shares: [Option<f64>; 2],
    /// CPU time of the data threads of sender and receiver for their bytes, ns/KiB.
    pub cpu_ns_per_kib: [Option<f64>; 2],
    /// The core of the sender's and receiver's host with the most soft interrupts, share of its
    /// time for them; the busiest core, where that is not known.
    pub core_shares: [Option<f64>; 2],
    /// The CPUs of the sender's and receiver's host that the test may use, share of their time.
    pub host_shares: [Option<f64>; 2],
    /// Share of a CPU that all threads of another tool's sender or receiver took.
    pub process_shares: [Option<f64>; 2],
    /// Share of the busy time in which the receiver's window held the sender, or of the readings in
    /// which it was full: the larger one.
    pub window_held_share: Option<f64>,
    /// The window that the receiver offers (median) over the widest since the connection began.
    pub window_open_share: Option<f64>,
    /// The window that the receiver offers over the congestion window: medians of the readings.
    pub window_over_cwnd: Option<f64>,
    /// Bytes that waited in the sender's socket over those in flight: medians of the readings.
    pub unsent_share: Option<f64>,
    /// The rate at which a packet train arrived, payload bits per second.
    pub train_bps: Option<f64>,
    /// Whether the receiver is linerate's, which holds a window at its size: others set a buffer.
    pub can_hold_window: bool,
    /// Whether the sender can hand over bytes without a copy.
    pub can_send_without_copy: bool,
    /// Whether the receiver can drop bytes without a copy.
    pub can_discard: bool,
}

impl PlainRuns {
    /// The RTT under load above the smallest, seconds.
    pub fn queue_s(&self) -> Option<f64> {
        Some((self.rtt_s? - self.rtt_min_s?).max(0.0))
    }

    /// Whether the receiver's window was smaller than the congestion window, and for most of the
    /// time less than half of what it once was: it closes behind a reader that is late.
    pub fn has_closing_window(&self) -> bool {
        let is_least = self.window_over_cwnd.is_some_and(|ratio| ratio < 1.0);
        is_least && self.window_open_share.is_some_and(|share| share <= 0.5)
    }

    /// What one run of one direction showed; `None` of a run without a rate, or of both
    /// directions.
    pub fn of(record: &Record) -> Option<Self> {
        let leg = record.leg()?;
        let [sender_host, receiver_host] = record.environment.hosts_of(leg.direction);
        let is_own = record.via.is_none();
        let plain = Self {
            rate_bps: leg.throughput_bps.filter(|rate| *rate > 0.0)?,
            family: Some(record.family),
            max_receive_window_bytes: number(receiver_host, "net.core.rmem_max"),
            max_send_buffer_bytes: number(sender_host, "net.core.wmem_max"),
            allowed_congestion: allowed(sender_host),
            is_class_full: leg.sender.as_ref().filter(|_| knows_policy(record, leg)).map(
                |sender| sender.qos.as_ref().is_some_and(|qos| has_full_class(qos, record.seconds)),
            ),
            thread_shares: [&leg.sender, &leg.receiver]
                .map(|end| thread_share(end.as_ref()?, record.seconds)),
            cpu_ns_per_kib: [&leg.sender, &leg.receiver]
                .map(|end| cpu_ns_per_kib(end.as_ref()?, leg.bytes)),
            core_shares: [&leg.sender, &leg.receiver].map(|end| core_share(end.as_ref()?)),
            host_shares: [&leg.sender, &leg.receiver]
                .map(|end| Some(end.as_ref()?.host_cpu_percent? / 100.0)),
            process_shares: [&leg.sender, &leg.receiver]
                .map(|end| process_share(end.as_ref().filter(|_| !is_own)?, record.seconds)),
            can_hold_window: is_own || leg.direction == Direction::Down,
            can_send_without_copy: is_own,
            can_discard: is_own,
            ..Self::default()
        };
        Some(match record.protocol {
            Protocol::Udp => plain.with_udp(leg, record.path_train),
            _ => plain.with_tcp(record, leg),
        })
    }

    fn with_tcp(self, record: &Record, leg: &Leg) -> Self {
        let of_flows: Vec<&TcpSender> =
            record.flows_of(leg).filter_map(|flow| flow.tcp.as_ref()?.sender()).collect();
        let Some(total) = leg.tcp_sender() else {
            return self.with_receivers(record, leg);
        };
        let senders = if of_flows.is_empty() { vec![total] } else { of_flows };
        let mean = |figure: &dyn Fn(&TcpSender) -> Option<f64>| {
            let sum: Option<f64> = senders.iter().map(|tcp| figure(tcp)).sum();
            Some(sum? / senders.len() as f64)
        };
        let least = senders.iter().filter_map(|tcp| tcp.rtt_min_us).min();
        let [sender_host, _] = record.environment.hosts_of(leg.direction);
        let flow_rate = sender_host.and_then(|host| host.device.as_ref()?.flow_max_rate_bps);
        let mss = positive(f64::from(total.mss_bytes));
        Self {
            rtt_min_s: least.and_then(|us| positive(f64::from(us) / 1e6)),
            rtt_s: mean(&|tcp| positive(f64::from(tcp.rtt_mean_us) / 1e6)),
            mss_bytes: mss,
            receive_window_bytes: mean(&|tcp| {
                let own = tcp.send_window_bytes.filter(|_| self.can_hold_window);
                own.map(|bytes| bytes as f64).or_else(|| widest_window(tcp))
            }),
            send_buffer_bytes: mean(&|tcp| positive(tcp.send_buffer_bytes as f64 / 2.0)),
            congestion: total.congestion.clone(),
            retransmitted_share: retransmitted_share(leg),
            loss_events: Some(total.loss_events as f64),
            never_lost: never_lost(total),
            max_pacing_bps: mean(&|tcp| {
                let own = tcp.max_pacing_rate_bps.into_iter();
                let rates = own.chain(flow_rate).map(|rate| rate as f64);
                Some(rates.fold(f64::INFINITY, f64::min))
            }),
            window_held_share: mean(&window_held_share),
            window_open_share: mean(&|tcp| {
                Some(tcp.send_window_median_bytes? as f64 / widest_window(tcp)?)
            }),
            window_over_cwnd: mean(&|tcp| {
                Some(tcp.send_window_median_bytes? as f64 / positive(tcp.cwnd_bytes as f64)?)
            }),
            unsent_share: mean(&|tcp| {
                Some(tcp.notsent_bytes? as f64 / positive(tcp.unacked_bytes as f64)?)
            }),
            train_bps: record.path_train.zip(mss).map(|(train, mss)| {
                let headers = ip_header_bytes(record.family) + TCP_HEADER_BYTES + TIMESTAMP_BYTES;
                train.link_bps * mss / (mss + headers + ETHERNET_HEADER_BYTES)
            }),
            ..self
        }
    }

    /// What the receiving end alone shows, if another tool sends.
    fn with_receivers(self, record: &Record, leg: &Leg) -> Self {
        let all: Vec<&TcpReceiver> =
            record.flows_of(leg).filter_map(|flow| flow.tcp.as_ref()?.receiver.as_ref()).collect();
        let mean = |figure: &dyn Fn(&TcpReceiver) -> Option<f64>| {
            let sum: Option<f64> = all.iter().map(|tcp| figure(tcp)).sum();
            sum.filter(|_| !all.is_empty()).map(|sum| sum / all.len() as f64)
        };
        let seconds = |us: u32| positive(f64::from(us) / 1e6);
        Self {
            rtt_min_s: all.iter().filter_map(|tcp| tcp.rtt_min_us).min().and_then(seconds),
            rtt_s: mean(&|tcp| seconds(tcp.rtt_mean_us?)),
            mss_bytes: mean(&|tcp| positive(f64::from(tcp.mss_bytes))),
            receive_window_bytes: mean(&|tcp| Some(tcp.window_bytes? as f64)),
            ..self
        }
    }

    fn with_udp(self, leg: &Leg, train: Option<PathTrain>) -> Self {
        let Some(udp) = &leg.udp else {
            return self;
        };
        let payload = udp.datagram_bytes as f64;
        let ip = ip_header_bytes(self.family.unwrap_or(Family::Ipv4));
        let headers = ip + UDP_HEADER_BYTES + ETHERNET_HEADER_BYTES;
        Self {
            retransmitted_share: lost_share(leg),
            train_bps: train.map(|train| train.link_bps * payload / (payload + headers)),
            ..self
        }
    }
}

/// Segments retransmitted over segments sent.
fn retransmitted_share(leg: &Leg) -> Option<f64> {
    let tcp = leg.tcp_sender()?;
    let sent = match tcp.data_segments_out {
        Some(out) => out as f64,
        None => leg.bytes as f64 / positive(f64::from(tcp.mss_bytes))?,
    };
    Some(tcp.retransmitted_segments as f64 / positive(sent)?)
}

fn never_lost(tcp: &TcpSender) -> Option<bool> {
    let all = tcp.retransmitted_segments + tcp.warm_up_retransmitted_segments?;
    Some(all == 0 && tcp.delivered_ce.unwrap_or(0) == 0)
}

/// Datagrams that did not arrive over datagrams sent.
fn lost_share(leg: &Leg) -> Option<f64> {
    let udp = leg.udp.as_ref()?;
    Some(udp.lost as f64 / positive(udp.sent as f64)?)
}

fn widest_window(tcp: &TcpSender) -> Option<f64> {
    positive(tcp.send_window_max_bytes.or(tcp.send_window_bytes)? as f64)
}

fn window_held_share(tcp: &TcpSender) -> Option<f64> {
    let held = tcp.rwnd_limited_us? as f64 / positive(tcp.busy_us? as f64)?;
    Some(held.max(tcp.send_window_full_share?))
}

/// Share of the time that the busiest thread ran or waited for a CPU.
fn thread_share(end: &EndReport, seconds: f64) -> Option<f64> {
    let waited = end.run_delay_us.map_or(0.0, |us| us as f64 / (seconds * 1e6));
    Some(end.busiest_thread_percent? / 100.0 + waited)
}

fn cpu_ns_per_kib(end: &EndReport, bytes: u64) -> Option<f64> {
    positive(end.cpu_seconds.total() * 1e9 / positive(bytes as f64 / 1024.0)?)
}

/// Share of a CPU that the threads took together, where no more is known of them.
fn process_share(end: &EndReport, seconds: f64) -> Option<f64> {
    let is_all = end.busiest_thread_percent.is_none();
    positive(end.cpu_seconds.total() / seconds).filter(|_| is_all)
}

fn core_share(end: &EndReport) -> Option<f64> {
    Some(end.softirq_core_percent.or(end.busiest_core_percent)? / 100.0)
}

/// Whether a class has sent as much as it or the root may: 7 % less is for the bursts at both ends
/// of the time.
fn has_full_class(qos: &QosEvidence, seconds: f64) -> bool {
    let link_bps = qos.link_bps.unwrap_or(f64::INFINITY);
    let share =
        |class: &QosClass| class.bytes as f64 * 8.0 / seconds / class.ceil_bps.min(link_bps);
    qos.classes.iter().any(|class| class.ceil_bps > 0.0 && share(class) >= 0.93)
}

/// Whether the classes of the sender's host were looked at: linerate's own end does.
fn knows_policy(record: &Record, leg: &Leg) -> bool {
    record.via.is_none() || leg.direction == Direction::Up
}

fn allowed(sender: Option<&HostFacts>) -> Vec<String> {
    let names = sender.and_then(|host| host.setting("net.ipv4.tcp_allowed_congestion_control"));
    names.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn number(host: Option<&HostFacts>, key: &str) -> Option<f64> {
    host?.setting(key)?.parse().ok()
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// Makes a number of tenths a factor: a parameter of a function's type cannot be a float.
pub(super) const fn tenths(n: u32) -> f64 {
    n as f64 / 10.0
}
