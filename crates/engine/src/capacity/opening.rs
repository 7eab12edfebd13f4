//! The phases that open connections, and the latency of an active connection beside them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use linerate_core::capacity::wire::{HEADER_BYTES, Header, Kind, opening};
use linerate_core::capacity::{FailureCause, LatencyAt, RampStep};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::message::keep_every_second;
use linerate_core::stats::LatencyHistogram;
use linerate_core::wire::Token;
use linerate_sys::socket::{Mptcp, connect, reset_on_close, tcp_socket};

use super::message::{Order, is_lasting};
use super::round::Round;
use super::run::CapacityPhase;
use super::workers::{TCP, UDP};
use crate::clock::{now, now_ns};
use crate::error::MeasureError;

/// The progress of opening TCP connections, or UDP sockets.
#[derive(Debug, Default)]
pub(super) struct Opening {
    pub(super) asked: u64,
    /// The number that each worker opens.
    pub(super) shares: Vec<u64>,
    /// Time that it took, without pauses.
    pub(super) seconds: f64,
    pub(super) steps: Vec<RampStep>,
    /// Growth of the kernel's slab memory meanwhile.
    pub(super) slab_bytes: Option<u64>,
}

impl Opening {
    pub(super) fn new(asked: u64, shares: Vec<u64>) -> Self {
        Self { asked, shares, ..Self::default() }
    }

    /// Adds a step to the course. If there are too many, every second one is dropped.
    fn step(&mut self, step: RampStep) {
        if self.steps.len() >= MAX_STEPS {
            keep_every_second(&mut self.steps);
        }
        self.steps.push(step);
    }

    /// The order to the worker of this index, for `to` connections of all workers.
    fn order(&self, index: usize, to: u64, rate_per_s: Option<u64>) -> Order {
        let part = self.shares[index] as f64 / self.asked as f64;
        Order::Ramp {
            to: if to == self.asked { self.shares[index] } else { (part * to as f64) as u64 },
            rate_per_s: rate_per_s.map(|rate| rate as f64 * part),
        }
    }
}

