//! `run`: runs an experiment's file to its end, from the beginning or from where it stopped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_core::experiment::{Choice, Experiment, ExperimentPath, Run, Work};
use linerate_core::link::RateTrace;
use linerate_core::plan::{End, Plan, Repeats};
use linerate_core::record::Interval;
use linerate_engine::{
    ExperimentObserver, ExperimentProgress, ExperimentSite, RecordsFile, Target, prepare_for_lab,
    run_experiment,
};
use linerate_report::text;

use crate::args::ExperimentArgs;
use crate::failure::Failure;
use crate::output::{self, Format, Output};
use crate::progress::Progress;
use crate::target::{check_sizes, look_up};
use crate::{files, run, site};

/// Reads the experiment, makes the runs that are missing, and prints its document.
///
/// # Errors
/// The file is wrong, its path cannot be reached or emulated, a run failed for good, or the
/// experiment was interrupted; the document of the runs so far is printed.
pub(crate) fn execute(args: &ExperimentArgs) -> Result<(), Failure> {
    let experiment = read(args)?;
    if args.list {
        return output::print(&list(&experiment));
    }
    let directory = args.file.parent().unwrap_or(Path::new(""));
    let traces = traces(&experiment, directory)?;
    let output = Output::open(&args.document, output::json_or_text(args.document.json))?;
    let mut progress = Progress::new(Format::Text, args.document.quiet);
    let mut records = records(args, &experiment, &mut progress)?;
    prepare(&experiment, &mut progress)?;
    let target = target(args, &experiment, &mut progress)?;
    let stop = run::signals()?;
    let site = ExperimentSite { directory, traces: &traces, target: target.as_ref() };
    let mut shown = CellProgress { progress };
    let outcome = run_experiment(&experiment, &site, &mut records, &stop, &mut shown);
    drop(shown);
    let (document, error) = outcome?;
    output.write(&document)?;
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// Undoes changes that earlier commands left on this host, and prepares this process for a lab.
fn prepare(experiment: &Experiment, progress: &mut Progress) -> Result<(), Failure> {
    if treats_hosts(experiment) {
        site::before_treating(progress);
    }
    if experiment.cells.iter().any(is_emulated) {
        // Before any thread: the process may have to enter a user namespace.
        prepare_for_lab()?;
    }
    Ok(())
}

/// Opens the file of the runs, and says how many it has.
fn records(
    args: &ExperimentArgs,
    experiment: &Experiment,
    progress: &mut Progress,
) -> Result<RecordsFile, Failure> {
    let path = records_path(args);
    let records = RecordsFile::open(&path, experiment, args.fresh)?;
    if !records.is_empty() {
        let count = records.len();
        progress.phase(&format!("{count} runs are in {} already", path.display()));
    }
    Ok(records)
}

fn read(args: &ExperimentArgs) -> Result<Experiment, Failure> {
    let directory = args.file.parent().unwrap_or(Path::new(""));
    let beside = |name: &str| {
        let text = files::read_text("", &directory.join(name), MAX_FILE);
        text.map_err(|error| error.root_cause().to_string())
    };
    let choice = Choice {
        quick: args.quick,
        seed: args.seed,
        host: args.host.clone(),
        lab: args.path.lab.as_ref().map(ToString::to_string),
        family: args.path.family(),
    };
    files::parse("", &args.file, MAX_FILE, |text| Experiment::from_toml(text, &choice, &beside))
}

fn is_emulated(cell: &linerate_core::experiment::Cell) -> bool {
    let is_special = matches!(cell.work, Work::Special(_));
    !is_special && cell.lacks.is_none() && matches!(cell.place.path, ExperimentPath::Lab { .. })
}

/// Whether anything but sockets is treated.
fn treats_hosts(experiment: &Experiment) -> bool {
    let treatments = experiment.cells.iter().map(|cell| &cell.treatments);
    let mut changes = treatments
        .flat_map(|treatments| [End::Client, End::Server].map(|end| treatments.host_changes(end)));
    changes.any(|changes| !changes.is_empty())
}

/// The recorded rates of all links.
fn traces(experiment: &Experiment, directory: &Path) -> Result<Vec<(String, RateTrace)>, Failure> {
    let topologies = experiment.cells.iter().filter_map(|cell| match &cell.place.path {
        ExperimentPath::Lab { topology, .. } => Some(topology),
        ExperimentPath::Host(_) => None,
    });
    let links = topologies.flat_map(|topology| &topology.links);
    site::traces(links.flat_map(|link| [&link.up, &link.down]), directory)
}

/// The endpoint of a real path, which is the same for all cells: levels do not change it.
fn target(
    args: &ExperimentArgs,
    experiment: &Experiment,
    progress: &mut Progress,
) -> Result<Option<Target>, Failure> {
    let host = experiment.cells.iter().find_map(|cell| match &cell.place.path {
        ExperimentPath::Host(name) => Some((name.clone(), cell.place.family)),
        ExperimentPath::Lab { .. } => None,
    });
    let Some((name, family)) = host else {
        return Ok(None);
    };
    let target = look_up(name, &args.path.with_family(family), progress)?;
    let tests = experiment.cells.iter().filter_map(|cell| match &cell.work {
        Work::Test(test) => Some(test.as_ref().clone()),
        Work::Load(_) | Work::Special(_) => None,
    });
    check_sizes(&target, &Plan { tests: tests.collect(), repeats: Repeats::Times(1) })?;
    Ok(Some(target))
}

/// `FILE.records.jsonl`, of the quick form `FILE.quick.records.jsonl`.
fn records_path(args: &ExperimentArgs) -> PathBuf {
    let beside = || {
        let mut name = OsString::from(args.file.as_os_str());
        name.push(if args.quick { ".quick" } else { "" });
        name.push(".records.jsonl");
        PathBuf::from(name)
    };
    args.records.clone().unwrap_or_else(beside)
}

/// The cells with their treatments, the paths, and the number of runs.
fn list(experiment: &Experiment) -> String {
    let mut paths: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines = String::new();
    for cell in 0..experiment.cells.len() {
        let own = &experiment.cells[cell];
        let name = match &own.place.path {
            ExperimentPath::Lab { name, .. } if name.is_empty() => {
                "a lab that emulates nothing".to_owned()
            }
            ExperimentPath::Lab { name, .. } => format!("lab {name}"),
            ExperimentPath::Host(name) => name.to_string(),
        };
        *paths.entry(name).or_default() += 1;
        let title = match experiment.cell_title(cell) {
            title if title.is_empty() => "all runs".to_owned(),
            title => title,
        };
        let treatments =
            if own.treatments.is_empty() { String::new() } else { format!(", {}", own.treatments) };
        let lacks = own.lacks.as_ref().map_or(String::new(), |why| format!(", not run: {why}"));
        lines.push_str(&format!("{title}{treatments}{lacks}\n"));
    }
    for (path, cells) in paths {
        let plural = if cells == 1 { "" } else { "s" };
        lines.push_str(&format!("{cells} cell{plural} on {path}\n"));
    }
    let remaining = experiment.remaining(&[], &[]);
    let seconds =
        linerate_core::experiment::Estimate::default().remaining_s(experiment, &remaining);
    let time =
        seconds.map_or(String::new(), |seconds| format!(", about {}", text::duration(seconds)));
    let runs: usize = remaining.iter().sum();
    lines.push_str(&format!("{runs} runs{time}\n"));
    lines
}

/// Prints a line for each run as it begins, and the reason if it does not count.
struct CellProgress {
    progress: Progress,
}

impl ExperimentObserver for CellProgress {
    fn begins(&mut self, progress: &ExperimentProgress) {
        let again = match progress.slot.attempt {
            1 => String::new(),
            attempt => format!(", attempt {attempt}"),
        };
        if let Some(left) = progress.left_s {
            self.progress.takes([Duration::from_secs_f64(left); 2]);
        }
        let cell =
            if progress.cell.is_empty() { String::new() } else { format!(": {}", progress.cell) };
        self.progress.phase(&format!(
            "run {} of {}{cell}, repeat {}{again}",
            progress.done + 1,
            progress.done + progress.left,
            progress.slot.repeat
        ));
    }

    fn interval(&mut self, _: &Interval) -> bool {
        true
    }

    fn made(&mut self, run: &Run) {
        let why = run.error.iter().chain(&run.faults).next();
        if let Some(why) = why {
            self.progress.warn(&format!("the run does not count: {why}"));
        }
    }
}

/// Largest experiment, topology or table of figures, in bytes.
const MAX_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::planned;

    /// The test that a command line makes.
    fn of_command(line: &str) -> linerate_core::plan::Test {
        planned(&format!("{line} pit --seed 1")).unwrap().tests.remove(0)
    }

    /// The test that the same words make in a file.
    fn of_file(line: &str) -> linerate_core::plan::Test {
        let mut words = line.split(' ').peekable();
        let mut workload = format!("command = {:?}\n", words.next().unwrap());
        while let Some(option) = words.next() {
            let value = words.next_if(|word| !word.starts_with("--"));
            let value = value.map_or("true".to_owned(), |value| format!("{value:?}"));
            workload.push_str(&format!("{} = {value}\n", &option[2..]));
        }
        let text =
            format!("title = \"x\"\n[workload]\n{workload}[[column]]\nmetric = \"seconds\"\n");
        let none = |_: &str| Err("no files".to_owned());
        let experiment = Experiment::from_toml(&text, &Choice::default(), &none).unwrap();
        match &experiment.cells[0].work {
            Work::Test(test) => test.as_ref().clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_keys_of_a_workload_mean_what_the_options_mean() {
        for line in [
            "stream",
            "stream --size 1408 --time 2s --streams 3",
            "stream --bytes 4MiB --whole --verify --zerocopy",
            "stream --count 100 --direction both --discard",
            "stream --time 300ms --warm-up 20ms --interval 100ms",
            "stream --whole --write-rate 1mbit --read-rate 2mbit",
            "stream --protocol udp --rate 10mbit --dscp EF",
            "stream --protocol udp --rate 1gbit",
            "stream --protocol udp --offload",
            "stream --size 32 --batch 16",
            "stream --receive-window 8KiB --send-buffer 16KiB --mss 536",
            "stream --protocol mptcp --congestion reno --nodelay",
            "stream --pacing 20mbit",
            "rr",
            "rr --request 64 --response 1KiB --depth 4 --spin",
            "rr --protocol udp --rate 2.5k",
            "rr --protocol udp --stamp --rate 10",
            "rr --streams 6 --objects 40 --rate 0.5",
            "rr --video",
            "crr",
            "crr --close client --reset --time 5s",
            "crr --fast-open",
        ] {
            assert_eq!(of_file(line), of_command(line), "{line:?}");
        }
    }
}
