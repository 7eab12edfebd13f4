//! A plan run to its end: every size, every repeat, on one session.

use linerate_core::plan::{Direction, MAX_REPEATS, Plan, Protocol, Repeats, Test, Traffic};
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
    /// Runs a plan. What was run before an error is kept.
    ///
    /// # Errors
    /// The very first run could not be begun.
    pub fn run_plan(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> Result<Campaign, MeasureError> {
        run_plan(&mut |test, observe| self.run(test, observe), plan, observer)
    }

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
        self.run(test, &mut |live| match intervals.next(live) {
            Some(interval) => observer.interval(&interval),
            None => true,
        })
    }
}

/// [`Client::run_plan`], whoever the tests are run against.
pub(crate) fn run_plan(
    run: &mut RunTest<'_>,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Campaign, MeasureError> {
    let mut campaign = Campaign {
        rows: Vec::new(),
        figures: Vec::new(),
        caveats: Vec::new(),
        error: None,
    };
    for test in &plan.tests {
        let mut samples = Vec::new();
        while wants_more(plan.repeats, &samples) {
            observer.phase(&title(plan, test, samples.len()));
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
        campaign
            .figures
            .extend(size_figure(test, &campaign.rows, &samples));
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
    let outcome = run(test, &mut |live| match intervals.next(live) {
        Some(interval) => observer.interval(&interval),
        None => true,
    })?;
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

fn title(plan: &Plan, test: &Test, done: usize) -> String {
    let (size, what) = match (&test.traffic, test.protocol) {
        (Traffic::Stream(stream), Protocol::Udp) => (stream.message_bytes, "datagrams"),
        (Traffic::Stream(stream), _) => (stream.message_bytes, "messages"),
        (Traffic::Rr(exchange) | Traffic::Crr(exchange), _) => (exchange.request_bytes, "requests"),
    };
    let size = ByteCount(size);
    let of = match plan.repeats {
        Repeats::Times(1) => return format!("{size} {what}"),
        Repeats::Times(times) => format!("of {times}"),
        Repeats::Precision(percent) => format!("until ±{percent}"),
    };
    format!("{size} {what}, run {} {of}", done + 1)
}

fn size_figure(test: &Test, rows: &[Record], samples: &[f64]) -> Option<SizeFigure> {
    if samples.len() < 2 {
        return None;
    }
    Some(SizeFigure {
        message_bytes: match &test.traffic {
            Traffic::Stream(stream) => stream.message_bytes,
            Traffic::Rr(exchange) | Traffic::Crr(exchange) => exchange.request_bytes,
        },
        metric: rows.last()?.headline()?.0.to_owned(),
        figure: figure(samples).ok()?,
    })
}

/// Of the figures: too few runs, or no single figure.
fn doubts(figures: &[SizeFigure]) -> Vec<Caveat> {
    let few = figures.iter().find_map(|of_size| match &of_size.figure {
        Figure::One(one) if !one.reaches_confidence() => Some(one.n),
        _ => None,
    });
    let few = few.map(|n| {
        Caveat::new(
            CaveatKind::FewRuns,
            format!("{n} runs cannot give an interval of 95 %: the one given is their whole range"),
            "--repeat 6 or more, or --precision",
        )
    });
    let several = figures
        .iter()
        .filter(|of_size| !matches!(of_size.figure, Figure::One(_)));
    few.into_iter()
        .chain(several.map(|of_size| {
            Caveat::new(
                CaveatKind::NotOneFigure,
                format!(
                    "the runs of {} are not one figure: they have modes, or drift",
                    ByteCount(of_size.message_bytes)
                ),
                "look for what changes between the runs: other load, CPU frequency, placement of threads",
            )
        }))
        .collect()
}

/// Cuts what a running test tells into intervals.
struct LiveIntervals {
    width_s: f64,
    direction: Direction,
    exchange: bool,
    last: Live,
}

impl LiveIntervals {
    fn new(test: &Test) -> Self {
        Self {
            width_s: test.interval.as_secs_f64(),
            direction: test.direction,
            exchange: !matches!(test.traffic, Traffic::Stream(_)),
            last: Live {
                at_s: 0.0,
                up_bytes: 0,
                down_bytes: 0,
                transactions: 0,
            },
        }
    }

    fn next(&mut self, live: &Live) -> Option<Interval> {
        let seconds = live.at_s - self.last.at_s;
        if seconds < self.width_s {
            return None;
        }
        let bytes = (live.up_bytes - self.last.up_bytes) + (live.down_bytes - self.last.down_bytes);
        let transactions = live.transactions - self.last.transactions;
        let interval = Interval {
            start_s: self.last.at_s,
            seconds,
            direction: (self.direction != Direction::Up).then_some(self.direction),
            bytes,
            throughput_bps: bytes as f64 * 8.0 / seconds,
            transactions: self.exchange.then_some(transactions),
            ..Interval::default()
        };
        self.last = *live;
        Some(interval)
    }
}