impl Round<'_> {
    /// Opens all connections. With pauses on the way, it measures the latency beside those that are
    /// open.
    pub(super) fn open_tcp(&mut self) -> Result<(), MeasureError> {
        let total = self.openings[TCP].asked;
        let steps: &[u64] =
            if self.document.test.latency && total >= MIN_STEPPED { &[10, 2, 1] } else { &[1] };
        for part in steps {
            self.phase = CapacityPhase::Opening;
            let goes_on = self.ramp(TCP, total / part)?;
            let open = self.workers.status(self.workers.pool(TCP)).open;
            if total > 0 {
                self.measure_latency(open)?;
            }
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Opens all UDP sockets.
    pub(super) fn open_udp(&mut self) -> Result<(), MeasureError> {
        self.phase = CapacityPhase::OpeningUdp;
        self.ramp(UDP, self.openings[UDP].asked).map(drop)
    }

    /// Opens connections until there are `to`; false if something prevents more.
    fn ramp(&mut self, which: usize, to: u64) -> Result<bool, MeasureError> {
        if to == 0 {
            return Ok(true);
        }
        let (before, began) = (self.openings[which].seconds, now_ns());
        let rate = self.document.test.rate_per_s;
        let opening = &self.openings[which];
        let pool = self.workers.pool(which);
        let orders = pool.enumerate().map(|(share, index)| (index, opening.order(share, to, rate)));
        let goes_on = self.watch_ramp(which, (before, began), orders.collect())?;
        let totals = self.workers.status(self.workers.pool(which));
        let opening = &mut self.openings[which];
        opening.seconds = before + since(began, totals.last_open_ns);
        opening.step(RampStep { at_s: opening.seconds, opened: totals.opened });
        Ok(goes_on && totals.stopped.is_none())
    }

    /// Most workers that open connections at once. More take the CPUs' caches from each other: a
    /// million connections took a tenth longer with all workers at once.
    fn at_once(&self) -> usize {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let waiting = self.client.connect_time().as_secs_f64() * WAITING_WORKERS;
        match self.document.test.rate_per_s {
            None => 2 * cpus + waiting.ceil() as usize,
            // Each has its part of the rate.
            Some(_) => usize::MAX,
        }
    }

    /// Gives the workers their orders, and waits until all are carried out; false if there is no
    /// more progress.
    fn watch_ramp(
        &mut self,
        which: usize,
        (before, began): (f64, u64),
        mut orders: VecDeque<(usize, Order)>,
    ) -> Result<bool, MeasureError> {
        let at_once = self.at_once();
        let mut next_step = 0;
        let mut moved = (0, now());
        while !(self.workers.is_idle() && orders.is_empty()) {
            while self.workers.busy() < at_once
                && let Some((index, order)) = orders.pop_front()
            {
                self.workers.tell(index, &order);
            }
            self.turn()?;
            let totals = self.workers.status(self.workers.pool(which));
            if now_ns() >= next_step {
                next_step = now_ns() + STEP_EVERY;
                self.openings[which].step(RampStep {
                    at_s: before + since(began, now_ns()),
                    opened: totals.opened,
                });
            }
            let progress = totals.opened + totals.failures.total();
            if progress != moved.0 {
                moved = (progress, now());
            }
            let is_stuck = self.document.test.rate_per_s.is_none() && now() - moved.1 > STUCK;
            if self.remote_is_full() || is_stuck {
                self.workers.tell_all(&Order::Stop);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the endpoint has reported that it can take no more.
    fn remote_is_full(&self) -> bool {
        let mut failures = self.remote.failures.iter();
        failures.any(|f| is_lasting(f.cause) || f.cause == FailureCause::WorkerLost)
    }

    /// Measures the latency of an active connection beside `population` idle ones.
    pub(super) fn measure_latency(&mut self, population: u64) -> Result<(), MeasureError> {
        if !self.document.test.latency || self.ports.tcp.is_empty() {
            return Ok(());
        }
        self.phase = CapacityPhase::Measuring;
        // Connections that name the session would not be idle.
        self.workers
            .tell_all(&Order::PauseHeartbeats { seconds: (QUIET + MEASURING).as_secs_f64() });
        // The last connections are still being accepted.
        self.turns(QUIET)?;
        let mut histogram = LatencyHistogram::new();
        if let Err(error) = self.exchange(&mut histogram)? {
            let message = format!("an active connection's latency is not known: {error}");
            let caveat = Caveat::new(CaveatKind::NotReadable, message, "");
            self.document.caveats.push(caveat);
            self.probe = None;
        }
        if let Some(latency_us) = histogram.summary() {
            self.document.latency.push(LatencyAt { population, latency_us });
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        histogram: &mut LatencyHistogram,
    ) -> Result<io::Result<()>, MeasureError> {
        if self.probe.is_none() {
            let mut peer = self.client.peer();
            peer.set_port(self.ports.tcp[0].port);
            match Probe::connect(peer, self.source, self.client.session_token()) {
                Ok(probe) => self.probe = Some(probe),
                Err(error) => return Ok(Err(error)),
            }
        }
        let until = now() + MEASURING;
        let mut warm_up = LatencyHistogram::new();
        for slice in 0..=SLICES {
            let Some(probe) = &mut self.probe else {
                break;
            };
            let kept = if slice == 0 { &mut warm_up } else { &mut *histogram };
            if let Err(error) = probe.run(EXCHANGES, kept) {
                return Ok(Err(error));
            }
            self.turn()?;
            if now() >= until {
                break;
            }
        }
        Ok(Ok(()))
    }
}

fn since(earlier_ns: u64, later_ns: u64) -> f64 {
    later_ns.saturating_sub(earlier_ns) as f64 / 1e9
}

/// For each second of a round trip so many more workers open connections at once: each begins half
/// a window (512) in a round trip, and a host opens 100,000 a second.
const WAITING_WORKERS: f64 = 200.0;
const MAX_STEPS: usize = 1_000;
const STEP_EVERY: u64 = 100_000_000;
/// Without a rate limit, no progress for this long, which is longer than any handshake, is the end
/// of the progress.
const STUCK: Duration = Duration::from_secs(15);
/// Fewer connections than this are opened without pauses.
const MIN_STEPPED: u64 = 1_000;
/// Pause before an active connection is measured.
const QUIET: Duration = Duration::from_millis(50);
/// Longest measurement of an active connection.
const MEASURING: Duration = Duration::from_secs(2);
/// The measurement has this many slices of exchanges, and one before them that does not count.
const SLICES: u64 = 8;
const EXCHANGES: u64 = 250;

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
        let header = Header { kind: Kind::OpenAnswered, number: 0 };
        stream.write_all(&opening(token, header))?;
        let mut probe = Self { stream, number: 0 };
        probe.expect(header)?;
        Ok(probe)
    }

    /// Makes this many exchanges, one after another.
    pub(super) fn run(&mut self, count: u64, histogram: &mut LatencyHistogram) -> io::Result<()> {
        for _ in 0..count {
            self.number += 1;
            let header = Header { kind: Kind::Heartbeat, number: self.number };
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
        if answer == header.encode() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

/// Longest wait for the connection and for each answer.
const PATIENCE: Duration = Duration::from_secs(5);
