//! The endpoint's side of UDP: a few sockets that answer many sockets of the client, of each of
//! which they only keep that it was there.
//!
//! They are no reflectors: only the client's own address is answered, each of its ports first with
//! a cookie that it has to send back, and no answer is longer than its request.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};

use linerate_core::capacity::wire::{DATAGRAM_BYTES, Datagram};
use linerate_core::wire::Token;
use linerate_sys::poll::{Poller, Ready};
use linerate_sys::socket::{set_receive_buffer, udp_socket};

use super::message::{Listen, Report};
use super::worker::Service;

/// All sockets of a worker.
pub(super) struct Answerer {
    poller: Poller,
    client: IpAddr,
    token: Token,
    sockets: Vec<UdpSocket>,
    /// SipHash with random keys: a cookie can be checked without having been stored.
    secret: RandomState,
    /// Which sockets of the client have sent their cookie back, one bit for each.
    seen: Vec<u64>,
    report: Report,
}

impl Answerer {
    /// Binds the sockets; the result has their ports.
    pub(super) fn new(order: &Listen) -> Result<(Self, Vec<u16>), String> {
        let poller = Poller::new().map_err(|error| format!("cannot wait: {error}"))?;
        let mut sockets = Vec::new();
        let mut ports = Vec::new();
        for index in 0..order.counts.len() {
            let bind = || {
                let socket = udp_socket(order.address, None, false)?;
                socket.set_nonblocking(true)?;
                poller.add(&socket, index as u64)?;
                let port = socket.local_addr()?.port();
                Ok((socket, port))
            };
            let (socket, port) =
                bind().map_err(|error: io::Error| format!("cannot bind: {error}"))?;
            // If the host allows less, requests are lost and sent again.
            let _ = set_receive_buffer(&socket, RECEIVE_BUFFER);
            sockets.push(socket);
            ports.push(port);
        }
        let clients = order.counts.iter().sum::<u64>();
        let answerer = Self {
            poller,
            client: order.client,
            token: order.terms.token,
            sockets,
            secret: RandomState::new(),
            seen: vec![0; clients.div_ceil(64) as usize],
            report: Report::default(),
        };
        Ok((answerer, ports))
    }

    fn answer(&mut self, index: usize) {
        // One byte more than a datagram has, so that a longer one is not taken for one.
        let mut bytes = [0; DATAGRAM_BYTES + 1];
        // Even in a flood of datagrams the other sockets have their turn.
        for _ in 0..BATCH {
            let socket = &self.sockets[index];
            let (n, peer) = match socket.recv_from(&mut bytes) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An ICMP error for an earlier answer.
                Err(_) => continue,
            };
            let asked = Datagram::decode(&bytes[..n]).filter(|asked| asked.token == self.token);
            let Some(asked) = asked.filter(|_| peer.ip().to_canonical() == self.client) else {
                continue;
            };
            let cookie = self.secret.hash_one(peer);
            if asked.cookie == cookie {
                self.see(asked.header.number >> NUMBER_SHIFT);
            }
            let answer = Datagram { cookie, ..asked };
            // If this fails, the client asks again.
            let _ = self.sockets[index].send_to(&answer.encode(), peer);
        }
    }

    fn see(&mut self, number: u64) {
        let Some(word) = self.seen.get_mut((number / 64) as usize) else {
            return;
        };
        let bit = 1 << (number % 64);
        if *word & bit == 0 {
            *word |= bit;
            let status = &mut self.report.status;
            status.opened += 1;
            (status.open, self.report.most) = (status.opened, status.opened);
        }
    }
}

impl Service for Answerer {
    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn on_ready(&mut self, ready: &Ready) {
        self.answer(ready.number as usize);
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}

const BATCH: usize = 64;
/// Receive buffer for the requests of several workers at once, bytes.
pub(super) const RECEIVE_BUFFER: u32 = 4 << 20;
/// The high bits of a message's number are the socket's number, the lower 24 count its messages.
const NUMBER_SHIFT: u32 = 24;
