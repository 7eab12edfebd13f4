//! The rate of a path's narrowest link, by packet trains.
//!
//! A first, short train shows roughly how fast the path is. The others are only as long as a good
//! estimate needs at that rate, so that a slow path is not kept busy. The trains have their own
//! session and a time limit: where UDP does not get through, nothing else suffers.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::plan::{Direction, Extent, MAX_TRAIN, Protocol, StreamTest, Test, Traffic};
use linerate_core::record::{PathTrain, Record};

use super::Client;
use crate::measure::flow::one_flow;
use crate::path;
use crate::stop::Stop;
use crate::target::Target;

/// Datagrams of the first train: 18 ms at 10 Mbit/s.
const FIRST: u64 = 16;
/// Time that a later train is to take: clocks and interrupt coalescing cause an error of some tens
/// of µs.
const DISPERSION: Duration = Duration::from_millis(10);
/// Number of later trains, of which the median counts: a busy host delays a train, or delivers many
/// of its datagrams at once.
const TRAINS: usize = 3;
/// Number of later trains if those do not agree.
const MAX_TRAINS: usize = 5;
/// After this time no further train begins: each takes some round trips.
const REPEATED: Duration = Duration::from_secs(1);
/// Longest time for everything, including the session.
const LONGEST: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(20);
/// Ethernet's header, which emulated links and qdiscs count.
const ETHERNET_BYTES: f64 = 14.0;
/// The MTU, bytes, if the path's is not known: the least that IPv6 requires of every link.
const SMALLEST_MTU: u32 = 1280;

/// Sends trains to `target`, or has `target` send them. `None` if none arrived (UDP does not get
/// through, the endpoint allows no more clients, `stop` was requested), or if they do not agree.
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
    // On a path with a long round trip there is time for one train only; the first, short train has
    // to confirm it.
    if wanted > FIRST && trains.len() == 1 {
        trains.push(first);
    }
    PathTrain::agreed(&trains)
}

/// Payload of a datagram that fills a packet of the path's MTU, bytes.
fn payload_bytes(target: &Target, peer: IpAddr) -> u64 {
    let facts = path::facts(target);
    let mtu = facts.pmtu_bytes.or(facts.device_mtu_bytes);
    u64::from(mtu.unwrap_or(SMALLEST_MTU).clamp(SMALLEST_MTU, 9000)) - header_bytes(peer)
}

/// Length of the IP and UDP headers, bytes.
fn header_bytes(peer: IpAddr) -> u64 {
    match peer {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => 48,
    }
}

fn test(direction: Direction, datagrams: u64, message_bytes: u64, seed: u64) -> Test {
    let traffic = Traffic::Stream(StreamTest {
        // One call sends the whole train.
        offload: true,
        train: true,
        ..StreamTest::new(message_bytes)
    });
    let extent = Extent::Count(datagrams);
    Test { seed, ..one_flow(traffic, Protocol::Udp, direction, extent) }
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
