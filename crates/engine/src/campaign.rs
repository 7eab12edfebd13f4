//! A plan run to its end: every size, every repeat, on one session.

use std::collections::VecDeque;
use std::iter;
use std::time::{Duration, Instant};

use linerate_core::plan::{
    Direction, MAX_REPEATS, MAX_SECONDS, Plan, Protocol, Repeats, Test, Traffic,
};
use linerate_core::record::{Caveat, CaveatKind, Interval, Record, SizeFigure};
use linerate_core::stats::{Figure, Precision, figure, precision_reached};
use linerate_core::units::ByteCount;

use crate::client::{Client, Live, Outcome};
use crate::error::MeasureError;

/// Who looks on while a plan runs.
pub trait Observer {
    /// Something new begins.
    fn phase(&mut self, text: &str);

    /// An interval of a run has passed; false ends the plan.
    fn interval(&mut self, interval: &Interval) -> bool;

    /// What is left of the command takes so long, at least and at most; said again as it is known
    /// better.
    fn takes(&mut self, _left: [Duration; 2]) {}
}

/// Nobody looks on.
impl Observer for () {
    fn phase(&mut self, _: &str) {}

    fn interval(&mut self, _: &Interval) -> bool {
        true
    }
}

/// What a plan left.
#[derive(Debug)]
pub struct Campaign {
    /// Every run, in order.
    pub rows: Vec<Record>,
    /// Each size's figure, where a size was run more than once.
    pub figures: Vec<SizeFigure>,
    /// What to keep in mind of the figures.
    pub caveats: Vec<Caveat>,
    /// Why it ended before its end.
    pub error: Option<MeasureError>,
}

/// Runs one test, whoever it is run against.
pub(crate) type RunTest<'a> =
    dyn FnMut(&Test, &mut dyn FnMut(&Live) -> bool) -> Result<Outcome, MeasureError> + 'a;

impl Client {
    /// One run, its intervals shown to `observer`.
    pub(crate) fn run_once(
        &mut self,
        test: &Test,
        observer: &mut dyn Observer,
    ) -> Result<(Record, Option<MeasureError>), MeasureError> {
        run_once(&mut |test, observe| self.run(test, observe), test, observer)
    }

