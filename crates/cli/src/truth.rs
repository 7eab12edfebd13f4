//! `lab truth`: how often the verdict names a cause that is known by construction, and its remedy
//! brings what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use linerate_core::ceilings::annotate;
use linerate_core::connection::ConnectionsDocument;
use linerate_core::record::Record;
use linerate_core::truth::{
    Answer, Judgement, Proof, Remedied, Scenario, ScenarioFamily, Score, SeenFrom, Trial, Untried,
    UntriedReason, draw, families, treated,
};
use linerate_core::units::{BitRate, printable};
use linerate_engine::{
    Looks, Stop, capture_file, explain_capture, prepare_for_lab, run_treated_scenario,
    try_scenario, try_stranger,
};
use linerate_report::json;
use serde::de::DeserializeOwned;

use crate::args::TruthArgs;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT};
use crate::output::{self, Format, Output};
use crate::progress::Progress;
use crate::run;

/// Draws scenarios, runs them, and prints the score.
///
/// # Errors
/// This host allows no lab, a file cannot be written, or a signal ended it; the score of the runs
/// so far is printed.
pub(crate) fn execute(args: &TruthArgs) -> Result<(), Failure> {
    if args.families {
        let line = |family: &ScenarioFamily| format!("{:<28} {}\n", family.name, family.means);
        return output::print(&families().map(line).collect::<String>());
    }
    if let Some(directory) = &args.again {
        return again(args, directory);
    }
    let scenarios = chosen(args);
    if args.list && args.json {
        return output::print(&json::document(&scenarios));
    }
    if args.list {
        let lines: Vec<String> = scenarios.iter().map(listed).collect();
        return output::print(&lines.concat());
    }
    // Before any thread: the process may have to enter a user namespace.
    prepare_for_lab()?;
    let stop = run::signals()?;
    let output = Output::to(args.output.as_deref(), output::json_or_text(args.json))?;
    if let Some(directory) = &args.keep {
        fs::create_dir_all(directory)
            .with_context(|| directory.display().to_string())
            .map_err(Failure::usage)?;
    }
    let (trials, remedied): (Vec<Vec<Trial>>, Vec<Option<Remedied>>) =
        run_all(args, &scenarios, &stop)?.into_iter().unzip();
    let remedied = remedied.into_iter().flatten().collect();
    let missing = scenarios.len() - trials.len();
    let score = Score::new(args.seed, trials.concat(), remedied);
    output.write(&score)?;
    match missing {
        0 => Ok(()),
        _ => Err(Failure::failed(anyhow!(
            "interrupted: {missing} scenarios did not run"
        ))),
    }
}

/// Judges kept records with the rules of this version. A scenario without a record counts as left
/// out: it was never judged.
fn again(args: &TruthArgs, directory: &Path) -> Result<(), Failure> {
    let output = Output::to(args.output.as_deref(), output::json_or_text(args.json))?;
    let mut progress = Progress::new(Format::Text, args.quiet);
    let mut trials = Vec::new();
    let mut seed = 0;
    for path in kept_scenarios(directory).map_err(Failure::usage)? {
        let scenario: Scenario = stored(&path).map_err(Failure::usage)?;
        // In a mix the old family counts its own numbers, which are smaller.
        seed = seed.max(scenario.test.seed.wrapping_sub(scenario.number.into()));
        let left_out = |reason: &str| {
            let reason = reason.to_owned();
            Trial::new(&scenario, Answer::LeftOut { reason }, Vec::new())
        };
        if scenario.around.program.is_some() {
            let looks = kept_looks(directory, &scenario).map_err(Failure::usage)?;
            let found = Trial::from_looks(&scenario, &looks);
            let wrong = found.iter().filter(|one| one.judgement != Judgement::Right);
            wrong.for_each(|trial| progress.line(&said(trial)));
            if found.is_empty() {
                trials.push(left_out("nothing was kept"));
            }
            trials.extend(found);
            continue;
        }
        let record = path.with_extension("").with_extension("json");
        if !record.exists() {
            trials.push(left_out("no record was kept"));
            continue;
        }
        let mut record: Record = stored(&record).map_err(Failure::usage)?;
        let before = record.verdict().map(|verdict| verdict.cause);
        annotate(&mut record);
        let trial = Trial::from_record(&scenario, &record);
        if let Some(before) = before.filter(|before| trial.verdict() != Some(*before)) {
            progress.line(&format!("{}, before {}", said(&trial), before.name()));
        }
        trials.push(trial);
    }
    output.write(&Score::new(seed, trials, Vec::new()))
}

