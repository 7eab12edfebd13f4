//! Tests of reading files, planning runs and computing findings.

use std::collections::BTreeMap;

use super::*;
use crate::plan::{Extent, Repeats, Traffic};
use crate::record::{CaveatKind, Status};
use crate::stats::{Agreement, Figure};

const WINDOWS: &str = r#"
title = "Receive window"
report = "MPE/iX, 1999"
repeats = 4

[path]
lab = "rate=100mbit,rtt=29ms"

[workload]
time = "2s"
receive-window = "8KiB"

[[factor]]
name = "window"
[[factor.level]]
name = "small"
figure = "without_fix"
[[factor.level]]
name = "fixed"
figure = "with_fix"
workload = { receive-window = "64KiB" }

[[factor]]
name = "size"
key = "size"
values = "100..1100/500"

[quick]
repeats = 1
workload = { time = "500ms" }
levels = { size = ["1100"] }

[figures]
file = "windows.csv"
keys = { window = "treatment", size = "buffer" }
values = { throughput_bps = "mbit * 1e6" }

[table]
across = "window"
[[column]]
metric = "throughput_bps"
unit = "Mbit/s"
title = "rate"
[[column]]
metric = "throughput_bps"
ratio_to = "small"
title = "ratio"

[[finding]]
text = "about twice"
metric = "throughput_bps"
of = { window = "fixed" }
over = { window = "small" }
where = { size = ["600", "1100"] }
about = 2.0
"#;

const FIGURES: &str = "treatment,buffer,mbit
without_fix,100,0.31
without_fix,600,2.0
without_fix,1100,4.0
with_fix,100.0,0.31
with_fix,600,3.9
with_fix,1100,7.9
with_fix,1100,8.1
";

fn files(name: &str) -> Result<String, String> {
    match name {
        "windows.csv" => Ok(FIGURES.to_owned()),
        _ => Err("no such file".to_owned()),
    }
}

fn read(text: &str, choice: &Choice) -> Experiment {
    Experiment::from_toml(text, choice, &files).unwrap()
}

fn windows() -> Experiment {
    read(WINDOWS, &Choice::default())
}

/// A run of a cell whose only figure is its throughput.
fn run(experiment: &Experiment, slot: Slot, throughput_bps: f64) -> Run {
    Run {
        levels: experiment.level_names(slot.cell),
        repeat: slot.repeat,
        attempt: slot.attempt,
        treatments: "none".to_owned(),
        faults: Vec::new(),
        error: None,
        figures: BTreeMap::from([("throughput_bps".to_owned(), throughput_bps)]),
        record: None,
    }
}

/// Runs all of it; `throughput` has the figure of a cell by its window and size.
fn run_all(experiment: &Experiment, throughput: impl Fn(&str, &str) -> f64) -> Vec<Run> {
    let mut runs = Vec::new();
    while let Some(slot) = experiment.next(&runs, &[]) {
        let levels = experiment.level_names(slot.cell);
        let value = throughput(&levels["window"], &levels["size"]);
        runs.push(run(experiment, slot, value));
    }
    runs
}

fn doubled(window: &str, size: &str) -> f64 {
    let size: f64 = size.parse().unwrap();
    size * 1e3 * if window == "fixed" { 2.0 } else { 1.0 }
}

#[test]
fn a_file_becomes_cells_with_everything_resolved() {
    let experiment = windows();
    assert_eq!(experiment.cells.len(), 6);
    assert_eq!(experiment.cell_title(4), "window fixed, size 600");
    let Work::Test(test) = &experiment.cells[4].work else {
        panic!("a stream is a test");
    };
    let window = test.options.receive_window_bytes.unwrap();
    assert_eq!(window.0, 65_536);
    assert!(matches!(&test.traffic, Traffic::Stream(stream) if stream.message_bytes == 600));
    assert_eq!(experiment.repeats, Repeats::Times(4));
}