    /// One run with all that it left, its intervals shown to `observer`.
    pub(crate) fn run_observed(
        &mut self,
        test: &Test,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, MeasureError> {
        let mut intervals = LiveIntervals::new(test);
        self.run(test, &mut |live| intervals.show(live, observer))
    }
}

/// Runs a plan, whoever its tests are run against; a connection to it took so long. What was run
/// before an error is kept.
pub(crate) fn run_plan(
    run: &mut RunTest<'_>,
    plan: &Plan,
    connected: Duration,
    observer: &mut dyn Observer,
) -> Result<Campaign, MeasureError> {
    let mut campaign =
        Campaign { rows: Vec::new(), figures: Vec::new(), caveats: Vec::new(), error: None };
    let began = Instant::now();
    for (number, test) in (1..).zip(&plan.tests) {
        let mut samples = Vec::new();
        while wants_more(plan.repeats, &samples) {
            let elapsed_s = began.elapsed().as_secs_f64();
            let left = left_s(plan, campaign.rows.len(), elapsed_s, beside_s(connected));
            if let Some(left) = left.map(Duration::from_secs_f64) {
                observer.takes([left; 2]);
            }
            observer.phase(&title(plan, number, samples.len()));
            match run_once(run, test, observer) {
                Err(error) if campaign.rows.is_empty() => return Err(error),
                Err(error) => campaign.error = Some(error),
                Ok((record, error)) => {
                    samples.extend(record.headline().map(|(_, value)| value));
                    campaign.rows.push(record);
                    campaign.error = error;
                }
            }
            if campaign.error.is_some() {
                return Ok(campaign);
            }
        }
        campaign.figures.extend(size_figure(test, &campaign.rows, &samples));
    }
    campaign.caveats = doubts(&campaign.figures);
    Ok(campaign)
}

/// One run, its intervals shown to `observer`.
pub(crate) fn run_once(
    run: &mut RunTest<'_>,
    test: &Test,
    observer: &mut dyn Observer,
) -> Result<(Record, Option<MeasureError>), MeasureError> {
    let mut intervals = LiveIntervals::new(test);
    let outcome = run(test, &mut |live| intervals.show(live, observer))?;
    Ok((outcome.record, outcome.error))
}

fn wants_more(repeats: Repeats, samples: &[f64]) -> bool {
    match repeats {
        Repeats::Times(times) => samples.len() < times as usize,
        Repeats::Precision(percent) => {
            samples.len() < MAX_REPEATS as usize
                && !matches!(
                    precision_reached(samples, percent.0),
                    Ok(Precision::Reached { .. } | Precision::NotRelative)
                )
        }
    }
}

/// What is left of a plan after so many of its runs and so many seconds; `None` where a size, a
/// precision or the user (after a day at most) ends them. What a run takes besides its time is what
/// it took so far, or `beside_s`.
fn left_s(plan: &Plan, done: usize, elapsed_s: f64, beside_s: f64) -> Option<f64> {
    let Repeats::Times(times) = plan.repeats else {
        return None;
    };
    let seconds = |test: &Test| test.seconds().filter(|seconds| *seconds < MAX_SECONDS);
    let of_each: Vec<f64> = plan.tests.iter().map(seconds).collect::<Option<_>>()?;
    let runs = of_each.iter().flat_map(|s| iter::repeat_n(*s, times as usize));
    let (before, left): (Vec<_>, Vec<_>) = runs.enumerate().partition(|(at, _)| *at < done);
    let sum = |runs: &[(usize, f64)]| runs.iter().map(|(_, seconds)| seconds).sum::<f64>();
    let beside = match done {
        0 => beside_s,
        _ => (elapsed_s - sum(&before)).max(0.0) / done as f64,
    };
    Some(sum(&left) + beside * left.len() as f64)
}

/// What a run takes besides its time, as long as none has shown it: asking for it, connecting, the
/// reports.
fn beside_s(connected: Duration) -> f64 {
    0.1 + 8.0 * connected.as_secs_f64()
}

/// `size 2 of 5, 1448 B messages, run 3 of 6`
fn title(plan: &Plan, number: usize, done: usize) -> String {
    let test = &plan.tests[number - 1];
    let what = match (&test.traffic, test.protocol) {
        (Traffic::Stream(_), Protocol::Udp) => "datagrams",
        (Traffic::Stream(_), _) => "messages",
        (Traffic::Rr(_) | Traffic::Crr(_), _) => "requests",
    };
    let size = ByteCount(test.traffic.message_bytes());
    let mut parts = vec![format!("{size} {what}")];
    if plan.tests.len() > 1 {
        parts.insert(0, format!("size {number} of {}", plan.tests.len()));
    }
    match plan.repeats {
        Repeats::Times(1) => {}
        Repeats::Times(times) => parts.push(format!("run {} of {times}", done + 1)),
        Repeats::Precision(percent) => parts.push(format!("run {} until ±{percent}", done + 1)),
    }
    parts.join(", ")
}

fn size_figure(test: &Test, rows: &[Record], samples: &[f64]) -> Option<SizeFigure> {
    if samples.len() < 2 {
        return None;
    }
    Some(SizeFigure {
        message_bytes: test.traffic.message_bytes(),
        metric: rows.last()?.headline()?.0.to_owned(),
        figure: figure(samples).ok()?.of_a_run(samples),
    })
}

/// Caveats about the figures: too few runs, or no single figure.
fn doubts(figures: &[SizeFigure]) -> Vec<Caveat> {
    let few = figures
        .iter()
        .find_map(|of_size| match &of_size.figure {
            Figure::One(one) if !one.reaches_confidence() => Some(one),
            _ => None,
        })
        .map(|one| {
            Caveat::new(
                CaveatKind::FewRuns,
                format!(
                    "{} runs cannot give an interval of 95 %: the one given is their whole range",
                    one.n
                ),
                if one.takes_independence() {
                    "--repeat 6 or more, or --precision"
                } else {
                    "more runs, farther apart in time: each is much like the one before it"
                },
            )
        });
    let several = figures.iter().filter(|of_size| !matches!(of_size.figure, Figure::One(_)));
    few.into_iter()
        .chain(several.map(|of_size| {
            Caveat::new(
                CaveatKind::NotOneFigure,
                format!(
                    "the runs of {} are not one figure: they have modes, or drift",
                    ByteCount(of_size.message_bytes)
                ),
                "look for what changes between the runs: other load, CPU frequency, placement of \
                 threads",
            )
        }))
        .collect()
}

/// Cuts what a running test tells into the intervals of its record: of the measured time, without
/// the warm-up.
struct LiveIntervals {
    width_s: f64,
    warm_up_s: f64,
    direction: Direction,
    exchange: bool,
    up: GrowingCount,
    down: GrowingCount,
    transactions: GrowingCount,
    /// The interval that comes next.
    number: u32,
}

impl LiveIntervals {
    fn new(test: &Test) -> Self {
        Self {
            width_s: test.interval.as_secs_f64(),
            warm_up_s: 0.0,
            direction: test.direction,
            exchange: !matches!(test.traffic, Traffic::Stream(_)),
            up: GrowingCount::default(),
            down: GrowingCount::default(),
            transactions: GrowingCount::default(),
            number: 0,
        }
    }

