//! Reads the frames of a capture file.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use linerate_units::Nanos;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use crate::error::CaptureError;
use crate::headers::Header;
use crate::records;

/// One captured frame.
pub(crate) struct Frame<'a> {
    /// Time since 1970.
    pub(crate) at: Nanos,
    pub(crate) link: Header,
    /// The bytes kept.
    pub(crate) bytes: &'a [u8],
    /// Its length on the wire, bytes.
    pub(crate) wire_bytes: u32,
}

/// An interface of a pcapng section, or the single one of a pcap file.
#[derive(Clone, Copy)]
struct CaptureInterface {
    link: Header,
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
    pub(crate) first_link: Option<i32>,
    pub(crate) snap_bytes: u32,
    /// The last packet is incomplete or a block is damaged.
    pub(crate) truncated: bool,
    /// Packets without a time (pcapng's simple packet blocks): they have that of the one before.
    pub(crate) untimed: u64,
    is_ng: bool,
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
        let is_ng = head.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
        let whole = records::as_pcap(head, source)?;
        let reader = create_reader(CAPACITY, whole).map_err(|_| CaptureError::NoCapture)?;
        Ok(Self {
            reader,
            failure,
            interfaces: Vec::new(),
            capacity: CAPACITY,
            first_link: None,
            snap_bytes: 0,
            truncated: false,
            untimed: 0,
            is_ng,
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
            if self.has_short_block() {
                self.truncated = true;
                return self.failed();
            }
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
                Err(PcapError::ReadError) => false,
                Err(_) => {
                    self.truncated = true;
                    false
                }
            };
            if !go_on {
                return self.failed();
            }
        }
    }

    /// Whether the next block of pcapng is shorter than its own lengths, of which the library
    /// subtracts more than there is.
    fn has_short_block(&self) -> bool {
        let length = || records::word(self.reader.data(), 4, self.is_big_endian);
        self.is_ng && length().is_some_and(|bytes| bytes < 12)
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
    fn failed(&mut self) -> Result<(), CaptureError> {
        let failure = self.failure.lock().expect("nobody panics while holding it").take();
        self.truncated |= failure.as_ref().is_some_and(is_damage);
        failure.filter(|error| !is_damage(error)).map_or(Ok(()), |e| Err(CaptureError::Read(e)))
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
        link: Header::of_link(number),
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

    /// Its frame, and whether it has a time of its own; `None` for an unknown interface.
    fn frame(self, interfaces: &[CaptureInterface], last: Nanos) -> Option<(Frame<'a>, bool)> {
        let interface = interfaces.get(self.interface)?;
        let at = self.ticks.map(|ticks| interface.time(ticks));
        let frame = Frame {
            at: at.unwrap_or(last),
            link: interface.link,
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

/// Keeps the error of a failed read. Damage ends the file.
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
                    let (kind, is_end) = (error.kind(), is_damage(&error));
                    *self.failure.lock().expect("nobody panics while holding it") = Some(error);
                    return if is_end { Ok(0) } else { Err(kind.into()) };
                }
                read => return read,
            }
        }
    }
}

/// Whether compressed data are cut or damaged: all before that is complete.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData)
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