#[test]
fn the_quick_form_changes_what_it_says_and_nothing_else() {
    let choice = Choice { quick: true, ..Choice::default() };
    let experiment = read(WINDOWS, &choice);
    assert_eq!(experiment.cells.len(), 2);
    assert_eq!(experiment.repeats, Repeats::Times(1));
    let Work::Test(test) = &experiment.cells[1].work else {
        panic!("a stream is a test");
    };
    assert!(matches!(test.extent, Extent::Time(time) if time.as_secs_f64() == 0.5));
    assert_eq!(test.options.receive_window_bytes.unwrap().0, 65_536);
    assert_eq!(experiment.findings[0].pairs, [(1, Some(0))]);
}

#[test]
fn the_reports_figures_are_found_by_level_and_are_medians() {
    let experiment = windows();
    let figure = |cell: usize| experiment.figures[cell]["throughput_bps"];
    assert_eq!((figure(0), figure(3), figure(5)), (0.31e6, 0.31e6, 8e6));
}

#[test]
fn a_user_may_choose_another_path_and_seed() {
    let choice = Choice { lab: Some("rate=1mbit".to_owned()), seed: Some(77), ..Choice::default() };
    let experiment = read(WINDOWS, &choice);
    assert_eq!(experiment.seed, 77);
    let ExperimentPath::Lab { name, .. } = &experiment.cells[0].place.path else {
        panic!("a spec is a lab");
    };
    assert!(name.starts_with("rate=1mbit"), "{name}");
    let choice = Choice { host: Some("pit:5201".parse().unwrap()), ..Choice::default() };
    let experiment = read(WINDOWS, &choice);
    assert!(
        matches!(&experiment.cells[0].place.path, ExperimentPath::Host(name) if name.host == "pit")
    );
}

#[test]
fn every_repeat_runs_every_cell_once_in_an_order_of_its_own() {
    let experiment = windows();
    let runs = run_all(&experiment, doubled);
    assert_eq!(runs.len(), 24);
    let orders: Vec<Vec<usize>> = (runs.chunks(6))
        .map(|repeat| repeat.iter().map(|run| experiment.cell_of(run).unwrap()).collect())
        .collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    }
    assert!(orders.windows(2).any(|two| two[0] != two[1]), "{orders:?}");
    assert_eq!(runs, run_all(&windows(), doubled));
}

#[test]
fn an_experiment_goes_on_where_it_stopped() {
    let experiment = windows();
    let whole = run_all(&experiment, doubled);
    for stopped in [0, 1, 5, 6, 23] {
        let mut runs = whole[..stopped].to_vec();
        assert_eq!(experiment.remaining(&runs, &[]).iter().sum::<usize>(), 24 - stopped);
        while let Some(slot) = experiment.next(&runs, &[]) {
            let levels = experiment.level_names(slot.cell);
            let value = doubled(&levels["window"], &levels["size"]);
            runs.push(run(&experiment, slot, value));
        }
        assert_eq!(runs, whole);
    }
}

#[test]
fn a_spoilt_run_is_made_again_but_not_for_ever() {
    let experiment = windows();
    let mut runs = Vec::new();
    let mut attempts = 0;
    while let Some(slot) = experiment.next(&runs, &[]) {
        let mut made = run(&experiment, slot, 1e6);
        if (slot.cell == 1 || slot.cell == 2) && slot.repeat == 2 {
            made.faults = vec!["3 segments retransmitted".to_owned()];
            attempts += 1;
        }
        runs.push(made);
    }
    assert_eq!((attempts, runs.len()), (2 * MAX_ATTEMPTS, 22 + 6));
    let document = experiment.assemble(runs, &Ending::default());
    let note =
        "window small, size 1100: 3 of 6 runs excluded, the last because: 3 segments retransmitted";
    assert!(document.notes.iter().any(|n| n == note), "{:?}", document.notes);
    let outcome = "all 6 excluded runs are of window small";
    assert!(document.notes.iter().any(|n| n.starts_with(outcome)), "{:?}", document.notes);
}

