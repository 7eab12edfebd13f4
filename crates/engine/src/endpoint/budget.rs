//! What all tests together may take of this host: memory, descriptors, threads, threads that wait
//! without sleeping, and connections to hold. One address cannot take all of them. And who uses the
//! host at present.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::capacity::CapacityRequest;
use linerate_core::plan::{Protocol, SendMethod, StreamTest, Test, Traffic};
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::units::{ByteCount, End};
use linerate_core::wire::Token;
use linerate_sys::proc::cgroup::CgroupLimits;
use linerate_sys::proc::machine::MemoryInfo;
use linerate_sys::proc::privilege::descriptor_limit;

use super::clients::{one_address, share_of_one};
use super::{Admission, Booked};
use crate::capacity;
use crate::measure::exchange::respond;
use crate::measure::flow::sends;
use crate::shares::lock;

/// Memory of a flow: its thread, its socket, and what the kernel keeps for a peer that reads
/// nothing (1 to 3 MiB over loopback, less with smaller segments).
const FLOW_BYTES: u64 = 1 << 20;
/// Datagrams that a flow has in memory at once (`measure/udp.rs`).
const DATAGRAMS: u64 = 128;
/// Descriptors of a test beside those of its flows: a reader of `/proc`, clones of sockets.
const DESCRIPTORS: u64 = 3;
/// Most threads of all tests; the host's control groups may allow fewer.
const THREADS: u64 = 4096;

/// The resources that a test takes, or that the host has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes.
    memory: u64,
    descriptors: u64,
    threads: u64,
    /// Threads that wait without sleeping.
    spinners: u64,
    /// TCP connections or UDP sockets of `capacity`.
    connections: u64,
}

/// The resources of the host, and which address has taken how much of them.
#[derive(Clone)]
pub(super) struct Budget {
    accounts: Arc<Mutex<Accounts>>,
    admission: Option<Arc<dyn Admission>>,
}

struct Accounts {
    all: Cost,
    taken: HashMap<IpAddr, Cost>,
}

/// The resources of one test, given back when it is dropped.
pub(super) struct Claim {
    budget: Budget,
    address: IpAddr,
    cost: Cost,
    booked: Option<Booked>,
}

impl Cost {
    /// The resources that this host gives: `memory` bytes or a quarter of what it has, half of its
    /// CPUs, three eighths of the descriptors of this process, and as many `connections` as its
    /// owner allows.
    pub(super) fn of_host(memory: Option<u64>, connections: u64) -> Self {
        let groups = CgroupLimits::read().ok();
        let within = |limit: Option<&Option<u64>>, all: u64| match limit {
            Some(Some(limit)) => all.min(*limit),
            _ => all,
        };
        let quarter = || {
            // A host that does not tell is taken to have 1 GiB.
            let all = MemoryInfo::read().map_or(1 << 30, |memory| memory.total);
            let limit = groups.as_ref().and_then(|g| g.memory_bytes.value());
            within(limit, all) / 4
        };
        let tasks = groups.as_ref().and_then(|g| g.tasks.value());
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        Self {
            memory: memory.unwrap_or_else(quarter),
            descriptors: descriptor_limit().soft / 8 * 3,
            threads: THREADS.min(within(tasks, u64::MAX) / 2),
            spinners: (cpus / 2).max(1),
            connections,
        }
    }

    /// The resources of connections that are held; their workers are processes.
    fn of_holding(request: &CapacityRequest) -> Self {
        let (memory, workers) = capacity::cost(request);
        Self {
            memory,
            // A socket to each worker, which has the connections.
            descriptors: workers,
            threads: workers,
            spinners: 0,
            connections: request.connections.max(request.udp_sockets),
        }
    }

    /// The resources of the endpoint's half of a test, without the payload that all senders share.
    pub(super) fn of_test(test: &Test) -> Self {
        let flows = u64::from(test.flows());
        let workers =
            respond::thread_shares(End::Server, test).map_or(flows, |shares| shares.len() as u64);
        let spins = match &test.traffic {
            Traffic::Rr(exchange) | Traffic::Crr(exchange) => exchange.spin,
            Traffic::Stream(_) => test.works_at(End::Server),
        };
        let spins = spins || test.options.busy_poll_us.is_some_and(|time| time > 0);
        Self {
            memory: flows.saturating_mul(FLOW_BYTES + own_buffer(test)),
            descriptors: flows + DESCRIPTORS,
            // The workers and the sampler.
            threads: workers + 1,
            spinners: if spins { workers } else { 0 },
            connections: 0,
        }
    }

