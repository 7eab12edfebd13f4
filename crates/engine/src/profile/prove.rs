//! The runs that a projection is made from, and those that prove it.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_core::compare::{Design, Metric};
use linerate_core::plan::{
    Direction, Extent, Protocol, ReceiveMethod, SendMethod, SocketOptions, Test, Traffic,
};
use linerate_core::profile::projection::{
    End, Observation, Point, ProjectedEnd, Projection, Proof, Provable, Proved, WHAT_IFS, WhatIf,
    in_random_order, points,
};
use linerate_core::record::{Comparison, Record};
use linerate_core::stats::median_interval;
use linerate_core::treatment::{TreatmentError, Treatments, pair};
use linerate_core::units::Span;

use crate::campaign::Observer;
use crate::client::Client;
use crate::compare::{CompareObserver, CompareOptions, compare};
use crate::error::MeasureError;
use crate::treated::run_treated;
use crate::treatment::TreatError;
use crate::words::chain;

/// How a design is run.
#[derive(Debug, Clone)]
pub struct DesignOptions {
    /// The test that is changed from point to point.
    pub test: Test,
    /// Runs of each point; two and more tell chance from the model's faults.
    pub runs: u32,
    /// Measured time of each run.
    pub time: Span,
    /// Seed of the order of the runs, and of the runs.
    pub seed: u64,
}

/// What a design left.
#[derive(Debug)]
pub struct Designed {
    /// Every run.
    pub runs: Vec<Observation>,
    /// The last run of the test as it is.
    pub base: Option<Record>,
    /// Points that could not be run, and why.
    pub left_out: Vec<String>,
}

/// How projections are proved.
#[derive(Debug, Clone)]
pub struct ProveOptions {
    /// The test that the projections start from; of the transport that they are of.
    pub test: Test,
    /// Measured time of each run.
    pub time: Span,
    /// Pairs of each comparison, 8 to 30: fewer can show nothing of three figures.
    pub pairs: u32,
    /// Seed of the comparisons.
    pub seed: u64,
}

/// How long projections of a transport take, and with pairs of runs their proofs.
pub fn time_of_projections(protocol: Protocol, rounds: u32, pairs: u32, time: Span) -> Duration {
    let is_provable = |what_if: &&WhatIf| {
        what_if.protocol == protocol && matches!(what_if.proof, Provable::By(_))
    };
    let design = points(protocol).len() as u32 * rounds;
    let proofs = WHAT_IFS.iter().filter(is_provable).count() as u32 * pairs * 2;
    (time.0 + time.0 / WARM_UP + BETWEEN_RUNS) * (design + proofs)
}

/// Runs every point of the design, the points in random order in each round. What a host cannot do is left out, and said.
///
/// # Errors
/// A run failed for another reason than its treatment; nothing is left changed.
pub fn run_design(
    client: &mut Client,
    options: &DesignOptions,
    observer: &mut dyn Observer,
) -> Result<Designed, MeasureError> {
    let mut designed = Designed {
        runs: Vec::new(),
        base: None,
        left_out: Vec::new(),
    };
    let mut points: Vec<Point> = points(options.test.protocol).to_vec();
    for round in 0..options.runs {
        points = in_random_order(&points, options.seed, round);
        let mut refused: Vec<&'static str> = Vec::new();
        for (number, point) in points.iter().enumerate() {
            observer.phase(&format!(
                "design, round {} of {}, {} of {}: {}",
                round + 1,
                options.runs,
                number + 1,
                points.len(),
                point.name
            ));
            let test = timed(
                &point.test(&options.test),
                options.time,
                options.seed,
                round,
            );
            match run_point(client, point, &test, observer) {
                Ok(record) => designed.enter(point, record),
                Err(error) if is_of_host(&error) => {
                    refused.push(point.name);
                    designed
                        .left_out
                        .push(format!("{}: {}", point.name, chain(&error)));
                }
                Err(error) => return Err(error),
            }
        }
        points.retain(|point| !refused.contains(&point.name));
    }
    Ok(designed)
}

/// The test of 1981's records: datagrams of 4096 bytes, as fast as they go.
pub fn udp_records(test: &Test) -> Test {
    let mut test = test.clone();
    test.protocol = Protocol::Udp;
    test.options = SocketOptions::default();
    if let Traffic::Stream(stream) = &mut test.traffic {
        stream.message_bytes = RECORD_BYTES;
        stream.send = SendMethod::Copy;
        stream.receive = ReceiveMethod::Read;
        stream.write_rate_bps = None;
        stream.read_rate_bps = None;
        stream.rate_bps = None;
        stream.offload = false;
        stream.whole = false;
        stream.verify = false;
    }
    test
}

/// Does what the projections say, as far as it can be done here, each by a paired comparison, and writes down beside them what
/// came of it. Projections of another transport than the test's are left alone.
///
/// # Errors
/// Interrupted, or a run failed for another reason than its treatment. What was proved before stays.
pub fn prove(
    client: &mut Client,
    options: &ProveOptions,
    projections: &mut [Projection],
    observer: &mut dyn CompareObserver,
) -> Result<(), MeasureError> {
    let sends = options.test.direction != Direction::Down;
    for projection in projections {
        let of_test = |what_if: &&WhatIf| {
            what_if.name == projection.what_if && what_if.protocol == options.test.protocol
        };
        let Some(what_if) = WHAT_IFS.iter().find(of_test) else {
            continue;
        };
        let sides = match what_if.proof {
            Provable::Not(why) => {
                projection.not_proved = Some(why.to_owned());
                continue;
            }
            Provable::By(_) => what_if.sides(sends),
        };
        let Some(sides) = sides else { continue };
        observer.phase(&format!("proving {}", what_if.name));
        match compared(client, options, &sides, observer) {
            Ok(comparison) => projection.proof = proof(projection, &comparison),
            Err(error) if is_of_host(&error) => projection.not_proved = Some(chain(&error)),
            Err(error) => return Err(error),
        }
        if projection.proof.is_none() && projection.not_proved.is_none() {
            projection.not_proved = Some("no pair of runs came about".to_owned());
        }
    }
    Ok(())
}

