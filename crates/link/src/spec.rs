//! The description of a link as plain data, and how it is written.

use std::fmt;

use super::packet::CorruptionPlace;
use super::quantity;
use linerate_units::{BitRate, ByteCount, Nanos};

/// One direction of a link. Without a rate nothing waits; the default changes nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkSpec {
    /// Rate of the line, bits/s of its framing; 0 counts as 1.
    pub rate_bps: Option<u64>,
    /// File with a recorded rate, instead of `rate_bps`: its path as written, without commas and
    /// parentheses. The caller reads it for [`RateTrace::parse`](super::RateTrace::parse).
    pub trace: Option<String>,
    /// Bytes (including framing) that the policer, or otherwise the line, passes at once.
    pub burst_bytes: Option<u64>,
    /// Rate above which packets are dropped without being queued, bits/s of the framing.
    pub policer_bps: Option<u64>,
    /// One-way delay.
    pub delay: Nanos,
    /// Variation of the delay.
    pub jitter: Option<Jitter>,
    /// Packets held back so that later ones overtake them.
    pub reorder: Option<Reorder>,
    /// Limit of the queue, not counting the packet being sent.
    pub queue: QueueLimit,
    /// How the queue is managed.
    pub aqm: Aqm,
    /// Packet loss.
    pub loss: Option<Loss>,
    /// Share of packets that arrive twice, percent.
    pub duplicate_percent: f64,
    /// Packet corruption.
    pub corrupt: Option<Corrupt>,
    /// Whether frames arrive marked as already verified, so that the receiver ignores their
    /// checksums.
    pub is_verified: bool,
    /// Limit of the packet size; `None` for none.
    pub mtu: Option<Mtu>,
    /// The framing that the wire adds to a packet.
    pub framing: Framing,
    /// Bytes the wire adds to each packet beyond the framing.
    pub overhead_bytes: u32,
}

/// Variation of the delay in both directions. As in a queue, it never reorders packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jitter {
    /// How the delays are distributed.
    pub distribution: Distribution,
    /// Half the width of a uniform distribution, or the standard deviation of a normal one.
    pub size: Nanos,
}

/// How delays are distributed around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Uniform.
    Uniform,
    /// Normal, cut at three standard deviations.
    Normal,
}

/// Packets held back. netem sends the chosen share early, without the delay; this link sends it
/// late: nothing is faster than the path, and no more than the share is reordered (one early packet
/// makes all it overtakes late).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of the packets, percent.
    pub percent: f64,
    /// Their extra delay.
    pub hold_back: Nanos,
}

/// Limit of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes of the framing.
    Bytes(u64),
    /// Packets of any size.
    Packets(u64),
}

/// How a queue is managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aqm {
    /// First in, first out; drops packets when full.
    #[default]
    Fifo,
    /// CoDel, RFC 8289, with its target of 5 ms and interval of 100 ms.
    CoDel {
        /// Whether it marks ECN-capable packets instead of dropping them.
        marks_ect: bool,
    },
}

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Each packet independently.
    Random {
        /// Share of the packets, percent.
        percent: f64,
    },
    /// In bursts: a channel with a good and a bad state (Gilbert 1960, Elliott 1963; parameters as
    /// in netem's `gemodel`). All values are percent per packet.
    GilbertElliott {
        /// p: change from good to bad.
        enter_percent: f64,
        /// r: change from bad to good; a bad state lasts 1/r packets on average.
        leave_percent: f64,
        /// 1−h: loss in the bad state, by default 100.
        bad_loss_percent: f64,
        /// 1−k: loss in the good state, by default 0.
        good_loss_percent: f64,
    },
    /// Every nth packet, starting with the nth; 0 counts as 1.
    Every {
        /// n.
        nth: u64,
    },
}

impl Loss {
    /// A channel that loses everything in its bad state and nothing in its good one.
    pub fn gilbert(enter_percent: f64, leave_percent: f64) -> Self {
        Self::GilbertElliott {
            enter_percent,
            leave_percent,
            bad_loss_percent: 100.0,
            good_loss_percent: 0.0,
        }
    }
}

