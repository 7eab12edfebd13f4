//! Names of addresses, looked up in parallel while the trace goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use linerate_sys::probe::reverse_lookup;

/// Lookups at once; further addresses stay without a name until one has ended.
const MAX_AT_ONCE: usize = 64;
/// A lookup is a small stack's work in the C library.
const STACK: usize = 256 << 10;

/// Lookups that run. Those that take too long are left behind: they end by themselves.
pub(super) struct HopNames {
    asked: BTreeSet<IpAddr>,
    waiting: Vec<IpAddr>,
    running: usize,
    found: BTreeMap<IpAddr, String>,
    sender: Sender<(IpAddr, Option<String>)>,
    receiver: Receiver<(IpAddr, Option<String>)>,
}

impl HopNames {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        Self {
            asked: BTreeSet::new(),
            waiting: Vec::new(),
            running: 0,
            found: BTreeMap::new(),
            sender,
            receiver,
        }
    }

    /// Begins to look up an address, unless that was done.
    pub(super) fn ask(&mut self, address: IpAddr) {
        if self.asked.insert(address) {
            self.waiting.push(address);
            self.start();
        }
    }

    fn start(&mut self) {
        while self.running < MAX_AT_ONCE {
            let Some(address) = self.waiting.pop() else {
                return;
            };
            let sender = self.sender.clone();
            let thread = thread::Builder::new().name("name".into()).stack_size(STACK);
            let spawned = thread.spawn(move || {
                // Nobody may wait for it any longer.
                let _ = sender.send((address, reverse_lookup(address).ok().flatten()));
            });
            self.running += usize::from(spawned.is_ok());
        }
    }

    /// The names found until now, or for `wait` at most until all lookups have ended.
    pub(super) fn finish(&mut self, wait: Duration) -> BTreeMap<IpAddr, String> {
        let deadline = Instant::now() + wait;
        while self.running > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((address, name)) = self.receiver.recv_timeout(left) else {
                break;
            };
            self.running -= 1;
            // A resolver that has no name may write the address.
            if let Some(name) = name.filter(|name| name.parse::<IpAddr>().is_err()) {
                self.found.insert(address, name);
            }
            self.start();
        }
        self.found.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_asked_once_and_the_end_does_not_wait_longer_than_allowed() {
        let mut names = HopNames::new();
        for _ in 0..3 {
            names.ask("127.0.0.1".parse().unwrap());
        }
        assert_eq!(names.asked.len(), 1);
        // One more, which never ends.
        names.running += 1;
        let asked: Vec<_> = names.finish(Duration::from_millis(500)).into_keys().collect();
        assert!(asked.len() <= 1, "{asked:?}");
    }
}