    /// Shows every interval that is over; `false` if no more are wanted.
    fn show(&mut self, live: &Live, observer: &mut dyn Observer) -> bool {
        self.warm_up_s = live.warm_up_s;
        self.up.push(live.up_at_s, live.up_bytes);
        self.down.push(live.at_s, live.down_bytes);
        self.transactions.push(live.at_s, live.transactions);
        while let Some(interval) = self.next() {
            if !observer.interval(&interval) {
                return false;
            }
        }
        true
    }

    /// None while either end has not told of all of it.
    fn next(&mut self) -> Option<Interval> {
        let start_s = f64::from(self.number) * self.width_s;
        let [start, end] = [start_s, start_s + self.width_s].map(|at| at + self.warm_up_s);
        let [has_up, has_down] = match self.direction {
            _ if self.exchange => [true, true],
            Direction::Up => [true, false],
            Direction::Down => [false, true],
            Direction::Both => [true, true],
        };
        let mut bytes = 0;
        for (course, is_known) in [(&self.up, has_up), (&self.down, has_down)] {
            if is_known {
                bytes += course.at(end)?.saturating_sub(course.at(start)?);
            }
        }
        let transactions = self.transactions.at(end)?.saturating_sub(self.transactions.at(start)?);
        self.number += 1;
        for course in [&mut self.up, &mut self.down, &mut self.transactions] {
            course.forget(end);
        }
        Some(Interval {
            start_s,
            seconds: self.width_s,
            direction: (self.direction != Direction::Up).then_some(self.direction),
            bytes,
            throughput_bps: bytes as f64 * 8.0 / self.width_s,
            transactions: self.exchange.then_some(transactions),
            ..Interval::default()
        })
    }
}

/// A count that only grows, as often as it was told. In between it is taken to grow evenly.
#[derive(Default)]
struct GrowingCount {
    points: VecDeque<(f64, u64)>,
}

impl GrowingCount {
    fn push(&mut self, at_s: f64, count: u64) {
        let last = self.points.back().copied().unwrap_or((0.0, 0));
        if self.points.is_empty() {
            self.points.push_back(last);
        }
        if at_s > last.0 {
            self.points.push_back((at_s, count.max(last.1)));
        }
    }