/// Corruption of packets by one flipped bit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corrupt {
    /// Share of the packets, percent.
    pub percent: f64,
    /// Which bits, and whether checksums can detect it.
    pub place: CorruptionPlace,
}

/// Limit of the packet size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mtu {
    /// Largest size including the IP header, bytes.
    pub bytes: u32,
    /// Whether larger packets vanish without an answer.
    pub is_black_hole: bool,
}

/// Framing that the wire adds to an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// An Ethernet header, 14 bytes: what a Linux qdisc counts. With `overhead=24` also preamble,
    /// checksum and gap.
    #[default]
    Ethernet,
    /// ATM cells of 53 bytes with 48 of payload, of which the AAL5 trailer takes 8 (ITU-T I.363.5);
    /// any encapsulation belongs to the overhead.
    Aal5,
}

/// Both directions of a path and its routers; read from `rate=100mbit,rtt=29ms,loss=0.1%`.
///
/// | key | value | meaning |
/// |---|---|---|
/// | `rate` | `100mbit` | rate of the line, 1 kbit/s to 1 Tbit/s; without it nothing waits |
/// | `trace` | `cell.txt` | file with a recorded rate, in place of `rate`: see [`RateTrace::parse`](super::RateTrace::parse) |
/// | `rtt` | `29ms` | both delays together, half to each direction, up to 100 s |
/// | `delay` | `14.5ms` | one-way delay, in place of `rtt` |
/// | `queue` | `100p`, `64KiB` | what may wait; default: rate × rtt, at least 100 full packets; 100 packets with `trace` |
/// | `aqm` | `fifo`, `codel`, `codel:ecn` | how the queue is managed; `:ecn` marks ECN-capable packets |
/// | `loss` | `0.1%`, `ge(p,r)`, `ge(p,r,1-h,1-k)`, `every(100)` | at random, Gilbert–Elliott (in percent), every nth |
/// | `jitter` | `2ms`, `normal(2ms)` | variation of the delay: uniform ±2 ms, or normal with that deviation |
/// | `reorder` | `1%`, `1%:5ms` | share held back, and for how long; default: the one-way delay, 1 ms without |
/// | `duplicate` | `0.1%` | share that arrives twice |
/// | `corrupt` | `0.1%`, `0.1%:payload`, `0.1%:host` | share with a flipped bit; `:payload`: none of the headers; `:host`: before the checksum |
/// | `verified` | `yes`, `no` | frames arrive as if the receiver's device had verified their checksums, which it has not |
/// | `mtu` | `1500`, `1400:blackhole` | largest packet, 68 to 65535; `:blackhole`: no answer to larger ones |
/// | `policer` | `50mbit` | rate above which packets are dropped |
/// | `burst` | `64KiB` | bucket of the policer, or else of the line; default: 10 ms of the policer, none of the line |
/// | `framing` | `ethernet`, `aal5` | what `rate` and `trace` count |
/// | `overhead` | `24` | bytes more for each packet, up to 256 |
/// | `hops` | `3` | routers on the path, up to 60 |
///
/// `up.` or `down.` before a key gives it to one direction, whatever is said for both. `rtt` and
/// `hops` are the whole path's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathSpec {
    /// From the first host (the client) to the second.
    pub up: LinkSpec,
    /// From the second host to the first.
    pub down: LinkSpec,
    /// Routers between the hosts.
    pub hops: u32,
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self::Packets(DEFAULT_QUEUE_PACKETS)
    }
}

impl Jitter {
    /// The largest difference from the mean.
    pub(super) fn reach(&self) -> Nanos {
        match self.distribution {
            Distribution::Uniform => self.size,
            Distribution::Normal => Nanos(self.size.0.saturating_mul(3)),
        }
    }
}

