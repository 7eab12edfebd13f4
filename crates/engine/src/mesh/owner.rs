//! The limits of a site's owner: they hold for the tests that the agent runs, and for those that
//! others run against its endpoint. Both are entered in one book.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use linerate_core::plan::Test;
use linerate_mesh::message::Task;
use linerate_mesh::{OwnerLimits, Target, TestRequest, max_bytes};

use super::used::Used;
use crate::clock::since_1970_s;
use crate::endpoint::{Admission, Booked};

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
}
