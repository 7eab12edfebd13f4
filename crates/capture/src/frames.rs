//! Reads the frames of a pcap or pcapng file, and finds the TCP segment in each.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use etherparse::{IpNumber, LaxIpSlice, TcpOptionElement, TcpOptionsIterator};
use linerate_units::Nanos;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use thiserror::Error;

/// A capture that cannot be followed.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// Neither pcap nor pcapng.
    #[error("this is no packet capture: neither pcap nor pcapng")]
    NoCapture,
    /// Its link type is unknown.
    #[error(
        "its packets are of link type {0}; known are Ethernet (1), Linux cooked (113, 276), raw IP \
         (12, 14, 101, 228, 229) and loopback (0, 108)"
    )]
    LinkType(i32),
    /// It contains no TCP.
    #[error("no TCP segment is among its {packets} packets")]
    NoTcp {
        /// Packets read.
        packets: u64,
    },
    /// It could not be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

/// One captured frame.
pub(crate) struct Frame<'a> {
    /// Time since 1970.
    pub(crate) at: Nanos,
    pub(crate) link: FrameLink,
    /// The bytes kept.
    pub(crate) bytes: &'a [u8],
    /// Its length on the wire, bytes.
    pub(crate) wire_bytes: u32,
}

/// An interface of a pcapng section, or the single one of a pcap file.
#[derive(Clone, Copy)]
struct CaptureInterface {
    link: Option<FrameLink>,
    ticks_per_s: u64,
    offset_s: i64,
    snap_bytes: u32,
    /// Its times are seconds and a part of one, in 32 bits each.
    is_pcap: bool,
}

/// Reads frames with a buffer of constant size.
pub(crate) struct Frames {
    reader: Box<dyn PcapReaderIterator + Send>,
    failure: Arc<Mutex<Option<io::Error>>>,
    interfaces: Vec<CaptureInterface>,
    capacity: usize,
    /// Link type of the first interface whose type is unknown.
    pub(crate) unknown_link: Option<i32>,
    pub(crate) first_link: Option<i32>,
    pub(crate) snap_bytes: u32,
    /// The last packet is incomplete or a block is damaged.
    pub(crate) truncated: bool,
    /// Packets without a time (pcapng's simple packet blocks): they have that of the one before.
    pub(crate) untimed: u64,
    is_big_endian: bool,
    last: Nanos,
}

impl Frames {
    pub(crate) fn new(source: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let failure = Arc::new(Mutex::new(None));
        let mut source = FileSource { inner: source, failure: failure.clone() };
        // The library parses the file header from whatever the first read returns.
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let begin = (&mut source).take(HEAD_BYTES as u64);
        { begin }.read_to_end(&mut head).map_err(CaptureError::Read)?;
        let whole = io::Cursor::new(head).chain(source);
        let reader = create_reader(CAPACITY, whole).map_err(|_| CaptureError::NoCapture)?;
        Ok(Self {
            reader,
            failure,
            interfaces: Vec::new(),
            capacity: CAPACITY,
            unknown_link: None,
            first_link: None,
            snap_bytes: 0,
            truncated: false,
            untimed: 0,
            is_big_endian: false,
            last: Nanos::ZERO,
        })
    }

    /// Bytes of the file consumed.
    pub(crate) fn position(&self) -> u64 {
        self.reader.consumed() as u64
    }

