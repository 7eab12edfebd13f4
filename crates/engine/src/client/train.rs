//! The rate of a path's narrowest link, by packet trains.
//!
//! A first, short train says roughly how fast the path is; the others are as long as that rate
//! needs to be known well, so that a slow path is not kept busy. They have a session of their own,
//! with an end: where UDP does not get through, nothing else suffers.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::plan::{
    Direction, Extent, MAX_TRAIN, Protocol, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::record::{PathTrain, Record};
use linerate_core::units::Span;

use super::Client;
use crate::path;
use crate::stop::Stop;
use crate::target::Target;

/// Datagrams of the first train: 18 ms at 10 Mbit/s.
const FIRST: u64 = 16;
/// What the second is to take: clocks and interrupts that come together cost some tens of µs.
const DISPERSION: Duration = Duration::from_millis(10);
/// So many of these, of which the middle one counts: a host that is busy with something else holds
/// a train up, or hands over many of its datagrams at once.
const TRAINS: usize = 3;
/// So many where those do not agree.
const MAX_TRAINS: usize = 5;
/// No further one begins after this time: each takes some round trips.
const REPEATED: Duration = Duration::from_secs(1);
/// Longest time for all, session and all.
const LONGEST: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(20);
/// Ethernet's header, which emulated links and qdiscs count.
const ETHERNET_BYTES: f64 = 14.0;
/// Where the path's MTU is not known, bytes: what IPv6 asks of every link.
const SMALLEST_MTU: u32 = 1280;

/// Sends trains to `target` or has them sent from there. `None` if none arrived (UDP does not get
/// through, the endpoint allows no more clients, `stop` was requested), and if they do not agree.
pub(crate) fn measure(
    target: &Target,
    direction: Direction,
    seed: u64,
    stop: &Stop,
) -> Option<PathTrain> {
    let (deadline, done) = (Stop::new(), Stop::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + LONGEST;
            while Instant::now() < until && !stop.is_requested() && !done.is_requested() {
                thread::sleep(LOOK);
            }
            deadline.request();
        });
        let found = trains(target, direction, seed, &deadline);
        done.request();
        found
    })
}

fn trains(target: &Target, direction: Direction, seed: u64, stop: &Stop) -> Option<PathTrain> {
    let mut client = Client::connect(target.clone(), stop.clone()).ok()?;
    let bytes = payload_bytes(target, client.peer().ip());
    let mut train = |datagrams: u64| {
        let test = test(direction, datagrams, bytes, seed);
        let outcome = client.run(&test, &mut |_| true).ok()?;
        found(&outcome.record)
    };
    let first = train(FIRST)?;
    let more = DISPERSION.as_secs_f64() * 1e6 / first.dispersion_us.max(1.0) * FIRST as f64;
    let wanted = (more as u64).clamp(FIRST, MAX_TRAIN);
    let until = Instant::now() + REPEATED;
    let mut trains = Vec::from_iter((wanted == FIRST).then_some(first));
    let most = |agree: bool| if agree { TRAINS } else { MAX_TRAINS };
    while trains.is_empty() || Instant::now() < until {
        if trains.len() >= most(PathTrain::agreed(&trains).is_some()) {
            break;
        }
        let Some(found) = train(wanted) else {
            break;
        };
        trains.push(found);
    }
    // On a long path there is time for one alone, which the short one has to confirm.
    if wanted > FIRST && trains.len() == 1 {
        trains.push(first);
    }
    PathTrain::agreed(&trains)
}

/// Datagrams that fill a packet.
fn payload_bytes(target: &Target, peer: IpAddr) -> u64 {
    let facts = path::facts(target);
    let mtu = facts.pmtu_bytes.or(facts.device_mtu_bytes);
    u64::from(mtu.unwrap_or(SMALLEST_MTU).clamp(SMALLEST_MTU, 9000)) - header_bytes(peer)
}

/// Of IP and UDP.
fn header_bytes(peer: IpAddr) -> u64 {
    match peer {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => 48,
    }
}

fn test(direction: Direction, datagrams: u64, message_bytes: u64, seed: u64) -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest {
            // One call hands over all of it.
            offload: true,
            train: true,
            ..StreamTest::new(message_bytes)
        }),
        protocol: Protocol::Udp,
        direction,
        streams: 1,
        extent: Extent::Count(datagrams),
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed,
    }
}

fn found(record: &Record) -> Option<PathTrain> {
    let udp = record.udp()?;
    let payload_bps = udp.train_bps?;
    let peer = record.peer.parse::<std::net::SocketAddr>().ok()?.ip();
    let payload = udp.datagram_bytes as f64;
    let behind = udp.received.saturating_sub(1) as f64;
    Some(PathTrain {
        link_bps: payload_bps * (payload + header_bytes(peer) as f64 + ETHERNET_BYTES) / payload,
        datagrams: udp.received,
        datagram_bytes: udp.datagram_bytes,
        dispersion_us: behind * payload * 8.0 / payload_bps * 1e6,
    })
}
