//! The conditions of a scenario, and the limit that each of them sets, from physics and the
//! kernel's documented behaviour and not from measurements.

use linerate_core::ceilings::Cause;
use linerate_core::link::{Loss, Mtu};
use linerate_core::plan::Direction;
use linerate_core::units::Family;

use super::CpuShare;

/// All choices of a scenario.
#[derive(Debug, Clone)]
pub(super) struct Conditions {
    pub(super) direction: Direction,
    pub(super) family: Family,
    pub(super) is_udp: bool,
    pub(super) streams: u32,
    /// The emulated path; `None` for a plain veth pair.
    pub(super) line: Option<EmulatedLine>,
    /// `TCP_MAXSEG`.
    pub(super) mss: Option<u32>,
    /// `advmss` of the receiver's route.
    pub(super) advertised_mss: Option<u32>,
    pub(super) control: CongestionControl,
    pub(super) window: Bound,
    pub(super) send_buffer: Bound,
    pub(super) pacing_bps: Option<u64>,
    /// Rate of the writing application; for UDP the rate that the sender is asked for.
    pub(super) write_bps: Option<u64>,
    pub(super) read_bps: Option<u64>,
    pub(super) message_bytes: u64,
    /// `TCP_NODELAY`.
    pub(super) nodelay: bool,
    /// Whether TSO and GSO are off at the sender.
    pub(super) is_offload_off: bool,
    pub(super) sender: CpuShare,
    pub(super) receiver: CpuShare,
    pub(super) verifies: bool,
    /// Size of a transfer that is measured from before its handshake to its end.
    pub(super) transfer_bytes: Option<u64>,
}

/// An emulated path, in the direction of the payload.
#[derive(Debug, Clone, Default)]
pub(super) struct EmulatedLine {
    pub(super) rtt_s: f64,
    pub(super) rate_bps: Option<u64>,
    pub(super) queue_bytes: u64,
    /// Whether CoDel marks, if there is CoDel.
    pub(super) codel: Option<bool>,
    pub(super) loss: Option<Loss>,
    /// Rate and bucket.
    pub(super) policer: Option<(u64, u64)>,
    pub(super) jitter_s: f64,
    pub(super) mtu: u32,
    pub(super) hops: u32,
}

/// Congestion control of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CongestionControl {
    Reno,
    Cubic,
    Bbr,
}

/// The limit of a buffer or window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// The scenario's large default.
    Free,
    /// A socket option, bytes.
    Socket(u64),
    /// The maximum of a setting of the host, bytes.
    Host(u64),
}

/// The rate that one condition allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) cause: Cause,
    /// Payload, bits/s over all flows.
    pub(super) bps: f64,
    /// The limit lies within this factor of `bps`: kernels and machines differ.
    pub(super) spread: f64,
}

impl CongestionControl {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl EmulatedLine {
    /// A line that only delays; its round trip is rounded to whole microseconds, so that it reads
    /// back the same.
    pub(super) fn new(rtt_s: f64) -> Self {
        Self { rtt_s: (rtt_s * 1e6).round() / 1e6, mtu: ETHERNET_MTU, ..Self::default() }
    }

    /// Longest standing queue, seconds.
    fn queue_s(&self) -> f64 {
        let rate = self.rate_bps.unwrap_or(u64::MAX) as f64;
        self.queue_bytes as f64 * 8.0 / rate
    }

    pub(super) fn interface_mtu(&self) -> Option<Mtu> {
        (self.mtu != ETHERNET_MTU).then_some(Mtu { bytes: self.mtu, is_black_hole: false })
    }

    /// Chance for each segment that it begins a loss event.
    pub(super) fn event_share(&self) -> Option<f64> {
        match self.loss? {
            Loss::Random { percent } => Some(percent / 100.0),
            Loss::Every { nth } => Some(1.0 / nth.max(1) as f64),
            Loss::GilbertElliott { enter_percent: enter, leave_percent: leave, .. } => {
                Some(enter / 100.0 * leave / (enter + leave))
            }
        }
    }
}

impl Conditions {
    /// The limits of all conditions, the lowest first.
    pub(super) fn limits(&self) -> Vec<Limit> {
        let mut limits = vec![self.cpu_send(), self.cpu_receive()];
        if !self.is_udp {
            limits.extend(self.buffers());
            limits.extend(self.congestion());
        }
        limits.extend(self.line_limits());
        limits.extend(self.set_rates());
        if !self.is_udp {
            limits.extend(self.small_segments());
            limits.extend(self.startup());
        }
        limits.sort_by(|a, b| a.bps.total_cmp(&b.bps));
        limits
    }

