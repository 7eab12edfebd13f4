//! The pump: carries real packets over emulated links.
//!
//! Each emulated link is two veth pairs whose inner ends lie in a namespace of the pump's own. A
//! frame that a host sends comes out of a packet socket there, is cut to the segments that a wire
//! would carry, passes the link's state machine ([`linerate_core::link::Link`]), and goes into the
//! other veth pair when it is due.
//!
//! | module | what is in it |
//! |---|---|
//! | `one_way` | one direction with the bytes of its packets, without sockets and clock |

mod one_way;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_core::link::Counters;
use linerate_core::link::frame::{Gso, Offload};
use linerate_core::stats::LatencyHistogram;
use linerate_core::units::Nanos;
use linerate_sys::packet::{GsoType, Outgoing, PacketSocket, VirtioHeader};
use linerate_sys::poll::{Poller, wait_readable};
use linerate_sys::thread as scheduling;
pub(crate) use one_way::OneWaySetup;
use one_way::{Departure, OneWay, Spared};

use crate::clock::now_ns;
use crate::stop::Stop;

/// How long the pump spins before a packet is due, as a sleeping CPU would wake up late. It can be
/// short because the lab's spinners keep the CPUs awake.
const SPIN: Nanos = Nanos::from_micros(60);
/// The shortest time slice that Linux gives.
const SLICE: Duration = Duration::from_micros(100);
/// Longest sleep, after which the pump looks whether it is to stop.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// The most frames to take from one socket before the others.
const TURN: usize = 64;
/// Pause between two looks of a caller who waits for figures.
const ANSWER: Duration = Duration::from_millis(1);
/// How often the figures are published where nobody asks for them.
const PUBLISH: Nanos = Nanos::from_millis(100);

/// A link for the pump: the two packet sockets, and what each direction does.
#[derive(Debug)]
pub(crate) struct Wire {
    /// At the first end and at the second.
    pub(crate) sockets: [PacketSocket; 2],
    /// From the first end to the second, and back.
    pub(crate) ways: [OneWaySetup; 2],
}

/// Threads that drive links, until this is dropped.
#[derive(Debug)]
pub(crate) struct Pump {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
    gauges: Vec<[Gauge; 2]>,
    /// How many times current figures were asked for, and the last request that each thread has
    /// answered.
    asked: Arc<AtomicU64>,
    answered: Vec<Arc<AtomicU64>>,
}

impl Pump {
    /// Starts to carry packets over `wires`, shared out to at most `threads` threads.
    ///
    /// # Errors
    /// A thread cannot be started, or there are no descriptors left.
    pub(crate) fn start(wires: Vec<Wire>, threads: usize) -> io::Result<Self> {
        let mut pump = Self {
            stop: Stop::new(),
            threads: Vec::new(),
            gauges: Vec::new(),
            asked: Arc::default(),
            answered: Vec::new(),
        };
        let share = wires.len().div_ceil(threads.max(1)).max(1);
        let mut wires = wires.into_iter().peekable();
        while wires.peek().is_some() {
            let asked = Arc::clone(&pump.asked);
            let mut driver = Driver::new(wires.by_ref().take(share).collect(), asked)?;
            pump.answered.push(Arc::clone(&driver.answered));
            let gauges = driver.wires.iter().map(|wire| wire.gauges());
            pump.gauges.extend(gauges);
            let stop = pump.stop.clone();
            let thread = thread::Builder::new().name("pump".to_owned()).spawn(move || {
                come_first();
                while !stop.is_requested() {
                    driver.turn();
                }
                driver.close();
            })?;
            pump.threads.push(thread);
        }
        Ok(pump)
    }

    /// Current figures of each link, up and down, in the order of the links.
    pub(crate) fn gauges(&self) -> &[[Gauge; 2]] {
        let asked = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        for (thread, answered) in self.threads.iter().zip(&self.answered) {
            // A thread that has panicked does not answer any more.
            while answered.load(Ordering::Acquire) < asked && !thread.is_finished() {
                thread::sleep(ANSWER);
            }
        }
        &self.gauges
    }
}

/// Gives the calling thread a scheduling class in which it runs as soon as it wakes up. True if
/// nothing that this process starts can keep it from running. The pump spins while it waits, and
/// the scheduler would make an ordinary thread pay for that with its turns.
pub(crate) fn come_first() -> bool {
    scheduling::wake_sharply();
    let is_first = scheduling::set_real_time_policy().is_ok();
    if !is_first {
        let _ = scheduling::set_time_slice(SLICE);
    }
    is_first
}

/// Packets on their way are lost.
impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.request();
        for thread in self.threads.drain(..) {
            // If the thread panicked, that was printed, and its links have carried nothing since.
            let _ = thread.join();
        }
    }
}

