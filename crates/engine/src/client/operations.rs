//! What a client asks of an endpoint beside tests: a trace of the way back, the losses in each
//! direction, packet trains, the slot.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use linerate_core::plan::{Direction, Extent, MAX_TRAIN, Protocol, StreamTest, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind, PathTrain, Record};
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::operation::{self, MAX_LEASE_S, SLOT, SlotState, TRACE};
use linerate_core::trace::{OneWayLoss, ReverseDocument, TraceConfig, TraceDocument, TraceRequest};
use linerate_core::units::{BitRate, Dscp, format_rfc3339};

use super::Client;
use crate::clock::{nanos, now, now_ns};
use crate::error::MeasureError;
use crate::measure::flow::one_flow;
use crate::path;
use crate::stop::Stop;
use crate::target::Target;

// The reverse path: a trace from the endpoint to this host, and the losses in each direction.

/// Numbered packets in each direction. If none of them is lost, the loss is at most 1.9 % (score
/// interval at 95 %).
const PACKETS: u64 = 200;
/// Packets per second: a burst would itself cause losses.
const PACKETS_PER_S: u64 = 200;
/// Payload of a packet, bytes, that makes it as long as a trace's own probes over IPv4.
const PAYLOAD: u64 = 32;

impl Client {
    /// Checks that the endpoint can trace the reverse path.
    ///
    /// # Errors
    /// [`MeasureError::Lacks`] if it is too old for that.
    pub(crate) fn check_traces(&self) -> Result<(), MeasureError> {
        self.check_has(TRACE, "traces no way back: a newer one does")
    }

    /// The reverse path of what `config` traces, and the losses in each direction. What the
    /// endpoint's owner does not allow of it becomes a caveat.
    ///
    /// # Errors
    /// The endpoint does not have the operation; the session failed or was interrupted.
    pub fn trace_back(
        &mut self,
        config: &TraceConfig,
        seed: u64,
    ) -> Result<ReverseDocument, MeasureError> {
        self.check_traces()?;
        let mut caveats = Vec::new();
        let loss_there = self.one_way(Direction::Up, (config.dscp, seed), &mut caveats)?;
        let loss_back = self.one_way(Direction::Down, (config.dscp, seed), &mut caveats)?;
        let trace = self.ask_for_trace(TraceRequest::back_of(config), &mut caveats)?;
        Ok(ReverseDocument {
            endpoint: self.peer.to_string(),
            trace: trace.map(Box::new),
            loss_there,
            loss_back,
            words: Vec::new(),
            caveats,
        })
    }

    fn ask_for_trace(
        &mut self,
        request: TraceRequest,
        caveats: &mut Vec<Caveat>,
    ) -> Result<Option<TraceDocument>, MeasureError> {
        match self.ask(request) {
            Err(MeasureError::Refused { refusal, .. }) => {
                caveats.push(doubt("the way back is not known", &refusal.message));
                Ok(None)
            }
            outcome => outcome.map(|document| Some(*document)),
        }
    }

    fn one_way(
        &mut self,
        direction: Direction,
        (dscp, seed): (Dscp, u64),
        caveats: &mut Vec<Caveat>,
    ) -> Result<Option<OneWayLoss>, MeasureError> {
        let rate = PAYLOAD * 8 * PACKETS_PER_S;
        let rate = self.welcome.limits.rate_bps.map_or(rate, |most| rate.min(most));
        let test = numbered(direction, BitRate(rate.max(1)), dscp, seed);
        let outcome = match self.run(&test, &mut |_| true) {
            Err(MeasureError::Refused { refusal, .. }) => {
                caveats.push(doubt("losses are not known by direction", &refusal.message));
                return Ok(None);
            }
            outcome => outcome?,
        };
        match (outcome.error, outcome.record.udp()) {
            (Some(error), _) => Err(error),
            (None, None) => Ok(None),
            (None, Some(udp)) => {
                // Drops at the socket's buffer are no losses of the path.
                let arrived = udp.received + udp.socket_drops.unwrap_or(0);
                Ok(OneWayLoss::new(udp.sent, arrived, udp.duplicated, udp.reordered))
            }
        }
    }
}

fn doubt(what: &str, why: &str) -> Caveat {
    Caveat::new(CaveatKind::NotReadable, format!("{what}: the endpoint refuses: {why}"), "")
}

fn numbered(direction: Direction, rate: BitRate, dscp: Dscp, seed: u64) -> Test {
    let traffic = Traffic::Stream(StreamTest { rate_bps: Some(rate), ..StreamTest::new(PAYLOAD) });
    let extent = Extent::Count(PACKETS);
    let mut test = one_flow(traffic, Protocol::Udp, direction, extent);
    test.options.dscp = Some(dscp);
    test.seed = seed;
    test
}

// The rate of a path's narrowest link, by packet trains.

/// Datagrams of the first train: 18 ms at 10 Mbit/s.
const FIRST: u64 = 16;
/// Time that a later train is to take: clocks and interrupt coalescing cause an error of some tens
/// of µs.
const DISPERSION: Duration = Duration::from_millis(10);
/// Up to this rate trains are sent without offload: a kernel's shaper takes an offloaded train for
/// a few packets, and lets each through as it is. A host sends a datagram in 2 to 6 µs, so that
/// this is not its own speed.
const PLAIN_UPTO_BPS: f64 = 300e6;
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

