//! Conditions put into a path, a test and two hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::conditions::{Bound, Conditions, FREE_BUFFER, Line, slow_start_rounds};
use super::score::Judgement;
use crate::ceilings::Cause;
use crate::lab::{Prefix, Route, Topology};
use crate::link::{Aqm, Distribution, Jitter, LinkSpec, Nanos, PathSpec, QueueLimit};
use crate::plan::{
    Direction, Extent, Family, Protocol, ReceiveMethod, SendMethod, SocketOptions, StreamTest,
    Test, Traffic,
};
use crate::units::{BitRate, ByteCount, Span};

/// A run whose cause is known before it begins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// Which of its seed's scenarios this is, from 0; the same seed and number give the same scenario.
    pub number: u32,
    /// What holds it back.
    pub cause: Cause,
    /// The most that this lets through, payload bits/s.
    pub limit_bps: f64,
    /// The other limits that what is built sets, payload bits/s, the lowest first.
    pub rivals: Vec<(Cause, f64)>,
    /// A rival is within 10 % of the limit.
    pub is_border: bool,
    /// IPv4 or IPv6.
    pub family: Family,
    /// The emulated path; `None`: a plain veth pair.
    #[serde(serialize_with = "path_text")]
    pub path: Option<PathSpec>,
    /// What is run on it.
    pub test: Test,
    /// The client's host.
    pub client: HostSetup,
    /// The endpoint's host.
    pub server: HostSetup,
    /// All of it in one line.
    pub describe: String,
}

/// What is particular about a host of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostSetup {
    /// Settings of its network namespace.
    pub sysctls: BTreeMap<String, String>,
    /// Neither TSO nor GSO on its interface.
    pub offload_off: bool,
    /// `advmss` of its route to the other host, bytes.
    pub advertised_mss: Option<u32>,
    /// What its data threads get of a CPU.
    pub cpu: CpuShare,
}

/// What the data threads of a host get of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuShare {
    /// What the scheduler gives.
    Any,
    /// One CPU, and no other.
    Own {
        /// Which of those that the process may use, from 0.
        cpu: u32,
    },
    /// One CPU, together with threads that never rest.
    Shared {
        /// Which of those that the process may use, from 0.
        cpu: u32,
        /// How many threads.
        neighbours: u32,
    },
    /// A control group's quota.
    Quota {
        /// Of one CPU.
        percent: u32,
    },
}

impl CpuShare {
    /// Share of one CPU, 0 to 1, that it comes to.
    pub fn of_a_cpu(self) -> f64 {
        match self {
            Self::Any | Self::Own { .. } => 1.0,
            Self::Shared { neighbours, .. } => 1.0 / f64::from(neighbours + 1),
            Self::Quota { percent } => f64::from(percent) / 100.0,
        }
    }
}

impl Scenario {
    pub(super) fn of(
        number: u32,
        seed: u64,
        cause: Cause,
        conditions: &Conditions,
        limit_bps: f64,
    ) -> Self {
        let rivals: Vec<_> = conditions
            .limits()
            .into_iter()
            .filter(|limit| limit.cause != cause)
            .map(|limit| (limit.cause, limit.bps))
            .collect();
        let path = conditions
            .line
            .as_ref()
            .map(|line| path(line, conditions.direction));
        let (client, server) = hosts(conditions);
        Self {
            number,
            cause,
            limit_bps,
            is_border: rivals
                .iter()
                .any(|(_, rival)| *rival <= super::BORDER * limit_bps),
            rivals,
            family: conditions.family,
            describe: describe(conditions, path.as_ref()),
            path,
            test: test(conditions, cause, seed.wrapping_add(number.into())),
            client,
            server,
        }
    }

    /// Whether a verdict names the cause. At a border a rival within 10 % is right, too, and so is `unexplained`.
    pub fn judge(&self, verdict: Cause) -> Judgement {
        let near = |(cause, bps): &(Cause, f64)| {
            (*cause == verdict || verdict == Cause::Unexplained)
                && *bps <= super::BORDER * self.limit_bps
        };
        match verdict == self.cause || self.rivals.iter().any(near) {
            true => Judgement::Right,
            false => Judgement::Wrong,
        }
    }