    pub(super) fn limit(&self, cause: Cause) -> Option<Limit> {
        self.limits().into_iter().find(|limit| limit.cause == cause)
    }

    /// Round trip without a queue, seconds.
    pub(super) fn rtt_s(&self) -> f64 {
        self.line.as_ref().map_or(PLAIN_RTT_S, |line| line.rtt_s)
    }

    /// Round trip with the queue that the cause may fill, seconds.
    pub(super) fn loaded_rtt_s(&self, cause: Cause) -> f64 {
        let queue = match (&self.line, cause) {
            (Some(line), Cause::PathRate) => line.queue_s(),
            _ => 0.0,
        };
        self.rtt_s() + queue
    }

    pub(super) fn mtu(&self) -> u32 {
        self.line.as_ref().map_or(ETHERNET_MTU, |line| line.mtu)
    }

    /// Payload of a full packet, bytes.
    pub(super) fn segment_bytes(&self) -> f64 {
        if self.is_udp {
            return self.message_bytes as f64;
        }
        let most = self.mtu() - ip_header(self.family) - TCP_HEADER;
        let own = self.mss.unwrap_or(u32::MAX);
        let peer = self.advertised_mss.unwrap_or(u32::MAX);
        f64::from(most.min(own).min(peer) - TIMESTAMPS)
    }

    /// Payload over the bytes that the emulated line counts.
    pub(super) fn payload_share(&self) -> f64 {
        let transport = if self.is_udp { UDP_HEADER } else { TCP_HEADER + TIMESTAMPS };
        let headers = f64::from(transport + ip_header(self.family) + ETHERNET_HEADER);
        let segment = self.segment_bytes();
        segment / (segment + headers)
    }

    fn flows(&self) -> f64 {
        f64::from(self.streams)
    }

    fn buffers(&self) -> [Limit; 2] {
        let over_rtt = |cause, bytes: f64, spread| Limit {
            cause,
            bps: self.flows() * bytes * 8.0 / self.rtt_s(),
            spread,
        };
        let window = match self.window {
            Bound::Free => (FREE_BUFFER / 2.0, 1.5),
            Bound::Socket(bytes) => (bytes as f64, 1.1),
            // The kernel offers the memory without the overhead of packets: half of it, or nearly
            // all.
            Bound::Host(bytes) => (bytes as f64 * 0.7, 1.4),
        };
        let queue = match self.send_buffer {
            Bound::Free => (FREE_BUFFER / 2.0, 1.5),
            // Doubled by the kernel (socket(7)).
            Bound::Socket(bytes) => (self.queued_bytes(2.0 * bytes as f64), 1.4),
            Bound::Host(bytes) => (self.queued_bytes(bytes as f64), 1.4),
        };
        [
            over_rtt(Cause::ReceiveWindow, window.0, window.1),
            over_rtt(Cause::SendBuffer, queue.0, queue.1),
        ]
    }

    /// Payload that a send buffer of `memory` bytes holds in the mean. A writer sleeps until a
    /// third of it is free (`sk_stream_write_space`), and a message once begun is taken whole. With
    /// Nagle's algorithm on, the rest of a message that fills no segment takes in more without a
    /// look at the buffer: then it is no limit.
    fn queued_bytes(&self, memory: f64) -> f64 {
        if !self.nodelay {
            return FREE_BUFFER / 2.0;
        }
        let message = self.message_bytes as f64;
        if message * 8.0 <= memory {
            return 0.75 * memory;
        }
        let awake = memory * 2.0 / 3.0;
        ((awake / (PIECE_MEMORY * message)).floor() + 1.0) * message
    }

    /// Reno: the mean of a sawtooth that a loss each 1/p segments halves. CUBIC: RFC 9438, section
    /// 5.1, and no less than Reno. BBR does not answer to single losses.
    fn congestion(&self) -> Option<Limit> {
        let p = self.line.as_ref()?.event_share()?;
        let rtt = self.rtt_s();
        let reno = (1.5 / p).sqrt();
        let segments = match self.control {
            CongestionControl::Reno => reno,
            CongestionControl::Cubic => reno.max(1.054 * (rtt / p).powf(0.75)),
            CongestionControl::Bbr => return None,
        };
        Some(Limit {
            cause: Cause::Congestion,
            bps: self.flows() * segments * self.segment_bytes() * 8.0 / rtt,
            spread: 1.5,
        })
    }

