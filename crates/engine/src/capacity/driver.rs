//! The work of a client's worker: decides when the next connection is begun, the next heartbeat
//! sent and the next connection replaced. What is due follows from the time, so that a loop that is
//! late catches up. Nothing is allocated for an event.

use std::io;

use linerate_core::capacity::FailureCause;
use linerate_core::units::SplitMix64;
use linerate_sys::poll::{Poller, Ready};

use super::message::{Connect, Order, Report, Status, is_lasting};
use super::pool::{Pool, PoolTransport};
use super::worker::Service;

/// The order to begin connections, up to `to` in all.
struct Ramp {
    to: u64,
    /// Time between two connections, ns; 0 is none.
    gap_ns: f64,
    began: u64,
    begun_before: u64,
}

struct Hold {
    began: u64,
    period_ns: f64,
    beats: u64,
    /// Time between two replaced connections, ns.
    churn_gap_ns: Option<f64>,
    replaced: u64,
}

/// The schedule of a worker, and its sockets.
pub(super) struct Driver<T> {
    pool: Pool<T>,
    random: SplitMix64,
    ramp: Option<Ramp>,
    hold: Option<Hold>,
    /// The next slot of a sweep.
    sweep: Option<usize>,
    /// Number of connections begun on ramps.
    begun: u64,
    /// Nothing that can wait is sent before this time.
    paused_until: u64,
    stopped: Option<FailureCause>,
    next_expiry: u64,
}

impl<T: PoolTransport> Driver<T> {
    pub(super) fn new(order: &Connect) -> Result<Self, String> {
        Ok(Self {
            pool: Pool::new(order)?,
            random: SplitMix64::new(order.seed),
            ramp: None,
            hold: None,
            sweep: None,
            begun: 0,
            paused_until: 0,
            stopped: None,
            next_expiry: 0,
        })
    }

    fn advance_ramp(&mut self, now: u64) -> Option<u64> {
        let ramp = self.ramp.as_ref()?;
        let (to, gap, began, before) = (ramp.to, ramp.gap_ns, ramp.began, ramp.begun_before);
        for _ in 0..BATCH {
            if self.begun >= to {
                if self.pool.opening == 0 {
                    self.ramp = None;
                }
                return None;
            }
            let due = began + (gap * (self.begun - before) as f64) as u64;
            if due > now {
                return Some(due);
            }
            if !self.pool.has_room() {
                return None;
            }
            self.begun += 1;
            if let Err(cause) = self.pool.begin(self.begun == to) {
                let failed = self.pool.report.status.failures.total();
                if is_lasting(cause) || failed > MAX_FAILURES + self.begun / 4 {
                    self.stopped = Some(cause);
                    self.ramp = None;
                    return None;
                }
            }
        }
        Some(now)
    }

    /// Sends the heartbeats that are due. They are spread over their period, slot by slot.
    fn advance_hold(&mut self, now: u64) -> Option<u64> {
        let hold = self.hold.as_mut()?;
        let slots = self.pool.slots() as u64;
        if slots == 0 {
            return None;
        }
        let gap = hold.period_ns / slots as f64;
        let due = ((now - hold.began) as f64 / gap) as u64;
        for _ in 0..BATCH {
            if hold.beats >= due || self.pool.unanswered >= T::MAX_BEATS {
                break;
            }
            self.pool.beat((hold.beats % slots) as usize);
            hold.beats += 1;
        }
        (hold.beats >= due).then(|| hold.began + (gap * (hold.beats + 1) as f64) as u64)
    }

    fn advance_churn(&mut self, now: u64) -> Option<u64> {
        let hold = self.hold.as_mut()?;
        let gap = hold.churn_gap_ns?;
        let slots = self.pool.slots() as u64;
        for _ in 0..BATCH {
            let due = hold.began + (gap * (hold.replaced + 1) as f64) as u64;
            if due > now {
                return Some(due);
            }
            if slots == 0 || !self.pool.has_room() {
                return None;
            }
            hold.replaced += 1;
            // A failure is counted; the next connection may find a port again.
            let _ = self.pool.replace(self.random.below(slots) as usize);
        }
        Some(now)
    }

    fn advance_sweep(&mut self, now: u64) -> Option<u64> {
        let mut slot = self.sweep?;
        for _ in 0..BATCH {
            if slot >= self.pool.slots() || self.pool.unanswered >= T::MAX_BEATS {
                break;
            }
            self.pool.beat(slot);
            slot += 1;
        }
        let all_asked = slot >= self.pool.slots();
        self.sweep = (!all_asked || self.pool.unanswered > 0).then_some(slot);
        let goes_on = !all_asked && self.pool.unanswered < T::MAX_BEATS;
        goes_on.then_some(now)
    }

    fn advance_names(&mut self, now: u64) -> Option<u64> {
        if now < self.paused_until { Some(self.paused_until) } else { self.pool.name(now) }
    }
}

impl<T: PoolTransport> Service for Driver<T> {
    fn poller(&mut self) -> &mut Poller {
        &mut self.pool.poller
    }

    fn on_ready(&mut self, ready: &Ready) {
        self.pool.on_ready(ready);
    }

    fn advance(&mut self, now: u64) -> io::Result<u64> {
        if now >= self.next_expiry {
            self.next_expiry = now + T::EXPIRE_EVERY;
            self.pool.expire(now);
        }
        let dues = [
            self.advance_ramp(now),
            self.advance_hold(now),
            self.advance_churn(now),
            self.advance_sweep(now),
            self.advance_names(now),
            self.pool.drive_load(now),
        ];
        Ok(dues.into_iter().flatten().min().unwrap_or(u64::MAX))
    }

    fn take(&mut self, order: Order, now: u64) {
        match order {
            Order::Ramp { to, rate_per_s } => {
                self.ramp = Some(Ramp {
                    to,
                    gap_ns: rate_per_s.map_or(0.0, |rate| 1e9 / rate),
                    began: now,
                    begun_before: self.begun,
                });
            }
            Order::Hold { heartbeat_s, churn_per_s } => {
                self.hold = Some(Hold {
                    began: now,
                    period_ns: heartbeat_s * 1e9,
                    beats: 0,
                    churn_gap_ns: (churn_per_s > 0.0).then(|| 1e9 / churn_per_s),
                    replaced: 0,
                });
            }
            Order::Sweep => self.sweep = Some(0),
            Order::Load { connections, seconds, per_s } => {
                self.pool.start_load(connections, seconds, per_s, &mut self.random)
            }
            Order::PauseHeartbeats { seconds } => self.paused_until = now + (seconds * 1e9) as u64,
            Order::Stop => {
                (self.ramp, self.hold, self.sweep) = (None, None, None);
                self.pool.stop_load();
            }
            // Sent by the loop of the process.
            Order::Report => {}
        }
    }

    fn is_busy(&self) -> bool {
        self.ramp.is_some() || self.sweep.is_some() || self.pool.is_loading()
    }

    fn status(&self) -> Status {
        Status { busy: self.is_busy(), stopped: self.stopped, ..self.pool.report.status.clone() }
    }

    fn report(&self) -> Report {
        Report { status: self.status(), ..self.pool.report() }
    }
}

/// Most actions of a kind before events have their turn.
const BATCH: usize = 64;
/// A ramp stops if more than this number plus a quarter of its connections fail.
const MAX_FAILURES: u64 = 64;
