//! The loop of a client's worker: when the next connection is begun, the next heartbeat due, the
//! next one replaced.
//!
//! One thread, one epoll set. What is due is worked out from the time, so that a loop that comes
//! late catches up; nothing is allocated for an event.

use std::io;
use std::time::Duration;

use linerate_core::capacity::FailureCause;
use linerate_sys::poll::{Poller, Ready, wait_readable};

use super::message::{Channel, Order, Report, Status, Word};
use super::random::Random;
use super::tally::{Tally, is_lasting};
use super::worker::send_report;
use crate::clock::now_ns;

/// Connections, or UDP sockets, that the loop works on. Each has a slot.
pub(super) trait Pool {
    /// Between two looks for what has waited too long, ns. To look at all slots takes a while.
    const EXPIRE_EVERY: u64;
    /// Where all of them are watched, each under the number of its slot.
    fn poller(&mut self) -> &mut Poller;
    /// Slots that are or were in use.
    fn slots(&self) -> usize;
    /// Whether the peer can be expected to take one more at present.
    fn has_room(&self) -> bool;
    /// Begins one more; `last` if none is to follow soon.
    ///
    /// # Errors
    /// Why it could not even be begun; it is counted already.
    fn begin(&mut self, last: bool) -> Result<(), FailureCause>;
    /// Begun, and neither open nor failed.
    fn opening(&self) -> u64;
    /// Closes the one in the slot, if it is open and idle, and begins another.
    ///
    /// # Errors
    /// As for [`Pool::begin`].
    fn replace(&mut self, slot: usize) -> Result<(), FailureCause>;
    /// Asks whether the one in the slot is alive, if it is open and nothing else is in progress
    /// there.
    fn beat(&mut self, slot: usize);
    /// Names the session on some of those that have not said anything for long; answers when the
    /// next are due.
    fn name(&mut self, now: u64) -> Option<u64>;
    /// Messages that wait for their answer.
    fn unanswered(&self) -> u64;
    /// Most heartbeats that are to be in progress at once: more would be a storm.
    fn most_beats(&self) -> u64;
    /// Something has come, or there is room again.
    fn on_ready(&mut self, ready: &Ready);
    /// Gives up what has waited too long.
    fn expire(&mut self, now: u64);
    /// Begins a load.
    fn start_load(
        &mut self,
        connections: u64,
        seconds: f64,
        per_s: Option<f64>,
        random: &mut Random,
    );
    /// Does what is due of it; answers when the next is.
    fn drive_load(&mut self, now: u64) -> Option<u64>;
    /// Ends it; what is in flight is still answered.
    fn stop_load(&mut self);
    /// Whether something of it is still to come.
    fn is_loading(&self) -> bool;
    /// Open at present, opened since the beginning without those that replaced others, and when the
    /// last of them was.
    fn open(&self) -> (u64, u64, u64);
    /// Could not be opened; were open and are gone.
    fn tallies(&self) -> (&Tally, &Tally);
    /// Everything, apart from the status.
    fn report(&self) -> Report;
}

/// Connections, all begun or to be begun.
struct Ramp {
    to: u64,
    /// Between two, ns; 0 is none.
    gap_ns: f64,
    began: u64,
    begun_before: u64,
}

struct Hold {
    began: u64,
    period_ns: f64,
    beats: u64,
    /// Between two replaced connections, ns.
    churn_gap_ns: Option<f64>,
    replaced: u64,
}

/// The loop's state.
pub(super) struct Driver<P> {
    pool: P,
    channel: Channel,
    random: Random,
    ramp: Option<Ramp>,
    hold: Option<Hold>,
    /// The next slot of it.
    sweep: Option<usize>,
    /// Begun on a ramp.
    begun: u64,
    /// What can wait is not said before.
    hushed_until: u64,
    orders: u64,
    stopped: Option<FailureCause>,
    told: Status,
    next_status: u64,
    next_expiry: u64,
}

impl<P: Pool> Driver<P> {
    pub(super) fn new(mut pool: P, channel: Channel, seed: u64) -> io::Result<Self> {
        pool.poller().add(&channel, CHANNEL)?;
        Ok(Self {
            pool,
            channel,
            random: Random::new(seed),
            ramp: None,
            hold: None,
            sweep: None,
            begun: 0,
            hushed_until: 0,
            orders: 1,
            stopped: None,
            told: Status::default(),
            next_status: 0,
            next_expiry: 0,
        })
    }

