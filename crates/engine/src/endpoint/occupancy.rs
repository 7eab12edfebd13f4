//! Who uses this host: either any number of clients measure on it, or one client has changed it.
//! A change of a device, a route or a sysctl affects all clients and would spoil their tests.
//!
//! Clients that ask for the slot get it one at a time, so that no two of them measure at once.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_core::wire::Token;

use crate::shares::lock;

/// How long a session waits for its turn. A client that has just said goodbye is still undoing its
/// changes, and the next client is often the same program. Longer waits are the client's decision.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How long the slot is reserved for a client that was told to wait; it asks again every two
/// seconds.
const PRECEDENCE: Duration = Duration::from_secs(4);

/// The sessions that use the host, by token.
#[derive(Clone)]
pub(super) struct Occupancy {
    shared: Arc<SharedOccupancy>,
    patience: Duration,
}

#[derive(Default)]
struct SharedOccupancy {
    users: Mutex<Users>,
    left: Condvar,
}

#[derive(Default)]
struct Users {
    testing: HashSet<Token>,
    treating: Option<Token>,
    /// A change could not be undone, and its session is gone.
    spoilt: bool,
    /// The session that has the slot, and when its lease ends.
    slot: Option<(Token, Instant)>,
    /// The client that was first told to wait for the slot, and until when it has precedence.
    next: Option<(IpAddr, Instant)>,
}

/// One session's use of the host; it ends when this is dropped.
pub(super) struct HeldPlace {
    occupancy: Occupancy,
    token: Token,
}

impl Occupancy {
    pub(super) fn new(patience: Duration) -> Self {
        Self { shared: Arc::default(), patience }
    }

    pub(super) fn place(&self, token: Token) -> HeldPlace {
        HeldPlace { occupancy: self.clone(), token }
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        lock(&self.shared.users)
    }

    /// Waits while a user is `in_the_way`, until the patience ends.
    fn users_without(&self, in_the_way: impl Fn(&Users) -> bool) -> MutexGuard<'_, Users> {
        let waited = self
            .shared
            .left
            .wait_timeout_while(self.users(), self.patience, |users| in_the_way(users));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Users {
    fn why_not(&self) -> String {
        let why = if self.spoilt { SPOILT } else { CHANGED };
        why.to_owned()
    }

    fn treating_besides(&self, token: Token) -> bool {
        self.treating.is_some_and(|other| other != token)
    }

    fn testing_besides(&self, token: Token) -> usize {
        let others = self.testing.iter().filter(|other| **other != token);
        others.count()
    }
}

impl HeldPlace {
    /// Begins a test of this session.
    ///
    /// # Errors
    /// Another session has changed the host.
    pub(super) fn begin_test(&self) -> Result<(), String> {
        let occupancy = &self.occupancy;
        let mut users = occupancy.users_without(|users| users.treating_besides(self.token));
        if users.treating_besides(self.token) {
            return Err(users.why_not());
        }
        users.testing.insert(self.token);
        Ok(())
    }

    /// Leases the slot, or extends the lease.
    ///
    /// # Errors
    /// How long another session may still have it.
    pub(super) fn lease_slot(&self, peer: IpAddr, lasts: Duration) -> Result<(), Duration> {
        let now = Instant::now();
        let mut users = self.occupancy.users();
        let is_before = |(of, until): &(IpAddr, Instant)| *of != peer && *until > now;
        let next = users.next.filter(is_before);
        let others = |(of, until): &(Token, Instant)| *of != self.token && *until > now;
        let free_at = match users.slot.filter(others) {
            Some((_, until)) => Some(until),
            // A client that was told to wait comes before all others.
            None => next.map(|(_, until)| until),
        };
        match free_at {
            Some(until) => {
                let precedence = (peer, now + PRECEDENCE);
                users.next = next.or(Some(precedence));
                Err(until - now)
            }
            None => {
                users.slot = Some((self.token, now + lasts));
                users.next = None;
                Ok(())
            }
        }
    }

    /// Whether this session has the slot, and its lease is not over.
    pub(super) fn has_slot(&self) -> bool {
        let is_own = |(of, until): (Token, Instant)| of == self.token && until > Instant::now();
        self.occupancy.users().slot.is_some_and(is_own)
    }

    fn leave_slot(&self) {
        self.occupancy.users().slot.take_if(|(of, _)| *of == self.token);
    }

    pub(super) fn end_test(&self) {
        self.occupancy.users().testing.remove(&self.token);
        self.occupancy.shared.left.notify_all();
    }

    /// Begins a treatment: from now on only this session may change the host or measure.
    ///
    /// # Errors
    /// Another session has changed the host, or measures.
    pub(super) fn begin_treatment(&self) -> Result<(), String> {
        let mut users = self.occupancy.users_without(|users| {
            users.treating_besides(self.token) || users.testing_besides(self.token) > 0
        });
        if users.treating_besides(self.token) {
            return Err(users.why_not());
        }
        match users.testing_besides(self.token) {
            0 => {
                users.treating = Some(self.token);
                Ok(())
            }
            tests => Err(format!(
                "the endpoint is busy: tests of other clients ({tests}) run there, which a \
                 treatment would spoil"
            )),
        }
    }

