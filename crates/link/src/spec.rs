//! What a link is to be: plain data, and how it is written.

use std::fmt;

use super::packet::CorruptionPlace;
use super::quantity;
use linerate_units::Nanos;

/// One direction of a link. Without a rate nothing waits; the default changes nothing at all.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Rate of the line, bits/s of its framing; 0 counts as 1.
    pub rate_bps: Option<u64>,
    /// File with a recorded rate, in place of `rate_bps`: its path as written, without commas and
    /// parentheses. The caller reads it, for [`RateTrace::parse`](super::RateTrace::parse).
    pub trace: Option<String>,
    /// Bytes of the framing that the policer, or else the line, lets pass at once.
    pub burst_bytes: Option<u64>,
    /// Rate above which packets are dropped and not queued, bits/s of the framing.
    pub policer_bps: Option<u64>,
    /// One-way delay.
    pub delay: Nanos,
    /// Variation of the delay.
    pub jitter: Option<Jitter>,
    /// Packets held back, so that later ones overtake them.
    pub reorder: Option<Reorder>,
    /// What may wait for the line; the packet on the line does not count.
    pub queue: QueueLimit,
    /// How the queue is managed.
    pub aqm: Aqm,
    /// Packets lost.
    pub loss: Option<Loss>,
    /// Share of the packets that arrive twice, percent.
    pub duplicate_percent: f64,
    /// Packets damaged.
    pub corrupt: Option<Corrupt>,
    /// Frames arrive marked as already verified: the receiver does not look at their checksums.
    pub is_verified: bool,
    /// The largest packet; `None`: any.
    pub mtu: Option<Mtu>,
    /// What the wire adds to a packet.
    pub framing: Framing,
    /// Bytes that the wire adds to each packet on top of the framing.
    pub overhead_bytes: u32,
}

/// Variation of the delay, to both sides of it. It never changes the order of packets, as in a
/// queue.
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
    /// Evenly.
    Uniform,
    /// Normally, cut at three standard deviations.
    Normal,
}

/// Packets held back. Where netem sends the share early, before the delay, this link sends it late:
/// nothing is faster than the path, and no more than the share is reordered (an early packet makes
/// all it overtakes late).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of the packets, percent.
    pub percent: f64,
    /// How much longer they take.
    pub hold_back: Nanos,
}

/// What may wait for the line.
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
    /// Not at all: first in, first out, and drops when full.
    #[default]
    Fifo,
    /// CoDel, RFC 8289, with its target of 5 ms and interval of 100 ms.
    CoDel {
        /// Mark ECN-capable packets instead of dropping them.
        marks_ect: bool,
    },
}

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Each by itself.
    Random {
        /// Share of the packets, percent.
        percent: f64,
    },
    /// In bursts: a channel with a good and a bad state (Gilbert 1960, Elliott 1963; parameters as
    /// in netem's
    /// `gemodel`). All are percent for each packet.
    GilbertElliott {
        /// p: the good state turns bad.
        enter_percent: f64,
        /// r: the bad state turns good; a bad state lasts 1/r packets in the mean.
        leave_percent: f64,
        /// 1−h: loss in the bad state, 100 unless given.
        bad_loss_percent: f64,
        /// 1−k: loss in the good state, 0 unless given.
        good_loss_percent: f64,
    },
    /// Every nth packet, the nth first; 0 counts as 1.
    Every {
        /// n.
        nth: u64,
    },
}

impl Loss {
    /// The channel that loses all in its bad state and nothing in its good one.
    pub fn gilbert(enter_percent: f64, leave_percent: f64) -> Self {
        Self::GilbertElliott {
            enter_percent,
            leave_percent,
            bad_loss_percent: 100.0,
            good_loss_percent: 0.0,
        }
    }
}

/// Packets damaged by one flipped bit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Corrupt {
    /// Share of the packets, percent.
    pub percent: f64,
    /// Whether checksums can see it.
    pub place: CorruptionPlace,
}

/// The largest packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mtu {
    /// Bytes from the IP header on.
    pub bytes: u32,
    /// Larger packets vanish without an answer.
    pub is_black_hole: bool,
}

/// What the wire adds to an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// An Ethernet header, 14 bytes: what a Linux qdisc counts. With `overhead=24` also preamble,
    /// checksum and gap.
    #[default]
    Ethernet,
    /// ATM cells of 53 bytes with 48 of payload, of which the AAL5 trailer takes 8 (ITU-T I.363.5);
    /// the encapsulation goes into the overhead.
    Aal5,
}