    /// Passes each frame to `each` until it returns false.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn for_each(
        &mut self,
        mut each: impl FnMut(Frame<'_>, u64) -> bool,
    ) -> Result<(), CaptureError> {
        loop {
            let position = self.position();
            let go_on = match self.reader.next() {
                Ok((used, block)) => {
                    let packet = PacketBlock::new(&block, self.is_big_endian);
                    let frame = packet.and_then(|it| it.frame(&self.interfaces, self.last));
                    let go = frame.is_none_or(|(frame, is_timed)| {
                        self.untimed += u64::from(!is_timed);
                        self.last = frame.at;
                        each(frame, position)
                    });
                    let found = describe(&block);
                    drop(block);
                    self.reader.consume_noshift(used);
                    self.note(found);
                    go
                }
                Err(PcapError::Eof) => false,
                Err(PcapError::Incomplete(_)) => self.refill()?,
                Err(PcapError::BufferTooSmall) if self.capacity < MAX_CAPACITY => self.enlarge()?,
                Err(PcapError::UnexpectedEof) => {
                    self.truncated |= !self.reader.data().is_empty();
                    false
                }
                Err(PcapError::ReadError) => {
                    self.failed()?;
                    false
                }
                Err(_) => {
                    self.truncated = true;
                    false
                }
            };
            if !go_on {
                return Ok(());
            }
        }
    }

    /// A frame, or the rest of it, does not fit into the buffer. Returns whether there is more.
    fn enlarge(&mut self) -> Result<bool, CaptureError> {
        let before = self.reader.data().len();
        let more = self.refill()?;
        if more && self.reader.data().len() == before && !self.reader.reader_exhausted() {
            self.capacity *= 2;
            self.reader.grow(self.capacity);
        }
        Ok(more)
    }

    fn refill(&mut self) -> Result<bool, CaptureError> {
        let read = self.reader.refill().is_ok();
        self.failed()?;
        Ok(read)
    }

    /// The I/O error behind a failed read, which the library does not keep.
    fn failed(&self) -> Result<(), CaptureError> {
        let mut failure = self.failure.lock().expect("nobody panics while holding it");
        failure.take().map_or(Ok(()), |e| Err(CaptureError::Read(e)))
    }

    fn note(&mut self, found: Option<Described>) {
        let (number, interface) = match found {
            None => return,
            Some(Described::Section { is_big_endian }) => {
                self.is_big_endian = is_big_endian;
                return self.interfaces.clear();
            }
            Some(Described::Interface(number, interface)) => (number, interface),
        };
        self.first_link.get_or_insert(number);
        if interface.link.is_none() {
            self.unknown_link.get_or_insert(number);
        }
        self.snap_bytes = self.snap_bytes.max(interface.snap_bytes);
        if self.interfaces.len() < MAX_INTERFACES {
            self.interfaces.push(interface);
        }
    }
}

enum Described {
    Section {
        is_big_endian: bool,
    },
    /// An interface with the number of its link type.
    Interface(i32, CaptureInterface),
}

/// What a block tells about later ones.
fn describe(block: &PcapBlockOwned<'_>) -> Option<Described> {
    let (number, ticks_per_s, offset_s, snap_bytes) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let is_fine = header.is_nanosecond_precision();
            let ticks = if is_fine { 1_000_000_000 } else { 1_000_000 };
            // The upper bits hold the length of frame checksums (pcap file format).
            (header.network.0 & 0xffff, ticks, 0, header.snaplen)
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(idb)) => {
            let ticks = ticks_per_s(idb.if_tsresol);
            (idb.linktype.0, ticks, idb.if_tsoffset, idb.snaplen)
        }
        PcapBlockOwned::NG(Block::SectionHeader(section)) => {
            return Some(Described::Section { is_big_endian: section.big_endian() });
        }
        _ => return None,
    };
    let interface = CaptureInterface {
        link: FrameLink::from_number(number),
        ticks_per_s,
        offset_s,
        snap_bytes,
        is_pcap: matches!(block, PcapBlockOwned::LegacyHeader(_)),
    };
    Some(Described::Interface(number, interface))
}

/// Resolution from `if_tsresol`: a power of ten or, with the top bit set, of two.
fn ticks_per_s(resolution: u8) -> u64 {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) }
        .unwrap_or(1_000_000)
}

