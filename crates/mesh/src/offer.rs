//! The ids of tasks, by which a coordinator recognizes what it has asked for.
//!
//! An id has the time of the offer and a message authentication code over the task. So a
//! coordinator that was started again still knows its own tasks, and when they were offered,
//! whatever an agent and its clock say. Nobody else can make an id.

use linerate_core::units::Nanos;
use linerate_core::wire::{Key, is_same_secret};
use thiserror::Error;

use crate::bus::OFFER_LIFE;
use crate::message::{Report, Task};
use crate::plan::Mesh;

/// The key of a coordinator, with which it makes the ids of its tasks.
#[derive(Debug, Clone)]
pub struct Offers {
    key: Key,
}

/// The task that a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// Index in [`Mesh::tests`].
    pub test: usize,
    /// Index in [`Mesh::sites`].
    pub from: usize,
    /// Index in [`Mesh::sites`].
    pub to: usize,
    /// When it was offered, by the coordinator's clock of then.
    pub at: Nanos,
}

/// Why a report is none of a task that was offered to its sender.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotOffered {
    /// Its sender reports in another site's name.
    #[error("it is in the name of {0}")]
    Runner(String),
    /// The file has no such test between these sites.
    #[error("the file has no test {test} from {from} to {to}")]
    Test {
        /// The test.
        test: String,
        /// The first site.
        from: String,
        /// The other site.
        to: String,
    },
    /// Its id is not one that this coordinator has given to this task.
    #[error("its task was never offered")]
    Id,
}

impl Offers {
    /// The offers of the coordinator that has this key.
    pub fn new(key: Key) -> Self {
        Self { key }
    }

    /// The id of a task that is offered `at` this time since 1970. `number` is random: the same
    /// test is offered again and again.
    pub fn id(&self, task: &Task, at: Nanos, number: u64) -> String {
        let offer = format!("{:011x}{number:016x}", at.0 / MS_NS);
        self.signed(&offer, [&task.test, &task.from, &task.to], task.turned)
    }

    /// Finds the task of a report that `site` has sent.
    ///
    /// # Errors
    /// The site was not offered such a task.
    pub fn find(&self, mesh: &Mesh, site: &str, report: &Report) -> Result<Offered, NotOffered> {
        if report.runner() != site {
            return Err(NotOffered::Runner(report.runner().to_owned()));
        }
        let names = [&report.test, &report.from, &report.to].map(String::as_str);
        let (test, from, to) = mesh.pair(names).ok_or_else(|| {
            let [test, from, to] = names.map(str::to_owned);
            NotOffered::Test { test, from, to }
        })?;
        let offer = report.id.get(..OFFER_DIGITS).ok_or(NotOffered::Id)?;
        let own = self.signed(offer, names, report.turned);
        if !is_same_secret(own.as_bytes(), report.id.as_bytes()) {
            return Err(NotOffered::Id);
        }
        let ms = u64::from_str_radix(&offer[..TIME_DIGITS], 16).map_err(|_| NotOffered::Id)?;
        let at = Nanos(ms.saturating_mul(MS_NS));
        Ok(Offered { test, from, to, at })
    }

    /// The offer with its authentication code. Names have no slash.
    fn signed(&self, offer: &str, [test, from, to]: [&str; 3], turned: bool) -> String {
        let text = format!("{offer}/{test}/{from}/{to}/{turned}");
        format!("{offer}{:032x}", self.key.mac(text.as_bytes()))
    }
}

impl Offered {
    /// When its run began, by the coordinator's clock: what the agent says as far as it can be, and
    /// no later than `now`. A coordinator that has waited since the offer knows for how long,
    /// whatever has become of its clock meanwhile.
    pub fn began(&self, mesh: &Mesh, told: Nanos, now: Nanos, waited: Option<Nanos>) -> Nanos {
        let life = Nanos(OFFER_LIFE.as_nanos() as u64);
        let at = waited.map_or(self.at, |waited| now - waited);
        let latest = at + life + mesh.tests[self.test].max_duration();
        told.max(at).min(latest).min(now)
    }
}

/// Nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;
/// Digits of the time of an offer: milliseconds since 1970.
const TIME_DIGITS: usize = 11;
/// Digits before the authentication code.
const OFFER_DIGITS: usize = TIME_DIGITS + 16;

#[cfg(test)]
mod tests {
    use linerate_core::plan::{Draft, Workload};
    use proptest::prelude::*;

    use super::*;
    use crate::message::{Message as _, Outcome};

    const AT: Nanos = Nanos::from_millis(1_800_000_000_123);

    fn mesh() -> Mesh {
        let site = |name| format!("[[site]]\nname = \"{name}\"\nhost = \"192.0.2.1\"\n");
        let sites: String = ["a", "b", "c"].map(site).concat();
        let test = |name, more| {
            format!(
                "[[test]]\nname = \"{name}\"\n{more}workload = {{ command = \"stream\", time = \
                 \"10s\" }}\n"
            )
        };
        let tests = test("bulk", "") + &test("some", "sites = [\"a\", \"b\"]\n");
        Mesh::from_toml(&(sites + &tests), 7).unwrap()
    }

    fn offers(digit: &str) -> Offers {
        Offers::new(Key::from_text(&digit.repeat(64)).unwrap())
    }

    /// The report on a task that was offered.
    fn report(test: &str, from: &str, to: &str) -> Report {
        let mut task = Task {
            id: String::new(),
            test: test.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            turned: false,
            address: "192.0.2.1".to_owned(),
            work: Draft::new(Workload::Stream).resolve(7).unwrap(),
            lease_s: 30,
        };
        task.id = offers("1").id(&task, AT, u64::MAX);
        Report::new(&task, Outcome::Started)
    }

    #[test]
    fn an_offered_task_is_known_after_a_restart_and_nothing_else_is() {
        let mesh = mesh();
        let good = report("bulk", "a", "b");
        assert_eq!(good.check(), Ok(()));
        let (test, from, to, at) = (0, 0, 1, AT);
        let offered = Offered { test, from, to, at };
        assert_eq!(offers("1").find(&mesh, "a", &good), Ok(offered));
        assert_eq!(offers("2").find(&mesh, "a", &good), Err(NotOffered::Id));
        let name = "a".to_owned();
        assert_eq!(offers("1").find(&mesh, "b", &good), Err(NotOffered::Runner(name)));
        type Change = fn(&mut Report);
        let changes: [Change; 6] = [
            |it| it.id.replace_range(..1, "f"),
            |it| it.id.truncate(OFFER_DIGITS),
            |it| it.id = "5f0c".to_owned(),
            |it| it.id = it.id.to_uppercase(),
            |it| it.to = "c".to_owned(),
            |it| it.test = "some".to_owned(),
        ];
        for change in changes {
            let mut report = good.clone();
            change(&mut report);
            assert_eq!(offers("1").find(&mesh, "a", &report), Err(NotOffered::Id), "{report:?}");
        }
        let mut turned = good.clone();
        turned.turned = true;
        assert_eq!(offers("1").find(&mesh, "b", &turned), Err(NotOffered::Id));
    }

    #[test]
    fn only_pairs_of_a_test_of_the_file_are_known_whoever_signed_the_id() {
        let mesh = mesh();
        for (test, from, to) in [("other", "a", "b"), ("some", "a", "c"), ("bulk", "a", "d")] {
            let found = offers("1").find(&mesh, "a", &report(test, from, to));
            let is_unknown = matches!(found, Err(NotOffered::Test { .. }));
            assert!(is_unknown, "{test} {from} {to}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn no_clock_of_an_agent_moves_a_run_away_from_its_offer(
            told in any::<u64>(),
            now in any::<u64>(),
        ) {
            let mesh = mesh();
            let offered = Offered { test: 0, from: 0, to: 1, at: AT };
            let began = offered.began(&mesh, Nanos(told), Nanos(now), None);
            prop_assert!(began.0 <= now);
            prop_assert!(began >= AT.min(Nanos(now)));
            prop_assert!(began <= AT + Nanos::from_millis(10_000) + mesh.tests[0].max_duration());
            let right = Nanos(AT.0 + told % 10_000_000_000);
            prop_assert_eq!(offered.began(&mesh, right, right + Nanos(now >> 1), None), right);
        }
    }
}