    /// Hosts and links to build, with the settings and routes of both hosts.
    pub fn topology(&self) -> Topology {
        let plain = PathSpec::default();
        let mut topology = Topology::of_path(self.path.as_ref().unwrap_or(&plain));
        for (name, setup, peer) in [
            ("client", &self.client, "server"),
            ("server", &self.server, "client"),
        ] {
            let there = topology
                .node(peer)
                .map(|node| node.interfaces[0].addresses.clone());
            let Some(node) = topology.nodes.iter_mut().find(|node| node.name == name) else {
                continue;
            };
            node.sysctls.extend(setup.sysctls.clone());
            let to_peer = there.into_iter().flatten().map(|prefix| prefix.address);
            let routes = to_peer.map(|peer| host_route(peer, setup.advertised_mss));
            if setup.advertised_mss.is_some() {
                node.routes.extend(routes);
            }
        }
        topology
    }

    /// Seconds that it measures, warm-up included; of a transfer what slow start takes.
    pub fn seconds(&self) -> f64 {
        let rtt = self
            .path
            .as_ref()
            .map_or(0.0, |path| (path.up.delay + path.down.delay).0 as f64 / 1e9);
        match self.test.extent {
            Extent::Bytes(bytes) => rtt * (2.0 + slow_start_rounds(bytes.0 as f64, 536.0)),
            _ => self.test.seconds().unwrap_or(0.0),
        }
    }

    /// It needs the machine for itself: the CPU is its limit, or it handles many packets.
    pub fn needs_whole_machine(&self) -> bool {
        self.path.is_none() || self.limit_bps > QUIET_BPS
    }
}

/// Below this several scenarios may run beside each other.
const QUIET_BPS: f64 = 20e6;

/// A route over the link itself, with the peer as its own gateway.
fn host_route(peer: IpAddr, advmss: Option<u32>) -> Route {
    Route {
        to: Prefix {
            address: peer,
            length: if peer.is_ipv4() { 32 } else { 128 },
        },
        via: peer,
        source: None,
        mtu: None,
        advmss,
        quickack: None,
    }
}

fn path_text<S: Serializer>(path: &Option<PathSpec>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.collect_str(path),
        None => serializer.serialize_none(),
    }
}

/// Loss, policer and queue management in the direction of the payload alone; rate and delay in both.
fn path(line: &Line, direction: Direction) -> PathSpec {
    let back = LinkSpec {
        rate_bps: line.rate_bps,
        delay: Nanos((line.rtt_s / 2.0 * 1e9).round() as u64),
        queue: match line.rate_bps {
            Some(_) => QueueLimit::Bytes(line.queue_bytes),
            // Nothing waits without a rate.
            None => LinkSpec::default().queue,
        },
        mtu: line.interface_mtu(),
        ..LinkSpec::default()
    };
    let there = LinkSpec {
        loss: line.loss,
        aqm: line
            .codel
            .map_or(Aqm::Fifo, |marks_ect| Aqm::CoDel { marks_ect }),
        policer_bps: line.policer.map(|(rate, _)| rate),
        burst_bytes: line.policer.map(|(_, burst)| burst),
        jitter: (line.jitter_s > 0.0).then(|| Jitter {
            distribution: Distribution::Uniform,
            size: Nanos((line.jitter_s * 1e6).ceil() as u64 * 1000),
        }),
        ..back.clone()
    };
    let (up, down) = match direction {
        Direction::Down => (back, there),
        Direction::Up | Direction::Both => (there, back),
    };
    PathSpec {
        up,
        down,
        hops: line.hops,
    }
}

