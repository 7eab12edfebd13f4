//! The limits of a site's owner, and the payload that counts towards them. They hold for the tests
//! that the agent runs, and for those that others run against its endpoint. Both are entered in one
//! book.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use linerate_core::plan::Test;
use linerate_mesh::message::Task;
use linerate_mesh::{OwnerLimits, Target, TestRequest, max_bytes};

use crate::clock::since_1970_s;
use crate::endpoint::{Admission, Booked};
use crate::state_files::{read_file, replace_file};

/// An owner's limits, and what is used of them.
#[derive(Debug)]
pub(super) struct SiteOwner {
    limits: OwnerLimits,
    book: Mutex<Book>,
    /// The beginning, by a clock that nobody sets and by the host's: a day is one of the first.
    begun: (Instant, u64),
}

#[derive(Debug)]
struct Book {
    used: Used,
    /// The addresses of the sites that the owner names as targets, as the coordinator gave them.
    targets: BTreeMap<String, Vec<IpAddr>>,
}

impl SiteOwner {
    /// With what an earlier agent has left in the directory.
    pub(super) fn new(limits: OwnerLimits, directory: &Path) -> Self {
        let begun = (Instant::now(), since_1970_s());
        let used = Used::open(directory, begun.1);
        let targets = BTreeMap::new();
        Self { limits, book: Mutex::new(Book { used, targets }), begun }
    }

    /// The test of a task within the limits, entered with the most that it may carry; or why the
    /// owner does not allow it.
    pub(super) fn admit_task(
        &self,
        task: &Task,
        addresses: &[SocketAddr],
    ) -> Result<(Test, Booked), String> {
        let mut book = self.book();
        let site = task.other();
        if self.limits.targets.contains(&Target::Site(site.to_owned())) {
            let addresses = addresses.iter().map(|it| it.ip().to_canonical());
            book.targets.insert(site.to_owned(), addresses.collect());
        }
        let mut work = task.work.clone();
        for address in addresses {
            work = self.admitted(&book, site, address.ip(), &work)?;
        }
        let booked = self.enter(&mut book, &work);
        Ok((work, booked))
    }

    /// As [`Admission::carried`]; where the bytes are not known, the entry stays.
    pub(super) fn ended(&self, booked: Booked, bytes: Option<u64>) {
        self.book().used.correct(booked, bytes);
    }

    fn admitted(
        &self,
        book: &Book,
        site: &str,
        address: IpAddr,
        test: &Test,
    ) -> Result<Test, String> {
        let request = TestRequest { site, address, test };
        let used = book.used.carried(self.day_clock());
        let admitted = self.limits.admit(&request, used, since_1970_s());
        admitted.map_err(|refusal| refusal.to_string())
    }

    fn enter(&self, book: &mut Book, test: &Test) -> Booked {
        let booked = (self.day_clock(), max_bytes(test).unwrap_or(0));
        book.used.add(booked.0, booked.1);
        booked
    }

