//! Records to explain: a flow with nothing wrong, to be changed by each test.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ceilings::{Cause, Explained, Verdict, explain};
use crate::plan::{Direction, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic};
use crate::record::{
    CpuFacts, DeviceFacts, EndReport, Environment, FlowRecord, HostFacts, Interval, Leg, Record,
    TcpEvidence, TcpReceiver, TcpSender, UdpEvidence,
};
use crate::units::{ByteCount, Span};

/// Payload of a segment on Ethernet, bytes.
pub(super) const MSS: u64 = 1448;
/// Measured time of all scenes, seconds.
pub(super) const SECONDS: f64 = 4.0;

/// One direction, before it becomes a record.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) throughput_bps: f64,
    pub(super) seconds: f64,
    pub(super) direction: Direction,
    pub(super) tcp: Vec<TcpSender>,
    /// What the receiver says of each of its flows.
    pub(super) window: TcpReceiver,
    pub(super) udp: Vec<UdpEvidence>,
    pub(super) sender: EndReport,
    pub(super) receiver: EndReport,
    pub(super) sender_host: HostFacts,
    pub(super) receiver_host: HostFacts,
    pub(super) variation: f64,
    pub(super) plan: Test,
}

/// A TCP flow over 20 ms whose windows are all open: the writer waits for the network.
pub(super) fn tcp(throughput_bps: f64) -> Scene {
    Scene {
        throughput_bps,
        seconds: SECONDS,
        direction: Direction::Up,
        tcp: vec![sender(throughput_bps, SECONDS)],
        window: TcpReceiver {
            buffer_bytes: Some(6_291_456),
            unread_bytes: Some(0),
            ..TcpReceiver::default()
        },
        udp: Vec::new(),
        sender: end(0.95, 0.02),
        receiver: end(0.95, 0.03),
        sender_host: host(),
        receiver_host: host(),
        variation: 0.3,
        plan: plan(Protocol::Tcp),
    }
}

/// What the sender of a flow over 20 ms says whose windows all have room.
pub(crate) fn sender(throughput_bps: f64, seconds: f64) -> TcpSender {
    TcpSender {
        congestion: Some("cubic".into()),
        mss_bytes: MSS as u32,
        advmss_bytes: MSS as u32,
        pmtu_bytes: 1500,
        rtt_min_us: Some(20_000),
        rtt_mean_us: 20_300,
        rtt_var_us: 300,
        data_segments_out: Some((throughput_bps * seconds / 8.0 / MSS as f64) as u64),
        samples: Some((seconds * 10.0) as u64),
        send_window_bytes: Some(6_700_000),
        cwnd_bytes: 927 * MSS,
        unacked_bytes: (throughput_bps * 0.0203 / 8.0) as u64,
        notsent_bytes: Some(300_000),
        busy_us: Some((seconds * 1e6) as u64),
        rwnd_limited_us: Some(0),
        sndbuf_limited_us: Some(0),
        delivery_rate_bps: Some(throughput_bps as u64),
        delivery_rate_max_bps: Some((throughput_bps * 1.02) as u64),
        app_limited_share: Some(0.0),
        pacing_rate_bps: Some((throughput_bps * 1.2) as u64),
        send_buffer_bytes: 4_000_000,
        send_queue_memory_bytes: Some(400_000),
        options: ["timestamps", "sack", "wscale"].map(String::from).to_vec(),
        ..TcpSender::default()
    }
}

/// A UDP flow of 1,448-byte datagrams, all of which arrive.
pub(super) fn udp(sent_bps: f64, arrived_share: f64) -> Scene {
    let sent = (sent_bps * SECONDS / 8.0 / MSS as f64) as u64;
    let received = (sent as f64 * arrived_share) as u64;
    Scene {
        tcp: Vec::new(),
        udp: vec![UdpEvidence {
            socket_drops: Some(0),
            sent,
            received,
            lost: sent - received,
            datagram_bytes: MSS,
            ..UdpEvidence::default()
        }],
        sender: end(0.0, 0.3),
        plan: plan(Protocol::Udp),
        ..tcp(sent_bps * arrived_share)
    }
}

/// Data threads that slept in their call and ran for these shares of the time.
pub(super) fn end(blocked: f64, running: f64) -> EndReport {
    EndReport {
        blocked_us: Some((blocked * SECONDS * 1e6) as u64),
        run_delay_us: Some(0),
        paced_us: Some(0),
        busiest_thread_percent: Some(running * 100.0),
        cpus: 4,
        ..EndReport::default()
    }
}

