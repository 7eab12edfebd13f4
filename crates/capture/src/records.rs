//! Files whose records are not those of pcap, as pcap: snoop (RFC 1761), and pcap before version
//! 2.4, whose records may have their two lengths in the other order.

use std::io::{self, BufReader, Cursor, Read};

use crate::error::CaptureError;

/// How the records of a file are read.
#[derive(Debug, Clone, Copy)]
enum RecordKind {
    Snoop,
    /// Time, and the length on the wire before that in the file.
    OldPcap {
        is_big_endian: bool,
    },
}

/// A file as pcap or pcapng. `head` are its first bytes, and `rest` has those after them.
///
/// # Errors
/// A snoop file whose link type is not read.
pub(crate) fn as_pcap(
    head: Vec<u8>,
    rest: impl Read + Send + 'static,
) -> Result<Box<dyn Read + Send>, CaptureError> {
    let (kind, begin, skipped) = if let Some(fields) = head.strip_prefix(b"snoop\0\0\0") {
        let link = match word(fields, 4, true).ok_or(CaptureError::NoCapture)? {
            0 | 4 => 1,
            8 => 10,
            other => return Err(CaptureError::SnoopType(other)),
        };
        let words = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 0, link];
        (RecordKind::Snoop, words.map(u32::to_be_bytes).concat(), 16)
    } else if let Some(is_big_endian) = is_old_pcap(&head) {
        (RecordKind::OldPcap { is_big_endian }, head[..24].to_vec(), 24)
    } else {
        return Ok(Box::new(Cursor::new(head).chain(rest)));
    };
    let mut head = Cursor::new(head);
    head.set_position(skipped);
    let source = BufReader::new(head.chain(rest));
    Ok(Box::new(Records {
        source,
        kind,
        begin: Cursor::new(begin),
        bytes: 0,
        padding: 0,
        is_over: false,
    }))
}

/// The byte order of a pcap file of version 2.3 or before, as libpcap tells those with other
/// records.
fn is_old_pcap(head: &[u8]) -> Option<bool> {
    let is_big_endian = match word(head, 0, true)? {
        0xa1b2_c3d4 => true,
        0xd4c3_b2a1 => false,
        _ => return None,
    };
    let version = word(head, 4, is_big_endian)?;
    let parts = [version >> 16, version & 0xffff];
    let [minor, major] = if is_big_endian { [parts[1], parts[0]] } else { parts };
    let is_old = head.len() >= 24 && (major == 2 && minor < 4 || major == 543);
    is_old.then_some(is_big_endian)
}

/// Gives each record of a file in pcap's shape.
struct Records<R> {
    source: R,
    kind: RecordKind,
    /// What comes before the packet: its record's header, or the file's.
    begin: Cursor<Vec<u8>>,
    /// Bytes of the packet that are left.
    bytes: u64,
    /// Bytes after it.
    padding: u64,
    /// The file ends within a record, or is damaged.
    is_over: bool,
}

impl<R: Read> Read for Records<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.begin.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if self.bytes > 0 {
                let read = (&mut self.source).take(self.bytes).read(buffer)?;
                self.bytes -= read as u64;
                return Ok(read);
            }
            let padding = std::mem::take(&mut self.padding);
            io::copy(&mut (&mut self.source).take(padding), &mut io::sink())?;
            if self.is_over || !self.next()? {
                return Ok(0);
            }
        }
    }
}

impl<R: Read> Records<R> {
    /// Begins the next record. Returns whether there is one.
    fn next(&mut self) -> io::Result<bool> {
        let length = match self.kind {
            RecordKind::Snoop => 24,
            RecordKind::OldPcap { .. } => 16,
        };
        let mut header = Vec::with_capacity(length);
        (&mut self.source).take(length as u64).read_to_end(&mut header)?;
        let begin = self.begin(&header);
        self.is_over = begin.is_none();
        // A part of a header is what tells that the file is not whole.
        let part = || header[..header.len().min(8)].to_vec();
        self.begin = Cursor::new(begin.unwrap_or_else(part));
        Ok(!header.is_empty())
    }

    fn begin(&mut self, header: &[u8]) -> Option<Vec<u8>> {
        let is_big_endian = !matches!(self.kind, RecordKind::OldPcap { is_big_endian: false });
        let field = |number: usize| word(header, number * 4, is_big_endian);
        let [seconds, micros, kept, wire] = match self.kind {
            RecordKind::Snoop => {
                let [wire, kept, record] = [field(0)?, field(1)?, field(2)?];
                let times = [field(4)?, field(5)?];
                self.padding = u64::from(record).checked_sub(24 + u64::from(kept))?;
                [times[0], times[1], kept, wire]
            }
            RecordKind::OldPcap { .. } => {
                let [one, other] = [field(2)?, field(3)?];
                [field(0)?, field(1)?, one.min(other), one.max(other)]
            }
        };
        self.bytes = kept.into();
        let bytes = |word: u32| if is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        Some([seconds, micros, kept, wire].map(bytes).concat())
    }
}

pub(crate) fn word(bytes: &[u8], at: usize, is_big_endian: bool) -> Option<u32> {
    let four = *bytes.get(at..)?.first_chunk()?;
    Some(if is_big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
}