    /// None after what was told last.
    fn at(&self, at_s: f64) -> Option<u64> {
        let after = self.points.partition_point(|(told_s, _)| *told_s < at_s);
        let &(after_s, more) = self.points.get(after)?;
        let Some(&(before_s, less)) =
            after.checked_sub(1).and_then(|before| self.points.get(before))
        else {
            return Some(more);
        };
        let share = (at_s - before_s) / (after_s - before_s);
        Some(less + (share * (more - less) as f64).round() as u64)
    }

    fn forget(&mut self, until_s: f64) {
        while self.points.get(1).is_some_and(|(at_s, _)| *at_s <= until_s) {
            self.points.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_core::units::Span;

    use super::*;

    fn shown(test: &Test, warm_up_s: f64, told: &[(f64, f64, u64)]) -> Vec<Interval> {
        struct Kept(Vec<Interval>);
        impl Observer for Kept {
            fn phase(&mut self, _: &str) {}
            fn interval(&mut self, interval: &Interval) -> bool {
                self.0.push(interval.clone());
                true
            }
        }
        let mut kept = Kept(Vec::new());
        let mut intervals = LiveIntervals::new(test);
        for &(at_s, up_at_s, up_bytes) in told {
            let live = Live {
                at_s,
                warm_up_s,
                up_at_s,
                up_bytes,
                down_bytes: 0,
                transactions: 0,
                flows: Vec::new(),
            };
            assert!(intervals.show(&live, &mut kept));
        }
        kept.0
    }

    fn test(interval_ms: u64) -> Test {
        let mut test = Test::stream().resolve(1).expect("a test");
        test.interval = Span(Duration::from_millis(interval_ms));
        test.warm_up = Span(Duration::from_secs(1));
        test
    }

    #[test]
    fn what_is_left_of_a_plan_is_what_its_runs_take_and_what_was_seen_beside_them() {
        let mut plan = Plan { tests: vec![test(200), test(200)], repeats: Repeats::Times(3) };
        // Ten seconds and a second's warm-up each.
        let left = |plan: &Plan, done, elapsed_s| left_s(plan, done, elapsed_s, 0.3);
        assert_eq!(left(&plan, 0, 0.0), Some(66.0 + 6.0 * 0.3));
        assert_eq!(left(&plan, 4, 46.0), Some(2.0 * 11.5));
        plan.repeats = Repeats::Precision(linerate_core::units::Percent(5.0));
        assert_eq!(left(&plan, 0, 0.0), None);
        plan.repeats = Repeats::Times(1);
        plan.tests.truncate(1);
        assert_eq!(left(&plan, 0, 0.0), Some(11.3));
    }

    #[test]
    fn intervals_that_are_shorter_than_what_is_told_have_their_share_and_no_warm_up() {
        let told = [(0.5, 0.5, 9), (1.0, 1.0, 1000), (2.1, 2.0, 2000), (3.1, 3.0, 3000)];
        let intervals = shown(&test(200), 1.0, &told);
        let bytes: Vec<u64> = intervals.iter().map(|interval| interval.bytes).collect();
        assert_eq!(bytes, [200; 10]);
        assert_eq!(intervals[0].start_s, 0.0);
    }

    #[test]
    fn nothing_is_shown_of_what_the_other_end_has_not_told() {
        let told = [(1.0, 1.0, 1000), (2.5, 1.5, 1500), (3.5, 2.5, 2500)];
        let intervals = shown(&test(1000), 1.0, &told);
        let of = |interval: &Interval| (interval.start_s, interval.bytes);
        assert_eq!(intervals.iter().map(of).collect::<Vec<_>>(), [(0.0, 1000)]);
    }

    #[test]
    fn the_warm_up_that_a_server_of_another_tool_has_rounded_is_left_out() {
        let told = [(1.0, 1.0, 9000), (2.0, 2.0, 18000), (3.0, 3.0, 18005)];
        let intervals = shown(&test(1000), 2.0, &told);
        let bytes: Vec<u64> = intervals.iter().map(|interval| interval.bytes).collect();
        assert_eq!(bytes, [5]);
    }
}
