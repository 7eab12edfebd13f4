//! One active connection beside the idle ones, and its round-trip times.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind, opening};
use linerate_core::stats::LatencyHistogram;
use linerate_core::wire::Token;
use linerate_sys::socket::{Mptcp, connect, reset_on_close, tcp_socket};

use crate::clock::now_ns;

/// A connection of this process to one of the endpoint's workers.
pub(super) struct Probe {
    stream: TcpStream,
    number: u64,
}

impl Probe {
    pub(super) fn connect(peer: SocketAddr, source: SocketAddr, token: Token) -> io::Result<Self> {
        let socket = tcp_socket(peer, Some(source.ip()), Mptcp::Off)?;
        let mut stream = connect(socket, peer, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        reset_on_close(&stream).map_err(io::Error::other)?;
        let header = Header {
            kind: Kind::OpenAnswered,
            number: 0,
        };
        stream.write_all(&opening(token, header))?;
        let mut probe = Self { stream, number: 0 };
        probe.expect(header)?;
        Ok(probe)
    }

    /// Makes this many exchanges, one after another.
    pub(super) fn run(&mut self, count: u64, histogram: &mut LatencyHistogram) -> io::Result<()> {
        for _ in 0..count {
            self.number += 1;
            let header = Header {
                kind: Kind::Heartbeat,
                number: self.number,
            };
            let began = now_ns();
            self.stream.write_all(&header.encode())?;
            self.expect(header)?;
            histogram.record_ns(now_ns() - began);
        }
        Ok(())
    }

    fn expect(&mut self, header: Header) -> io::Result<()> {
        let mut answer = [0; HEADER_BYTES];
        self.stream.read_exact(&mut answer)?;
        if answer == header.encode() {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Longest wait for the connection and for each answer.
const PATIENCE: Duration = Duration::from_secs(5);