/// One thread's links.
struct Driver {
    wires: Vec<DrivenLink>,
    poller: Poller,
    /// Times of the links count from here.
    epoch_ns: u64,
    published: Nanos,
    asked: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    ready: Vec<u64>,
}

impl Driver {
    /// For each socket that it closes the kernel waits for all CPUs (synchronize_rcu), so threads
    /// close all of them at once.
    fn close(self) {
        thread::scope(|scope| {
            for socket in self.wires.into_iter().flat_map(|wire| wire.sockets) {
                // If no thread can be started, the socket is closed here.
                let _ = thread::Builder::new().spawn_scoped(scope, move || drop(socket));
            }
        });
    }

    fn new(wires: Vec<Wire>, asked: Arc<AtomicU64>) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (index, wire) in wires.iter().enumerate() {
            for (end, socket) in wire.sockets.iter().enumerate() {
                poller.add(socket, (2 * index + end) as u64)?;
            }
        }
        Ok(Self {
            wires: wires.into_iter().map(DrivenLink::new).collect(),
            poller,
            epoch_ns: now_ns(),
            published: Nanos::ZERO,
            asked,
            answered: Arc::default(),
            ready: Vec::new(),
        })
    }

    /// Waits for a packet to come in or to be due, and moves all that there are.
    fn turn(&mut self) {
        self.wait();
        for number in std::mem::take(&mut self.ready) {
            let (wire, end) = (number as usize / 2, number as usize % 2);
            self.wires[wire].take_in(end, self.epoch_ns);
        }
        for wire in &mut self.wires {
            wire.hand_on(self.epoch_ns);
        }
        let now = self.now();
        let asked = self.asked.load(Ordering::Acquire);
        let is_wanted = asked > self.answered.load(Ordering::Relaxed);
        if is_wanted || now - self.published >= PUBLISH {
            self.published = now;
            self.wires.iter_mut().for_each(DrivenLink::publish);
            self.answered.store(asked, Ordering::Release);
        }
    }

    fn wait(&mut self) {
        let due = self.wires.iter().filter_map(DrivenLink::next_due).min();
        let now = self.now();
        let sleep = match due {
            Some(due) if due <= now + SPIN => Duration::ZERO,
            Some(due) => Duration::from_nanos((due - SPIN - now).0).min(MAX_SLEEP),
            None => MAX_SLEEP,
        };
        // After a failed wait the loop goes on; the next one may succeed.
        if !sleep.is_zero() && !wait_readable(&self.poller, sleep).unwrap_or(false) {
            return;
        }
        if let Ok(ready) = self.poller.wait(Duration::ZERO) {
            self.ready.extend(ready);
        }
    }

    fn now(&self) -> Nanos {
        Nanos(now_ns().saturating_sub(self.epoch_ns))
    }
}

/// A link that is driven.
struct DrivenLink {
    sockets: [PacketSocket; 2],
    ways: [OneWay; 2],
    meters: [DirectionMeter; 2],
    /// Present where a direction damages packets in a way that no checksum detects.
    spared: Option<Spared>,
}

/// Collects the figures of a direction between two publications.
#[derive(Default)]
struct DirectionMeter {
    gauge: Gauge,
    lateness: LatencyHistogram,
    /// Frames that the far socket did not take.
    refused: u64,
    changed: bool,
}

impl DrivenLink {
    fn new(wire: Wire) -> Self {
        let [up, down] = &wire.ways;
        Self {
            ways: [OneWay::new(up), OneWay::new(down)],
            spared: (up.damages_unseen() || down.damages_unseen()).then(Spared::default),
            sockets: wire.sockets,
            meters: Default::default(),
        }
    }

    fn gauges(&self) -> [Gauge; 2] {
        [self.meters[0].gauge.clone(), self.meters[1].gauge.clone()]
    }

    fn next_due(&self) -> Option<Nanos> {
        self.ways.iter().filter_map(OneWay::next_due).min()
    }

    /// Takes in the frames that wait at an end. The kernel has noted when each arrived, so a pump
    /// that looks late adds nothing to an emulated delay.
    fn take_in(&mut self, end: usize, epoch_ns: u64) {
        let way = &mut self.ways[end];
        for _ in 0..TURN {
            // An error means that the link is gone, and then there is nothing to carry.
            let Ok(Some(received)) = self.sockets[end].receive() else {
                break;
            };
            let arrived = Nanos(received.arrived_ns.saturating_sub(epoch_ns));
            if let Some(spared) = &mut self.spared {
                spared.note(received.frame);
            }
            way.take_in(arrived, offload(&received.header), received.frame);
        }
        self.meters[end].changed = true;
    }

    /// Sends what is due, and the answers to what did not fit.
    fn hand_on(&mut self, epoch_ns: u64) {
        for end in [0, 1] {
            let now = Nanos(now_ns().saturating_sub(epoch_ns));
            let way = &mut self.ways[end];
            if way.next_due().is_some_and(|due| due <= now) {
                way.deliver(now, self.spared.as_ref());
            }
            if !way.departures.is_empty() {
                self.send(end, epoch_ns);
            }
            self.answer(end);
        }
    }

