//! What `linerate profile` runs: tests with both ends profiled, what a change would bring, and the
//! runs that prove it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use linerate_core::compare::{Comparison, Design, Metric};
use linerate_core::experiment::{FileTransfer, Special};
use linerate_core::plan::{Direction, Extent, Protocol, Test};
use linerate_core::profile::projection::{
    Designed, End, Known, LeftOut, NotProjected, Point, ProjectedEnd, Projection, Proof, Provable,
    Proved, Unprojected, WhatIf, design_of, fit, in_random_order, points, points_on, project_all,
    what_ifs_of,
};
use linerate_core::profile::{DiskBeside, ProfileDocument, ProfileRequest};
use linerate_core::record::{Caveat, CaveatKind, Record};
use linerate_core::session::operation::TREATMENTS;
use linerate_core::stats::median_interval;
use linerate_core::treatment::{TreatmentError, Treatments, pair};
use linerate_core::units::Span;
use thiserror::Error;

use crate::campaign::Observer;
use crate::client::{Client, Outcome};
use crate::compare::{CompareObserver, CompareOptions, compare};
use crate::error::MeasureError;
use crate::experiment::{ExperimentError, special};
use crate::stop::Stop;
use crate::treated::run_treated;
use crate::treatment::TreatError;
use crate::words::chain;

// A run with both hosts profiled, and the file that it is held against.

/// Largest file that is written and read beside a transfer, bytes: a fast path carries more than a
/// disk has room for.
const MAX_DISK_FILE: u64 = 1 << 30;
/// Size of each read and write of the file, bytes.
const RECORD_BYTES: u64 = 128 << 10;

/// Runs a test while both hosts are profiled. What ends it early is in the error beside the
/// document.
///
/// # Errors
/// The test could not be begun.
pub fn profile(
    client: &mut Client,
    test: &Test,
    request: ProfileRequest,
    observer: &mut dyn Observer,
) -> Result<(ProfileDocument, Option<MeasureError>), MeasureError> {
    client.profile(Some(request));
    let outcome = client.run_observed(test, observer);
    client.profile(None);
    let Outcome { record, error, profiles, .. } = outcome?;
    let [client, server] = [profiles.client, profiles.server].map(|end| end.map(|end| *end));
    Ok((ProfileDocument::new(record, client, server), error))
}

/// Writes and reads a file as large as the transfer was, at most 1 GiB, in a directory; nothing is
/// left there.
///
/// # Errors
/// The file system refuses, or somebody asked to stop.
pub fn disk_beside(
    record: &Record,
    directory: &Path,
    stop: &Stop,
) -> Result<DiskBeside, ExperimentError> {
    let bytes = record.bytes().clamp(1, MAX_DISK_FILE);
    let transfer = FileTransfer { bytes, record_bytes: RECORD_BYTES, directory: None };
    let written = special::run(&Special::FileWrite(transfer.clone()), directory, stop)?;
    let read = special::run(&Special::FileRead(transfer), directory, stop)?;
    let figure =
        |figures: &BTreeMap<String, f64>, name: &str| figures.get(name).copied().unwrap_or(0.0);
    let from_storage = 100.0 * figure(&read, "storage_bytes") / bytes as f64;
    let write_bps = figure(&written, "throughput_bps");
    let read_bps = figure(&read, "throughput_bps");
    let slower = write_bps.min(read_bps);
    let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let path = record.throughput_bps().unwrap_or(0.0);
    Ok(DiskBeside {
        directory: absolute.display().to_string(),
        bytes,
        write_bps,
        read_bps,
        from_storage_percent: from_storage.min(100.0),
        path_over_disk: if slower > 0.0 { path / slower } else { 0.0 },
    })
}

// What changes would bring: the design, the model, the projections and their proof.

/// Options of the projections.
#[derive(Debug, Clone)]
pub struct WhatIfOptions {
    /// The test that was profiled; there is a model of its transport.
    pub test: Test,
    /// Also do what can be done here, by paired comparisons.
    pub prove: bool,
}

/// Puts into the document of a profiled transfer what changes would bring; where they are proved,
/// 1981's records in datagrams too. What was found before an error stays.
///
/// # Errors
/// Interrupted, or a run failed for another reason than its treatment; nothing is left changed.
pub fn what_ifs(
    client: &mut Client,
    options: &WhatIfOptions,
    document: &mut ProfileDocument,
    observer: &mut dyn CompareObserver,
) -> Result<(), MeasureError> {
    let known = Known::new(document);
    let nothing = Known::nothing(known.seed);
    let mut of = |protocol, known| projected(client, options, protocol, known, document, observer);
    match (options.test.protocol, options.prove) {
        // Of 1981's records no profile was taken.
        (Protocol::Udp, _) => of(Protocol::Udp, &nothing),
        (tcp, true) => of(tcp, &known).and_then(|()| of(Protocol::Udp, &nothing)),
        (tcp, false) => {
            of(tcp, &known)?;
            let others = Unprojected::all_of(Protocol::Udp, OF_DATAGRAMS);
            document.not_projected.extend(others);
            Ok(())
        }
    }
}