fn hosts(conditions: &Conditions) -> (HostSetup, HostSetup) {
    let sender = HostSetup {
        sysctls: sysctls(conditions),
        offload_off: conditions.is_offload_off,
        advertised_mss: None,
        cpu: conditions.sender,
    };
    let receiver = HostSetup {
        sysctls: sysctls(conditions),
        offload_off: false,
        advertised_mss: conditions.advertised_mss,
        cpu: conditions.receiver,
    };
    match conditions.direction {
        Direction::Down => (receiver, sender),
        Direction::Up | Direction::Both => (sender, receiver),
    }
}

/// The same at both ends: each buffer serves one direction only. What is free is the same on every machine.
fn sysctls(conditions: &Conditions) -> BTreeMap<String, String> {
    let three = |bound: Bound, default: u64| {
        let most = match bound {
            Bound::Host(bytes) => bytes,
            Bound::Free | Bound::Socket(_) => FREE_BUFFER as u64,
        };
        format!("4096 {} {most}", default.min(most))
    };
    // A transfer of its own is to be over before any tuning would begin.
    let (read, write) = match conditions.transfer_bytes {
        Some(_) => (FREE_BUFFER as u64, FREE_BUFFER as u64),
        None => (131_072, 16_384),
    };
    let mut settings = BTreeMap::from([
        (
            "net.ipv4.tcp_rmem".to_owned(),
            three(conditions.window, read),
        ),
        (
            "net.ipv4.tcp_wmem".to_owned(),
            three(conditions.send_buffer, write),
        ),
    ]);
    if conditions.line.as_ref().and_then(|line| line.codel) == Some(true) {
        settings.insert("net.ipv4.tcp_ecn".to_owned(), "1".to_owned());
    }
    settings
}

fn test(conditions: &Conditions, cause: Cause, seed: u64) -> Test {
    let rate = |bps: Option<u64>| bps.map(BitRate);
    let (tcp_write, udp_rate) = match conditions.is_udp {
        true => (None, rate(conditions.write_bps)),
        false => (rate(conditions.write_bps), None),
    };
    let (extent, warm_up) = extent(conditions, cause);
    Test {
        traffic: Traffic::Stream(StreamTest {
            message_bytes: conditions.message_bytes,
            send: SendMethod::Copy,
            receive: ReceiveMethod::Read,
            verify: conditions.verifies,
            whole: conditions.transfer_bytes.is_some(),
            write_rate_bps: tcp_write,
            read_rate_bps: rate(conditions.read_bps),
            rate_bps: udp_rate,
            offload: false,
        }),
        protocol: if conditions.is_udp {
            Protocol::Udp
        } else {
            Protocol::Tcp
        },
        direction: conditions.direction,
        streams: conditions.streams,
        extent,
        warm_up,
        interval: interval(extent),
        options: options(conditions),
        seed,
    }
}

fn options(conditions: &Conditions) -> SocketOptions {
    if conditions.is_udp {
        return SocketOptions::default();
    }
    let of_socket = |bound: Bound| match bound {
        Bound::Socket(bytes) => Some(ByteCount(bytes)),
        Bound::Free | Bound::Host(_) => None,
    };
    SocketOptions {
        receive_window_bytes: of_socket(conditions.window),
        send_buffer_bytes: of_socket(conditions.send_buffer),
        mss_bytes: conditions.mss,
        pacing_bps: conditions.pacing_bps.map(BitRate),
        congestion: Some(conditions.control.name().to_owned()),
        nodelay: conditions.nodelay,
        ..SocketOptions::default()
    }
}

fn extent(conditions: &Conditions, cause: Cause) -> (Extent, Span) {
    if let Some(bytes) = conditions.transfer_bytes {
        return (Extent::Bytes(ByteCount(bytes)), Span(Duration::ZERO));
    }
    (
        Extent::Time(span(measured_s(conditions, cause))),
        span((15.0 * conditions.loaded_rtt_s(cause)).clamp(0.5, 4.0)),
    )
}

/// Long enough to see the cause: 40 round trips, 40 loss events, a policer's long run.
pub(super) fn measured_s(conditions: &Conditions, cause: Cause) -> f64 {
    match cause {
        Cause::Congestion => (EVENTS / loss_events_per_s(conditions)).clamp(3.0, MOST_S),
        Cause::Policer => 8.0,
        _ => (40.0 * conditions.loaded_rtt_s(cause)).clamp(3.0, 8.0),
    }
}