    fn day_clock(&self) -> u64 {
        self.begun.1 + self.begun.0.elapsed().as_secs()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission for SiteOwner {
    /// A client says nothing of its site: it is known by its address.
    fn admit(&self, peer: IpAddr, test: &Test) -> Result<Booked, String> {
        let mut book = self.book();
        let peer = peer.to_canonical();
        let known = book.targets.iter().find(|(_, of)| of.contains(&peer));
        let site = known.map_or("a client", |(site, _)| site);
        let work = self.admitted(&book, site, peer, test)?;
        Ok(self.enter(&mut book, &work))
    }

    fn carried(&self, booked: Booked, bytes: u64) {
        self.ended(booked, Some(bytes));
    }
}

// The payload that an agent has carried in the last 24 hours, kept on disk, so that a restart does
// not give the agent its daily allowance anew.

const DAY_S: u64 = 86_400;
/// Longest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// The bytes of each minute, by the minute since 1970 in which a run was entered.
#[derive(Debug)]
pub(super) struct Used {
    file: PathBuf,
    minutes: BTreeMap<u64, u64>,
}

impl Used {
    /// Reads what an earlier agent has left in the directory. Entries from the future, which remain
    /// after the clock was set back, become entries of now: they count for one day more.
    pub(super) fn open(directory: &Path, now_s: u64) -> Self {
        let file = directory.join("carried");
        let text = read_file(&file, MAX_FILE).ok().flatten().unwrap_or_default();
        let entry = |line: &str| {
            let (minute, bytes) = line.split_once(' ')?;
            Some((minute.parse::<u64>().ok()?, bytes.parse::<u64>().ok()?))
        };
        let mut used = Self { file, minutes: BTreeMap::new() };
        for (minute, bytes) in text.lines().filter_map(entry) {
            let entered = used.minutes.entry(minute.min(now_s / 60)).or_default();
            *entered = entered.saturating_add(bytes);
        }
        if !used.minutes.is_empty() {
            used.write();
        }
        used
    }

    /// Bytes carried in the 24 hours before `now_s`.
    pub(super) fn carried(&self, now_s: u64) -> u64 {
        let from = now_s.saturating_sub(DAY_S) / 60;
        let counted = self.minutes.range(from..).map(|(_, bytes)| *bytes);
        counted.fold(0, u64::saturating_add)
    }

    /// Enters the most bytes that a run may carry, as the run begins.
    pub(super) fn add(&mut self, now_s: u64, bytes: u64) {
        let minute = self.minutes.entry(now_s / 60).or_default();
        *minute = minute.saturating_add(bytes);
        self.minutes = self.minutes.split_off(&(now_s.saturating_sub(DAY_S) / 60));
        self.write();
    }

    /// Replaces what was entered for a run by what it has carried. Where that is not known, the
    /// entry stays.
    pub(super) fn correct(&mut self, (then_s, most): (u64, u64), bytes: Option<u64>) {
        if let (Some(bytes), Some(minute)) = (bytes, self.minutes.get_mut(&(then_s / 60))) {
            *minute = minute.saturating_sub(most).saturating_add(bytes);
            self.write();
        }
    }

    fn write(&self) {
        let lines = self.minutes.iter().map(|(minute, bytes)| format!("{minute} {bytes}\n"));
        // If this fails, keeping the result in the same directory fails as well, and is reported.
        let _ = replace_file(&self.file, lines.collect::<String>().as_bytes(), 0o600);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use linerate_core::plan::MAX_SECONDS;
    use linerate_core::session::message::Limits;

    use super::*;
    use crate::client::Client;
    use crate::endpoint::{Endpoint, ServeOptions};
    use crate::stop::Stop;
    use crate::target::Target as Peer;

    const FILE: &str = "rate = \"80mbit\"\nbytes-per-day = \"100MB\"\n";

    fn owner(directory: &Path, more: &str) -> Arc<SiteOwner> {
        let limits = OwnerLimits::from_toml(&format!("{FILE}{more}")).unwrap();
        Arc::new(SiteOwner::new(limits, directory))
    }

    fn stream(time: &str) -> Test {
        let mut draft = Test::stream();
        draft.set("time", time).unwrap();
        draft.set("warm-up", "0s").unwrap();
        draft.resolve(7).unwrap()
    }

    /// What becomes of a client's test against an endpoint with this owner.
    fn run(owner: &Arc<SiteOwner>, test: &Test) -> Result<u64, String> {
        let endpoint = Endpoint::bind(&ServeOptions {
            bind: Some([127, 0, 0, 1].into()),
            admission: Some(owner.clone()),
            ..ServeOptions::within(Limits {
                clients: 4,
                streams: 4,
                seconds: MAX_SECONDS,
                rate_bps: Some(80_000_000),
                connections: 0,
            })
        });
        let endpoint = endpoint.unwrap();
        let address = endpoint.addresses()[0];
        let stop = Stop::new();
        let asked = stop.clone();
        let served = thread::spawn(move || endpoint.serve(&asked, |_| {}));
        let run = Client::connect(Peer::at("here", address), Stop::new())
            .and_then(|mut client| client.run_once(test, &mut ()));
        stop.request();
        served.join().unwrap().unwrap();
        let (record, _) = run.map_err(|error| crate::words::chain(&error))?;
        Ok(record.bytes())
    }

    fn used(owner: &SiteOwner) -> u64 {
        owner.book().used.carried(owner.day_clock())
    }

    #[test]
    fn a_test_against_the_endpoint_is_entered_and_one_beyond_the_limits_refused() {
        let directory = tempfile::tempdir().unwrap();
        let owner = owner(directory.path(), "can = [\"stream\"]\n");
        let carried = run(&owner, &stream("200ms")).unwrap();
        let entered = used(&owner);
        // The measured payload, and at most what the rate allows in a second.
        assert!(carried > 0 && (carried..=10_000_000).contains(&entered), "{carried} {entered}");
        let long = run(&owner, &stream("30s")).unwrap_err();
        assert!(long.contains("the owner allows 95.4 MiB in 24 hours"), "{long}");
        let other = run(&owner, &Test::rr().resolve(7).unwrap()).unwrap_err();
        assert!(other.contains("does not allow `rr`"), "{other}");
        assert_eq!(used(&owner), entered, "a refused test carries nothing");
    }

    #[test]
    fn quiet_hours_and_targets_hold_for_both_ends_of_a_test() {
        let directory = tempfile::tempdir().unwrap();
        let test = stream("1s");
        let [known, other]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [198, 18, 0, 1].into()];
        let quiet = owner(directory.path(), "quiet = [\"00:00-12:00\", \"12:00-00:00\"]\n");
        let refused = quiet.admit(known, &test).unwrap_err();
        assert!(refused.contains("in these hours"), "{refused}");
        let named = owner(directory.path(), "targets = [\"fra\", \"198.18.0.0/24\"]\n");
        assert!(named.admit(other, &test).is_ok());
        assert!(named.admit(known, &test).is_err());
        let task = |to: &str| Task {
            id: "1".to_owned(),
            test: "bulk".to_owned(),
            from: "ams".to_owned(),
            to: to.to_owned(),
            turned: false,
            address: "192.0.2.1".to_owned(),
            work: test.clone(),
            lease_s: 30,
        };
        let at = [SocketAddr::new(known, 5201)];
        assert!(named.admit_task(&task("par"), &at).is_err());
        assert!(named.admit(known, &test).is_err(), "no other site's address is a target");
        assert!(named.admit_task(&task("fra"), &at).is_ok());
        assert!(named.admit(known, &test).is_ok());
    }

    #[test]
    fn what_was_carried_counts_for_24_hours_across_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let mut used = Used::open(directory.path(), 1_000_000);
        used.add(1_000_000, 100);
        used.add(1_000_030, 50);
        used.correct((1_000_030, 50), Some(20));
        used.correct((1_000_000, 100), None);
        let again = Used::open(directory.path(), 1_000_060);
        assert_eq!(again.carried(1_000_060), 120);
        assert_eq!(again.carried(1_000_000 + DAY_S - 60), 120);
        assert_eq!(again.carried(1_000_000 + DAY_S + 120), 0);
        // The clock was set back: all of it counts, for a day from now on.
        let behind = 900_000;
        for _ in 0..2 {
            let again = Used::open(directory.path(), behind);
            assert_eq!(again.carried(behind), 120);
            assert_eq!(again.carried(behind + DAY_S + 60), 0);
        }
        let later = Used::open(directory.path(), behind + DAY_S + 60);
        assert_eq!(later.carried(behind + DAY_S + 60), 0);
    }
}
