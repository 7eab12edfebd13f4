//! One connection of the client: where it stands, and the answer that it waits for. Some seventy
//! bytes.

use std::io::{self, ErrorKind};
use std::net::TcpStream;

use linerate_core::capacity::FailureCause;
use linerate_core::capacity::wire::{HEADER_BYTES, OPENING_BYTES};
use linerate_sys::socket::{BeginError, begin_connect};

use super::lane::Lane;
use super::outgoing::Outgoing;
use super::tally::cause_of;
use crate::clock::now_ns;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Closed.
    Empty,
    Connecting,
    /// Open, and to be answered when the endpoint has taken it.
    Opening,
    Idle,
    Beat,
    Request,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Option<TcpStream>,
    pub(super) stage: Stage,
    /// Of one that churn has closed.
    pub(super) replaces: bool,
    /// It has named the session.
    pub(super) is_named: bool,
    /// Of the answer's header, so many bytes are there.
    have: u8,
    echo: [u8; HEADER_BYTES],
    pub(super) lane: u16,
    pub(super) port: u16,
    /// Bytes of the answer to come.
    waits_for: u32,
    pub(super) out: Outgoing,
    /// When it was begun, or its message was sent or due.
    pub(super) since: u64,
    /// On its lane, if it asks to be answered when it is taken; else 0.
    pub(super) number: u64,
}

/// What came of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// There is more to come.
    Partial,
    /// It is there.
    Whole,
    /// It is none, or nobody has asked.
    None,
}

impl Connection {
    /// A socket on its way from a port that nobody else has, and whether it is connected already.
    pub(super) fn begin(
        lane: &mut Lane,
        index: usize,
        replaces: bool,
        last: bool,
    ) -> Result<(Self, bool), FailureCause> {
        let (begun, port, since) = loop {
            let source = lane.next_source().ok_or(FailureCause::Ports)?;
            let since = now_ns();
            match begin_connect(lane.peer, Some(source)) {
                Ok(begun) => break (begun, source.port(), since),
                // Another program's: it stays marked as used.
                Err(error) if is_port_taken(&error) => {}
                Err(error) => {
                    lane.leave(source.port());
                    let is_ours = error.call == "bind" && error.source.kind() == NO_ADDRESS;
                    return Err(if is_ours {
                        FailureCause::Other
                    } else {
                        cause_of(&error.source)
                    });
                }
            }
        };
        let (number, asks) = lane.begin(last);
        let connection = Self {
            stream: Some(begun.stream),
            stage: Stage::Connecting,
            replaces,
            is_named: false,
            have: 0,
            echo: [0; HEADER_BYTES],
            // There are as many as ports of the endpoint and sources: both are bounded.
            lane: index as u16,
            port,
            waits_for: 0,
            out: Outgoing::default(),
            since,
            number: if asks { number } else { 0 },
        };
        Ok((connection, begun.connected))
    }

    /// A message goes out, and is to be answered by so many bytes, its header first.
    pub(super) fn expect(&mut self, out: Outgoing, answer: u32) {
        self.out = out;
        (self.have, self.waits_for) = (0, answer.max(HEADER_BYTES as u32));
    }

    /// Sends what the kernel takes now of the message, after the session's name if that is still to
    /// be said.
    pub(super) fn push(&mut self, name: &[u8; OPENING_BYTES]) -> io::Result<()> {
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        if !self.is_named {
            if !self.out.push_after(name, stream)? {
                return Ok(());
            }
            self.is_named = true;
        }
        self.out.push(stream)
    }

    /// Takes what has come as a part of the answer that is waited for.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Answer {
        if bytes.len() > self.waits_for as usize {
            return Answer::None;
        }
        let have = usize::from(self.have);
        let head = bytes.len().min(HEADER_BYTES - have);
        self.echo[have..have + head].copy_from_slice(&bytes[..head]);
        self.have += head as u8;
        self.waits_for -= bytes.len() as u32;
        match self.waits_for {
            0 if self.echo == self.out.header() => Answer::Whole,
            0 => Answer::None,
            _ => Answer::Partial,
        }
    }
}

fn is_port_taken(error: &BeginError) -> bool {
    match error.call {
        "bind" => error.source.kind() == ErrorKind::AddrInUse,
        "connect" => error.source.kind() == NO_ADDRESS,
        _ => false,
    }
}

const NO_ADDRESS: ErrorKind = ErrorKind::AddrNotAvailable;

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::capacity::wire::{Header, Kind};
    use std::net::TcpListener;

    #[test]
    fn an_answer_is_whole_in_whatever_pieces_and_nothing_else_is_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ends = (
            "127.0.0.1:0".parse().unwrap(),
            listener.local_addr().unwrap(),
        );
        let mut lane = Lane::new(ends, 10, (40_000, 60_000), 0, 10);
        let (mut connection, _) = Connection::begin(&mut lane, 0, false, false).unwrap();
        assert_eq!(connection.take(b"x"), Answer::None, "nobody has asked");
        let header = Header {
            kind: Kind::Request,
            number: 9,
        };
        let mut answer = header.encode().to_vec();
        answer.resize(100, 0);
        for piece in 1..=100 {
            connection.expect(Outgoing::sent(header), 100);
            let parts: Vec<Answer> = answer.chunks(piece).map(|p| connection.take(p)).collect();
            let (last, others) = parts.split_last().unwrap();
            assert_eq!(*last, Answer::Whole);
            assert!(others.iter().all(|part| *part == Answer::Partial));
            assert_eq!(connection.take(b"x"), Answer::None);
        }
        connection.expect(Outgoing::sent(header), 8);
        assert_eq!(connection.take(&[0; 8]), Answer::None, "another header");
    }
}