/// A block with a packet in it.
struct PacketBlock<'a> {
    interface: usize,
    /// Absent for a packet that was kept without its time.
    ticks: Option<u64>,
    bytes: &'a [u8],
    wire_bytes: u32,
}

impl<'a> PacketBlock<'a> {
    /// `None` for a block of another kind. A pcap file's packet has its time in two parts.
    fn new(block: &'a PcapBlockOwned<'_>, is_big_endian: bool) -> Option<Self> {
        Some(match block {
            PcapBlockOwned::Legacy(packet) => Self {
                interface: 0,
                ticks: Some(u64::from(packet.ts_sec) << 32 | u64::from(packet.ts_usec)),
                bytes: packet.data,
                wire_bytes: packet.origlen,
            },
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => Self {
                interface: packet.if_id as usize,
                ticks: Some(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low)),
                bytes: packet.data.get(..packet.caplen as usize).unwrap_or(packet.data),
                wire_bytes: packet.origlen,
            },
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => Self {
                interface: 0,
                ticks: None,
                bytes: packet.data.get(..packet.origlen as usize).unwrap_or(packet.data),
                wire_bytes: packet.origlen,
            },
            PcapBlockOwned::NG(Block::Unknown(block)) => {
                let is_obsolete = [OBSOLETE_PACKET, OBSOLETE_PACKET.swap_bytes()];
                is_obsolete.contains(&block.block_type).then_some(())?;
                Self::obsolete(block.data, is_big_endian)?
            }
            _ => return None,
        })
    }

    /// The packet block of early pcapng files: interface, drops, time, lengths, bytes.
    fn obsolete(data: &'a [u8], is_big_endian: bool) -> Option<Self> {
        let (head, bytes) = data.split_at_checked(20)?;
        let word = |at: usize| {
            let four = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            if is_big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        let two = [head[0], head[1]];
        let interface =
            if is_big_endian { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) };
        Some(Self {
            interface: interface.into(),
            ticks: Some(u64::from(word(4)) << 32 | u64::from(word(8))),
            bytes: bytes.get(..word(12) as usize).unwrap_or(bytes),
            wire_bytes: word(16),
        })
    }

    /// Its frame, and whether it has a time of its own; `None` for an unknown link type.
    fn frame(self, interfaces: &[CaptureInterface], last: Nanos) -> Option<(Frame<'a>, bool)> {
        let interface = interfaces.get(self.interface)?;
        let at = self.ticks.map(|ticks| interface.time(ticks));
        let frame = Frame {
            at: at.unwrap_or(last),
            link: interface.link?,
            bytes: self.bytes,
            wire_bytes: self.wire_bytes,
        };
        Some((frame, at.is_some()))
    }
}

impl CaptureInterface {
    fn time(&self, ticks: u64) -> Nanos {
        let ticks = if self.is_pcap {
            (ticks >> 32) * self.ticks_per_s + (ticks & 0xffff_ffff)
        } else {
            ticks
        };
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_s);
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        Nanos((ns as i128 + offset).clamp(0, u64::MAX.into()) as u64)
    }
}

/// Keeps the error of a failed read.
struct FileSource<R> {
    inner: R,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl<R: Read> Read for FileSource<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.inner.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let kind = error.kind();
                    *self.failure.lock().expect("nobody panics while holding it") = Some(error);
                    return Err(kind.into());
                }
                read => return read,
            }
        }
    }
}

/// Bytes read first: a section header with options.
const HEAD_BYTES: usize = 4096;
/// Buffer size, bytes: one that fits the level-2 cache is faster than a larger one.
const CAPACITY: usize = 512 * 1024;
/// Largest size the buffer may grow to for a large block.
const MAX_CAPACITY: usize = 64 * 1024 * 1024;
const MAX_INTERFACES: usize = 4096;
/// Type of pcapng's obsolete packet block; the library reads it as little-endian.
const OBSOLETE_PACKET: u32 = 2;

// From the bytes of a frame to its TCP segment.

