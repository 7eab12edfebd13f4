//! A file's frames, one after another: pcap and pcapng.

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use linerate_units::Nanos;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use crate::dissect::Link;
use crate::error::CaptureError;

/// One captured frame.
pub(crate) struct Frame<'a> {
    /// Since 1970.
    pub(crate) at: Nanos,
    pub(crate) link: Link,
    /// What was kept of it.
    pub(crate) bytes: &'a [u8],
    /// Its length on the wire, bytes.
    pub(crate) wire_bytes: u32,
}

/// An interface of a pcapng section, or the one of a pcap file.
#[derive(Clone, Copy)]
struct Interface {
    link: Option<Link>,
    ticks_per_s: u64,
    offset_s: i64,
    snap_bytes: u32,
}

/// Reads frames in a buffer of constant size.
pub(crate) struct Frames<R> {
    reader: Box<dyn PcapReaderIterator + Send>,
    failure: Arc<Mutex<Option<io::Error>>>,
    interfaces: Vec<Interface>,
    capacity: usize,
    /// Link type of the first interface that has one which is not known.
    pub(crate) unknown_link: Option<i32>,
    pub(crate) first_link: Option<i32>,
    pub(crate) snap_bytes: u32,
    /// The last packet is not whole, or a block is damaged.
    pub(crate) truncated: bool,
    source: std::marker::PhantomData<R>,
}

impl<R: Read + Send + 'static> Frames<R> {
    pub(crate) fn new(source: R) -> Result<Self, CaptureError> {
        let failure = Arc::new(Mutex::new(None));
        let mut source = Source {
            inner: source,
            failure: failure.clone(),
        };
        // The library takes what one read gives for the file's header.
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let begin = (&mut source).take(HEAD_BYTES as u64);
        { begin }
            .read_to_end(&mut head)
            .map_err(CaptureError::Read)?;
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
            source: std::marker::PhantomData,
        })
    }

    /// Bytes of the file that were used.
    pub(crate) fn position(&self) -> u64 {
        self.reader.consumed() as u64
    }

    /// Gives each frame to `each`, until `each` says no.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn for_each(
        &mut self,
        mut each: impl FnMut(Frame<'_>, u64) -> bool,
    ) -> Result<(), CaptureError> {
        loop {
            let position = self.position();
            let step = match self.reader.next() {
                Ok((used, block)) => {
                    let go = take(&mut self.interfaces, &block, |frame| each(frame, position));
                    let found = describe(&block);
                    drop(block);
                    self.reader.consume_noshift(used);
                    self.note(found);
                    if go { continue } else { return Ok(()) }
                }
                Err(PcapError::Eof) => return Ok(()),
                Err(PcapError::Incomplete(_)) => Step::More,
                Err(PcapError::BufferTooSmall) => Step::Larger,
                Err(PcapError::UnexpectedEof) => Step::End,
                Err(PcapError::ReadError) => Step::Failed,
                Err(_) => Step::Damaged,
            };
            if !self.go_on(step)? {
                return Ok(());
            }
        }
    }

    /// Whether there is more.
    fn go_on(&mut self, step: Step) -> Result<bool, CaptureError> {
        match step {
            Step::More => self.refill(),
            // A frame that does not fit into the buffer, or what is left of it does not.
            Step::Larger if self.capacity < MAX_CAPACITY => {
                let before = self.reader.data().len();
                let more = self.refill()?;
                if more && self.reader.data().len() == before && !self.reader.reader_exhausted() {
                    self.capacity *= 2;
                    self.reader.grow(self.capacity);
                }
                Ok(more)
            }
            Step::End => {
                self.truncated |= !self.reader.data().is_empty();
                Ok(false)
            }
            Step::Failed => self.failed().map(|()| false),
            Step::Larger | Step::Damaged => {
                self.truncated = true;
                Ok(false)
            }
        }
    }

    fn refill(&mut self) -> Result<bool, CaptureError> {
        let read = self.reader.refill().is_ok();
        self.failed()?;
        Ok(read)
    }

    /// The error that reading met; the library does not keep it.
    fn failed(&self) -> Result<(), CaptureError> {
        let mut failure = self.failure.lock().expect("nobody panics while holding it");
        failure
            .take()
            .map_or(Ok(()), |error| Err(CaptureError::Read(error)))
    }

    fn note(&mut self, found: Option<(Described, Interface)>) {
        let Some((described, interface)) = found else {
            return;
        };
        match described {
            Described::Section => return self.interfaces.clear(),
            Described::Interface(number) => {
                self.first_link.get_or_insert(number);
                if interface.link.is_none() {
                    self.unknown_link.get_or_insert(number);
                }
            }
        }
        self.snap_bytes = self.snap_bytes.max(interface.snap_bytes);
        if self.interfaces.len() < MAX_INTERFACES {
            self.interfaces.push(interface);
        }
    }
}

enum Step {
    More,
    Larger,
    End,
    Failed,
    Damaged,
}

enum Described {
    Section,
    Interface(i32),
}

/// What a block says of those that follow.
fn describe(block: &PcapBlockOwned<'_>) -> Option<(Described, Interface)> {
    let interface = |link: i32, ticks_per_s, offset_s, snap_bytes| {
        let interface = Interface {
            link: Link::from_number(link),
            ticks_per_s,
            offset_s,
            snap_bytes,
        };
        Some((Described::Interface(link), interface))
    };
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks = if header.is_nanosecond_precision() {
                1_000_000_000
            } else {
                1_000_000
            };
            // The upper bits say how long the frames' checksums are (pcap's file format).
            interface(header.network.0 & 0xffff, ticks, 0, header.snaplen)
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(idb)) => {
            let ticks = ticks_per_s(idb.if_tsresol);
            interface(idb.linktype.0, ticks, idb.if_tsoffset, idb.snaplen)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            let nothing = Interface {
                link: None,
                ticks_per_s: 1,
                offset_s: 0,
                snap_bytes: 0,
            };
            Some((Described::Section, nothing))
        }
        _ => None,
    }
}

/// Of `if_tsresol`: a power of ten or, with the upper bit set, of two.
fn ticks_per_s(resolution: u8) -> u64 {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 {
        10_u64.checked_pow(exponent)
    } else {
        1_u64.checked_shl(exponent)
    }
    .unwrap_or(1_000_000)
}

/// Gives a block's frame on, if it has one of a known link.
fn take(
    interfaces: &mut [Interface],
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
            let kept = packet
                .data
                .get(..packet.caplen as usize)
                .unwrap_or(packet.data);
            (packet.if_id as usize, ticks, kept, packet.origlen)
        }
        // Simple packets have no time: nothing can be said of them.
        _ => return true,
    };
    let Some(interface) = interfaces.get(number) else {
        return true;
    };
    let Some(link) = interface.link else {
        return true;
    };
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(interface.ticks_per_s);
    let offset = i128::from(interface.offset_s) * 1_000_000_000;
    let ns = (ns as i128)
        .saturating_add(offset)
        .clamp(0, i128::from(u64::MAX));
    each(Frame {
        at: Nanos(ns as u64),
        link,
        bytes,
        wire_bytes,
    })
}

/// Keeps the error that a read met.
struct Source<R> {
    inner: R,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl<R: Read> Read for Source<R> {
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

/// Of what the first look sees: a section header with options.
const HEAD_BYTES: usize = 4096;
/// Of the buffer, bytes: that of a level-2 cache is faster than a larger one.
const CAPACITY: usize = 512 * 1024;
/// Of a buffer that a large block made grow.
const MAX_CAPACITY: usize = 64 * 1024 * 1024;
const MAX_INTERFACES: usize = 4096;