impl LinkSpec {
    /// Whether every packet passes at once and unchanged. A plain MTU is ignored, since an
    /// interface can enforce it.
    pub fn changes_nothing(&self) -> bool {
        let is_held = self.mtu.is_none_or(|mtu| !mtu.is_black_hole);
        // These only matter to packets that wait for a line or are counted by one.
        let plain = Self {
            mtu: self.mtu,
            queue: self.queue,
            burst_bytes: self.burst_bytes,
            framing: self.framing,
            overhead_bytes: self.overhead_bytes,
            aqm: self.aqm,
            ..Self::default()
        };
        is_held && *self == plain
    }

    /// Whether packets that arrive together leave together and in order, so that a frame of
    /// segmentation offload need not be cut into its segments.
    pub fn treats_packets_alike(&self) -> bool {
        let varied = self.has_line()
            || self.policer_bps.is_some()
            || self.loss.is_some()
            || self.jitter.is_some()
            || self.reorder.is_some()
            || self.corrupt.is_some()
            || self.is_verified
            || self.duplicate_percent > 0.0;
        !varied && self.mtu.is_none()
    }

    /// Whether packets wait for each other, because there is a rate, fixed or recorded.
    pub(super) fn has_line(&self) -> bool {
        self.rate_bps.is_some() || self.trace.is_some()
    }

    /// Bytes that a packet of `ip_bytes` takes on the wire.
    pub fn wire_bytes(&self, ip_bytes: u32) -> u32 {
        let payload = ip_bytes.saturating_add(self.overhead_bytes);
        match self.framing {
            Framing::Ethernet => payload.saturating_add(14),
            Framing::Aal5 => payload.saturating_add(8).div_ceil(48).saturating_mul(53),
        }
    }

    /// Bytes that the largest packet takes on the wire, with 1500 bytes of IP if there is no MTU.
    pub(super) fn full_packet_wire_bytes(&self) -> u32 {
        self.wire_bytes(self.mtu.map_or(1500, |mtu| mtu.bytes))
    }

    /// Default queue for a path of `rtt`: a bandwidth-delay product, so that one Reno flow can fill
    /// the line (Villamizar and Song 1994), and at least 100 full packets. A recorded rate is
    /// unknown here and gets 100 packets.
    pub(super) fn default_queue(&self, rtt: Nanos) -> QueueLimit {
        let Some(rate_bps) = self.rate_bps else {
            return QueueLimit::default();
        };
        let product = u128::from(rate_bps) * u128::from(rtt.0) / 8_000_000_000;
        let least = DEFAULT_QUEUE_PACKETS * u64::from(self.full_packet_wire_bytes());
        QueueLimit::Bytes(u64::try_from(product).unwrap_or(u64::MAX).max(least))
    }

    /// The policer's burst, bytes: as given, or 10 ms at its rate but at least 10 full packets.
    pub(super) fn policer_burst_bytes(&self) -> u64 {
        let ten_ms = self.policer_bps.unwrap_or(0) / 800;
        let ten_packets = 10 * u64::from(self.full_packet_wire_bytes());
        self.burst_bytes.unwrap_or(ten_ms.max(ten_packets))
    }

    /// The line's burst, bytes: none if there is a policer, which then has the burst.
    pub(super) fn shaper_burst_bytes(&self) -> u64 {
        match self.policer_bps {
            None => self.burst_bytes.unwrap_or(0),
            Some(_) => 0,
        }
    }