/// What precedes the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameLink {
    Ethernet,
    /// Linux cooked, version 1.
    Cooked,
    /// Linux cooked, version 2.
    Cooked2,
    /// Nothing.
    Ip,
    /// The address family in the capturing host's order.
    Loopback,
}

impl FrameLink {
    /// By its number in files (`LINKTYPE_…`); 12 and 14 are BSD's raw IP.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 | 108 => Self::Loopback,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            _ => return None,
        })
    }
}

/// A TCP segment, or several merged into one frame by offloading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Segment<'a> {
    pub(crate) at: Nanos,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// As in the header, unscaled.
    pub(crate) window: u16,
    /// Payload on the wire, bytes, however much was captured.
    pub(crate) payload: u32,
    /// IPv4 identification; 0 for IPv6.
    pub(crate) ip_id: u16,
    /// Where on its way it was recorded: its hop limit, with its Ethernet addresses.
    pub(crate) place: u64,
    /// Marked as having experienced congestion (ECN).
    pub(crate) is_marked: bool,
    pub(crate) options: TcpOptions,
    /// The first bytes of its payload, as far as they were captured.
    pub(crate) kept: &'a [u8],
}

/// A UDP datagram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Datagram<'a> {
    pub(crate) at: Nanos,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// The first bytes of its payload, as far as they were captured.
    pub(crate) kept: &'a [u8],
}

/// The options used here.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TcpOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// `TSval`, `TSecr`.
    pub(crate) timestamps: Option<(u32, u32)>,
    /// The first blocks of a SACK.
    pub(crate) sack: [Option<(u32, u32)>; 4],
}

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const ECE: u8 = 0x40;

/// What a frame was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Dissected<'a> {
    Segment(Segment<'a>),
    Datagram(Datagram<'a>),
    /// A fragment of an IP packet, which is not reassembled.
    Fragment,
    /// TCP with too few bytes kept.
    Cut,
    /// Neither TCP nor UDP.
    Other,
}

pub(crate) fn dissect(at: Nanos, link: FrameLink, bytes: &[u8], wire_bytes: u32) -> Dissected<'_> {
    let Some(ip) = after_link(link, bytes) else {
        return Dissected::Other;
    };
    let wire = (wire_bytes as usize).saturating_sub(bytes.len() - ip.len());
    let Ok((packet, _)) = LaxIpSlice::from_slice(ip) else {
        return Dissected::Other;
    };
    let payload = packet.payload();
    if payload.ip_number == IpNumber::UDP && !payload.fragmented {
        let datagram = datagram(at, &packet, payload.payload);
        return datagram.map_or(Dissected::Other, Dissected::Datagram);
    }
    if payload.ip_number != IpNumber::TCP {
        return Dissected::Other;
    }
    if payload.fragmented {
        return Dissected::Fragment;
    }
    let header_bytes = payload.payload.as_ptr() as usize - ip.as_ptr() as usize;
    let (told, ip_id, traffic_class, hops) = match &packet {
        LaxIpSlice::Ipv4(packet) => {
            let header = packet.header();
            let told = usize::from(header.total_len());
            (told, header.identification(), ip[1], header.ttl())
        }
        LaxIpSlice::Ipv6(packet) => {
            let header = packet.header();
            let told = usize::from(header.payload_length());
            (if told == 0 { 0 } else { told + 40 }, 0, ip[1] >> 4, header.hop_limit())
        }
    };
    let eight = |at: usize| {
        let eight = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
        eight.map_or(0, u64::from_be_bytes)
    };
    let addresses = if link == FrameLink::Ethernet { [eight(0), eight(4)] } else { [0; 2] };
    // An offloaded packet of 64 KiB or more has no length in its header.
    let whole = if told <= header_bytes { wire } else { told };
    let Some(tcp) = payload.payload.get(..TCP_BYTES) else {
        return Dissected::Cut;
    };
    let header = (usize::from(tcp[12] >> 4) * 4).max(TCP_BYTES);
    let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let kept = payload.payload.len().min(header);
    Dissected::Segment(Segment {
        at,
        source: SocketAddr::new(packet.source_addr(), half(0)),
        destination: SocketAddr::new(packet.destination_addr(), half(2)),
        seq: word(tcp, 4),
        ack: word(tcp, 8),
        flags: tcp[13],
        window: half(14),
        payload: whole.saturating_sub(header_bytes + header) as u32,
        ip_id,
        place: mixed(addresses, hops.into()),
        is_marked: traffic_class & 3 == 3,
        options: options(&payload.payload[TCP_BYTES..kept]),
        kept: &payload.payload[kept..],
    })
}