const OF_DATAGRAMS: &str = "it is of datagrams: -u projects it, and --prove does beside TCP's";

/// How long that takes at most, as a rule.
pub fn time_of_what_ifs(options: &WhatIfOptions) -> Duration {
    let own = options.test.protocol;
    let udp = (options.prove && own != Protocol::Udp).then_some(Protocol::Udp);
    let protocols = [Some(own), udp].into_iter().flatten();
    let runs: u32 = protocols.map(|one| runs_of(one, options.prove)).sum();
    let time = short(&options.test);
    (time.0 + warm_up(time).0 + BETWEEN_RUNS) * runs
}

fn projected(
    client: &mut Client,
    options: &WhatIfOptions,
    protocol: Protocol,
    known: &Known,
    document: &mut ProfileDocument,
    observer: &mut dyn CompareObserver,
) -> Result<(), MeasureError> {
    let design = DesignOptions {
        test: design_of(protocol, &options.test),
        path_mtu_bytes: document.record.tcp_sender().map(|tcp| tcp.pmtu_bytes),
        runs: ROUNDS,
        pairs: PAIRS,
        time: short(&options.test),
        seed: known.seed,
    };
    let designed = run_design(client, &design, observer)?;
    document.caveats.extend(designed.caveats());
    let at = document.projections.len();
    enter(document, protocol, &designed, known);
    if options.prove {
        prove(client, &design, &mut document.projections[at..], observer)
    } else {
        Ok(())
    }
}

/// The model and what it gives, or why there is none.
fn enter(document: &mut ProfileDocument, protocol: Protocol, designed: &Designed, known: &Known) {
    let others = match fit(&designed.runs, known.seed) {
        Ok(model) => {
            let (projections, others) = project_all(&model, designed, known);
            document.cost_models.push(model);
            document.projections.extend(projections);
            others
        }
        Err(error) => {
            document.caveats.push(Caveat::new(
                CaveatKind::Partial,
                format!("nothing is projected: {error}"),
                error.remedy(),
            ));
            Unprojected::all_of(protocol, &format!("there is no model: {error}"))
        }
    };
    document.not_projected.extend(others);
}

fn runs_of(protocol: Protocol, proved: bool) -> u32 {
    let is_provable = |proof| matches!(proof, Provable::By(_));
    let provable = what_ifs_of(protocol).filter(|what_if| is_provable(what_if.proof));
    let proofs = provable.count() as u32 * (2 * PAIRS + BEFORE_PAIRS);
    let design = points(protocol).count() as u32 * ROUNDS;
    if proved { design + proofs } else { design }
}

/// Measured time of each short run: no longer than what was asked for.
fn short(test: &Test) -> Span {
    match test.extent {
        Extent::Time(time) => time.min(SHORT_RUN),
        _ => SHORT_RUN,
    }
}

/// Measured time of each short run, as a rule.
const SHORT_RUN: Span = Span(Duration::from_secs(1));
/// How often each is made. Two tell chance from the model's faults.
const ROUNDS: u32 = 2;
/// Pairs of runs that prove a projection: the fewest that can show anything of three figures.
const PAIRS: u32 = 8;
/// Runs before the pairs: one that shows the change, a look at the idle hosts, and one of each
/// side.
const BEFORE_PAIRS: u32 = 4;
/// What it takes to set a run up, to treat the hosts and to fetch the report, as a rule.
const BETWEEN_RUNS: Duration = Duration::from_millis(600);

// The runs that a projection is made from, and those that prove it.

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
                "runs for the model: round {} of {}, run {} of {}: {}",
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
            projection.not_proved = Some("no pair of runs was made".to_owned());
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
    let nothing = || NotProjected::new("linerate has no setting for this change");
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
fn warm_up(time: Span) -> Span {
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
    use linerate_core::experiment::SPECIAL_FIGURES;

    use super::*;

    #[test]
    fn the_figures_of_a_file_are_those_that_are_read_here() {
        for name in ["throughput_bps", "storage_bytes"] {
            assert!(SPECIAL_FIGURES.contains(&name));
        }
    }

    #[test]
    fn the_figures_of_a_proof_are_figures_of_a_record() {
        for path in METRICS {
            assert!(path.parse::<Metric>().is_ok(), "{path}");
        }
    }
}
