//! One request at a time, with nothing between two packets that can be left out.

use std::io;
use std::net::{TcpStream, UdpSocket};

use linerate_core::plan::ExchangeTest;
use linerate_sys::socket;

use super::Tally;
use super::udp::{Patience, SLICE, Tag};
use crate::clock::now_ns;
use crate::measure::options::QuickAck;
use crate::measure::transfer::{Mover, buffer, stopped};
use crate::retry::is_transient_for_datagrams;
use crate::stop::Stop;

/// Exchanges over TCP.
pub(super) fn tcp(
    tally: &mut Tally<'_>,
    test: &ExchangeTest,
    socket: &TcpStream,
    stop: &Stop,
    quickack: QuickAck,
) -> io::Result<()> {
    socket.set_nonblocking(test.spin)?;
    let mover = Mover {
        stop,
        spin: test.spin,
        // A call blocks until the stop shuts the socket down.
        patience: None,
        quickack,
    };
    let payload = buffer(test.request_bytes);
    let mut response = buffer(test.response_bytes);
    run(tally, |_, _| {
        mover.send(socket, &payload, test.request_bytes)?;
        mover.receive(socket, &mut response, test.response_bytes)?;
        Ok(Some(now_ns()))
    })
}

/// Exchanges over UDP. A request without an answer fails when its time is over.
pub(super) fn udp(
    tally: &mut Tally<'_>,
    test: &ExchangeTest,
    socket: &UdpSocket,
) -> io::Result<()> {
    socket.set_nonblocking(test.spin)?;
    socket.set_read_timeout(Some(SLICE))?;
    let tag = Tag::new(test);
    let mut patience = Patience::default();
    let mut sequence = 0;
    let mut request = vec![0x5a; test.request_bytes as usize];
    // One byte more than a response has, so that a longer datagram is not taken for one.
    let mut response = vec![0; test.response_bytes as usize + 1];
    run(tally, |start_ns, tally| {
        sequence += 1;
        tag.write(sequence, &mut request);
        super::udp::send(socket, &request)?;
        loop {
            match socket::receive(socket, &mut response) {
                Ok(n) if n as u64 == test.response_bytes && tag.is(sequence, &response) => {
                    let now = now_ns();
                    patience.learn(now - start_ns);
                    return Ok(Some(now));
                }
                // A late answer, or somebody else's datagram.
                Ok(_) => {}
                Err(error) if is_transient_for_datagrams(&error) => {
                    if tally.is_stopped() {
                        return Err(stopped());
                    }
                    if now_ns() - start_ns > patience.limit_ns() {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    })
}

/// Makes one transaction after the other. `exchange` gives the time at which the response was
/// complete, or `None` if it never was.
#[inline]
fn run<'a>(
    tally: &mut Tally<'a>,
    mut exchange: impl FnMut(u64, &Tally<'a>) -> io::Result<Option<u64>>,
) -> io::Result<()> {
    let mut start = now_ns();
    while tally.wants(start) {
        tally.begun();
        start = match exchange(start, tally) {
            Ok(Some(now)) => {
                tally.answered(start, now);
                now
            }
            Ok(None) => {
                tally.failed(start);
                now_ns()
            }
            Err(error) => {
                tally.abandoned(start);
                return Err(error);
            }
        };
    }
    Ok(())
}