/// The views of another program's traffic, explained again.
fn kept_looks(directory: &Path, scenario: &Scenario) -> anyhow::Result<Looks> {
    let mut looks = Looks::new();
    for sight in [SeenFrom::Sender, SeenFrom::Receiver] {
        let path = directory.join(look_file(scenario, sight));
        if path.exists() {
            let mut document: ConnectionsDocument = stored(&path)?;
            document.explain();
            looks.push((sight, document));
        }
    }
    for sight in [SeenFrom::SentPackets, SeenFrom::ReceivedPackets] {
        let path = capture_file(directory, scenario, sight);
        if path.exists() {
            let document = explain_capture(&path);
            looks.push((sight, document.with_context(|| path.display().to_string())?));
        }
    }
    Ok(looks)
}

fn look_file(scenario: &Scenario, sight: SeenFrom) -> String {
    let (number, cause) = (scenario.number, scenario.cause.name());
    format!("{number:05}-{cause}.{}.json", sight.name())
}

/// In the order of their numbers.
fn kept_scenarios(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.to_string_lossy().ends_with(SCENARIO));
    paths.sort();
    if paths.is_empty() {
        bail!(
            "{}: no scenarios, which `lab truth --keep DIR` writes",
            directory.display()
        );
    }
    Ok(paths)
}

fn stored<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let bytes = files::read_bytes("", path, MAX_DOCUMENT)?;
    serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
}

fn chosen(args: &TruthArgs) -> Vec<Scenario> {
    // A number beyond the count is drawn, too: it is the same scenario whatever the count.
    let count = args
        .number
        .iter()
        .map(|number| number + 1)
        .fold(args.count, u32::max);
    let wanted = |scenario: &Scenario| {
        if args.number.is_empty() {
            scenario.number < args.count
        } else {
            args.number.contains(&scenario.number)
        }
    };
    let of_cause = |s: &Scenario| args.only.is_empty() || args.only.contains(&s.cause);
    let families: Vec<_> = args
        .family
        .iter()
        .flat_map(|named| named.0.clone())
        .collect();
    let all = draw(args.seed, count, &families).into_iter();
    all.filter(wanted).filter(of_cause).collect()
}

fn listed(scenario: &Scenario) -> String {
    format!(
        "{:>5} {:<19} {:<19} {:>10} {} {:.1} s: {}\n",
        scenario.number,
        scenario.family,
        scenario.cause.name(),
        scenario.limit_bps.map_or("-".to_owned(), rate),
        if scenario.is_border {
            "border"
        } else {
            "clear"
        },
        scenario.seconds(),
        scenario.describe
    )
}

/// A scenario's answer, or one for each view of another program's traffic; and the outcome of its
/// remedy if that was tried.
type Tried = (Vec<Trial>, Option<Remedied>);

/// What `--keep` writes about a scenario.
enum Kept {
    Record(Option<Box<Record>>),
    Looks(Looks),
}

