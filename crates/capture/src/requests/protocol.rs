//! What can be read of a connection's payload without decrypting: the lines of HTTP/1.1, and types
//! and lengths of TLS records (RFC 8446, 5.1).

/// Method and path of a request line, as far as they were captured, without the query.
pub(super) fn request_line(kept: &[u8]) -> Option<String> {
    let method = METHODS.iter().find(|method| {
        kept.strip_prefix(method.as_bytes()).is_some_and(|rest| rest.first() == Some(&b' '))
    })?;
    let rest = &kept[method.len() + 1..];
    let path = rest.split(|byte| b"?#".contains(byte) || !byte.is_ascii_graphic()).next()?;
    let shown = &path[..path.len().min(MAX_PATH)];
    let cut = if path.len() > MAX_PATH || path.len() == rest.len() { "…" } else { "" };
    Some(format!("{method} {}{cut}", String::from_utf8_lossy(shown)))
}

/// The status of an HTTP/1.x response.
pub(super) fn status(kept: &[u8]) -> Option<u16> {
    let line = kept.strip_prefix(b"HTTP/1.")?.get(1..5)?.strip_prefix(b" ")?;
    let digits = line.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(line).ok().filter(|_| digits)?.parse().ok()
}

/// HTTP/2 with prior knowledge (RFC 9113, 3.4).
pub(super) fn is_preface(kept: &[u8]) -> bool {
    kept.starts_with(b"PRI * HTTP/2")
}

/// A record with a `ClientHello`.
pub(super) fn is_hello(kept: &[u8]) -> bool {
    kept.len() > 5 && is_header(kept) && kept[0] == HANDSHAKE && kept[5] == CLIENT_HELLO
}

fn is_header(kept: &[u8]) -> bool {
    matches!(kept, [20..=24, 3, 0..=4, high, _, ..] if *high <= 0x41)
}

/// What a segment of a TLS connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// A part of the handshake; the segment before it may have ended it.
    Handshake,
    /// Data of the application.
    Data,
    /// Alerts, tickets, control frames.
    Nothing,
}

/// A TLS connection.
#[derive(Debug, Default)]
pub(super) struct Tls {
    records: [TlsRecords; 2],
    /// Each end has changed its cipher, and then sent an encrypted handshake record (TLS 1.2).
    has_changed: [bool; 2],
    has_finished: [bool; 2],
    /// The client sent a handshake record after its hello: before TLS 1.3.
    has_key: bool,
    server_spoke: bool,
    /// The handshake is over.
    pub(super) is_done: bool,
    /// TLS 1.3, whose first record of data is the client's `Finished`.
    pub(super) is_13: bool,
    /// The server has sent no response yet, but may send tickets.
    pub(super) is_fresh: bool,
    /// HTTP/2 was offered, and the choice was not seen to be another.
    pub(super) may_be_http2: bool,
}

impl Tls {
    /// Reads a segment of that end, whose first byte has the number `start`. `is_done` is set when
    /// the handshake ended with it or before it.
    pub(super) fn read(&mut self, from: usize, start: u64, end: u64, kept: &[u8]) -> Content {
        let was_done = self.is_done;
        if !was_done {
            self.read_offer(from, kept);
        }
        let mut records = std::mem::take(&mut self.records[from]);
        let mut has_data = false;
        let is_whole = records.read(start, end, kept, |record| {
            has_data |= self.handle(from, record);
        });
        self.records[from] = records;
        self.server_spoke |= from == 1;
        match (self.is_done, has_data) {
            (true, true) => Content::Data,
            // What cannot be read is data, once the handshake is over.
            (true, false) if was_done && !is_whole => Content::Data,
            (true, false) if was_done => Content::Nothing,
            _ => Content::Handshake,
        }
    }