fn host() -> HostFacts {
    HostFacts {
        cpu: CpuFacts { count: 4, usable: 4.0, ..CpuFacts::default() },
        device: Some(DeviceFacts {
            name: "wa".into(),
            driver: Some("veth".into()),
            mtu_bytes: 1500,
            speed_bps: Some(10_000_000_000),
            offloads: BTreeMap::from([("tx-tcp-segmentation".into(), true)]),
            ..DeviceFacts::default()
        }),
        sysctls: BTreeMap::from([
            ("net.ipv4.tcp_rmem".into(), "4096 131072 33554432".into()),
            ("net.ipv4.tcp_wmem".into(), "4096\t16384\t33554432".into()),
        ]),
        ..HostFacts::default()
    }
}

fn plan(protocol: Protocol) -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest::new(match protocol {
            Protocol::Udp => MSS,
            Protocol::Tcp | Protocol::Mptcp => 131_072,
        })),
        protocol,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(Span(Duration::from_secs(4))),
        warm_up: Span(Duration::from_millis(400)),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed: 1,
    }
}

impl Verdict {
    /// What its remedy is typed as; empty without one.
    pub(super) fn command(&self) -> String {
        let remedy = self.remedy.as_ref();
        remedy.map_or_else(String::new, |remedy| remedy.command.clone())
    }
}

impl Scene {
    pub(super) fn flow(&mut self) -> &mut TcpSender {
        &mut self.tcp[0]
    }

    pub(super) fn stream(&mut self) -> &mut StreamTest {
        match &mut self.plan.traffic {
            Traffic::Stream(stream) => stream,
            Traffic::Rr(_) | Traffic::Crr(_) => unreachable!("scenes are streams"),
        }
    }

    /// The same flow so many times, which share the throughput.
    pub(super) fn times(mut self, flows: usize) -> Self {
        self.throughput_bps *= flows as f64;
        self.tcp = vec![self.tcp[0].clone(); flows];
        self
    }

    /// A transfer of so many bytes without warm-up.
    pub(super) fn transfer(mut self, bytes: u64) -> Self {
        self.plan.extent = Extent::Bytes(ByteCount(bytes));
        self.plan.warm_up = Span(Duration::ZERO);
        self
    }

    pub(super) fn record(&self) -> Record {
        let bytes = (self.throughput_bps * self.seconds / 8.0) as u64;
        let down = self.direction == Direction::Down;
        let hosts = (self.sender_host.clone(), self.receiver_host.clone());
        let (client, server) = if down { (hosts.1, hosts.0) } else { hosts };
        Record {
            started_at: "2026-01-01T00:00:00Z".into(),
            host: "mauchly".into(),
            peer: "198.18.0.2:5201".into(),
            direction: self.direction,
            seconds: self.seconds,
            legs: vec![Leg {
                throughput_bps: Some(self.throughput_bps),
                bytes,
                sender: Some(self.sender.clone()),
                receiver: Some(self.receiver.clone()),
                tcp: self.evidence(0),
                udp: self.udp.first().cloned(),
                ..Leg::new(self.direction)
            }],
            flows: self.flows(bytes),
            intervals: self.intervals(),
            environment: Environment {
                client,
                server: Some(server),
                shared_kernel: false,
                lab: None,
            },
            ..Record::new(self.plan.clone())
        }
    }

    fn evidence(&self, id: usize) -> Option<TcpEvidence> {
        let sender = self.tcp.get(id)?.clone();
        Some(TcpEvidence { receiver: Some(self.window.clone()), ..sender.into() })
    }

    fn flows(&self, bytes: u64) -> Vec<FlowRecord> {
        let count = self.tcp.len().max(self.udp.len());
        (0..count)
            .map(|id| FlowRecord {
                id: id as u32,
                direction: self.direction,
                throughput_bps: self.throughput_bps / count as f64,
                bytes: bytes / count as u64,
                local: String::new(),
                remote: String::new(),
                sender_thread_percent: None,
                receiver_thread_percent: None,
                tcp: self.evidence(id),
                udp: self.udp.get(id).cloned(),
                first_sent_us: None,
                first_received_us: None,
            })
            .collect()
    }

    fn intervals(&self) -> Vec<Interval> {
        [1.0 - self.variation, 1.0 + self.variation]
            .into_iter()
            .cycle()
            .take(4)
            .map(|share| Interval {
                direction: Some(self.direction),
                seconds: 1.0,
                throughput_bps: self.throughput_bps * share,
                ..Interval::default()
            })
            .collect()
    }

    pub(super) fn explain(&self) -> Explained {
        let mut explained = explain(&self.record());
        assert_eq!(explained.len(), 1);
        explained.remove(0)
    }

    #[track_caller]
    pub(super) fn is(&self, cause: Cause) -> Explained {
        let explained = self.explain();
        assert_eq!(explained.verdict.cause, cause, "{explained:#?}");
        explained
    }
}

/// The limit of a cause, bits per second.
#[track_caller]
pub(super) fn limit(explained: &Explained, cause: Cause) -> f64 {
    let ceiling = explained.ceilings.iter().find(|c| c.cause == cause);
    ceiling.expect("the ceiling is shown").limit_bps
}