    /// Runs until the other end of the channel is gone, which is the order to close everything.
    ///
    /// # Errors
    /// The channel or epoll fails.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut found = Vec::new();
        loop {
            let wake = self.advance(now_ns());
            self.wait(wake, &mut found)?;
            for ready in &found {
                if ready.number == CHANNEL {
                    self.take_orders()?;
                } else {
                    self.pool.on_ready(ready);
                }
            }
            let now = now_ns();
            if now >= self.next_expiry {
                self.next_expiry = now + P::EXPIRE_EVERY;
                self.pool.expire(now);
            }
            self.tell(now)?;
        }
    }

    fn wait(&mut self, wake: u64, found: &mut Vec<Ready>) -> io::Result<()> {
        let patience = wake.saturating_sub(now_ns()).min(LONGEST_WAIT);
        let mut patience = Duration::from_nanos(patience);
        let poller = self.pool.poller();
        if patience > Duration::ZERO && patience < EPOLLS_UNIT {
            wait_readable(poller, patience)?;
            patience = Duration::ZERO;
        }
        poller.wait_into(patience, found)
    }

    fn take_orders(&mut self) -> io::Result<()> {
        while let Some(order) = self.channel.receive::<Order>()? {
            self.orders += 1;
            self.next_status = 0;
            self.take(order)?;
        }
        Ok(())
    }

    fn take(&mut self, order: Order) -> io::Result<()> {
        let now = now_ns();
        match order {
            Order::Ramp { to, rate_per_s } => {
                self.ramp = Some(Ramp {
                    to,
                    gap_ns: rate_per_s.map_or(0.0, |rate| 1e9 / rate),
                    began: now,
                    begun_before: self.begun,
                });
            }
            Order::Hold {
                heartbeat_s,
                churn_per_s,
            } => {
                self.hold = Some(Hold {
                    began: now,
                    period_ns: heartbeat_s * 1e9,
                    beats: 0,
                    churn_gap_ns: (churn_per_s > 0.0).then(|| 1e9 / churn_per_s),
                    replaced: 0,
                });
            }
            Order::Sweep => self.sweep = Some(0),
            Order::Load {
                connections,
                seconds,
                per_s,
            } => self
                .pool
                .start_load(connections, seconds, per_s, &mut self.random),
            Order::Hush { seconds } => self.hushed_until = now + (seconds * 1e9) as u64,
            Order::Rest => {
                (self.ramp, self.hold, self.sweep) = (None, None, None);
                self.pool.stop_load();
            }
            Order::Report => {
                let mut report = self.pool.report();
                report.status = self.status();
                send_report(&mut self.channel, report)?;
            }
            Order::Listen(_) | Order::Answer(_) | Order::Connect(_) | Order::Knock(_) => {
                return Err(io::Error::other("a second first order"));
            }
        }
        Ok(())
    }

    /// Does what is due; answers when something is due next.
    fn advance(&mut self, now: u64) -> u64 {
        let mut wake = now + LONGEST_WAIT;
        for next in [
            self.advance_ramp(now),
            self.advance_hold(now),
            self.advance_churn(now),
            self.advance_sweep(now),
            self.advance_names(now),
            self.pool.drive_load(now),
        ] {
            wake = wake.min(next.unwrap_or(u64::MAX));
        }
        wake
    }

    fn advance_ramp(&mut self, now: u64) -> Option<u64> {
        let ramp = self.ramp.as_ref()?;
        let (to, gap, began, before) = (ramp.to, ramp.gap_ns, ramp.began, ramp.begun_before);
        for _ in 0..BATCH {
            if self.begun >= to {
                if self.pool.opening() == 0 {
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
                let failed = self.pool.tallies().0.total();
                if is_lasting(cause) || failed > MAX_FAILURES + self.begun / 4 {
                    self.stopped = Some(cause);
                    self.ramp = None;
                    return None;
                }
            }
        }
        Some(now)
    }

    /// The heartbeats are spread over their period: slot by slot, round and round.
    fn advance_hold(&mut self, now: u64) -> Option<u64> {
        let hold = self.hold.as_mut()?;
        let slots = self.pool.slots() as u64;
        if slots == 0 {
            return None;
        }
        let gap = hold.period_ns / slots as f64;
        let due = ((now - hold.began) as f64 / gap) as u64;
        for _ in 0..BATCH {
            if hold.beats >= due || self.pool.unanswered() >= self.pool.most_beats() {
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
            // What fails is counted; the next may find a port again.
            let _ = self.pool.replace(self.random.below(slots) as usize);
        }
        Some(now)
    }

    fn advance_sweep(&mut self, now: u64) -> Option<u64> {
        let mut slot = self.sweep?;
        for _ in 0..BATCH {
            if slot >= self.pool.slots() || self.pool.unanswered() >= self.pool.most_beats() {
                break;
            }
            self.pool.beat(slot);
            slot += 1;
        }
        let all_asked = slot >= self.pool.slots();
        self.sweep = (!all_asked || self.pool.unanswered() > 0).then_some(slot);
        let goes_on = !all_asked && self.pool.unanswered() < self.pool.most_beats();
        goes_on.then_some(now)
    }

    fn advance_names(&mut self, now: u64) -> Option<u64> {
        if now < self.hushed_until {
            Some(self.hushed_until)
        } else {
            self.pool.name(now)
        }
    }

    fn is_busy(&self) -> bool {
        self.ramp.is_some() || self.sweep.is_some() || self.pool.is_loading()
    }

    fn status(&self) -> Status {
        let (open, opened, last_open_ns) = self.pool.open();
        let (failures, lost) = self.pool.tallies();
        Status {
            open,
            opened,
            last_open_ns,
            busy: self.is_busy(),
            orders: self.orders,
            stopped: self.stopped,
            failures: failures.list(),
            lost: lost.list(),
        }
    }

    fn tell(&mut self, now: u64) -> io::Result<()> {
        let ended = self.told.busy && !self.is_busy();
        if now < self.next_status && !ended {
            return Ok(());
        }
        let status = self.status();
        self.next_status = now + STATUS_EVERY;
        if status != self.told {
            self.channel.send(&Word::Status(status.clone()))?;
            self.told = status;
        }
        Ok(())
    }
}

/// Under which the channel is watched.
const CHANNEL: u64 = u64::MAX;
/// Things begun before events have their turn.
const BATCH: usize = 64;
/// Epoll counts ms.
const EPOLLS_UNIT: Duration = Duration::from_millis(1);
/// Longest wait, ns.
const LONGEST_WAIT: u64 = 100_000_000;
const STATUS_EVERY: u64 = 100_000_000;
/// Passing failures, before so many in four are too many.
const MAX_FAILURES: u64 = 64;
