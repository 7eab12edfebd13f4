//! Draws scenarios, runs them and scores the verdicts; keeps them and judges them again.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use linerate_core::ceilings::annotate;
use linerate_core::connection::ConnectionsDocument;
use linerate_core::record::Record;
use linerate_core::units::{BitRate, printable};
use linerate_engine::{Stop, prepare_for_lab, stop_on_signal};
use linerate_report::json;
use linerate_report::text::{self, Style};
use serde::de::DeserializeOwned;

use crate::args::TruthArgs;
use crate::lab::{
    self, Method, Observations, WatchArgs, capture_file, explain_capture, run_treated_scenario,
    try_other_program, try_scenario,
};
use crate::remedy::{Proof, Remedied, Untried, UntriedReason, treated};
use crate::scenario::{Scenario, ScenarioFamily, draw, families};
use crate::score::{Score, TRUTH_SCHEMA};
use crate::trial::{Answer, Judgement, SeenFrom, Trial};

/// Draws scenarios, runs them, and prints the score.
///
/// # Errors
/// This host allows no lab, a file cannot be written, or a signal ended it; the score of the runs
/// so far is printed.
pub(crate) fn execute(args: &TruthArgs) -> anyhow::Result<()> {
    if args.families {
        let line = |family: &ScenarioFamily| format!("{:<28} {}\n", family.name, family.means);
        return print(&families().map(line).collect::<String>());
    }
    if let Some(kept) = &args.again {
        return write_score(args, &again(args, kept)?);
    }
    let scenarios = chosen(args);
    if args.list && args.json {
        return print(&json::document(&scenarios));
    }
    if args.list {
        let lines: Vec<String> = scenarios.iter().map(listed).collect();
        return print(&lines.concat());
    }
    // Before any thread: the process may have to enter a user namespace.
    prepare_for_lab()?;
    let stop = stop_on_signal().context("cannot catch signals")?;
    if let Some(path) = &args.output {
        // Better found out before an hour of runs than after it.
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.with_context(|| path.display().to_string())?;
    }
    if let Some(directory) = &args.keep {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let (trials, remedied): (Vec<Vec<Trial>>, Vec<Option<Remedied>>) =
        run_all(args, &scenarios, &stop)?.into_iter().unzip();
    let remedied = remedied.into_iter().flatten().collect();
    let missing = scenarios.len() - trials.len();
    write_score(args, &Score::new(args.seed, trials.concat(), remedied))?;
    ensure!(missing == 0, "interrupted: {missing} scenarios did not run");
    Ok(())
}

/// Watches connections, and prints their document.
///
/// # Errors
/// As of [`lab::watch`].
pub(crate) fn watch(args: &WatchArgs) -> anyhow::Result<()> {
    let stop = stop_on_signal().context("cannot catch signals")?;
    print(&json::document(&lab::watch(args, &stop)?))
}

/// Judges kept records with the rules of this version, or reads a score. A scenario without a
/// record counts as left out: it was never judged.
fn again(args: &TruthArgs, kept: &Path) -> anyhow::Result<Score> {
    if kept.is_file() {
        let score: Score = stored(kept)?;
        let path = kept.display();
        ensure!(score.schema == TRUTH_SCHEMA, "{path}: it is no {TRUTH_SCHEMA}");
        return Ok(score);
    }
    let directory = kept;
    let progress = Progress::new(args.quiet);
    let mut trials = Vec::new();
    let mut seed = 0;
    for path in kept_scenarios(directory)? {
        let scenario: Scenario = stored(&path)?;
        // In a mix the family of single limits counts its own numbers, which are smaller.
        seed = seed.max(scenario.test.seed.wrapping_sub(scenario.number.into()));
        let left_out = |reason: &str| {
            let reason = reason.to_owned();
            Trial::new(&scenario, Answer::LeftOut { reason }, Vec::new())
        };
        if scenario.around.program.is_some() {
            let observed = kept_observations(directory, &scenario)?;
            let found = Trial::from_observations(&scenario, &observed);
            let wrong = found.iter().filter(|one| one.judgement != Judgement::Right);
            wrong.for_each(|trial| progress.line(&described(trial)));
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
        let mut record: Record = stored(&record)?;
        let before = record.verdict().map(|verdict| verdict.cause);
        annotate(&mut record);
        let trial = Trial::from_record(&scenario, &record);
        if let Some(before) = before.filter(|before| trial.verdict() != Some(*before)) {
            progress.line(&format!("{}, before {}", described(&trial), before.name()));
        }
        trials.push(trial);
    }
    Ok(Score::new(seed, trials, Vec::new()))
}

/// The kept documents and captures of another program's traffic, explained again.
fn kept_observations(directory: &Path, scenario: &Scenario) -> anyhow::Result<Observations> {
    let mut observed = Observations::new();
    for from in [SeenFrom::Sender, SeenFrom::Receiver] {
        let path = directory.join(observation_file(scenario, from));
        if path.exists() {
            let mut document: ConnectionsDocument = stored(&path)?;
            document.explain();
            observed.push((from, document));
        }
    }
    for from in [SeenFrom::SentPackets, SeenFrom::ReceivedPackets] {
        let path = capture_file(directory, scenario, from);
        if path.exists() {
            let document = explain_capture(&path);
            observed.push((from, document.with_context(|| path.display().to_string())?));
        }
    }
    Ok(observed)
}

/// The file of a document of connections in the directory of kept ones.
fn observation_file(scenario: &Scenario, from: SeenFrom) -> String {
    let (number, cause) = (scenario.number, scenario.cause.name());
    format!("{number:05}-{cause}.{}.json", from.name())
}

/// The files of kept scenarios, in the order of their numbers.
fn kept_scenarios(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths =
        entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.to_string_lossy().ends_with(SCENARIO));
    paths.sort();
    if paths.is_empty() {
        bail!("{}: no scenarios, which --keep DIR writes", directory.display());
    }
    Ok(paths)
}

/// A document that a file holds.
fn stored<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let read = || anyhow::Ok(serde_json::from_slice(&fs::read(path)?)?);
    read().with_context(|| path.display().to_string())
}

