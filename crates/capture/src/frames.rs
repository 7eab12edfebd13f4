//! Reads the frames of a pcap or pcapng file.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use linerate_units::Nanos;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use crate::dissect::FrameLink;
use crate::error::CaptureError;

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
                    let go = take(&self.interfaces, &block, |frame| each(frame, position));
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
            Some(Described::Section) => return self.interfaces.clear(),
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
    Section,
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
        PcapBlockOwned::NG(Block::SectionHeader(_)) => return Some(Described::Section),
        _ => return None,
    };
    let interface = CaptureInterface {
        link: FrameLink::from_number(number),
        ticks_per_s,
        offset_s,
        snap_bytes,
    };
    Some(Described::Interface(number, interface))
}

/// Resolution from `if_tsresol`: a power of ten or, with the top bit set, of two.
fn ticks_per_s(resolution: u8) -> u64 {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) }
        .unwrap_or(1_000_000)
}

/// Passes on a block's frame, if it has one of a known link type.
fn take(
    interfaces: &[CaptureInterface],
    block: &PcapBlockOwned<'_>,
    each: impl FnOnce(Frame<'_>) -> bool,
) -> bool {
    let (number, ticks, bytes, wire_bytes) = match block {
        PcapBlockOwned::Legacy(packet) => {
            let Some(interface) = interfaces.first() else {
                return true;
            };
            let seconds = u64::from(packet.ts_sec) * interface.ticks_per_s;
            let ticks = seconds + u64::from(packet.ts_usec);
            (0, ticks, packet.data, packet.origlen)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let kept = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            (packet.if_id as usize, ticks, kept, packet.origlen)
        }
        // Simple packets have no time and are skipped.
        _ => return true,
    };
    let interface = interfaces.get(number);
    let Some((interface, link)) = interface.and_then(|it| Some((it, it.link?))) else {
        return true;
    };
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(interface.ticks_per_s);
    let offset = i128::from(interface.offset_s) * 1_000_000_000;
    let ns = (ns as i128 + offset).clamp(0, u64::MAX.into());
    each(Frame { at: Nanos(ns as u64), link, bytes, wire_bytes })
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