#[test]
fn cells_that_cannot_be_run_are_left_out_and_said() {
    let experiment = windows();
    let mut runs = Vec::new();
    while let Some(slot) = experiment.next(&runs, &[3, 4, 5]) {
        runs.push(run(&experiment, slot, 1e6));
    }
    assert_eq!(runs.len(), 12);
    let why = "needs root".to_owned();
    let ending = Ending {
        partial: None,
        unavailable: vec![(3, why.clone()), (4, why.clone()), (5, why.clone())],
    };
    let document = experiment.assemble(runs, &ending);
    assert_eq!(document.table.rows[0].figures[1].not_run, Some(why));
    assert_eq!(document.findings[0].agreement, Agreement::NotKnown);
    assert!(document.notes.contains(&"not run: needs root".to_owned()));
}

#[test]
fn a_finding_of_an_experiment_that_was_stopped_is_not_judged() {
    let experiment = windows();
    let mut runs = Vec::new();
    while let Some(slot) = experiment.next(&runs, &[]) {
        runs.push(run(&experiment, slot, 1e6));
    }
    let stopped = Ending { partial: Some("interrupted".to_owned()), ..Ending::default() };
    let judged = |runs: &[Run]| {
        let finding = experiment.assemble(runs.to_vec(), &stopped).findings.remove(0);
        (finding.ours.is_some(), finding.agreement, finding.why)
    };
    let all = judged(&runs);
    assert!(all.0 && all.1 != Agreement::NotKnown, "{all:?}");
    // The last run of each of its cells is missing.
    let first: Vec<Run> = runs.into_iter().filter(|run| run.repeat < 4).collect();
    let (has_figure, agreement, why) = judged(&first);
    assert_eq!((has_figure, agreement), (false, Agreement::NotKnown));
    assert!(why.unwrap().starts_with("stopped before all"));
}

#[test]
fn a_precision_ends_the_repeats_of_the_cells_that_reach_it() {
    let text = WINDOWS.replacen("repeats = 4", "precision = \"5%\"", 1);
    let experiment = read(&text, &Choice::default());
    let mut runs: Vec<Run> = Vec::new();
    let mut wild = 0.0;
    while let Some(slot) = experiment.next(&runs, &[]) {
        // One cell scatters by a factor, the others not at all.
        wild += 1.0;
        let value = if slot.cell == 0 { 1e6 * (1.0 + wild % 7.0) } else { 1e6 };
        runs.push(run(&experiment, slot, value));
    }
    let count = |cell| runs.iter().filter(|run| experiment.cell_of(run) == Some(cell)).count();
    assert!(count(1) < 10 && count(0) == 100, "{} {}", count(1), count(0));
}