impl Designed {
    fn enter(&mut self, point: &Point, record: Record) {
        match Observation::of(point.name, &record) {
            Ok(run) => self.runs.push(run),
            Err(why) => self
                .left_out
                .push(format!("a run of {}: {why}", point.name)),
        }
        if points(record.protocol)
            .first()
            .is_some_and(|first| first.name == point.name)
        {
            self.base = Some(record);
        }
    }
}

fn run_point(
    client: &mut Client,
    point: &Point,
    test: &Test,
    observer: &mut dyn Observer,
) -> Result<Record, MeasureError> {
    let treatments = read(&point.treatments(test.direction != Direction::Down))?;
    run_treated(client, test, &treatments, observer)
}

fn compared(
    client: &mut Client,
    options: &ProveOptions,
    [a, b]: &[String; 2],
    observer: &mut dyn CompareObserver,
) -> Result<Comparison, MeasureError> {
    let pair = pair(&read(a)?, &read(b)?).map_err(TreatError::from)?;
    let metrics: Vec<Metric> = METRICS
        .iter()
        .map(|path| {
            path.parse()
                .expect("the record has these figures, which a test holds")
        })
        .collect();
    let options = CompareOptions {
        a: pair.a,
        b: pair.b,
        test: timed(&options.test, options.time, options.seed, 0),
        design: Design {
            margin_percent: None,
            metrics: metrics.len(),
            max_pairs: options.pairs,
            seed: options.seed,
        },
        metrics,
        forbidden: Vec::new(),
        notes: pair.notes,
    };
    let (comparison, error) = compare(client, &options, observer)?;
    match error {
        Some(error) => Err(error),
        None => Ok(comparison),
    }
}

/// The projection beside the comparison; `None` without a pair that counts.
fn proof(projection: &Projection, comparison: &Comparison) -> Option<Proof> {
    let throughput = &comparison.metrics.first()?.conclusion;
    let ratio = |percent: f64| 1.0 + percent / 100.0;
    let projected = projection.throughput_bps / projection.throughput_now_bps;
    let interval = throughput.interval_percent.map(ratio);
    let cpu = |end: &ProjectedEnd| {
        let ratios: Vec<f64> = comparison
            .runs
            .iter()
            .filter(|pair| pair.counts())
            .filter_map(|pair| {
                Some(cpu_per_byte(end.end, &pair.b)? / cpu_per_byte(end.end, &pair.a)?)
            })
            .collect();
        let measured = median_interval(&ratios).ok()?;
        Some(Proved::new(
            end.ratio(),
            measured.median,
            Some([measured.low, measured.high]),
        ))
    };
    Some(Proof {
        a: comparison.a.to_string(),
        b: comparison.b.to_string(),
        pairs: comparison.pairs,
        verdict: throughput.verdict,
        throughput: Proved::new(projected, ratio(throughput.effect_percent), Some(interval)),
        cpu: projection.ends.iter().filter_map(cpu).collect(),
    })
}

/// CPU time of an end for each bit that arrived, of runs that are equally long.
fn cpu_per_byte(end: End, figures: &BTreeMap<String, f64>) -> Option<f64> {
    let [throughput, sender, receiver] = METRICS.map(|path| figures.get(path).copied());
    let cpu = match end {
        End::Sender => sender?,
        End::Receiver => receiver?,
        End::Both => sender? + receiver?,
    };
    throughput.filter(|bps| *bps > 0.0).map(|bps| cpu / bps)
}

fn read(text: &str) -> Result<Treatments, MeasureError> {
    let read = text.parse::<Treatments>();
    Ok(read.map_err(|error: TreatmentError| TreatError::from(error))?)
}

fn timed(test: &Test, time: Span, seed: u64, round: u32) -> Test {
    Test {
        extent: Extent::Time(time),
        warm_up: Span(time.0 / WARM_UP),
        interval: time,
        seed: seed.wrapping_add(u64::from(round)),
        ..test.clone()
    }
}

/// What a host, a device or an endpoint does not do, or an owner does not allow; another change may well be had.
fn is_of_host(error: &MeasureError) -> bool {
    matches!(
        error,
        MeasureError::Treat(_) | MeasureError::Option(_) | MeasureError::Lacks { .. }
    ) || matches!(error, MeasureError::Refused { .. })
}

/// The first decides; what an end takes for each byte is of the other two.
const METRICS: [&str; 3] = [
    "throughput_bps",
    "sender.cpu_seconds",
    "receiver.cpu_seconds",
];
/// 1981's records, bytes.
const RECORD_BYTES: u64 = 4096;
/// What it takes to set a run up, to treat the hosts and to fetch the report, as a rule.
const BETWEEN_RUNS: Duration = Duration::from_millis(600);
/// Of the measured time this part is run before it.
const WARM_UP: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_proof_are_figures_of_a_record() {
        for path in METRICS {
            assert!(path.parse::<Metric>().is_ok(), "{path}");
        }
    }
}