    fn map(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            memory: combine(self.memory, other.memory),
            descriptors: combine(self.descriptors, other.descriptors),
            threads: combine(self.threads, other.threads),
            spinners: combine(self.spinners, other.spinners),
            connections: combine(self.connections, other.connections),
        }
    }
}

/// Memory that each flow needs in addition to [`FLOW_BYTES`], bytes.
fn own_buffer(test: &Test) -> u64 {
    let Traffic::Stream(stream) = &test.traffic else {
        return 0;
    };
    let mut parts = test.direction.parts().iter();
    let sends = parts.any(|direction| sends(End::Server, *direction));
    match stream {
        StreamTest { message_bytes, .. } if test.protocol == Protocol::Udp => {
            DATAGRAMS * message_bytes
        }
        // A pattern differs in each flow; of a message sent without a copy the kernel holds pages.
        StreamTest { message_bytes, verify, send, .. }
            if sends && (*verify || *send == SendMethod::ZeroCopy) =>
        {
            2 * message_bytes
        }
        _ => 0,
    }
}

impl Budget {
    pub(super) fn new(all: Cost, admission: Option<Arc<dyn Admission>>) -> Self {
        let taken = HashMap::new();
        Self { accounts: Arc::new(Mutex::new(Accounts { all, taken })), admission }
    }

    /// Takes the resources of a test. Only a client that `has_key` may have all that there is.
    ///
    /// # Errors
    /// They are not available, or the owner does not allow the test.
    pub(super) fn take(&self, peer: IpAddr, test: &Test, has_key: bool) -> Result<Claim, Refusal> {
        let mut claim = self.take_cost(peer, Cost::of_test(test), has_key)?;
        if let Some(admission) = &self.admission {
            let booked = admission
                .admit(peer, test)
                .map_err(|message| Refusal { reason: RefusalReason::Limit, message })?;
            claim.booked = Some(booked);
        }
        Ok(claim)
    }

    /// Takes the resources of connections that are held.
    ///
    /// # Errors
    /// They are not available.
    pub(super) fn take_holding(
        &self,
        peer: IpAddr,
        request: &CapacityRequest,
        has_key: bool,
    ) -> Result<Claim, Refusal> {
        self.take_cost(peer, Cost::of_holding(request), has_key)
    }

    /// Takes a thread and a descriptor, for a control connection or for a trace.
    ///
    /// # Errors
    /// None is available.
    pub(super) fn take_thread(&self, peer: IpAddr, has_key: bool) -> Result<Claim, Refusal> {
        let cost = Cost { descriptors: 1, threads: 1, ..Cost::default() };
        self.take_cost(peer, cost, has_key)
    }

    fn take_cost(&self, peer: IpAddr, cost: Cost, has_key: bool) -> Result<Claim, Refusal> {
        let address = one_address(peer);
        lock(&self.accounts).take(address, cost, has_key)?;
        Ok(Claim { budget: self.clone(), address, cost, booked: None })
    }
}

impl Accounts {
    fn take(&mut self, address: IpAddr, cost: Cost, has_key: bool) -> Result<(), Refusal> {
        let none = Cost::default();
        let of_all =
            self.taken.values().fold(none, |sum, taken| sum.map(*taken, u64::saturating_add));
        let of_one = self.taken.get(&address).copied().unwrap_or_default();
        within(self.all, of_all, cost, "all tests")?;
        if !has_key {
            let share = self.all.map(none, |all, _| share_of_one(all));
            within(share, of_one, cost, "the tests of one address")?;
        }
        (self.taken).insert(address, of_one.map(cost, u64::saturating_add));
        Ok(())
    }

    fn give_back(&mut self, address: IpAddr, cost: Cost) {
        if let Some(taken) = self.taken.get_mut(&address) {
            *taken = taken.map(cost, u64::saturating_sub);
            if *taken == Cost::default() {
                self.taken.remove(&address);
            }
        }
    }
}