/// Both directions of a path, and the routers on it; read from `rate=100mbit,rtt=29ms,loss=0.1%`.
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
    /// From the first host, the client, to the second.
    pub up: LinkSpec,
    /// Back.
    pub down: LinkSpec,
    /// Routers between the hosts.
    pub hops: u32,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate_bps: None,
            trace: None,
            burst_bytes: None,
            policer_bps: None,
            delay: Nanos::ZERO,
            jitter: None,
            reorder: None,
            queue: QueueLimit::Packets(DEFAULT_QUEUE_PACKETS),
            aqm: Aqm::default(),
            loss: None,
            duplicate_percent: 0.0,
            corrupt: None,
            is_verified: false,
            mtu: None,
            framing: Framing::default(),
            overhead_bytes: 0,
        }
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
    /// Every packet passes at once and unaltered. The MTU is not counted: an interface can hold
    /// that.
    pub fn changes_nothing(&self) -> bool {
        let is_held = self.mtu.is_none_or(|mtu| !mtu.is_black_hole);
        // What matters only to packets that wait for a line, or are counted by one.
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

    /// All packets that arrive together leave together and in their order: a frame of segmentation
    /// offload need not be cut into its segments.
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

    /// Packets wait for each other: there is a rate, told or recorded.
    pub(super) fn has_line(&self) -> bool {
        self.rate_bps.is_some() || self.trace.is_some()
    }

    /// What a packet of `ip_bytes` takes on the wire, bytes.
    pub fn wire_bytes(&self, ip_bytes: u32) -> u32 {
        let payload = ip_bytes.saturating_add(self.overhead_bytes);
        match self.framing {
            Framing::Ethernet => payload.saturating_add(14),
            Framing::Aal5 => payload.saturating_add(8).div_ceil(48).saturating_mul(53),
        }
    }

    /// What the largest packet takes on the wire, bytes; 1500 bytes of IP where there is no MTU.
    pub(super) fn full_packet_wire_bytes(&self) -> u32 {
        self.wire_bytes(self.mtu.map_or(1500, |mtu| mtu.bytes))
    }

    /// What a path of `rtt` lets wait unless told otherwise: a bandwidth-delay product, so that one
    /// Reno flow can fill the line (Villamizar and Song 1994), and at least 100 full packets. A
    /// recorded rate is not known here: 100 packets.
    pub(super) fn default_queue(&self, rtt: Nanos) -> QueueLimit {
        let Some(rate_bps) = self.rate_bps else {
            return QueueLimit::Packets(DEFAULT_QUEUE_PACKETS);
        };
        let product = u128::from(rate_bps) * u128::from(rtt.0) / 8_000_000_000;
        let least = DEFAULT_QUEUE_PACKETS * u64::from(self.full_packet_wire_bytes());
        QueueLimit::Bytes(u64::try_from(product).unwrap_or(u64::MAX).max(least))
    }

    /// The policer's burst: as told, or 10 ms at its rate and at least 10 full packets, bytes.
    pub(super) fn policer_burst_bytes(&self) -> u64 {
        let ten_ms = self.policer_bps.unwrap_or(0) / 800;
        self.burst_bytes
            .unwrap_or_else(|| ten_ms.max(10 * u64::from(self.full_packet_wire_bytes())))
    }

    /// The line's burst: none if there is a policer, whose the burst is then, bytes.
    pub(super) fn shaper_burst_bytes(&self) -> u64 {
        match self.policer_bps {
            None => self.burst_bytes.unwrap_or(0),
            Some(_) => 0,
        }
    }

    /// Key and value of all that is not as by default, but for the delay, which is the path's to
    /// write.
    fn entries(&self) -> Vec<(&'static str, String)> {
        let rate = |bps| quantity::Rate(bps).to_string();
        let size = |bytes| quantity::Size(bytes).to_string();
        let percent = |share| format!("{share}%");
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
            (
                "duplicate",
                Some(self.duplicate_percent)
                    .filter(|share| *share > 0.0)
                    .map(percent),
            ),
            ("corrupt", self.corrupt.map(|corrupt| corrupt.to_string())),
            ("verified", self.is_verified.then(|| "yes".to_owned())),
            ("mtu", self.mtu.map(|mtu| mtu.to_string())),
            (
                "framing",
                (self.framing == Framing::Aal5).then(|| "aal5".to_owned()),
            ),
            (
                "overhead",
                Some(self.overhead_bytes)
                    .filter(|bytes| *bytes > 0)
                    .map(|bytes| bytes.to_string()),
            ),
        ];
        entries
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }
}

impl Aqm {
    /// As written, unless it is the default.
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
            Self::Bytes(bytes) => quantity::Size(*bytes).fmt(f),
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
            } if (*bad, *good) == (100.0, 0.0) => write!(f, "ge({p}%,{r}%)"),
            Self::GilbertElliott {
                enter_percent: p,
                leave_percent: r,
                bad_loss_percent: bad,
                good_loss_percent: good,
            } => write!(f, "ge({p}%,{r}%,{bad}%,{good}%)"),
        }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            CorruptionPlace::Wire => write!(f, "{}%", self.percent),
            CorruptionPlace::Payload => write!(f, "{}%:payload", self.percent),
            CorruptionPlace::Host => write!(f, "{}%:host", self.percent),
        }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.is_black_hole { ":blackhole" } else { "" };
        write!(f, "{}{suffix}", self.bytes)
    }
}

impl fmt::Display for PathSpec {
    /// As [`PathSpec`] is read, with nothing left to defaults that depend on something else.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut up = self.up.entries();
        let mut down = self.down.entries();
        let rtt = self.up.delay + self.down.delay;
        if (Nanos(rtt.0 / 2), rtt - Nanos(rtt.0 / 2)) != (self.up.delay, self.down.delay) {
            up.push(("delay", quantity::Time(self.up.delay).to_string()));
            down.push(("delay", quantity::Time(self.down.delay).to_string()));
        } else if rtt > Nanos::ZERO {
            up.push(("rtt", quantity::Time(rtt).to_string()));
            down.push(("rtt", quantity::Time(rtt).to_string()));
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

/// Room for ten of the bursts of 10 segments with which TCP begins (RFC 6928).
const DEFAULT_QUEUE_PACKETS: u64 = 100;
