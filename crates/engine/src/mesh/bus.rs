//! A bus inside one process, whose threads are the agents and the coordinator.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_mesh::bus::{
    ACKNOWLEDGED_WITHIN, Bus, BusError, Delivery, MAX_WAITING, OFFER_LIFE, Seen,
};

/// Keys that are remembered, to recognise what is sent twice.
const MAX_KEYS: usize = 100_000;

/// A bus that ends with its process.
#[derive(Debug, Default)]
pub struct LocalBus {
    state: Mutex<BusState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BusState {
    work: BTreeMap<String, MessageQueue>,
    reports: MessageQueue,
    seen: BTreeMap<String, (Vec<u8>, Instant)>,
    keys: Keys,
    receipts: u64,
}

/// Messages in the order in which they came.
#[derive(Debug, Default)]
struct MessageQueue(VecDeque<Waiting>);

#[derive(Debug)]
struct Waiting {
    site: String,
    body: Vec<u8>,
    since: Instant,
    /// The receipt under which it was delivered, and when.
    taken: Option<(u64, Instant)>,
}

/// Keys of what was sent already; the oldest are forgotten first.
#[derive(Debug, Default)]
struct Keys {
    known: HashSet<String>,
    order: VecDeque<String>,
}

impl MessageQueue {
    fn push(&mut self, site: &str, body: &[u8]) -> Result<(), BusError> {
        let of_site = self.0.iter().filter(|waiting| waiting.site == site);
        if of_site.count() >= MAX_WAITING {
            return Err(BusError(format!("has {MAX_WAITING} messages of it waiting")));
        }
        self.0.push_back(Waiting {
            site: site.to_owned(),
            body: body.to_vec(),
            since: Instant::now(),
            taken: None,
        });
        Ok(())
    }

    fn take(&mut self, receipt: u64) -> Option<Delivery> {
        let is_free = |waiting: &&mut Waiting| {
            let taken = waiting.taken.map(|(_, since)| since.elapsed());
            taken.is_none_or(|taken| taken >= ACKNOWLEDGED_WITHIN)
        };
        let waiting = self.0.iter_mut().find(is_free)?;
        waiting.taken = Some((receipt, Instant::now()));
        Some(Delivery { site: waiting.site.clone(), body: waiting.body.clone(), receipt })
    }

    fn remove(&mut self, receipt: u64) {
        let is_it = |waiting: &Waiting| waiting.taken.is_some_and(|(by, _)| by == receipt);
        if let Some(at) = self.0.iter().position(is_it) {
            self.0.remove(at);
        }
    }
}

impl Keys {
    /// Adds a key. False if it is known.
    fn add(&mut self, key: &str) -> bool {
        if !self.known.insert(key.to_owned()) {
            return false;
        }
        self.order.push_back(key.to_owned());
        if self.order.len() > MAX_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

impl LocalBus {
    fn state(&self) -> MutexGuard<'_, BusState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something, at most for that time.
    fn wait(
        &self,
        wait: Duration,
        mut look: impl FnMut(&mut BusState) -> Option<Delivery>,
    ) -> Option<Delivery> {
        let until = Instant::now() + wait;
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Bus for LocalBus {
    fn announce(&self, site: &str, presence: &[u8]) -> Result<(), BusError> {
        let said = (presence.to_vec(), Instant::now());
        self.state().seen.insert(site.to_owned(), said);
        Ok(())
    }

    fn withdraw(&self, site: &str) -> Result<(), BusError> {
        self.state().seen.remove(site);
        Ok(())
    }

    fn take(&self, site: &str, wait: Duration) -> Result<Option<Delivery>, BusError> {
        Ok(self.wait(wait, |state| {
            state.receipts += 1;
            let queue = state.work.get_mut(site)?;
            queue.0.retain(|waiting| waiting.since.elapsed() < OFFER_LIFE);
            queue.take(state.receipts)
        }))
    }

    fn publish(&self, site: &str, key: &str, report: &[u8]) -> Result<(), BusError> {
        let mut state = self.state();
        if state.keys.known.contains(key) {
            return Ok(());
        }
        state.reports.push(site, report)?;
        state.keys.add(key);
        self.changed.notify_all();
        Ok(())
    }

    fn acknowledge(&self, delivery: &Delivery) -> Result<(), BusError> {
        let mut state = self.state();
        state.reports.remove(delivery.receipt);
        for queue in state.work.values_mut() {
            queue.remove(delivery.receipt);
        }
        Ok(())
    }

    fn prepare(&self, _: &[&str]) -> Result<(), BusError> {
        Ok(())
    }

    fn offer(&self, site: &str, key: &str, task: &[u8]) -> Result<(), BusError> {
        let mut state = self.state();
        if state.keys.add(key) {
            state.work.entry(site.to_owned()).or_default().push(site, task)?;
            self.changed.notify_all();
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), BusError> {
        self.state().work.clear();
        Ok(())
    }

    fn collect(&self, wait: Duration) -> Result<Option<Delivery>, BusError> {
        Ok(self.wait(wait, |state| {
            state.receipts += 1;
            state.reports.take(state.receipts)
        }))
    }

    fn present(&self) -> Result<Vec<Seen>, BusError> {
        let state = self.state();
        let seen = state.seen.iter().map(|(site, (body, at))| Seen {
            site: site.clone(),
            body: body.clone(),
            age: at.elapsed(),
        });
        Ok(seen.collect())
    }
}