/// Loss events that the model of the drawn congestion control expects each second.
pub(super) fn loss_events_per_s(conditions: &Conditions) -> f64 {
    let share = conditions.line.as_ref().and_then(Line::event_share);
    let rate = conditions.limit(Cause::Congestion).map(|limit| limit.bps);
    match (share, rate) {
        (Some(share), Some(rate)) => rate / 8.0 / conditions.segment_bytes() * share,
        _ => 0.0,
    }
}

/// To the millisecond.
fn span(seconds: f64) -> Span {
    Span(Duration::from_millis((seconds * 1e3).round() as u64))
}

/// At least five, and no longer than by default.
fn interval(extent: Extent) -> Span {
    match extent {
        Extent::Time(time) => span((time.as_secs_f64() / 5.0).min(1.0)),
        Extent::Bytes(_) | Extent::Count(_) => Span(Duration::from_secs(1)),
    }
}

fn describe(conditions: &Conditions, path: Option<&PathSpec>) -> String {
    let mut words = vec![
        match conditions.direction {
            Direction::Down => "down",
            Direction::Up | Direction::Both => "up",
        }
        .to_owned(),
        match conditions.family {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        }
        .to_owned(),
        match conditions.is_udp {
            true => "udp".to_owned(),
            false => conditions.control.name().to_owned(),
        },
        path.map_or("plain veth".to_owned(), ToString::to_string),
    ];
    let mut say = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value}")));
    };
    let rate = |bps: Option<u64>| bps.map(|bps| BitRate(bps).to_string());
    say(
        "streams",
        Some(conditions.streams)
            .filter(|n| *n > 1)
            .map(|n| n.to_string()),
    );
    say(
        "message",
        Some(ByteCount(conditions.message_bytes).to_string()),
    );
    say("mss", conditions.mss.map(|mss| mss.to_string()));
    say(
        "advmss",
        conditions.advertised_mss.map(|mss| mss.to_string()),
    );
    say("window", bound_text(conditions.window, "tcp_rmem"));
    say(
        "send buffer",
        bound_text(conditions.send_buffer, "tcp_wmem"),
    );
    say("pacing", rate(conditions.pacing_bps));
    say("writer", rate(conditions.write_bps));
    say("reader", rate(conditions.read_bps));
    say(
        "offload",
        conditions.is_offload_off.then(|| "off".to_owned()),
    );
    say("sender's CPU", cpu_text(conditions.sender));
    say("receiver's CPU", cpu_text(conditions.receiver));
    say(
        "bytes",
        conditions
            .transfer_bytes
            .map(|bytes| ByteCount(bytes).to_string()),
    );
    for (holds, word) in [
        (conditions.nodelay, "nodelay"),
        (conditions.verifies, "verified"),
    ] {
        words.extend(holds.then(|| word.to_owned()));
    }
    words.join(", ")
}

fn bound_text(bound: Bound, setting: &str) -> Option<String> {
    match bound {
        Bound::Free => None,
        Bound::Socket(bytes) => Some(ByteCount(bytes).to_string()),
        Bound::Host(bytes) => Some(format!("{} by {setting}", ByteCount(bytes))),
    }
}

fn cpu_text(share: CpuShare) -> Option<String> {
    match share {
        CpuShare::Any => None,
        CpuShare::Own { cpu } => Some(format!("{cpu}")),
        CpuShare::Shared { cpu, neighbours } => {
            Some(format!("{cpu} with {neighbours} busy neighbours"))
        }
        CpuShare::Quota { percent } => Some(format!("{percent} % by quota")),
    }
}

/// Loss events that a run is long enough for; 30 are enough, and a model may be wrong.
pub(super) const EVENTS: f64 = 40.0;
/// Longest measured time, seconds.
pub(super) const MOST_S: f64 = 15.0;
