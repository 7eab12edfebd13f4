//! What a policy file says, after it was read and checked.

use std::fmt;
use std::net::IpAddr;

use linerate_core::units::{BitRate, ByteCount, Dscp};

/// A whole file. Everything is in the order of the file, and refers to other parts by index.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PolicyFile {
    /// `[filter.NAME]`, at least one for each policy.
    pub filters: Vec<Filter>,
    /// `[policy.NAME]`.
    pub policies: Vec<Policy>,
    /// `[adapter.IFNAME]`.
    pub adapters: Vec<Adapter>,
    /// What becomes of fragments that are not the first: `fragments = "track"`.
    pub fragments: Fragments,
}

impl PolicyFile {
    /// The policies around one, the innermost first; one that is around itself has no end.
    pub fn around(&self, policy: usize) -> impl Iterator<Item = usize> {
        let parent = |policy: &usize| self.policies[*policy].parent;
        std::iter::successors(parent(&policy), parent)
    }

    /// Whether other policies are nested in it, so that it has no packets of its own.
    pub fn holds(&self, policy: usize) -> bool {
        let mut policies = self.policies.iter();
        policies.any(|other| other.parent == Some(policy))
    }
}

/// A position in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// Which packets a policy takes: those that meet all conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// Its name, 1 to 32 letters, digits, `_`, `-`.
    pub name: String,
    /// Place of its definition.
    pub place: Place,
    /// 1 to 2³¹ − 1; lower ones are tried first, ties in the order of the file.
    /// 1000 if the file has none.
    pub priority: u32,
    /// Its policy, an index of [`PolicyFile::policies`].
    pub policy: usize,
    /// What a packet must meet.
    pub conditions: Conditions,
}

/// Priority of a filter without one; it leaves room before and behind it.
pub(crate) const DEFAULT_PRIORITY: u32 = 1000;

/// The conditions of a filter. An empty list accepts everything; the entries of a list are
/// alternatives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// `family = "ipv4"`; without it the families that the other conditions allow.
    pub family: Vec<Family>,
    /// Source addresses.
    pub source: Vec<AddressRange>,
    /// Destination addresses.
    pub destination: Vec<AddressRange>,
    /// Addresses that must be the source or the destination.
    pub address: Vec<AddressRange>,
    /// Source ports of TCP, UDP, UDP-Lite, SCTP and DCCP.
    pub source_port: Vec<Range<u16>>,
    /// Destination ports.
    pub destination_port: Vec<Range<u16>>,
    /// Ports that must be the source or the destination port.
    pub port: Vec<Range<u16>>,
    /// IP protocol numbers; in IPv6 those of the upper-layer header.
    pub protocol: Vec<Range<u8>>,
    /// EtherType, behind VLAN tags.
    pub ethertype: Vec<Range<u16>>,
    /// DSCP before the policy.
    pub dscp: Vec<Range<u8>>,
    /// ECN field, 0 to 3.
    pub ecn: Vec<Range<u8>>,
    /// ICMP or ICMPv6 type.
    pub icmp_type: Vec<Range<u8>>,
    /// ICMP or ICMPv6 code.
    pub icmp_code: Vec<Range<u8>>,
    /// Tests of TCP flags, which are alternatives.
    pub tcp_flags: Vec<FlagTest>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Vec<Range<u32>>,
    /// VLAN id of the outermost tag, 1 to 4094.
    pub vlan: Vec<Range<u16>>,
    /// Length of the IP packet on the wire, bytes.
    pub length: Vec<Range<u32>>,
    /// User id of the socket's owner.
    pub uid: Vec<Range<u32>>,
    /// Control group of the socket (version 2), or one below it.
    pub cgroup: Vec<CgroupPath>,
    /// Interface by which a forwarded packet came in.
    pub incoming: Vec<Interface>,
    /// Mark that the firewall or the socket gave the packet (`SO_MARK`, `meta mark`).
    pub mark: Vec<MarkRange>,
    /// Source address of the Ethernet frame.
    pub source_mac: Vec<Range<Mac>>,
    /// Destination address of the Ethernet frame.
    pub destination_mac: Vec<Range<Mac>>,
}

/// Marks whose bits in `mask` are a number in `range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRange {
    /// The bits that are compared; all without `/MASK`.
    pub mask: u32,
    /// Their accepted values, within `mask`.
    pub range: Range<u32>,
}

impl fmt::Display for MarkRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { first, last } = self.range;
        match (self.mask, first == last) {
            (u32::MAX, true) => write!(f, "{first:#x}"),
            (u32::MAX, false) => write!(f, "{first:#x}-{last:#x}"),
            (mask, true) => write!(f, "{first:#x}/{mask:#x}"),
            (mask, false) => write!(f, "{first:#x}-{last:#x}/{mask:#x}"),
        }
    }
}

/// An Ethernet address of 48 bits, the first octet highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(u64);

impl Mac {
    /// The highest, which is the broadcast address.
    pub const LAST: Self = Self((1 << 48) - 1);

    /// The bytes in the order of a frame.
    pub fn octets(self) -> [u8; 6] {
        std::array::from_fn(|at| (self.0 >> (40 - 8 * at)) as u8)
    }
}

impl From<[u8; 6]> for Mac {
    fn from(octets: [u8; 6]) -> Self {
        let octets = octets.iter();
        Self(octets.fold(0, |sum, octet| sum << 8 | u64::from(*octet)))
    }
}

impl From<Mac> for u128 {
    fn from(mac: Mac) -> Self {
        mac.0.into()
    }
}

impl TryFrom<u128> for Mac {
    type Error = std::num::TryFromIntError;

