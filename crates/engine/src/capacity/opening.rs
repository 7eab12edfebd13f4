//! Opening, and what an active connection feels of it.

use std::io;
use std::ops::Range;
use std::time::Duration;

use linerate_core::capacity::{FailureCause, LatencyAt, RampStep};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::stats::LatencyHistogram;

use super::message::Order;
use super::outcome::Opening;
use super::probe::Probe;
use super::round::Round;
use super::run::CapacityPhase;
use super::tally::is_lasting;
use crate::clock::{now, now_ns};
use crate::error::MeasureError;

impl Round<'_> {
    /// All connections, with pauses on the way to measure beside those that are open.
    pub(super) fn open_tcp(&mut self) -> Result<(), MeasureError> {
        let total = self.test.connections;
        let steps: &[u64] = if self.test.latency && total >= MIN_STEPPED {
            &[10, 2, 1]
        } else {
            &[1]
        };
        for part in steps {
            self.phase = CapacityPhase::Opening;
            let goes_on = self.ramp(true, total / part)?;
            let open = self.workers.status(self.workers.tcp()).open;
            if total > 0 {
                self.measure_latency(open)?;
            }
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// All UDP sockets.
    pub(super) fn open_udp(&mut self) -> Result<(), MeasureError> {
        self.phase = CapacityPhase::OpeningUdp;
        self.ramp(false, self.test.udp_sockets).map(drop)
    }

    /// Opens until there are `to` in the pool; false if something keeps it from having more.
    fn ramp(&mut self, is_tcp: bool, to: u64) -> Result<bool, MeasureError> {
        if to == 0 {
            return Ok(true);
        }
        let which = if is_tcp {
            self.workers.tcp()
        } else {
            self.workers.udp()
        };
        let before = self.opening(is_tcp).seconds;
        let began = now_ns();
        self.tell_ramp(is_tcp, which.clone(), to);
        let goes_on = self.watch_ramp(is_tcp, which.clone(), (before, began))?;
        let totals = self.workers.status(which);
        let opening = self.opening(is_tcp);
        opening.seconds = before + since(began, totals.last_open_ns);
        opening.step(RampStep {
            at_s: opening.seconds,
            opened: totals.opened,
        });
        Ok(goes_on && totals.stopped.is_none())
    }

    fn tell_ramp(&mut self, is_tcp: bool, which: Range<usize>, to: u64) {
        let (shares, total) = if is_tcp {
            (&self.tcp_shares, self.test.connections)
        } else {
            (&self.udp_shares, self.test.udp_sockets)
        };
        let rate = self.test.rate_per_s;
        self.workers.tell_each(which, |index| {
            let part = shares[index] as f64 / total as f64;
            Order::Ramp {
                to: if to == total {
                    shares[index]
                } else {
                    (part * to as f64) as u64
                },
                rate_per_s: rate.map(|rate| rate as f64 * part),
            }
        });
    }

    /// Until all workers have begun all that they were to, or nothing more comes of it.
    fn watch_ramp(
        &mut self,
        is_tcp: bool,
        which: Range<usize>,
        (before, began): (f64, u64),
    ) -> Result<bool, MeasureError> {
        let mut next_step = 0;
        let mut moved = (0, now());
        while !self.workers.is_idle() {
            self.turn()?;
            let totals = self.workers.status(which.clone());
            if now_ns() >= next_step {
                next_step = now_ns() + STEP_EVERY;
                self.opening(is_tcp).step(RampStep {
                    at_s: before + since(began, now_ns()),
                    opened: totals.opened,
                });
            }
            let progress = totals.opened + totals.failures.total();
            if progress != moved.0 {
                moved = (progress, now());
            }
            let is_stuck = self.test.rate_per_s.is_none() && now() - moved.1 > STUCK;
            if self.remote_is_full() || is_stuck {
                self.workers.tell_all(&Order::Stop);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn opening(&mut self, is_tcp: bool) -> &mut Opening {
        if is_tcp {
            &mut self.run.tcp
        } else {
            &mut self.run.udp
        }
    }

    /// The endpoint has said that it can take no more.
    fn remote_is_full(&self) -> bool {
        let mut failures = self.remote.failures.iter();
        failures.any(|f| is_lasting(f.cause) || f.cause == FailureCause::WorkerLost)
    }

    /// An active connection beside so many idle ones.
    pub(super) fn measure_latency(&mut self, population: u64) -> Result<(), MeasureError> {
        if !self.test.latency || self.ports.tcp.is_empty() {
            return Ok(());
        }
        self.phase = CapacityPhase::Measuring;
        // Connections that say at last whose they are would not be idle.
        self.workers.tell_all(&Order::Hush {
            seconds: (QUIET + MEASURING).as_secs_f64(),
        });
        // What was opened last is still being taken off the queues.
        self.turns(QUIET)?;
        let mut histogram = LatencyHistogram::new();
        if let Err(error) = self.exchange(&mut histogram)? {
            let words = format!("an active connection's latency is not known: {error}");
            let caveat = Caveat::new(CaveatKind::NotReadable, words, "");
            self.run.caveats.push(caveat);
            self.probe = None;
        }
        if let Some(latency_us) = histogram.summary() {
            self.run.latency.push(LatencyAt {
                population,
                latency_us,
            });
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
            let kept = if slice == 0 {
                &mut warm_up
            } else {
                &mut *histogram
            };
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

const STEP_EVERY: u64 = 100_000_000;
/// Without a limit on the rate, and longer than any handshake: nothing more comes of it.
const STUCK: Duration = Duration::from_secs(15);
/// Fewer connections are opened in one step.
const MIN_STEPPED: u64 = 1_000;
/// Before an active connection is measured.
const QUIET: Duration = Duration::from_millis(50);
/// Longest measurement of an active connection.
const MEASURING: Duration = Duration::from_secs(2);
/// Of so many exchanges each, and one before them that is not counted.
const SLICES: u64 = 8;
const EXCHANGES: u64 = 250;