/// The scenarios that the options choose.
fn chosen(args: &TruthArgs) -> Vec<Scenario> {
    // A number beyond the count is drawn, too: it is the same scenario whatever the count.
    let count = args.number.iter().map(|number| number + 1).fold(args.count, u32::max);
    let wanted = |scenario: &Scenario| {
        if args.number.is_empty() {
            scenario.number < args.count
        } else {
            args.number.contains(&scenario.number)
        }
    };
    let of_cause = |s: &Scenario| args.only.is_empty() || args.only.contains(&s.cause);
    let families: Vec<_> = args.family.iter().flat_map(|named| named.0.clone()).collect();
    let all = draw(args.seed, count, &families).into_iter();
    all.filter(wanted).filter(of_cause).collect()
}

/// The line of a scenario in a list.
fn listed(scenario: &Scenario) -> String {
    format!(
        "{:>5} {:<19} {:<19} {:>10} {} {:.1} s: {}\n",
        scenario.number,
        scenario.family,
        scenario.cause.name(),
        scenario.limit_bps.map_or("-".to_owned(), rate),
        if scenario.is_border { "border" } else { "clear" },
        scenario.seconds(),
        scenario.describe
    )
}

/// A scenario's answer, or one for each view of another program's traffic; and the outcome of its
/// remedy if that was tried.
type Tried = (Vec<Trial>, Option<Remedied>);

/// Documents that `--keep` writes about a scenario.
enum Kept {
    Record(Option<Box<Record>>),
    Observations(Observations),
}

/// Runs scenarios in `--jobs` threads. Those that need the whole machine run alone.
fn run_all(args: &TruthArgs, scenarios: &[Scenario], stop: &Stop) -> anyhow::Result<Vec<Tried>> {
    let queue = Mutex::new(scenarios.iter());
    let shown = Mutex::new((Progress::new(args.quiet), 0, 0.0));
    let each = scenarios.iter().map(|it| planned_s(it, args.jobs));
    let planned: f64 = each.sum();
    let most = if args.remedies {
        // Each again.
        2.0 * planned + SETTLED_S * scenarios.len() as f64
    } else {
        planned
    };
    lock(&shown).0.takes([planned, most]);
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
            let lines: Vec<String> = tried.0.iter().map(described).collect();
            shown.0.done(&lines.join("\n"), done, share);
            drop(shown);
            trials.push(tried);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        let mut trials = Vec::new();
        for worker in workers {
            let done: anyhow::Result<Vec<Tried>> =
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            trials.extend(done?);
        }
        Ok(trials)
    })
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of the total time that a scenario takes, seconds, with others beside it if it allows
/// that.
fn planned_s(scenario: &Scenario, jobs: u32) -> f64 {
    let at_once = if scenario.needs_whole_machine() { 1.0 } else { f64::from(jobs) };
    (scenario.seconds() + BESIDE_S) / at_once
}