fn datagram<'a>(at: Nanos, packet: &LaxIpSlice<'a>, udp: &'a [u8]) -> Option<Datagram<'a>> {
    let (header, kept) = udp.split_at_checked(8)?;
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some(Datagram {
        at,
        source: SocketAddr::new(packet.source_addr(), port(0)),
        destination: SocketAddr::new(packet.destination_addr(), port(2)),
        kept,
    })
}

/// A number that differs for other values (as FNV-1a mixes bytes, with the golden ratio's bits).
pub(crate) fn mixed<const N: usize>(values: [u64; N], begin: u64) -> u64 {
    let mix = |hash: u64, value: u64| {
        let product = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 32)
    };
    values.into_iter().fold(mix(0, begin), mix)
}

/// The IP packet of a frame.
fn after_link(link: FrameLink, bytes: &[u8]) -> Option<&[u8]> {
    match link {
        FrameLink::Ip => Some(bytes),
        FrameLink::Loopback => bytes.get(4..),
        FrameLink::Ethernet => after_type(bytes.get(12..)?),
        FrameLink::Cooked => after_type(bytes.get(14..)?),
        FrameLink::Cooked2 => {
            let ether_type = bytes.get(..2)?;
            let rest = bytes.get(20..)?;
            if is_vlan(ether_type) { after_type(rest.get(2..)?) } else { ip(ether_type, rest) }
        }
    }
}

/// What follows the Ethernet type, after any VLAN tags.
fn after_type(mut bytes: &[u8]) -> Option<&[u8]> {
    while is_vlan(bytes.get(..2)?) {
        bytes = bytes.get(4..)?;
    }
    ip(&bytes[..2], &bytes[2..])
}

fn is_vlan(ether_type: &[u8]) -> bool {
    matches!(ether_type, [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00])
}

fn ip<'a>(ether_type: &[u8], rest: &'a [u8]) -> Option<&'a [u8]> {
    matches!(ether_type, [0x08, 0x00] | [0x86, 0xdd]).then_some(rest)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn options(bytes: &[u8]) -> TcpOptions {
    let mut options = TcpOptions::default();
    // Nearly all segments have just timestamps (RFC 7323, appendix A).
    if bytes.len() == 12 && bytes[..4] == [1, 1, 8, 10] {
        options.timestamps = Some((word(bytes, 4), word(bytes, 8)));
        return options;
    }
    for option in TcpOptionsIterator::from_slice(bytes).map_while(Result::ok) {
        match option {
            TcpOptionElement::MaximumSegmentSize(bytes) => options.mss = Some(bytes),
            TcpOptionElement::WindowScale(shift) => options.window_scale = Some(shift.min(14)),
            TcpOptionElement::SelectiveAcknowledgementPermitted => options.sack_permitted = true,
            TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                options.sack = [Some(first), rest[0], rest[1], rest[2]];
            }
            TcpOptionElement::Timestamp(value, echo) => options.timestamps = Some((value, echo)),
            TcpOptionElement::Noop => {}
        }
    }
    options
}

/// A TCP header without options, bytes.
const TCP_BYTES: usize = 20;