    fn line_limits(&self) -> Vec<Limit> {
        let Some(line) = &self.line else {
            return Vec::new();
        };
        let policer = line.policer.map(|(rate, _)| rate);
        let rates = [(Cause::PathRate, line.rate_bps, 1.05), (Cause::Policer, policer, 1.1)];
        let limit = |(cause, rate, spread): (Cause, Option<u64>, f64)| {
            let bps = rate? as f64 * self.payload_share();
            Some(Limit { cause, bps, spread })
        };
        rates.into_iter().filter_map(limit).collect()
    }

    /// Rates of the applications, and pacing, which counts payload in the kernel.
    fn set_rates(&self) -> impl Iterator<Item = Limit> {
        let pacing = self.pacing_bps.filter(|_| !self.is_udp);
        let rates = [
            (Cause::ApplicationSend, self.write_bps),
            (Cause::ApplicationReceive, self.read_bps),
            (Cause::Pacing, pacing),
        ];
        rates.into_iter().filter_map(|(cause, rate)| {
            Some(Limit { cause, bps: rate? as f64 * self.flows(), spread: 1.02 })
        })
    }

    fn small_segments(&self) -> Option<Limit> {
        self.is_offload_off.then(|| Limit {
            cause: Cause::SegmentSize,
            bps: PACKETS_WITHOUT_OFFLOAD * self.segment_bytes() * 8.0,
            spread: 1.6,
        })
    }

    /// A round trip of handshake, and one for each doubling of ten segments (RFC 6928).
    fn startup(&self) -> Option<Limit> {
        let bytes = self.transfer_bytes? as f64;
        let rounds = slow_start_rounds(bytes, self.segment_bytes());
        Some(Limit {
            cause: Cause::Startup,
            bps: bytes * 8.0 / (self.rtt_s() * (1.0 + rounds)),
            spread: 1.3,
        })
    }

    fn cpu_send(&self) -> Limit {
        let calls = CALLS_PER_S * self.message_bytes as f64 * 8.0;
        self.cpu(Cause::CpuSend, SENDER_BPS.min(calls), self.sender)
    }

    fn cpu_receive(&self) -> Limit {
        self.cpu(Cause::CpuReceive, RECEIVER_BPS, self.receiver)
    }

    /// The limit of a CPU. On an emulated path the hosts and the emulator handle each packet
    /// separately.
    fn cpu(&self, cause: Cause, full_bps: f64, share: CpuShare) -> Limit {
        let emulated = match self.line {
            Some(_) => (EMULATED_PACKETS * self.segment_bytes() * 8.0).min(EMULATED_BPS),
            None => f64::INFINITY,
        };
        Limit { cause, bps: full_bps.min(emulated) * share.of_a_cpu(), spread: 1.6 }
    }
}

/// Round trips that slow start needs for `bytes`.
pub(super) fn slow_start_rounds(bytes: f64, segment_bytes: f64) -> f64 {
    (bytes / (10.0 * segment_bytes) + 1.0).log2().ceil()
}

fn ip_header(family: Family) -> u32 {
    match family {
        Family::Ipv4 => 20,
        Family::Ipv6 => 40,
    }
}

pub(super) const ETHERNET_MTU: u32 = 1500;
/// Bytes of TCP without options, of its timestamps with padding (RFC 7323), of UDP, and of Ethernet
/// as the emulated line counts it.
const TCP_HEADER: u32 = 20;
const TIMESTAMPS: u32 = 12;
const UDP_HEADER: u32 = 8;
const ETHERNET_HEADER: u32 = 14;

/// Maximum of `tcp_rmem` and `tcp_wmem` if they must not limit.
pub(super) const FREE_BUFFER: f64 = 33_554_432.0;

/// Memory over payload of large pieces in a send queue.
const PIECE_MEMORY: f64 = 1.1;

/// Round trip of a plain veth pair.
const PLAIN_RTT_S: f64 = 50e-6;
/// Rates at which one core of an ordinary machine sends and receives large messages over a veth
/// pair, bits/s. Receiving takes about four fifths of the CPU time of sending: the soft interrupts
/// of both ends run on the sender's.
const SENDER_BPS: f64 = 20e9;
const RECEIVER_BPS: f64 = 25e9;
/// `write` calls of small messages each second.
const CALLS_PER_S: f64 = 900_000.0;
/// Packets each second through a veth pair without segmentation offload.
const PACKETS_WITHOUT_OFFLOAD: f64 = 450_000.0;
/// The most that the emulator carries each second.
const EMULATED_PACKETS: f64 = 250_000.0;
const EMULATED_BPS: f64 = 3e9;