/// Runs a scenario beside those of other threads, if it allows that.
fn run_beside(
    machine: &RwLock<()>,
    scenario: &Scenario,
    args: &TruthArgs,
    stop: &Stop,
) -> (Tried, Kept) {
    let run = || {
        if let Some(program) = scenario.around.program {
            let captures = args.keep.as_deref();
            let (trials, observed) = try_other_program(scenario, program, captures, stop);
            return ((trials, None), Kept::Observations(observed));
        }
        let (trial, record) = try_scenario(scenario, method(args), stop);
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

fn method(args: &TruthArgs) -> Method {
    match (args.prove, args.remedies) {
        (true, _) => Method::Proof,
        (false, true) => Method::OneRunAfterTrains,
        (false, false) => Method::OneRun,
    }
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
    let measured =
        after.map_err(|error| format!("{:#}", anyhow::Error::new(error))).and_then(|record| {
            let rate = record.throughput_bps();
            rate.ok_or_else(|| "the record has no throughput".to_owned())
        });
    let proof = Proof::new(scenario.number, verdict, measured);
    proof.map_or_else(|| untried(UntriedReason::NothingPredicted), Remedied::Tried)
}

/// Writes `NUMBER-CAUSE.scenario.json` and `NUMBER-CAUSE.json`, which `linerate explain` reads; of
/// another program's traffic a document of each end. Captures are there already.
fn keep(directory: &Path, scenario: &Scenario, kept: &Kept) -> anyhow::Result<()> {
    let name = format!("{:05}-{}", scenario.number, scenario.cause.name());
    let write = |file: String, text: String| {
        let path = directory.join(file);
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    write(format!("{name}.{SCENARIO}"), json::document(scenario))?;
    match kept {
        Kept::Record(None) => Ok(()),
        Kept::Record(Some(record)) => write(format!("{name}.json"), json::document(&**record)),
        Kept::Observations(observed) => {
            observed.iter().try_for_each(|(from, document)| match from {
                SeenFrom::Sender | SeenFrom::Receiver => {
                    write(observation_file(scenario, *from), json::document(document))
                }
                SeenFrom::SentPackets | SeenFrom::ReceivedPackets => Ok(()),
            })
        }
    }
}

/// A trial as a line.
fn described(trial: &Trial) -> String {
    let judgement = match (trial.judgement, trial.is_border) {
        (Judgement::Right, false) => "right",
        (Judgement::Right, true) => "right (border)",
        (Judgement::Wrong, false) => "WRONG",
        (Judgement::Wrong, true) => "WRONG (border)",
        (Judgement::Failed, _) => "FAILED",
        (Judgement::LeftOut, _) => "left out",
    };
    let answer = match &trial.answer {
        Answer::Verdict { cause, throughput_bps, .. } => {
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

/// Prints the score, and writes it to the file of `--output`.
fn write_score(args: &TruthArgs, score: &Score) -> anyhow::Result<()> {
    let document = json::document(score);
    // The file first: it is the copy that the user keeps.
    let kept = args.output.as_ref().map_or(Ok(()), |path| {
        fs::write(path, &document).with_context(|| path.display().to_string())
    });
    let printed = print(&if args.json { document } else { score.text(style()) });
    kept.and(printed)
}

/// The style for stdout: a terminal's width, or that of `COLUMNS`.
fn style() -> Style {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    let width = terminal.map(|(width, _)| usize::from(width.0));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    Style {
        width: width.or_else(columns).unwrap_or(Style::default().width),
        colour: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        ..Style::default()
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("stdout")
}

/// Progress on stderr.
struct Progress {
    is_quiet: bool,
    began: Instant,
    /// Shortest and longest expected time of all scenarios, seconds.
    takes_s: Option<[f64; 2]>,
}

impl Progress {
    fn new(is_quiet: bool) -> Self {
        Self { is_quiet, began: Instant::now(), takes_s: None }
    }

    fn line(&self, line: &str) {
        if !self.is_quiet {
            // Progress that cannot be shown is no reason to stop.
            let _ = writeln!(io::stderr(), "{}", printable(line));
        }
    }

    /// Says how long the scenarios take, seconds.
    fn takes(&mut self, takes_s: [f64; 2]) {
        self.takes_s = Some(takes_s);
        self.line(&format!("takes {}", text::takes(takes_s)));
    }

    /// Says that `done` of `all` scenarios are done, which should have taken `share` of the planned
    /// time. The time that is left is estimated from how much slower or faster they were.
    fn done(&mut self, line: &str, [done, all]: [usize; 2], share: f64) {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        if done >= FEW {
            self.takes_s = Some([elapsed_s / share; 2]);
        }
        let line = format!("{done} of {all}: {line}");
        self.line(&text::step(&line, elapsed_s, self.takes_s));
    }
}

/// End of the name of a scenario's file.
const SCENARIO: &str = "scenario.json";
/// Seconds that a scenario takes besides its run: building its lab, connecting, the reports.
const BESIDE_S: f64 = 1.0;
/// Seconds by which the warm-up of a run with a remedy is longer.
const SETTLED_S: f64 = 4.0;
/// Fewest finished scenarios from which the time of the others is estimated.
const FEW: usize = 5;