/// Sends trains to `target`, or has `target` send them.
///
/// A first, short train shows roughly how fast the path is. The others are only as long as a good
/// estimate needs at that rate, so that a slow path is not kept busy. The trains have their own
/// session and a time limit: where UDP does not get through, nothing else suffers.
///
/// `None` if none arrived (UDP does not get
/// through, the endpoint allows no more clients, `stop` was requested), or if they do not agree.
pub(crate) fn measure_trains(
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
    let mut train = |datagrams: u64, offload: bool| {
        let test = test(direction, (datagrams, bytes), offload, seed);
        let outcome = client.run(&test, &mut |_| true).ok()?;
        found(&outcome.record)
    };
    let first = train(FIRST, false)?;
    let offload = first.link_bps > PLAIN_UPTO_BPS;
    let more = DISPERSION.as_secs_f64() * 1e6 / first.dispersion_us.max(1.0) * FIRST as f64;
    // Of what a queue or bucket has no room for, more would only be lost.
    let is_whole = first.datagrams == FIRST;
    let wanted = if is_whole { (more as u64).clamp(FIRST, MAX_TRAIN) } else { FIRST };
    let until = Instant::now() + REPEATED;
    let mut trains = Vec::from_iter((wanted == FIRST).then_some(first));
    let most = |agree: bool| if agree { TRAINS } else { MAX_TRAINS };
    while trains.is_empty() || Instant::now() < until {
        if trains.len() >= most(PathTrain::agreed(&trains).is_some()) {
            break;
        }
        let Some(found) = train(wanted, offload) else {
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

/// With offload one call sends the whole train.
fn test(
    direction: Direction,
    (datagrams, message_bytes): (u64, u64),
    offload: bool,
    seed: u64,
) -> Test {
    let traffic =
        Traffic::Stream(StreamTest { offload, train: true, ..StreamTest::new(message_bytes) });
    let extent = Extent::Count(datagrams);
    Test { seed, ..one_flow(traffic, Protocol::Udp, direction, extent) }
}

fn found(record: &Record) -> Option<PathTrain> {
    let udp = record.udp()?;
    let payload_bps = udp.train_bps?;
    let peer = record.peer.parse::<std::net::SocketAddr>().ok()?.ip();
    let payload = udp.datagram_bytes as f64;
    let datagrams = udp.train_datagrams?;
    let behind = datagrams.saturating_sub(1) as f64;
    Some(PathTrain {
        link_bps: payload_bps * (payload + header_bytes(peer) as f64 + ETHERNET_BYTES) / payload,
        datagrams,
        datagram_bytes: udp.datagram_bytes,
        dispersion_us: behind * payload * 8.0 / payload_bps * 1e6,
    })
}

// The endpoint's slot, for clients that measure repeatedly: of those that ask for it, only one has
// it at a time.

/// Time between two requests for the slot.
const PAUSE: Duration = Duration::from_secs(2);

/// A lease of the endpoint's slot, until it is dropped. An endpoint that is too old leases none.
#[derive(Debug)]
pub struct Slot {
    _session: Option<Client>,
}

impl Slot {
    /// Takes the slot for a test that `lasts` this long at most. If another client has it, this
    /// waits up to `patience`, and `told` gets the time for which the slot may still be taken.
    ///
    /// # Errors
    /// Another client has it for longer ([`MeasureError::is_busy`]); as [`Client::connect`].
    pub fn take(
        target: Target,
        lasts: Duration,
        patience: Duration,
        stop: &Stop,
        told: &mut dyn FnMut(Duration),
    ) -> Result<Self, MeasureError> {
        let seconds = lasts.as_secs_f64().clamp(1.0, MAX_LEASE_S);
        let until = now() + patience;
        loop {
            let mut session = Client::connect(target.clone(), stop.clone())?;
            if !session.welcome.has(SLOT) {
                return Ok(Self { _session: None });
            }
            let left = match session.ask(operation::Slot { seconds })? {
                SlotState::Leased(_) => {
                    return Ok(Self { _session: Some(session) });
                }
                SlotState::Busy(left) => Duration::from_secs_f64(left),
            };
            if now() + left > until {
                return Err(session.refused(busy(left)));
            }
            told(left);
            // A client that waits must not take the place of another.
            drop(session);
            let again_ns = now_ns() + nanos(left.min(PAUSE));
            if !stop.sleep_until(again_ns, Duration::ZERO, |_| ()) {
                return Err(MeasureError::Interrupted);
            }
        }
    }
}

fn busy(left: Duration) -> Refusal {
    let moment = format_rfc3339(SystemTime::now() + left);
    let until = moment.get(11..19).unwrap_or(&moment);
    Refusal {
        reason: RefusalReason::Busy,
        message: format!(
            "the endpoint is busy until {until} UTC at the latest: another client has its slot"
        ),
    }
}
