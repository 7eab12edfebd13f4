//! Turns conditions into a path, the settings of two hosts and a test, and describes them.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_core::ceilings::Cause;
use linerate_core::link::{Aqm, Distribution, Jitter, LinkSpec, PathSpec, QueueLimit};
use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic};
use linerate_core::units::{BitRate, ByteCount, Nanos, Span};

use super::conditions::{Bound, Conditions, EmulatedLine, FREE_BUFFER};
use super::{CpuShare, HostSetup};

/// The path of a line: loss, policer and queue management are in the direction of the payload
/// alone, rate and delay in both.
pub(super) fn path(line: &EmulatedLine, direction: Direction) -> PathSpec {
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
        aqm: line.codel.map_or(Aqm::Fifo, |marks_ect| Aqm::CoDel { marks_ect }),
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
    PathSpec { up, down, hops: line.hops }
}

/// The settings of the client's and the server's host.
pub(super) fn hosts(conditions: &Conditions) -> (HostSetup, HostSetup) {
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

/// The settings of a host, the same at both ends: each buffer serves one direction only. Free
/// buffers are the same on every machine.
fn sysctls(conditions: &Conditions) -> BTreeMap<String, String> {
    let three = |bound: Bound, default: u64| {
        let most = match bound {
            Bound::Host(bytes) => bytes,
            Bound::Free | Bound::Socket(_) => FREE_BUFFER as u64,
        };
        format!("4096 {} {most}", default.min(most))
    };
    // A transfer is to be over before the kernel tunes its buffers.
    let (read, write) = match conditions.transfer_bytes {
        Some(_) => (FREE_BUFFER as u64, FREE_BUFFER as u64),
        None => (131_072, 16_384),
    };
    let (rmem, wmem) = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem");
    let mut settings = BTreeMap::from([
        (rmem.to_owned(), three(conditions.window, read)),
        (wmem.to_owned(), three(conditions.send_buffer, write)),
    ]);
    if conditions.line.as_ref().and_then(|line| line.codel) == Some(true) {
        settings.insert("net.ipv4.tcp_ecn".to_owned(), "1".to_owned());
    }
    settings
}

/// The test, as linerate runs it.
pub(super) fn test(conditions: &Conditions, cause: Cause, seed: u64) -> Test {
    let write = conditions.write_bps.map(BitRate);
    let protocol = if conditions.is_udp { Protocol::Udp } else { Protocol::Tcp };
    let (extent, warm_up) = extent(conditions, cause);
    Test {
        traffic: Traffic::Stream(StreamTest {
            verify: conditions.verifies,
            whole: conditions.transfer_bytes.is_some(),
            write_rate_bps: write.filter(|_| !conditions.is_udp),
            read_rate_bps: conditions.read_bps.map(BitRate),
            rate_bps: write.filter(|_| conditions.is_udp),
            ..StreamTest::new(conditions.message_bytes)
        }),
        protocol,
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
    let time = span(measured_s(conditions, cause));
    (Extent::Time(time), span(warm_up_s(conditions, cause)))
}

/// Slow start's rounds; where losses end it, also the few of them that bring its last window down
/// to the usual one.
fn warm_up_s(conditions: &Conditions, cause: Cause) -> f64 {
    let rounds = (15.0 * conditions.loaded_rtt_s(cause)).clamp(0.5, 4.0);
    let of_each_flow = loss_events_per_s(conditions) / f64::from(conditions.streams);
    match cause {
        Cause::Congestion => rounds.max((EVENTS_OF_WARM_UP / of_each_flow).min(MAX_S)),
        _ => rounds,
    }
}

/// Long enough to see the cause: 40 round trips, 40 loss events, a policer's long run.
pub(super) fn measured_s(conditions: &Conditions, cause: Cause) -> f64 {
    match cause {
        Cause::Congestion => (EVENTS / loss_events_per_s(conditions)).clamp(3.0, MAX_S),
        Cause::Policer => 8.0,
        _ => (40.0 * conditions.loaded_rtt_s(cause)).clamp(3.0, 8.0),
    }
}

/// Loss events that the model of the drawn congestion control expects each second.
pub(super) fn loss_events_per_s(conditions: &Conditions) -> f64 {
    let share = conditions.line.as_ref().and_then(EmulatedLine::event_share);
    let rate = conditions.limit(Cause::Congestion).map(|limit| limit.bps);
    match (share, rate) {
        (Some(share), Some(rate)) => rate / 8.0 / conditions.segment_bytes() * share,
        _ => 0.0,
    }
}

/// A time, to the millisecond.
pub(super) fn span(seconds: f64) -> Span {
    Span(Duration::from_millis((seconds * 1e3).round() as u64))
}

/// The interval of reports: at least five in a run, and no longer than by default.
pub(super) fn interval(extent: Extent) -> Span {
    match extent {
        Extent::Time(time) => span((time.as_secs_f64() / 5.0).min(1.0)),
        Extent::Bytes(_) | Extent::Count(_) => Span(Duration::from_secs(1)),
    }
}

/// The particulars of the conditions, in words.
pub(super) fn describe(
    conditions: &Conditions,
    path: Option<&PathSpec>,
    is_control_free: bool,
) -> String {
    let named = parts(conditions)
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let facts = [
        (conditions.is_offload_off, "offload off"),
        (conditions.nodelay, "nodelay"),
        (conditions.verifies, "verified"),
    ]
    .into_iter()
    .filter(|(holds, _)| *holds)
    .map(|(_, word)| word.to_owned());
    let words: Vec<String> =
        [kind(conditions, path, is_control_free)].into_iter().chain(named).chain(facts).collect();
    words.join(", ")
}

/// Direction, IPv4 or IPv6, congestion control or UDP, and the path.
fn kind(conditions: &Conditions, path: Option<&PathSpec>, is_control_free: bool) -> String {
    let is_down = conditions.direction == Direction::Down;
    let direction = if is_down { "down" } else { "up" };
    let family = conditions.family;
    let control = if conditions.is_udp {
        "udp"
    } else if is_control_free {
        "the host's congestion control"
    } else {
        conditions.control.name()
    };
    let path = path.map_or("plain veth".to_owned(), ToString::to_string);
    format!("{direction}, {family}, {control}, {path}")
}

fn parts(conditions: &Conditions) -> [(&'static str, Option<String>); 12] {
    let rate = |bps: Option<u64>| bps.map(|bps| BitRate(bps).to_string());
    let size = |bytes: u64| ByteCount(bytes).to_string();
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let streams = Some(conditions.streams).filter(|n| *n > 1);
    [
        ("streams", number(streams)),
        ("message", Some(size(conditions.message_bytes))),
        ("mss", number(conditions.mss)),
        ("advmss", number(conditions.advertised_mss)),
        ("window", bound(conditions.window, "tcp_rmem")),
        ("send buffer", bound(conditions.send_buffer, "tcp_wmem")),
        ("pacing", rate(conditions.pacing_bps)),
        ("writer", rate(conditions.write_bps)),
        ("reader", rate(conditions.read_bps)),
        ("sender's CPU", cpu_text(conditions.sender)),
        ("receiver's CPU", cpu_text(conditions.receiver)),
        ("bytes", conditions.transfer_bytes.map(size)),
    ]
}

fn bound(bound: Bound, setting: &str) -> Option<String> {
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
/// Loss events of each flow that the warm-up takes. Each cuts the window to 0.7 or less, and comes
/// the sooner the larger the window: five usual intervals are enough for any number of halvings
/// (1 + 1/2 + 1/4 … of them for Reno, 3.3 for CUBIC).
const EVENTS_OF_WARM_UP: f64 = 5.0;
/// Longest measured time, seconds.
pub(super) const MAX_S: f64 = 15.0;
