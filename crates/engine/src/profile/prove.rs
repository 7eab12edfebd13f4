//! The runs that a projection is made from, and those that prove it.

use std::collections::BTreeMap;

use linerate_core::compare::{Comparison, Design, Metric};
use linerate_core::plan::{Direction, Extent, Test};
use linerate_core::profile::projection::{
    Designed, End, LeftOut, NotProjected, Point, ProjectedEnd, Projection, Proof, Provable, Proved,
    WhatIf, in_random_order, points_on, what_ifs_of,
};
use linerate_core::record::Record;
use linerate_core::session::operation::TREATMENTS;
use linerate_core::stats::median_interval;
use linerate_core::treatment::{TreatmentError, Treatments, pair};
use linerate_core::units::Span;
use thiserror::Error;

use crate::campaign::Observer;
use crate::client::Client;
use crate::compare::{CompareObserver, CompareOptions, compare};
use crate::error::MeasureError;
use crate::treated::run_treated;
use crate::treatment::TreatError;
use crate::words::chain;

/// How a design is run, and how the projections that come of it are proved.
#[derive(Debug, Clone)]
pub struct DesignOptions {
    /// The test that is changed from point to point.
    pub test: Test,
    /// MTU of the path as it is, bytes; where it is not known, points are run that may be like
    /// others.
    pub path_mtu_bytes: Option<u32>,
    /// Runs of each point of the design; two and more tell chance from the model's faults.
    pub runs: u32,
    /// Pairs of runs of each proof, 8 to 30: fewer show nothing about three figures.
    pub pairs: u32,
    /// Measured time of each run.
    pub time: Span,
    /// Seed of the order of the runs, and of the runs.
    pub seed: u64,
}

