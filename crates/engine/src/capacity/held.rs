//! One connection that the endpoint holds, and what has arrived of the next message on it.

use std::net::TcpStream;

use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind, OPENING_BYTES, opened};

use super::message::Terms;
use super::outgoing::Outgoing;

/// A connection; it takes some seventy bytes.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stream: TcpStream,
    pub(super) out: Outgoing,
    /// It has named the session. Before that only its address is known.
    pub(super) is_ours: bool,
    /// When it was accepted, s since the worker began.
    pub(super) since_s: u32,
    have: u8,
    part: [u8; OPENING_BYTES],
    /// Bytes of a request that have not arrived yet.
    left: u32,
}

/// The result of parsing some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fed {
    /// Every connection was expected and is taken.
    Taken,
    /// They name another session, or are not part of the protocol.
    Stranger,
}

impl Held {
    pub(super) fn new(stream: TcpStream, since_s: u32) -> Self {
        Self {
            stream,
            out: Outgoing::default(),
            is_ours: false,
            since_s,
            have: 0,
            part: [0; OPENING_BYTES],
            left: 0,
        }
    }

    /// Parses what has arrived; the answer is then in `out`. A client sends its next message only
    /// after the answer: more than that is a stranger's, so that nothing piles up.
    pub(super) fn feed(&mut self, mut bytes: &[u8], terms: &Terms) -> Fed {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = bytes.len().min(self.left as usize);
                self.left -= skipped as u32;
                bytes = &bytes[skipped..];
                if self.left == 0 {
                    self.answer(terms.response_bytes);
                }
                continue;
            }
            let whole = if self.is_ours { HEADER_BYTES } else { OPENING_BYTES };
            let have = usize::from(self.have);
            let head = bytes.len().min(whole - have);
            self.part[have..have + head].copy_from_slice(&bytes[..head]);
            self.have += head as u8;
            bytes = &bytes[head..];
            if usize::from(self.have) < whole {
                break;
            }
            self.have = 0;
            if !self.out.is_sent() {
                return Fed::Stranger;
            }
            if self.is_ours {
                if !self.begin(terms) {
                    return Fed::Stranger;
                }
            } else if let Some(header) = opened(&self.part, terms.token) {
                self.is_ours = true;
                if header.kind == Kind::OpenAnswered {
                    self.out = Outgoing::new(header, 0);
                }
            } else {
                return Fed::Stranger;
            }
        }
        Fed::Taken
    }

    /// Handles a header; false if it has no place here.
    fn begin(&mut self, terms: &Terms) -> bool {
        let Some(header) = self.header() else {
            return false;
        };
        match header.kind {
            Kind::Heartbeat => self.out = Outgoing::new(header, 0),
            Kind::Request => {
                self.left = terms.request_bytes.saturating_sub(HEADER_BYTES as u32);
                if self.left == 0 {
                    self.answer(terms.response_bytes);
                }
            }
            Kind::Open | Kind::OpenAnswered => return false,
        }
        true
    }

    fn answer(&mut self, length: u32) {
        if let Some(header) = self.header() {
            self.out = Outgoing::new(header, length);
        }
    }

    fn header(&self) -> Option<Header> {
        Header::decode(*self.part.first_chunk()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::capacity::wire::opening;
    use linerate_core::wire::Token;
    use std::net::TcpListener;

    const TERMS: Terms =
        Terms { token: Token([7; 16]), request_bytes: 20, response_bytes: 100, descriptors: None };

    fn held() -> Held {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Held::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), 0)
    }

    fn header(kind: Kind) -> Header {
        Header { kind, number: 3 }
    }

    /// Feeds all bytes in pieces of `piece` bytes; `Stranger` if any piece was a stranger's.
    fn feed(held: &mut Held, bytes: &[u8], piece: usize) -> Fed {
        let mut last = Fed::Taken;
        for part in bytes.chunks(piece) {
            match held.feed(part, &TERMS) {
                Fed::Taken => {}
                fed => last = fed,
            }
        }
        last
    }

    #[test]
    fn messages_are_parsed_whatever_pieces_they_arrive_in() {
        for piece in 1..40 {
            let mut held = held();
            let bytes = opening(TERMS.token, header(Kind::Open));
            assert_eq!(feed(&mut held, &bytes, piece), Fed::Taken);
            assert!(held.is_ours && held.out.is_sent(), "nobody has asked for an answer");
            let mut request = header(Kind::Request).encode().to_vec();
            request.resize(20, 0);
            assert_eq!(feed(&mut held, &request, piece), Fed::Taken);
            assert!(!held.out.is_sent() && held.out.header() == request[..8]);
            held.out = Outgoing::default();
            let beat = header(Kind::Heartbeat).encode();
            assert_eq!(feed(&mut held, &beat, piece), Fed::Taken);
            assert_eq!(held.out.header(), beat);
            assert_eq!(feed(&mut held, &beat, piece), Fed::Stranger, "not answered yet");
        }
    }

    #[test]
    fn another_session_and_a_second_opening_are_strangers() {
        let other = opening(Token([8; 16]), header(Kind::Open));
        assert_eq!(feed(&mut held(), &other, 24), Fed::Stranger);
        let mut twice = held();
        let bytes = opening(TERMS.token, header(Kind::OpenAnswered));
        assert_eq!(feed(&mut twice, &bytes, 24), Fed::Taken);
        assert!(twice.is_ours);
        twice.out = Outgoing::default();
        assert_eq!(feed(&mut twice, &bytes, 24), Fed::Stranger);
    }
}
