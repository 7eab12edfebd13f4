//! What a terminal shows of an experiment.

use std::collections::BTreeMap;

use insta::assert_snapshot;
use linerate_core::experiment::{Choice, Ending, Experiment, ExperimentDocument, Run};
use linerate_report::Document;
use linerate_report::text::Style;

use crate::samples::whole;

const TEXT: &str = r#"
title = "TCP receive window of MPE/iX, small and fixed"
report = "MPE/iX, the Application Note of 1999"
about = """
The report's hosts were two HP 3000 on a LAN.
Here a path of 29 ms makes the small window the limit."""
repeats = 3
forbid = []
[path]
lab = "rate=100mbit,rtt=29ms"
[[factor]]
name = "window"
[[factor.level]]
name = "small"
[[factor.level]]
name = "fixed"
[[factor.level]]
name = "policy"
lacks = "DiffServ policies, which this version cannot compile"
[[factor]]
name = "size"
key = "size"
values = "100..1100/500"
[figures]
file = "f.csv"
keys = { window = "window", size = "size" }
values = { throughput_bps = "mbit * 1e6" }
[table]
across = "window"
[[column]]
metric = "throughput_bps"
title = "rate"
unit = "Mbit/s"
[[column]]
metric = "throughput_bps"
title = "ratio"
ratio_to = "small"
decimals = 2
[[finding]]
text = "at large sizes the fixed window carries about twice as much"
metric = "throughput_bps"
of = { window = "fixed" }
over = { window = "small" }
where = { size = ["1100"] }
about = 2.0
[[finding]]
text = "and the small one twice as much as the fixed"
metric = "throughput_bps"
of = { window = "small" }
over = { window = "fixed" }
at_least = 2.0
[[finding]]
text = "the size makes no difference"
metric = "throughput_bps"
of = { window = "small", size = "1100" }
over = { size = "600" }
no_difference = "5%"
report = 1.01
[[finding]]
text = "the fixed window carries 7 Mbit/s"
metric = "throughput_bps"
of = { window = "fixed", size = "1100" }
at_least = 7e6
[[finding]]
text = "a policy costs nothing"
metric = "throughput_bps"
of = { window = "policy" }
over = { window = "small" }
no_difference = "5%"
"#;

const FIGURES: &str = "window,size,mbit\nsmall,600,3.5\nsmall,1100,3.6\nfixed,1100,7.1\n";

fn experiment(choice: &Choice) -> Experiment {
    Experiment::from_toml(TEXT, choice, &|_| Ok(FIGURES.to_owned())).expect("the file is right")
}

fn document(experiment: &Experiment, ending: &Ending, most: usize) -> ExperimentDocument {
    let mut runs: Vec<Run> = Vec::new();
    while let Some(slot) = experiment.next(&runs, &[]).filter(|_| runs.len() < most) {
        let levels = experiment.level_names(slot.cell);
        let size: f64 = levels["size"].parse().expect("sizes are numbers");
        let window = if levels["window"] == "fixed" { 2.0 } else { 1.0 };
        let noise = 1.0 + 0.002 * f64::from(slot.repeat);
        let rate = window * 4e6 * (1.0 - 50.0 / size) * noise;
        let is_spoilt = slot.cell == 4 && slot.repeat == 1;
        runs.push(Run {
            levels,
            repeat: slot.repeat,
            attempt: slot.attempt,
            treatments: "none".to_owned(),
            faults: is_spoilt.then(|| "3 segments retransmitted".to_owned()).into_iter().collect(),
            error: None,
            figures: BTreeMap::from([("throughput_bps".to_owned(), rate)]),
            record: None,
        });
    }
    experiment.assemble(runs, ending)
}

pub(crate) fn whole_document() -> ExperimentDocument {
    let experiment = experiment(&Choice::default());
    document(&experiment, &Ending::default(), usize::MAX)
}

#[test]
fn an_experiment_has_the_reports_shape_and_figures() {
    assert_snapshot!(whole_document().text(whole()));
}

#[test]
fn an_experiment_that_stopped_early_says_so() {
    let experiment = experiment(&Choice::default());
    let ending = Ending {
        partial: Some("interrupted".to_owned()),
        unavailable: vec![(2, "needs root\x1b[2J".to_owned())],
    };
    let narrow = Style { width: 60, colour: false, ..Style::default() };
    assert_snapshot!(document(&experiment, &ending, 3).text(narrow));
}

#[test]
fn modes_and_a_drift_stand_in_the_table_and_in_the_evidence() {
    let text = TEXT.replace("repeats = 3", "repeats = 20");
    let files = |_: &str| Ok(FIGURES.to_owned());
    let experiment = Experiment::from_toml(&text, &Choice::default(), &files).unwrap();
    let mut runs: Vec<Run> = Vec::new();
    while let Some(slot) = experiment.next(&runs, &[]) {
        let levels = experiment.level_names(slot.cell);
        let repeat = f64::from(slot.repeat);
        let noise = 0.003 * (repeat * 7.0 % 11.0);
        let rate = match (levels["window"].as_str(), levels["size"].as_str()) {
            ("fixed", "1100") if slot.repeat % 2 == 0 => 9.0,
            ("fixed", "100") => 4.0 + 0.1 * repeat,
            _ => 4.0,
        };
        runs.push(Run {
            levels,
            repeat: slot.repeat,
            attempt: slot.attempt,
            treatments: "none".to_owned(),
            faults: Vec::new(),
            error: None,
            figures: BTreeMap::from([("throughput_bps".to_owned(), (rate + noise) * 1e6)]),
            record: None,
        });
    }
    let document = experiment.assemble(runs, &Ending::default());
    let shown = document.text(whole()).replace('\u{a0}', " ");
    for part in [
        "4.02 / 9.02",
        "a / b: the runs fall into groups, each with its median; a → b: the runs change",
        "undecided  at large sizes the fixed window carries about twice as much",
        "not one figure: groups of runs at 1.00 (10 runs) and 2.24",
        "of the findings are not one figure",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
}
