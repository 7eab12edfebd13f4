//! Measures how long a round trip through the pump takes when it emulates no delay.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use linerate_core::lab::{Join, Topology};
use linerate_sys::netns::Namespace;

use super::error::LabError;
use crate::clock::now_ns;
use crate::stop::Stop;

/// Round trips measured; the median counts.
const ROUNDS: usize = 101;
/// The first ones warm caches and are left out.
const WARM_UP: usize = 20;
/// The fewest answers for a median.
const MIN_SAMPLES: usize = 11;
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
/// How long the end that answers waits before it looks whether the measurement is over.
const LOOK: Duration = Duration::from_millis(5);

/// The median round trip of small datagrams over `link`, whose directions must emulate nothing
/// meanwhile.
pub(super) fn round_trip(
    topology: &Topology,
    link: &Join,
    namespaces: &[Namespace],
) -> Result<Duration, LabError> {
    let bind = |end: usize| {
        let (node, interface) = link.ends[end];
        let addresses = &topology.nodes[node].interfaces[interface].addresses;
        let address =
            addresses.first().map(|prefix| prefix.address).unwrap_or(IpAddr::from([0, 0, 0, 0]));
        namespaces[node].run(move || UdpSocket::bind((address, 0)))
    };
    let (near, far) = (bind(0)?, bind(1)?);
    let measured = near.and_then(|near| measure(&near, &far?));
    measured.map_err(|source| LabError::Host { what: "calibrate the lab's delay", source })
}

fn measure(near: &UdpSocket, far: &UdpSocket) -> io::Result<Duration> {
    near.set_read_timeout(Some(ANSWER_WITHIN))?;
    far.set_read_timeout(Some(LOOK))?;
    let to = far.local_addr()?;
    let stop = Stop::new();
    std::thread::scope(|scope| {
        scope.spawn(|| echo(far, &stop));
        let result = rounds(near, to);
        stop.request();
        result
    })
}

fn echo(far: &UdpSocket, stop: &Stop) {
    let mut buffer = [0; 8];
    while !stop.is_requested() {
        // A failure costs one answer, for which the other side does not wait longer than its
        // deadline.
        if let Ok((length, from)) = far.recv_from(&mut buffer) {
            let _ = far.send_to(&buffer[..length], from);
        }
    }
}

/// False if the answer does not come in time.
fn answered(near: &UdpSocket, question: [u8; 8]) -> io::Result<bool> {
    let mut answer = None;
    while answer != Some(question) {
        let mut bytes = [0; 8];
        match near.recv_from(&mut bytes) {
            Ok(_) => answer = Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // By a process that was stopped and goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Each question has its number, so that a late answer is not taken for the next one's.
fn rounds(near: &UdpSocket, to: SocketAddr) -> io::Result<Duration> {
    let mut times = Vec::with_capacity(ROUNDS);
    for number in 0..(WARM_UP + ROUNDS) as u64 {
        let question = number.to_be_bytes();
        let sent = now_ns();
        near.send_to(&question, to)?;
        if answered(near, question)? && number >= WARM_UP as u64 {
            times.push(now_ns() - sent);
        }
    }
    // On a machine that stands still for a while some answers are late, and a few are enough.
    if times.len() < MIN_SAMPLES {
        return Err(io::ErrorKind::TimedOut.into());
    }
    times.sort_unstable();
    Ok(Duration::from_nanos(times[times.len() / 2]))
}