    fn send(&mut self, end: usize, epoch_ns: u64) {
        let (way, meter) = (&mut self.ways[end], &mut self.meters[end]);
        let mut departures = std::mem::take(&mut way.departures);
        for batch in departures.chunks(TURN) {
            let outgoing: Vec<Outgoing<'_>> = batch.iter().map(outgoing).collect();
            meter.refused += send_all(&mut self.sockets[1 - end], &outgoing);
            let now = Nanos(now_ns().saturating_sub(epoch_ns));
            for departure in batch {
                meter.lateness.record_ns((now - departure.due).0);
            }
        }
        meter.changed = true;
        for departure in departures.drain(..) {
            way.recycle(departure.frame.bytes);
        }
        way.departures = departures;
    }

    fn answer(&mut self, end: usize) {
        for answer in self.ways[end].answers.drain(..) {
            let outgoing = Outgoing { header: VirtioHeader::default(), frame: &answer };
            // Such an answer may be lost, as any router's may.
            let _ = self.sockets[end].send(&[outgoing]);
        }
    }

    fn publish(&mut self) {
        for (end, meter) in self.meters.iter_mut().enumerate() {
            if std::mem::take(&mut meter.changed) {
                let unread = self.sockets[end].dropped().unwrap_or(0);
                let lost = meter.refused + self.ways[end].overflowed + unread;
                let counters = self.ways[end].counters();
                meter.gauge.write(counters, &mut meter.lateness, lost);
            }
        }
    }
}

/// How many frames the far end did not take: all the rest if its queue is full, and each single
/// frame that it refuses; the frames behind that one are still sent.
fn send_all(socket: &mut PacketSocket, mut frames: &[Outgoing<'_>]) -> u64 {
    let mut refused = 0;
    while !frames.is_empty() {
        frames = match socket.send(frames) {
            Ok(0) => return refused + frames.len() as u64,
            Ok(sent) => &frames[sent..],
            Err(_) => {
                refused += 1;
                &frames[1..]
            }
        };
    }
    refused
}

fn outgoing(departure: &Departure) -> Outgoing<'_> {
    Outgoing { header: header(&departure.frame.offload), frame: &departure.frame.bytes }
}

/// The offload header of `linerate-sys` as that of the core, which is independent of Linux.
fn offload(header: &VirtioHeader) -> Offload {
    Offload {
        needs_checksum: header.needs_checksum,
        gso: match header.gso {
            GsoType::None => Gso::None,
            GsoType::Tcp4 => Gso::Tcp4,
            GsoType::Tcp6 => Gso::Tcp6,
            GsoType::Udp => Gso::Udp,
        },
        ecn: header.ecn,
        header_bytes: header.header_bytes,
        gso_bytes: header.gso_bytes,
        checksum_start: header.checksum_start,
        checksum_offset: header.checksum_offset,
    }
}

/// The offload header of the core as that of `linerate-sys`.
fn header(offload: &Offload) -> VirtioHeader {
    VirtioHeader {
        needs_checksum: offload.needs_checksum,
        gso: match offload.gso {
            Gso::None => GsoType::None,
            Gso::Tcp4 => GsoType::Tcp4,
            Gso::Tcp6 => GsoType::Tcp6,
            Gso::Udp => GsoType::Udp,
        },
        ecn: offload.ecn,
        header_bytes: offload.header_bytes,
        gso_bytes: offload.gso_bytes,
        checksum_start: offload.checksum_start,
        checksum_offset: offload.checksum_offset,
    }
}

// Figures of a pump: what its links did, and how late it was.

/// The figures of one direction, written by the pump now and then and read by anybody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<Mutex<GaugeReading>>);

/// One direction so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct GaugeReading {
    /// What the link did.
    pub(crate) counters: Counters,
    /// Time from when a packet was due until it was handed on.
    pub(crate) lateness: LatencyHistogram,
    /// Packets that the emulator lost by its own fault, because its memory or a socket was full.
    pub(crate) overflowed: u64,
}

impl Gauge {
    /// The figures so far, at most a tenth of a second old.
    pub(crate) fn read(&self) -> GaugeReading {
        self.lock().clone()
    }

    /// Writes them.
    fn write(&self, counters: Counters, lateness: &mut LatencyHistogram, lost: u64) {
        let mut reading = self.lock();
        reading.counters = counters;
        reading.lateness.merge(lateness);
        reading.overflowed = lost;
        *lateness = LatencyHistogram::new();
    }

    fn lock(&self) -> MutexGuard<'_, GaugeReading> {
        // The reading is always whole, even if a thread that held the lock has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