    /// Keys and values that differ from the defaults, except for the delay, which the path writes.
    fn entries(&self) -> Vec<(&'static str, String)> {
        let rate = |bps| BitRate(bps).typed();
        let size = |bytes| ByteCount(bytes).typed();
        let percent = |share| format!("{share}%");
        let duplicate = self.duplicate_percent > 0.0;
        let is_aal5 = self.framing == Framing::Aal5;
        let overhead = Some(self.overhead_bytes).filter(|bytes| *bytes > 0);
        let entries = [
            ("rate", self.rate_bps.map(rate)),
            ("trace", self.trace.clone()),
            ("policer", self.policer_bps.map(rate)),
            ("burst", self.burst_bytes.map(size)),
            ("jitter", self.jitter.map(|jitter| jitter.to_string())),
            ("reorder", self.reorder.map(|reorder| reorder.to_string())),
            ("queue", self.has_line().then(|| self.queue.to_string())),
            ("aqm", self.aqm.written().map(str::to_owned)),
            ("loss", self.loss.map(|loss| loss.to_string())),
            ("duplicate", duplicate.then(|| percent(self.duplicate_percent))),
            ("corrupt", self.corrupt.map(|corrupt| corrupt.to_string())),
            ("verified", self.is_verified.then(|| "yes".to_owned())),
            ("mtu", self.mtu.map(|mtu| mtu.to_string())),
            ("framing", is_aal5.then(|| "aal5".to_owned())),
            ("overhead", overhead.map(|bytes| bytes.to_string())),
        ]
        .into_iter();
        entries.filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

impl Aqm {
    /// Its notation, unless it is the default.
    fn written(self) -> Option<&'static str> {
        match self {
            Self::Fifo => None,
            Self::CoDel { marks_ect: false } => Some("codel"),
            Self::CoDel { marks_ect: true } => Some("codel:ecn"),
        }
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = quantity::Time(self.size);
        match self.distribution {
            Distribution::Uniform => write!(f, "{size}"),
            Distribution::Normal => write!(f, "normal({size})"),
        }
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%:{}", self.percent, quantity::Time(self.hold_back))
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&ByteCount(*bytes).typed()),
            Self::Packets(packets) => write!(f, "{packets}p"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { percent } => write!(f, "{percent}%"),
            Self::Every { nth } => write!(f, "every({nth})"),
            Self::GilbertElliott {
                enter_percent: p,
                leave_percent: r,
                bad_loss_percent: bad,
                good_loss_percent: good,
            } => match (bad, good) {
                (100.0, 0.0) => write!(f, "ge({p}%,{r}%)"),
                _ => write!(f, "ge({p}%,{r}%,{bad}%,{good}%)"),
            },
        }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            CorruptionPlace::Wire => "",
            CorruptionPlace::Payload => ":payload",
            CorruptionPlace::Host => ":host",
        };
        write!(f, "{}%{place}", self.percent)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.is_black_hole { ":blackhole" } else { "" };
        write!(f, "{}{suffix}", self.bytes)
    }
}

impl fmt::Display for PathSpec {
    /// Writes it as [`PathSpec`] is read, with every default that depends on something else made
    /// explicit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut up = self.up.entries();
        let mut down = self.down.entries();
        let rtt = self.up.delay + self.down.delay;
        let time = |time| quantity::Time(time).to_string();
        if (Nanos(rtt.0 / 2), rtt - Nanos(rtt.0 / 2)) != (self.up.delay, self.down.delay) {
            up.push(("delay", time(self.up.delay)));
            down.push(("delay", time(self.down.delay)));
        } else if rtt > Nanos::ZERO {
            up.push(("rtt", time(rtt)));
            down.push(("rtt", time(rtt)));
        }
        let (both, up): (Vec<_>, Vec<_>) = up.into_iter().partition(|entry| down.contains(entry));
        down.retain(|entry| !both.contains(entry));
        let hops = (self.hops > 0).then(|| ("", ("hops", self.hops.to_string())));
        let entries = (both.into_iter().map(|entry| ("", entry)))
            .chain(hops)
            .chain(up.into_iter().map(|entry| ("up.", entry)))
            .chain(down.into_iter().map(|entry| ("down.", entry)));
        for (index, (prefix, (key, value))) in entries.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{prefix}{key}={value}")?;
        }
        Ok(())
    }
}

/// Room for ten of TCP's initial bursts of 10 segments (RFC 6928).
const DEFAULT_QUEUE_PACKETS: u64 = 100;