/// Runs scenarios in `--jobs` threads. Those that need the whole machine run alone.
fn run_all(args: &TruthArgs, scenarios: &[Scenario], stop: &Stop) -> Result<Vec<Tried>, Failure> {
    let queue = Mutex::new(scenarios.iter());
    let shown = Mutex::new((Progress::new(Format::Text, args.quiet), 0, 0.0));
    let each = scenarios.iter().map(|it| planned_s(it, args.jobs));
    let planned: f64 = each.sum();
    let most = if args.remedies {
        // Each again.
        2.0 * planned + SETTLED_S * scenarios.len() as f64
    } else {
        planned
    };
    let left = [planned, most].map(Duration::from_secs_f64);
    lock(&shown).0.takes(left);
    let machine = RwLock::new(());
    let work = || {
        let mut trials = Vec::new();
        loop {
            let next = lock(&queue).next();
            let Some(scenario) = next.filter(|_| !stop.is_requested()) else {
                return Ok(trials);
            };
            let (tried, kept) = run_beside(&machine, scenario, args, stop);
            if stop.is_requested() {
                return Ok(trials);
            }
            if let Some(directory) = &args.keep {
                keep(directory, scenario, &kept)?;
            }
            let mut shown = lock(&shown);
            shown.1 += 1;
            shown.2 += planned_s(scenario, args.jobs);
            let (done, share) = ([shown.1, scenarios.len()], shown.2 / planned);
            let lines: Vec<String> = tried.0.iter().map(said).collect();
            shown.0.done(&lines.join("\n"), done, share);
            drop(shown);
            trials.push(tried);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        let mut trials = Vec::new();
        for worker in workers {
            let done: Result<Vec<Tried>, Failure> = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            trials.extend(done?);
        }
        Ok(trials)
    })
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The share of the total time that a scenario takes, with others beside it if it allows that.
fn planned_s(scenario: &Scenario, jobs: u32) -> f64 {
    let at_once = if scenario.needs_whole_machine() {
        1.0
    } else {
        f64::from(jobs)
    };
    (scenario.seconds() + BESIDE_S) / at_once
}

/// Seconds that a scenario takes besides its run: building its lab, connecting, the reports.
const BESIDE_S: f64 = 1.0;
/// Seconds by which the warm-up of a run with a remedy is longer.
const SETTLED_S: f64 = 4.0;

fn run_beside(
    machine: &RwLock<()>,
    scenario: &Scenario,
    args: &TruthArgs,
    stop: &Stop,
) -> (Tried, Kept) {
    let run = || {
        if let Some(program) = scenario.around.program {
            let (trials, looks) = try_stranger(scenario, program, args.keep.as_deref(), stop);
            return ((trials, None), Kept::Looks(looks));
        }
        let (trial, record) = try_scenario(scenario, args.remedies, stop);
        let prove = || prove(scenario, record.as_ref(), stop);
        let remedied = args.remedies.then(prove);
        ((vec![trial], remedied), Kept::Record(record.map(Box::new)))
    };
    if scenario.needs_whole_machine() {
        let _alone = machine.write().unwrap_or_else(PoisonError::into_inner);
        return run();
    }
    let _beside = machine.read().unwrap_or_else(PoisonError::into_inner);
    run()
}

/// Runs a scenario again with its remedy, if that predicts a rate and a lab can apply it.
fn prove(scenario: &Scenario, record: Option<&Record>, stop: &Stop) -> Remedied {
    let verdict = record.and_then(Record::verdict);
    let untried = |why| Remedied::Untried(Untried::new(scenario.number, verdict, why));
    let Some(verdict) = verdict else {
        return untried(UntriedReason::NoVerdict);
    };
    if verdict.predicted_bps.is_none() {
        return untried(UntriedReason::NothingPredicted);
    }
    let remedy = verdict.remedy.as_ref();
    let Some((treated, treatments)) = remedy.and_then(|remedy| treated(scenario, remedy)) else {
        return untried(UntriedReason::NotInALab);
    };
    let after = run_treated_scenario(&treated, &treatments, stop);
    let measured = after
        .map_err(|error| format!("{:#}", anyhow!(error)))
        .and_then(|record| {
            let rate = record.throughput_bps();
            rate.ok_or_else(|| "the record has no throughput".to_owned())
        });
    let proof = Proof::new(scenario.number, verdict, measured);
    proof.map_or_else(|| untried(UntriedReason::NothingPredicted), Remedied::Tried)
}

/// How the file of a scenario ends.
const SCENARIO: &str = "scenario.json";

/// `NUMBER-CAUSE.scenario.json` and `NUMBER-CAUSE.json`, which `linerate explain` reads; of another
/// program's traffic one of each look. Captures are there already.
fn keep(directory: &Path, scenario: &Scenario, kept: &Kept) -> Result<(), Failure> {
    let name = format!("{:05}-{}", scenario.number, scenario.cause.name());
    let write = |file: String, text: String| {
        let path = directory.join(file);
        fs::write(&path, text)
            .with_context(|| path.display().to_string())
            .map_err(Failure::failed)
    };
    write(format!("{name}.{SCENARIO}"), json::document(scenario))?;
    match kept {
        Kept::Record(None) => Ok(()),
        Kept::Record(Some(record)) => write(format!("{name}.json"), json::document(&**record)),
        Kept::Looks(looks) => looks.iter().try_for_each(|(sight, document)| match sight {
            SeenFrom::Sender | SeenFrom::Receiver => {
                write(look_file(scenario, *sight), json::document(document))
            }
            SeenFrom::SentPackets | SeenFrom::ReceivedPackets => Ok(()),
        }),
    }
}

fn said(trial: &Trial) -> String {
    let judgement = match (trial.judgement, trial.is_border) {
        (Judgement::Right, false) => "right",
        (Judgement::Right, true) => "right (border)",
        (Judgement::Wrong, false) => "WRONG",
        (Judgement::Wrong, true) => "WRONG (border)",
        (Judgement::Failed, _) => "FAILED",
        (Judgement::LeftOut, _) => "left out",
    };
    let answer = match &trial.answer {
        Answer::Verdict {
            cause,
            throughput_bps,
            ..
        } => {
            let share = trial.limit_bps.map(|limit| {
                let percent = throughput_bps / limit * 100.0;
                format!(", {percent:.0} % of {}", rate(limit))
            });
            let share = share.unwrap_or_default();
            let named = cause.name();
            format!("{named} {} {judgement}{share}", rate(*throughput_bps))
        }
        Answer::Failed { reason } | Answer::LeftOut { reason } => format!("{judgement}: {reason}"),
    };
    let line = format!(
        "{:>5} {:<19} {:<19} {answer}: {}",
        trial.number,
        trial.family,
        trial.cause.name(),
        trial.describe
    );
    printable(&line)
}

fn rate(bps: f64) -> String {
    BitRate(bps as u64).to_string()
}