fn within(limit: Cost, taken: Cost, cost: Cost, whose: &str) -> Result<(), Refusal> {
    const MEMORY: &str = "of memory";
    let of = |cost: Cost| {
        let Cost { memory, descriptors, threads, spinners, connections } = cost;
        [memory, descriptors, threads, spinners, connections]
    };
    let names = [
        (MEMORY, " (serve's --max-memory)"),
        ("descriptors", ""),
        ("threads", ""),
        ("spinning threads", ""),
        ("connections", " (serve's --max-connections)"),
    ];
    let amounts = of(limit).into_iter().zip(of(taken)).zip(of(cost));
    let lacks = |((limit, taken), cost): &((u64, u64), u64)| taken.saturating_add(*cost) > *limit;
    let Some((((limit, taken), cost), (what, option))) =
        amounts.zip(names).find(|(amounts, _)| lacks(amounts))
    else {
        return Ok(());
    };
    let shown = |count: u64| match what {
        MEMORY => ByteCount(count).to_string(),
        _ => count.to_string(),
    };
    Err(Refusal {
        reason: if cost > limit { RefusalReason::Limit } else { RefusalReason::Busy },
        message: format!(
            "the endpoint has {} {what} for {whose}{option}: {} taken, {} asked for",
            shown(limit),
            shown(taken),
            shown(cost)
        ),
    })
}

impl Claim {
    /// Tells the owner what the test has carried.
    pub(super) fn carried(&mut self, bytes: u64) {
        if let (Some(admission), Some(booked)) = (&self.budget.admission, self.booked.take()) {
            admission.carried(booked, bytes);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A test that never began.
        self.carried(0);
        lock(&self.budget.accounts).give_back(self.address, self.cost);
    }
}

// Users of this host: either any number of clients that measure on it, or one that has changed it.

/// How long a session waits for its turn. A client that has just said goodbye is still undoing its
/// changes, and the next client is often the same program. Longer waits are the client's decision.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How long the slot is reserved for a client that was told to wait; it asks again every two
/// seconds.
const PRECEDENCE: Duration = Duration::from_secs(4);

/// The sessions that use the host, by token. A change of a device, a route or a sysctl affects all
/// clients and would spoil their tests. Clients that ask for the slot get it one at a time, so that
/// no two of them measure at once.
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

    const ALL: Cost =
        Cost { memory: 100 << 20, descriptors: 1000, threads: 100, spinners: 4, connections: 1000 };

    fn cost(memory: u64, threads: u64, spinners: u64) -> Cost {
        Cost { memory: memory << 20, descriptors: 0, threads, spinners, connections: 0 }
    }

    fn connections(connections: u64) -> Cost {
        Cost { connections, ..Cost::default() }
    }

    fn accounts() -> Accounts {
        let budget = Budget::new(ALL, None);
        Arc::into_inner(budget.accounts).unwrap().into_inner().unwrap()
    }

    #[test]
    fn all_tests_stay_within_the_budget_and_one_address_within_three_quarters() {
        let [a, b]: [IpAddr; 2] = [[198, 18, 0, 1].into(), [198, 18, 0, 2].into()];
        for (quarter, more) in [
            (cost(25, 0, 0), cost(1, 0, 0)),
            (cost(0, 25, 0), cost(0, 1, 0)),
            (cost(0, 0, 1), cost(0, 0, 1)),
            (connections(250), connections(1)),
        ] {
            let mut accounts = accounts();
            for _ in 0..3 {
                accounts.take(a, quarter, false).unwrap();
            }
            let refused = accounts.take(a, more, false).unwrap_err();
            assert_eq!(refused.reason, RefusalReason::Busy);
            assert!(refused.message.contains("of one address"), "{}", refused.message);
            accounts.take(b, quarter, false).unwrap();
            let refused = accounts.take(b, more, false).unwrap_err();
            assert!(refused.message.contains("for all tests"), "{}", refused.message);
            assert!(accounts.take(a, more, true).is_err());
            accounts.give_back(b, quarter);
            accounts.take(a, quarter, true).unwrap();
            for _ in 0..4 {
                accounts.give_back(a, quarter);
            }
            assert!(accounts.taken.is_empty());
        }
        let refused = accounts().take(a, cost(76, 1, 0), false).unwrap_err();
        assert_eq!(refused.reason, RefusalReason::Limit);
        let words = "the endpoint has 75 MiB of memory for the tests of one address (serve's \
                     --max-memory): 0 B taken, 76 MiB asked for";
        assert_eq!(refused.message, words);
        assert!(accounts().take(a, cost(u64::MAX >> 20, 0, 0), true).is_err());
    }

    #[test]
    fn a_host_gives_a_quarter_of_its_memory_and_half_of_its_cpus() {
        let host = Cost::of_host(None, 9);
        assert!(host.memory <= MemoryInfo::read().unwrap().total / 4);
        assert!(host.threads <= THREADS && host.spinners >= 1);
        assert_eq!(Cost::of_host(Some(5), 9), Cost { memory: 5, ..host });
    }

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