    /// Records that a change cannot be undone: no other session may measure, even after this one.
    pub(super) fn spoil(&self) {
        let mut users = self.occupancy.users();
        (users.treating, users.spoilt) = (Some(self.token), true);
    }

    pub(super) fn end_treatment(&self) {
        let mut users = self.occupancy.users();
        if users.treating == Some(self.token) && !users.spoilt {
            users.treating = None;
            self.occupancy.shared.left.notify_all();
        }
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.end_test();
        self.end_treatment();
        self.leave_slot();
    }
}

const CHANGED: &str = "the endpoint is busy: another client's treatments are in force there; try \
    again when it is done";

const SPOILT: &str = "the endpoint measures nothing more: what a client had changed on its host \
    could not be undone; its owner finds it with `linerate host show` and starts the endpoint \
    again";

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn places(patience: Duration) -> [HeldPlace; 3] {
        let occupancy = Occupancy::new(patience);
        [1, 2, 3].map(|n| occupancy.place(Token([n; 16])))
    }

    #[test]
    fn many_sessions_measure_or_one_treats() {
        let [a, b, c] = places(Duration::ZERO);
        assert!(a.begin_test().is_ok() && b.begin_test().is_ok());
        let refused = c.begin_treatment().expect_err("two measure");
        assert!(refused.contains("other clients (2)"), "{refused}");
        a.end_test();
        assert!(c.begin_treatment().is_err());
        b.end_test();
        assert!(c.begin_treatment().is_ok());
        for other in [&a, &b] {
            assert!(other.begin_test().is_err() && other.begin_treatment().is_err());
        }
        assert!(c.begin_test().is_ok() && c.begin_treatment().is_ok());
        c.end_test();
        assert!(a.begin_test().is_err());
        c.end_treatment();
        assert!(a.begin_test().is_ok());
    }

    #[test]
    fn a_session_that_ends_blocks_no_other() {
        let [a, b, c] = places(Duration::ZERO);
        assert!(a.begin_test().is_ok());
        drop(a);
        assert!(b.begin_treatment().is_ok());
        // A session without a treatment cannot end that of another.
        c.end_treatment();
        assert!(c.begin_test().is_err());
        drop(b);
        assert!(c.begin_test().is_ok());
    }

    #[test]
    fn after_a_change_that_cannot_be_undone_nobody_measures() {
        let [a, b, c] = places(Duration::ZERO);
        assert!(a.begin_treatment().is_ok());
        a.spoil();
        a.end_treatment();
        drop(a);
        for refused in [b.begin_test(), c.begin_treatment()] {
            assert!(refused.unwrap_err().contains("could not be undone"));
        }
    }

    #[test]
    fn one_client_has_the_slot_and_the_first_that_waits_is_next() {
        let [a, b, c] = places(Duration::ZERO);
        let [here, there] = [1, 2].map(|n| IpAddr::from([198, 18, 0, n]));
        let long = Duration::from_secs(600);
        assert_eq!(a.lease_slot(here, long), Ok(()));
        assert_eq!(a.lease_slot(here, long), Ok(()));
        assert!(a.has_slot() && !b.has_slot());
        let left = b.lease_slot(there, long).unwrap_err();
        assert!(left > long - Duration::from_secs(60) && left <= long);
        // A test neither needs nor takes the slot.
        assert!(b.begin_test().is_ok());
        drop(a);
        let (first, until) = b.occupancy.users().next.expect("who was told to wait");
        assert!(first == there && until <= Instant::now() + PRECEDENCE);
        // For longer than any machine stands still.
        b.occupancy.users().next = Some((first, until + long));
        assert!(c.lease_slot(here, long).is_err(), "it is kept for that one");
        assert_eq!(b.lease_slot(there, Duration::ZERO), Ok(()));
        assert!(!b.has_slot(), "the lease is over at once");
        assert_eq!(c.lease_slot(here, long), Ok(()));
    }

    #[test]
    fn a_session_waits_a_moment_for_another_to_leave() {
        let [a, b, c] = places(Duration::from_secs(60));
        assert!(a.begin_treatment().is_ok());
        let began = Instant::now();
        thread::scope(|scope| {
            let next = scope.spawn(|| b.begin_test());
            thread::sleep(Duration::from_millis(20));
            a.end_treatment();
            assert_eq!(next.join().ok(), Some(Ok(())));
            let next = scope.spawn(|| c.begin_treatment());
            thread::sleep(Duration::from_millis(20));
            b.end_test();
            assert_eq!(next.join().ok(), Some(Ok(())));
        });
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
