//! What other programs send beside a run, from plain sockets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_core::plan::Direction;
use linerate_core::truth::OtherTraffic;
use linerate_core::units::Family;

use super::around::inside;
use super::{CLIENT, SERVER};
use crate::lab::Lab;
use crate::stop::Stop;

/// Starts it; the threads end when `stop` is requested.
pub(super) fn start(
    lab: &Lab,
    ip: Family,
    other: &OtherTraffic,
    stop: &Stop,
) -> io::Result<Vec<JoinHandle<()>>> {
    let (from, to) = match other.direction {
        Direction::Down => (SERVER, CLIENT),
        Direction::Up | Direction::Both => (CLIENT, SERVER),
    };
    let address = lab.address(to, Some(ip));
    let there = SocketAddr::new(address.unwrap_or(IpAddr::from([127, 0, 0, 1])), 0);
    if let Some(rate_bps) = other.udp_bps {
        let sink = inside(lab, to, || UdpSocket::bind(there))?;
        let there = sink.local_addr()?;
        let any: SocketAddr = match there {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let source = inside(lab, from, || UdpSocket::bind(any))?;
        source.connect(there)?;
        let stop = stop.clone();
        // Nobody reads it: what its buffer does not hold is dropped there, after the path.
        return Ok(vec![thread::spawn(move || {
            datagrams(&source, rate_bps, &stop);
            drop(sink);
        })]);
    }
    let listener = inside(lab, to, || TcpListener::bind(there))?;
    let there = listener.local_addr()?;
    let mut threads = Vec::new();
    for _ in 0..other.flows {
        let sender = inside(lab, from, || TcpStream::connect(there))?;
        let (receiver, _) = listener.accept()?;
        sender.set_write_timeout(Some(LOOK))?;
        receiver.set_read_timeout(Some(LOOK))?;
        let stops = [stop.clone(), stop.clone()];
        let [first, second] = stops;
        threads.push(thread::spawn(move || send(sender, &first)));
        threads.push(thread::spawn(move || receive(receiver, &second)));
    }
    Ok(threads)
}

/// Sends datagrams evenly, a few at once, and makes up for what it missed.
fn datagrams(source: &UdpSocket, rate_bps: u64, stop: &Stop) {
    let message = [0; 1200];
    let (begin, mut sent) = (Instant::now(), 0.0);
    while !stop.is_requested() {
        let due = begin.elapsed().as_secs_f64() * rate_bps as f64 / 8.0;
        while sent < due {
            // A full queue or buffer drops it.
            let _ = source.send(&message);
            sent += message.len() as f64;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn send(mut flow: TcpStream, stop: &Stop) {
    let piece = vec![0; 65_536];
    while !stop.is_requested() {
        match flow.write(&piece) {
            Err(error) if !waits(&error) => return,
            _ => {}
        }
    }
}

fn receive(mut flow: TcpStream, stop: &Stop) {
    let mut buffer = vec![0; 65_536];
    while !stop.is_requested() {
        match flow.read(&mut buffer) {
            Ok(0) => return,
            Err(error) if !waits(&error) => return,
            _ => {}
        }
    }
}

fn waits(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::WouldBlock,
        io::ErrorKind::TimedOut,
        io::ErrorKind::Interrupted,
    ];
    kinds.contains(&error.kind())
}

/// How often a waiting flow looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