#[test]
fn the_table_has_the_reports_figures_beside_ours() {
    let experiment = windows();
    let document = experiment.assemble(run_all(&experiment, doubled), &Ending::default());
    assert_eq!(document.status, Status::Complete);
    let table = &document.table;
    assert_eq!(table.row_factors, ["size"]);
    let heads: Vec<_> = (table.columns.iter())
        .map(|column| (column.level.as_deref().unwrap(), column.title.as_str()))
        .collect();
    assert_eq!(heads, [("small", "rate"), ("fixed", "rate"), ("fixed", "ratio")]);
    let last = &table.rows[2];
    assert_eq!(last.levels, ["1100"]);
    let ours: Vec<f64> = last
        .figures
        .iter()
        .map(|figure| match figure.ours.as_ref().unwrap() {
            Figure::One(one) => one.median,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ours, [1.1e6, 2.2e6, 2.0]);
    let report: Vec<f64> = last.figures.iter().map(|figure| figure.report.unwrap()).collect();
    assert_eq!(report, [4e6, 8e6, 2.0]);
}

#[test]
fn a_finding_agrees_and_with_its_treatments_swapped_disagrees() {
    let experiment = windows();
    let agreement = |experiment: &Experiment, throughput: &dyn Fn(&str, &str) -> f64| {
        let document = experiment.assemble(run_all(experiment, throughput), &Ending::default());
        (document.findings[0].agreement, document.findings[0].report_agreement)
    };
    let swapped_runs =
        |window: &str, size: &str| doubled(if window == "fixed" { "small" } else { "fixed" }, size);
    assert_eq!(agreement(&experiment, &doubled), (Agreement::Agrees, Agreement::Agrees));
    assert_eq!(agreement(&experiment, &swapped_runs), (Agreement::Disagrees, Agreement::Agrees));
    let swapped_claim = WINDOWS
        .replace("of = { window = \"fixed\" }", "of = { window = \"small\" }")
        .replace("over = { window = \"small\" }", "over = { window = \"fixed\" }");
    let swapped = read(&swapped_claim, &Choice::default());
    assert_eq!(agreement(&swapped, &doubled), (Agreement::Disagrees, Agreement::Disagrees));
}

#[test]
fn what_the_runs_do_not_decide_is_undecided() {
    let experiment = windows();
    let mut number = 0;
    let mut runs = Vec::new();
    while let Some(slot) = experiment.next(&runs, &[]) {
        number += 1;
        let levels = experiment.level_names(slot.cell);
        let noise = if levels["window"] == "fixed" { 1.0 + f64::from(number % 5) } else { 1.0 };
        runs.push(run(&experiment, slot, 1e6 * noise));
    }
    let document = experiment.assemble(runs, &Ending::default());
    assert_eq!(document.findings[0].agreement, Agreement::Undecided);
}

/// Of each repeat what the fixed window carries over the small one.
fn with_ratios(repeats: u32, ratio: impl Fn(u32) -> f64) -> ExperimentDocument {
    let text = WINDOWS.replacen("repeats = 4", &format!("repeats = {repeats}"), 1);
    let experiment = read(&text, &Choice::default());
    let mut runs = Vec::new();
    while let Some(slot) = experiment.next(&runs, &[]) {
        let levels = experiment.level_names(slot.cell);
        let times = match levels["window"].as_str() {
            "fixed" => ratio(slot.repeat),
            _ => 1.0,
        };
        runs.push(run(&experiment, slot, 1e6 * times));
    }
    experiment.assemble(runs, &Ending::default())
}

fn kinds(document: &ExperimentDocument) -> Vec<CaveatKind> {
    document.caveats.iter().map(|caveat| caveat.kind).collect()
}

#[test]
fn modes_and_drifts_are_not_given_as_one_figure_and_every_repeat_of_them_has_to_say_the_same() {
    let noise = |repeat: u32| 1.0 + 0.001 * f64::from(repeat * 7 % 11);
    let modes = |low: f64, high: f64| {
        with_ratios(20, |repeat| noise(repeat) * if repeat % 2 == 0 { low } else { high })
    };
    for (low, high, expected) in [
        (1.7, 2.4, Agreement::Agrees),
        (1.2, 2.0, Agreement::Undecided),
        // The median of the two is in what is accepted, and no run is.
        (1.0, 3.0, Agreement::Disagrees),
    ] {
        let document = modes(low, high);
        let finding = &document.findings[0];
        assert!(
            matches!(&finding.ours, Some(Figure::Modes { modes }) if modes.len() == 2),
            "{:?}",
            finding.ours
        );
        assert_eq!(finding.agreement, expected, "{low} and {high}");
        let of_table = &document.table.rows[1].figures[1].ours;
        assert!(matches!(of_table, Some(Figure::Modes { .. })));
        assert_eq!(kinds(&document), [CaveatKind::NotOneFigure]);
    }
    let drifting = with_ratios(12, |repeat| 1.5 + 0.05 * f64::from(repeat));
    let finding = &drifting.findings[0];
    assert!(matches!(finding.ours, Some(Figure::Drift { .. })));
    assert_eq!(finding.agreement, Agreement::Undecided);
}

#[test]
fn fewer_than_six_repeats_say_that_they_are_few() {
    for (repeats, expected) in
        [(1, vec![CaveatKind::FewRuns]), (5, vec![CaveatKind::FewRuns]), (6, Vec::new())]
    {
        let document = with_ratios(repeats, |repeat| 2.0 + 0.01 * f64::from(repeat * 5 % 7));
        assert_eq!(kinds(&document), expected, "{repeats}");
    }
}

#[test]
fn a_seed_of_the_file_has_as_many_bits_as_one_of_the_command_line() {
    for seed in [0, u64::from(u32::MAX) + 1, u64::MAX] {
        let text = WINDOWS.replacen("repeats = 4", &format!("seed = {seed}"), 1);
        assert_eq!(read(&text, &Choice::default()).seed, seed);
    }
}

#[test]
fn the_reports_figures_may_be_means() {
    let text = WINDOWS.replace("file = \"windows.csv\"", "file = \"windows.csv\"\nof = \"mean\"");
    let three = format!("{FIGURES}with_fix,1100,8.6\n");
    let files = |_: &str| Ok(three.clone());
    let of = |text: &str| {
        let experiment = Experiment::from_toml(text, &Choice::default(), &files).unwrap();
        (experiment.figures[5]["throughput_bps"] / 1e4).round()
    };
    assert_eq!((of(&text), of(WINDOWS)), (820.0, 810.0));
    let wrong = text.replace("\"mean\"", "\"meen\"");
    let error = Experiment::from_toml(&wrong, &Choice::default(), &files).unwrap_err();
    assert!(error.to_string().contains("did you mean `mean`"), "{error}");
}

#[test]
fn each_expectation_is_judged_by_its_own_range() {
    let cases = [
        ("at_least = 1.9", Agreement::Agrees),
        ("at_least = 2.1", Agreement::Disagrees),
        ("at_most = 2.0", Agreement::Agrees),
        ("at_most = 1.9", Agreement::Disagrees),
        ("at_least = 1.5\nat_most = 1.9", Agreement::Disagrees),
        ("at_least = 1.5\nat_most = 2.0", Agreement::Agrees),
        ("at_least = 2.1\nat_most = 2.5", Agreement::Disagrees),
        ("no_difference = \"5%\"", Agreement::Disagrees),
        ("about = 2.2\nwithin = 1.2", Agreement::Agrees),
        ("about = 2.2\nwithin = 1.05", Agreement::Disagrees),
    ];
    for (claim, expected) in cases {
        let experiment = read(&WINDOWS.replace("about = 2.0", claim), &Choice::default());
        let document = experiment.assemble(run_all(&experiment, doubled), &Ending::default());
        assert_eq!(document.findings[0].agreement, expected, "{claim}");
    }
}

#[test]
fn the_identity_is_of_the_runs_and_not_of_the_words() {
    let own = windows().identity();
    for (from, to) in [
        ("Receive window", "Another title"),
        ("about = 2.0", "about = 3.0"),
        ("repeats = 4", "repeats = 9"),
    ] {
        let same = read(&WINDOWS.replacen(from, to, 1), &Choice::default());
        assert_eq!(same.identity(), own, "{from}");
    }
    for (from, to) in [
        ("64KiB", "65KiB"),
        ("rtt=29ms", "rtt=30ms"),
        ("repeats = 4", "seed = 2"),
        ("repeats = 4", "forbid = [\"retransmissions\"]"),
    ] {
        let other = read(&WINDOWS.replacen(from, to, 1), &Choice::default());
        assert_ne!(other.identity(), own, "{from}");
    }
}

#[test]
fn the_rest_takes_what_is_planned_and_what_runs_take_besides() {
    let experiment = windows();
    let mut estimate = Estimate::default();
    let remaining = experiment.remaining(&[], &[]);
    // 24 runs of 2.2 s, and a second each as long as nothing is known.
    let seconds = estimate.remaining_s(&experiment, &remaining).unwrap();
    assert!((seconds - 24.0 * 3.2).abs() < 1e-9, "{seconds}");
    estimate.add(0, 2.7);
    let seconds = estimate.remaining_s(&experiment, &remaining).unwrap();
    assert!((seconds - 24.0 * 2.7).abs() < 1e-9, "{seconds}");
}

#[test]
fn a_level_that_lacks_something_is_listed_and_not_run() {
    let text =
        WINDOWS.replace("figure = \"with_fix\"", "figure = \"with_fix\"\nlacks = \"policies\"");
    let experiment = read(&text, &Choice::default());
    let runs = run_all(&experiment, doubled);
    assert_eq!(runs.len(), 12);
    let document = experiment.assemble(runs, &Ending::default());
    let figure = &document.table.rows[0].figures[1];
    assert_eq!((figure.ours.as_ref(), figure.not_run.as_deref()), (None, Some("policies")));
    assert!(figure.report.is_some());
    assert_eq!(document.findings[0].agreement, Agreement::NotKnown);
    assert_eq!(document.findings[0].why.as_deref(), Some("policies"));
    assert_eq!(document.notes, ["not run: policies"]);
}

#[test]
fn keys_of_all_cells_are_left_out_of_those_that_they_do_not_fit() {
    let text = r#"
title = "A file, and a stream"
[workload]
bytes = "4MiB"
size = 1024
whole = true
[[factor]]
name = "way"
[[factor.level]]
name = "tcp"
[[factor.level]]
name = "disk"
workload = { command = "file_write" }
[[column]]
metric = "throughput_bps"
"#;
    let experiment = read(text, &Choice::default());
    let Work::Special(Special::FileWrite(file)) = &experiment.cells[1].work else {
        panic!("{:?}", experiment.cells[1].work);
    };
    assert_eq!((file.bytes, file.record_bytes), (4 << 20, 1024));
    assert_eq!(experiment.cells[1].planned_s(), None);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let cases = [
        ("repeats = 4", "repeat = 4"),
        ("repeats = 4", "repeats = 0"),
        ("repeats = 4", "forbid = [\"retransmission\"]"),
        ("repeats = 4", "treatments = \"mms=536\""),
        ("title = \"Receive window\"", ""),
        ("rtt=29ms", "rtt=29parsec"),
        ("time = \"2s\"", "tme = \"2s\""),
        ("time = \"2s\"", "time = \"2 fortnights\""),
        ("time = \"2s\"", "streams = 1000"),
        ("time = \"2s\"", "command = \"steam\""),
        ("time = \"2s\"", "protocol = \"udp\"\nmss = 536"),
        ("name = \"fixed\"", "name = \"small\""),
        ("name = \"fixed\"", "name = \"fixed\"\ntreatments = \"mss=1\""),
        ("name = \"fixed\"", "name = \"fixed\"\nlab = \"loss=x\""),
        ("name = \"size\"", "name = \"window\""),
        ("\"100..1100/500\"", "\"100..9999999/1\""),
        ("\"100..1100/500\"", "[]"),
        ("levels = { size = [\"1100\"] }", "levels = { size = [\"1101\"] }"),
        ("levels = { size = [\"1100\"] }", "levels = { sizes = [\"1100\"] }"),
        ("windows.csv", "nowhere.csv"),
        ("\"treatment\", size", "\"treatments\", size"),
        ("mbit * 1e6", "mbits * 1e6"),
        ("mbit * 1e6", "treatment"),
        ("mbit * 1e6", "mbit * many"),
        ("across = \"window\"", "across = \"windows\""),
        ("unit = \"Mbit/s\"", "unit = \"furlongs\""),
        ("ratio_to = \"small\"", "ratio_to = \"smal\""),
        ("metric = \"throughput_bps\"\nof", "metric = \"thruput_bps\"\nof"),
        ("over = { window = \"small\" }", "over = { widow = \"small\" }"),
        ("over = { window = \"small\" }", "over = { window = \"large\" }"),
        ("over = { window = \"small\" }", "over = { window = \"fixed\" }"),
        ("about = 2.0", "about = 2.0\nat_least = 1"),
        ("about = 2.0", ""),
        ("about = 2.0", "at_least = 2\nat_most = 1"),
        ("about = 2.0", "at_least = 2\nwithin = 2"),
        ("about = 2.0", "about = -2.0"),
        ("about = 2.0", "no_difference = \"200%\""),
    ];
    let mut said = String::new();
    for (from, to) in cases {
        assert!(WINDOWS.contains(from), "{from}");
        let text = WINDOWS.replacen(from, to, 1);
        let error = Experiment::from_toml(&text, &Choice::default(), &files).unwrap_err();
        assert!(error.line > 0 && error.column > Some(0));
        said.push_str(&format!("{to}\n    {error}\n"));
    }
    insta::assert_snapshot!(said);
}