/// Runs every point of the design, the points in random order in each round. What a host cannot do
/// is left out, and the answer names it.
///
/// # Errors
/// A run failed for another reason than its treatment; nothing is left changed.
pub fn run_design(
    client: &mut Client,
    options: &DesignOptions,
    observer: &mut dyn Observer,
) -> Result<Designed, MeasureError> {
    let mut designed = Designed { path_mtu_bytes: options.path_mtu_bytes, ..Designed::default() };
    let mut points = points_on(options.test.protocol, options.path_mtu_bytes);
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
            let test = point.test(&options.test);
            let test = timed(&test, options.time, options.seed, round);
            match run_point(client, point, &test, observer) {
                Ok(record) => designed.enter(point, &record),
                Err(error) if is_of_host(&error) => {
                    refused.push(point.name);
                    designed.left_out.push(LeftOut {
                        point: point.name.to_owned(),
                        why: chain(&error),
                        remedy: remedy(client, &error),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        points.retain(|point| !refused.contains(&point.name));
    }
    Ok(designed)
}

/// Makes the changes that the projections are about, where that is possible here, each in a paired
/// comparison, and writes the result beside the projection. Projections for another transport than
/// the test's are left alone.
///
/// # Errors
/// Interrupted, or a run failed for another reason than its treatment. What was proved before
/// stays.
pub fn prove(
    client: &mut Client,
    options: &DesignOptions,
    projections: &mut [Projection],
    observer: &mut dyn CompareObserver,
) -> Result<(), MeasureError> {
    for projection in projections {
        let is_it = |what_if: &&WhatIf| what_if.name == projection.what_if;
        let Some(what_if) = what_ifs_of(options.test.protocol).find(is_it) else {
            continue;
        };
        if let Provable::Not(why) = what_if.proof {
            projection.not_proved = Some(why.to_owned());
            continue;
        }
        observer.phase(&format!("proving {}", what_if.name));
        match compared(client, options, what_if, observer) {
            Ok(comparison) => projection.proof = proof(projection, &comparison),
            Err(NotCompared::Failed(error)) if !is_of_host(&error) => return Err(error),
            Err(why) => projection.not_proved = Some(chain(&why)),
        }
        if projection.proof.is_none() && projection.not_proved.is_none() {
            projection.not_proved = Some("no pair of runs came about".to_owned());
        }
    }
    Ok(())
}

/// Why a comparison shows nothing of a change.
#[derive(Debug, Error)]
enum NotCompared {
    #[error(transparent)]
    Failed(#[from] MeasureError),
    #[error(transparent)]
    NotHad(#[from] NotProjected),
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
    options: &DesignOptions,
    what_if: &WhatIf,
    observer: &mut dyn CompareObserver,
) -> Result<Comparison, NotCompared> {
    let sends = options.test.direction != Direction::Down;
    let sides = what_if.sides(sends, options.path_mtu_bytes);
    let nothing = || NotProjected::new("nothing that linerate can set is the change");
    let [a, b] = sides.ok_or_else(nothing)?;
    let pair = pair(&read(&a)?, &read(&b)?)
        .map_err(|error| MeasureError::from(TreatError::from(error)))?;
    let test = timed(&options.test, options.time, options.seed, 0);
    // Devices may take an MTU that the path between them does not have: that is seen in a run.
    what_if.check(&run_treated(client, &test, &pair.b, observer)?)?;
    let metric =
        |path: &str| path.parse().expect("a test makes sure that a record has these figures");
    let metrics: Vec<Metric> = METRICS.into_iter().map(metric).collect();
    let options = CompareOptions {
        a: pair.a,
        b: pair.b,
        test,
        design: Design {
            margin_percent: None,
            metrics: metrics.len(),
            max_pairs: options.pairs,
            seed: options.seed,
        },
        metrics,
        metrics_if_there: Vec::new(),
        with: None,
        forbidden: Vec::new(),
        notes: pair.notes,
        caveats: Vec::new(),
    };
    let (comparison, error) = compare(client, &options, observer)?;
    match error {
        Some(error) => Err(error.into()),
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
        let pairs = comparison.runs.iter().filter(|pair| pair.counts());
        let ratios = pairs.filter_map(|pair| {
            Some(cpu_per_byte(end.end, &pair.b)? / cpu_per_byte(end.end, &pair.a)?)
        });
        let measured = median_interval(&ratios.collect::<Vec<_>>()).ok()?;
        let interval = [measured.low, measured.high];
        Some(Proved::new(end.ratio(), measured.median, Some(interval)))
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
        warm_up: warm_up(time),
        interval: time,
        seed: seed.wrapping_add(u64::from(round)),
        ..test.clone()
    }
}

/// Run before the measured time of a short run.
pub(super) fn warm_up(time: Span) -> Span {
    Span(time.0 / WARM_UP)
}

/// What would let a point be run; empty where its error says it, or nothing would.
fn remedy(client: &Client, error: &MeasureError) -> &'static str {
    let treats = client.welcome().has(TREATMENTS);
    match error {
        MeasureError::Treat(TreatError::Busy { .. }) => BUSY,
        MeasureError::Refused { .. } if error.is_busy() => BUSY,
        MeasureError::Refused { .. } if !treats => {
            "start the endpoint as root with --allow-treatments and --key-file, and give \
             --key-file here"
        }
        MeasureError::Treat(TreatError::NotPermitted { .. }) => "run it as root",
        MeasureError::Treat(TreatError::Change(TreatmentError::Given { .. })) => {
            "leave that option out"
        }
        _ => "",
    }
}

/// Whether a host, a device or an endpoint cannot do it, or its owner does not allow it: another
/// change may work.
fn is_of_host(error: &MeasureError) -> bool {
    use MeasureError::{Lacks, Option, Refused, Treat};
    matches!(error, Treat(_) | Option(_) | Lacks { .. } | Refused { .. })
}

const BUSY: &str = "try again when nobody else measures there";
/// The first decides; the other two give what an end spends on each byte.
const METRICS: [&str; 3] = ["throughput_bps", "sender.cpu_seconds", "receiver.cpu_seconds"];
/// The warm-up is the measured time divided by this.
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