    fn try_from(number: u128) -> Result<Self, Self::Error> {
        u64::try_from(number << 16 >> 16).map(|number| Self(number & Self::LAST.0))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.octets();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::str::FromStr for Mac {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let octet = |text: &str| {
            let is_octet = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_octet.then(|| u8::from_str_radix(text, 16).ok())?
        };
        let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
        let six: Option<[u8; 6]> = octets.and_then(|octets| octets.try_into().ok());
        six.map(Self::from).ok_or(())
    }
}

/// A family of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Neither: ARP, LLDP, …
    Other,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Other];
}

/// Addresses of one family from `first` to `last`, inclusive: a prefix or a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    /// The lowest.
    pub first: IpAddr,
    /// The highest, of the same family and not below `first`.
    pub last: IpAddr,
}

/// Numbers from `first` to `last`, inclusive, `first` ≤ `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range<T> {
    /// The lowest.
    pub first: T,
    /// The highest.
    pub last: T,
}

impl<T: Copy> Range<T> {
    /// The range of one number.
    pub fn single(number: T) -> Self {
        Self { first: number, last: number }
    }
}

impl<T: PartialOrd> Range<T> {
    /// Whether a number is in the range.
    pub fn contains(&self, number: T) -> bool {
        self.first <= number && number <= self.last
    }
}

/// `flags & mask == value`, the eight flags FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR
/// 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagTest {
    /// The flags that are compared.
    pub mask: u8,
    /// The flags that must be set; a subset of `mask`.
    pub value: u8,
}

/// A control group by its path below the root of version 2, such as `/system.slice/ssh.service`;
/// the engine resolves it to the id that the kernel compares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupPath(pub String);

/// An interface by name, 1 to 15 bytes; the engine resolves it to its index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interface(pub String);

/// What happens to the packets of a policy's filters.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Its name, 1 to 32 letters, digits, `_`, `-`.
    pub name: String,
    /// Place of its definition.
    pub place: Place,
    /// DSCP that packets get.
    pub dscp: Option<Dscp>,
    /// The priority code point of the VLAN tag, 0 to 7; a packet without a tag gets one with VLAN
    /// id 0.
    pub vlan_priority: Option<u8>,
    /// The policy that it is nested in, an index of [`PolicyFile::policies`].
    pub parent: Option<usize>,
    /// Guaranteed rate; a percentage refers to the parent's.
    pub reserve: Option<Share>,
    /// Maximum rate; a percentage refers to the parent's, which also applies without a limit. The
    /// outermost parent is the adapter with its rate.
    pub limit: Option<Share>,
    /// Order in which unused rate is offered, 0 (first) to 7.
    pub priority: Option<u8>,
    /// The meter that colours packets by rate.
    pub meter: Option<Meter>,
    /// Whether its packets are dropped.
    pub drop: bool,
}

impl Policy {
    /// Whether its packets have a class of their own.
    pub fn has_class(&self) -> bool {
        self.reserve.is_some()
            || self.limit.is_some()
            || self.priority.is_some()
            || self.parent.is_some()
    }
}

/// A rate, absolute or as a part of the adapter's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// Bits per second of layer-2 frames, as queueing disciplines count.
    Rate(BitRate),
    /// Percent of the adapter's rate, above 0 to 100.
    Percent(f64),
}

/// A meter, which colours packets by the amount of traffic before them (RFC 2697, RFC 2698).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    /// The kind, with its rates and bursts.
    pub kind: MeterKind,
    /// Whether packets that come with the code points of yellow or red keep at least that colour.
    pub colour_aware: bool,
    /// Code points that green, yellow and red packets get; `None` for the policy's `dscp`.
    pub colours: [Option<Dscp>; 3],
    /// Whether red packets are dropped instead.
    pub drop_red: bool,
}

impl Meter {
    /// The names of [`Meter::colours`].
    pub(crate) const COLOURS: [&str; 3] = ["green", "yellow", "red"];

    /// The colours that have a code point, by name.
    pub(crate) fn code_points(&self) -> impl Iterator<Item = (&'static str, Dscp)> {
        let named = Self::COLOURS.into_iter().zip(self.colours);
        named.filter_map(|(name, dscp)| Some((name, dscp?)))
    }
}

/// The two meters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterKind {
    /// Single rate, three colours (RFC 2697).
    SingleRate {
        /// Committed information rate.
        committed: BitRate,
        /// Committed burst.
        committed_burst: ByteCount,
        /// Excess burst; 0 for two colours.
        excess_burst: ByteCount,
    },
    /// Two rates, three colours (RFC 2698).
    TwoRate {
        /// Committed information rate.
        committed: BitRate,
        /// Committed burst.
        committed_burst: ByteCount,
        /// Peak information rate, not below the committed one.
        peak: BitRate,
        /// Peak burst.
        peak_burst: ByteCount,
    },
}

/// An interface with a policy on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// The interface's name; `*` for whichever is asked for (experiments name none).
    pub name: String,
    /// Place of its definition.
    pub place: Place,
    /// Rate of the link; without it the speed that the driver reports.
    pub rate: Option<BitRate>,
    /// Its policies, indices of [`PolicyFile::policies`].
    pub policies: Vec<usize>,
    /// Whether incoming packets are marked and counted, too (they have no classes).
    pub ingress: bool,
}

/// How fragments other than the first, which have no ports, are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fragments {
    /// They match only filters without ports, ICMP types and TCP flags.
    #[default]
    Plain,
    /// They get the rule of their first fragment, if it was seen and is remembered.
    Track,
}