    /// Handles a record that begins in the segment or goes on in it; returns whether it has data.
    fn handle(&mut self, from: usize, record: TlsRecord) -> bool {
        match record.kind {
            CHANGE_CIPHER => self.has_changed[from] = true,
            HANDSHAKE if record.is_new && !self.is_done => {
                if self.has_changed[from] && (from == 1 || record.first != Some(CLIENT_HELLO)) {
                    self.has_finished[from] = true;
                }
                self.has_key |= from == 0 && record.first != Some(CLIENT_HELLO);
                self.is_done = self.has_finished == [true; 2];
            }
            DATA if self.is_done => return !self.is_control(record.length),
            // Early data comes before the server's hello.
            DATA if from == 0 && self.server_spoke => {
                self.is_done = true;
                self.is_13 = !self.has_key;
                self.is_fresh = self.is_13;
                return self.has_key;
            }
            _ => {}
        }
        false
    }

    /// An alert of TLS 1.3, or a frame of HTTP/2 that is neither request nor response.
    fn is_control(&self, length: u16) -> bool {
        let added = if self.is_13 { ADDED_13 } else { ADDED_12 };
        let plain = length.saturating_sub(added);
        let is_alert = self.is_13 && plain == ALERT;
        is_alert || self.may_be_http2 && CONTROL_FRAMES.contains(&plain)
    }

    /// Whether HTTP/2 is first in the list of protocols of a hello (RFC 7301): the client offers
    /// it, a server before TLS 1.3 chooses it.
    fn read_offer(&mut self, from: usize, kept: &[u8]) {
        let list = kept.windows(9).find(|w| w[0] == 0 && w[1] == 16 && w[2] == 0 && w[4] == 0);
        let is_http2 = list.is_some_and(|w| w[6..] == *b"\x02h2");
        if list.is_some() && (from == 1 || is_http2) {
            self.may_be_http2 = is_http2;
        }
    }
}

/// A record, or the part of it in a segment.
#[derive(Debug, Clone, Copy)]
struct TlsRecord {
    kind: u8,
    length: u16,
    /// It begins in this segment.
    is_new: bool,
    /// Its first byte, if it was captured.
    first: Option<u8>,
}

/// The records of one direction.
#[derive(Debug, Default)]
struct TlsRecords {
    /// Number of the next byte of a header; absent where it is not known.
    next: Option<u64>,
    header: [u8; 5],
    have: usize,
    last: Option<(u8, u16)>,
}

impl TlsRecords {
    /// Calls `each` for the record that goes on in the segment, and for those that begin in it.
    /// Returns whether all of them could be read.
    fn read(&mut self, start: u64, end: u64, kept: &[u8], mut each: impl FnMut(TlsRecord)) -> bool {
        let mut next = match self.next {
            Some(next) if next >= start => next,
            _ if is_header(kept) => {
                self.have = 0;
                start
            }
            _ => {
                self.next = None;
                return false;
            }
        };
        if let Some((kind, length)) = self.last.filter(|_| next > start && self.have == 0) {
            each(TlsRecord { kind, length, is_new: false, first: None });
        }
        while next < end {
            let at = usize::try_from(next - start).unwrap_or(usize::MAX);
            let Some(byte) = kept.get(at) else {
                self.next = None;
                return false;
            };
            self.header[self.have] = *byte;
            self.have += 1;
            next += 1;
            if self.have == self.header.len() {
                self.have = 0;
                if !is_header(&self.header) {
                    self.next = None;
                    return false;
                }
                let length = u16::from_be_bytes([self.header[3], self.header[4]]);
                let kind = self.header[0];
                self.last = Some((kind, length));
                each(TlsRecord { kind, length, is_new: true, first: kept.get(at + 1).copied() });
                next += u64::from(length);
            }
        }
        self.next = Some(next);
        true
    }
}

const METHODS: [&str; 9] =
    ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
/// Most characters of a path.
const MAX_PATH: usize = 40;

const CHANGE_CIPHER: u8 = 20;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const CLIENT_HELLO: u8 = 1;
/// Bytes that a record adds to what is in it: type and tag (RFC 8446, 5.2), and before TLS 1.3 the
/// nonce and the tag of AES-GCM (RFC 5288, 3).
const ADDED_13: u16 = 17;
const ADDED_12: u16 = 24;
/// An alert, bytes.
const ALERT: u16 = 2;
/// Frames of HTTP/2 that acknowledge settings, update a window, ping or go away (RFC 9113, 6).
const CONTROL_FRAMES: [u16; 4] = [9, 13, 17, 26];
