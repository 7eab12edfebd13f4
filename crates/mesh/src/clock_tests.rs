//! What holds for schedule, budgets and matrix whatever the clocks of the coordinator's host and of
//! the agents do: here each of them jumps by 100 days at every step.

use linerate_core::plan::Test;
use linerate_core::units::{Nanos, SplitMix64, format_rfc3339};
use linerate_core::wire::Key;

use crate::message::{Outcome, Report, Task};
use crate::{Assignment, Input, MatrixCell, MatrixDocument, Mesh, Offers, Schedule};

const HOUR: u64 = 3_600_000_000_000;
const DAY: u64 = 24 * HOUR;
/// The time from the offer of a run to its report.
const RUN: u64 = 12_000_000_000;
/// What each run carries, and a site may carry in a day: three runs.
const BYTES: u64 = 12_000_000;
const FILE: &str = r#"
[[site]]
name = "a"
host = "192.0.2.1"
bytes-per-day = "36MB"
[[site]]
name = "b"
host = "192.0.2.2"
bytes-per-day = "36MB"
[[site]]
name = "c"
host = "192.0.2.3"
bytes-per-day = "36MB"
[[test]]
name = "bulk"
every = "24h"
workload = { command = "stream", bytes = "12MB" }
"#;

/// A result in the history.
struct Saved {
    ends: (usize, usize),
    /// By the coordinator's clock.
    began: Nanos,
    /// By a clock that nobody sets, ns.
    truly_at: u64,
}

struct World {
    mesh: Mesh,
    offers: Offers,
    random: SplitMix64,
    /// Time by a clock that nobody sets, ns.
    now: u64,
    /// What the clock of the coordinator's host is ahead of that, and that of the agents, ns.
    ahead: [i64; 2],
    saved: Vec<Saved>,
    /// A run of which no report has come yet.
    pending: Option<(Task, Assignment)>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            mesh: Mesh::from_toml(FILE, 7).unwrap(),
            offers: Offers::new(Key::from_text(&"5".repeat(64)).unwrap()),
            random: SplitMix64::new(seed),
            now: 1_800_000_000_000_000_000,
            ahead: [0, 0],
            saved: Vec::new(),
            pending: None,
        }
    }

    /// The time of the host's clock, and that of the agents' clocks.
    fn clocks(&self) -> [Nanos; 2] {
        let read = |ahead: i64| Nanos(self.now.checked_add_signed(ahead).unwrap());
        self.ahead.map(read)
    }

    fn jump(&mut self) {
        for ahead in &mut self.ahead {
            *ahead += (self.random.below(3) as i64 - 1) * 100 * DAY as i64;
        }
    }

    fn offer(&mut self, assignment: Assignment) {
        let name = |site: usize| self.mesh.sites[site].name.clone();
        let mut task = Task {
            id: String::new(),
            test: "bulk".to_owned(),
            from: name(assignment.from),
            to: name(assignment.to),
            turned: false,
            address: "192.0.2.1".to_owned(),
            work: Test::stream().resolve(7).unwrap(),
            lease_s: 30,
        };
        let number = self.saved.len() as u64;
        task.id = self.offers.id(&task, self.clocks()[0], number, false);
        self.pending = Some((task, assignment));
    }

    /// The report of the pending run comes, to the coordinator that has waited for it or to a later
    /// one.
    fn report(&mut self, waited: Option<Nanos>) -> Assignment {
        let (task, assignment) = self.pending.take().unwrap();
        let document = String::new();
        let report = Report::new(&task, Outcome::Finished { document });
        let [now, told] = self.clocks();
        let found = self.offers.find(&self.mesh, task.runner(), &report);
        let offered = found.expect("no clock loses a result");
        let saved = Saved {
            ends: (offered.from, offered.to),
            began: offered.began(&self.mesh, told - Nanos(10_000_000_000), now, waited),
            truly_at: self.now,
        };
        assert!(saved.began <= now, "a result from the future");
        self.saved.push(saved);
        if waited.is_some() {
            self.matrix_shows_the_newest(assignment, now);
        }
        assignment
    }

    fn matrix_shows_the_newest(&self, assignment: Assignment, now: Nanos) {
        let cells = self.saved.iter().enumerate().map(|(number, it)| MatrixCell {
            from: it.ends.0 as u32,
            to: it.ends.1 as u32,
            started_at: rfc3339(it.began),
            throughput_bps: Some(number as f64),
            loss_percent: None,
            rtt_us: None,
            cause: None,
            confidence: None,
        });
        let matrix = MatrixDocument::new(&self.mesh, 0, &rfc3339(now), cells);
        let (from, to) = (assignment.from as u32, assignment.to as u32);
        let cell = matrix.cells.iter().find(|cell| (cell.from, cell.to) == (from, to));
        let newest = self.saved.len() - 1;
        let shown = cell.and_then(|cell| cell.throughput_bps);
        assert_eq!(shown, Some(newest as f64), "a result is hidden");
    }

    /// A coordinator that lives for two days and an hour, or until it is killed in a run; returns
    /// whether it was not. Its schedule has the time of a clock that nobody sets.
    fn live(&mut self) -> bool {
        if self.pending.is_some() {
            self.report(None);
        }
        self.jump();
        let (begun, begun_at) = (self.now, self.clocks()[0]);
        let mut schedule = Schedule::new(&self.mesh, begun_at);
        for it in self.saved.iter().filter(|it| it.began + Nanos(DAY) >= begun_at) {
            schedule.remember(0, it.ends, it.began, (BYTES, 1));
        }
        for site in 0..3 {
            let reachable = true;
            schedule.handle_input(begun_at, Input::Joined { site, reachable });
        }
        while self.now < begun + 2 * DAY + HOUR {
            let clock = begun_at + Nanos(self.now - begun);
            schedule.handle_timeout(clock);
            let Some(assignment) = schedule.poll_transmit() else {
                let next = schedule.poll_timeout().expect("the next cycle comes");
                self.now = begun + (next - begun_at).0.max((clock - begun_at).0 + 1);
                continue;
            };
            self.offer(assignment);
            self.jump();
            self.now += RUN;
            if self.random.below(20) == 0 {
                return false;
            }
            let task = self.report(Some(Nanos(RUN))).id;
            let clock = begun_at + Nanos(self.now - begun);
            schedule.handle_input(clock, Input::Finished { task, bytes: BYTES });
            self.jump();
        }
        true
    }
}

fn rfc3339(at: Nanos) -> String {
    format_rfc3339(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(at.0))
}

#[test]
fn clocks_that_jump_by_100_days_lose_hide_starve_and_double_nothing() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        for life in 0..30 {
            let (begun, before) = (world.now, world.saved.len());
            let is_whole = world.live();
            let own = &world.saved[before..];
            for pair in [(0, 1), (0, 2), (1, 2)] {
                let is_pair = |it: &&Saved| [pair, (pair.1, pair.0)].contains(&it.ends);
                let runs = own.iter().filter(is_pair).count();
                assert!(!is_whole || runs > 0, "{seed}: {life}: {pair:?} starves");
            }
            for site in 0..3 {
                let at_site = |it: &&Saved| it.ends.0 == site || it.ends.1 == site;
                let of_life = own.iter().filter(|it| it.truly_at > begun);
                let times: Vec<u64> = of_life.filter(at_site).map(|it| it.truly_at).collect();
                for few in times.windows(4) {
                    assert!(few[3] - few[0] >= DAY, "{seed}: {life}: a budget counts twice");
                }
            }
        }
    }
}
