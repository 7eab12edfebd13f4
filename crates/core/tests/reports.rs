//! The experiment files of the five reports: each can be run as it stands, has the report's figures
//! beside its cells, and a quick form.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use linerate_core::experiment::{Choice, Ending, Estimate, Experiment, Finding, Run};
use linerate_core::plan::Repeats;
use linerate_core::stats::Agreement;

/// Files, and how many of their cells have a figure of the report beside them.
const REPORTS: [(&str, usize); 12] = [
    ("aai_pacing", 3),
    ("aai_route_mtu", 6),
    ("aai_sites", 9),
    ("aai_subnet_mss", 2),
    ("aai_supernet", 4),
    ("bsd_1981", 7),
    // The report has no figures of what it asserts, and none of the tests that it names.
    ("checksum_protects", 0),
    ("cpu_speed", 6),
    ("ipqos", 42),
    ("ipqos_future", 0),
    ("receive_window", 38),
    ("tcp_checksum", 4),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

fn text(name: &str) -> Result<String, String> {
    fs::read_to_string(directory().join(name)).map_err(|error| format!("{name}: {error}"))
}

fn experiment(name: &str, quick: bool) -> Experiment {
    let file = format!("{name}.toml");
    let written = text(&file).expect("a file of this repository");
    let choice = Choice { quick, ..Choice::default() };
    Experiment::from_toml(&written, &choice, &text)
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn each_file_is_read_and_has_the_figures_of_its_report() {
    for (name, with_figures) in REPORTS {
        let experiment = experiment(name, false);
        let figures = experiment.figures.iter();
        assert_eq!(figures.filter(|cell| !cell.is_empty()).count(), with_figures, "{name}");
        assert!(experiment.report.is_some() && experiment.about.is_some(), "{name}");
        assert!(!experiment.findings.is_empty(), "{name}");
    }
}

#[test]
fn no_file_is_forgotten() {
    let files = fs::read_dir(directory()).unwrap();
    let names = files.filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_suffix(".toml").map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, REPORTS.map(|(name, _)| name));
}

#[test]
fn the_quick_form_of_each_takes_less_than_five_minutes() {
    for (name, _) in REPORTS {
        let experiment = experiment(name, true);
        let Repeats::Times(repeats) = experiment.repeats else {
            panic!("{name} has no fixed number of repeats");
        };
        let cells = 0..experiment.cells.len();
        let runs = |cell| usize::from(experiment.is_runnable(cell)) * repeats as usize;
        let remaining: Vec<usize> = cells.map(runs).collect();
        // One second for a transfer that ends after so many bytes.
        let mut estimate = Estimate::default();
        for cell in 0..remaining.len() {
            if experiment.cells[cell].planned_s().is_none() {
                estimate.add(cell, 1.0);
            }
        }
        let seconds = estimate.remaining_s(&experiment, &remaining);
        assert!(seconds.is_some_and(|s| s < 300.0), "{name}: {seconds:?} s");
    }
}

/// Those whose path is one and whose endpoint's CPU is left alone; the others' levels make paths of
/// their own.
#[test]
fn a_real_path_runs_the_files_that_do_not_change_the_path() {
    let choice = Choice { host: Some("pit".parse().expect("a host's name")), ..Choice::default() };
    let mut run = Vec::new();
    for (name, _) in REPORTS {
        let written = text(&format!("{name}.toml")).expect("a file of this repository");
        match Experiment::from_toml(&written, &choice, &text) {
            Ok(_) => run.push(name),
            Err(error) => {
                let why = error.to_string();
                let is_said = why.contains("runs on labs alone") || why.contains("`server_cpu`");
                assert!(is_said, "{name}: {why}");
            }
        }
    }
    // The second has addresses of its lab.
    assert_eq!(run, ["aai_route_mtu", "receive_window", "tcp_checksum"]);
}

#[test]
fn the_whole_form_of_one_repeats_until_it_is_precise() {
    let experiment = experiment("receive_window", false);
    assert!(matches!(experiment.repeats, Repeats::Precision(_)));
}

/// What the reports themselves say agrees with what the findings say they found.
#[test]
fn the_figures_of_the_reports_agree_with_their_own_findings() {
    let mut held = 0;
    let mut disagree = BTreeMap::new();
    for (name, _) in REPORTS {
        let document = experiment(name, false).assemble(Vec::new(), &Ending::default());
        for finding in document.findings {
            held += usize::from(finding.report.is_some());
            if finding.report_agreement == Agreement::Disagrees {
                disagree.insert(format!("{name}: {}", finding.text), finding.report);
            }
        }
    }
    assert!(disagree.is_empty(), "{disagree:#?}");
    assert_eq!(held, WITH_FIGURES);
}

/// Runs with the report's own figures agree; with the figures of the two sides swapped each finding
/// that claims a difference disagrees.
#[test]
fn findings_agree_with_the_reports_figures_and_disagree_with_them_swapped() {
    let mut swapped_ones = 0;
    for (name, _) in REPORTS {
        let experiment = experiment(name, false);
        for (index, finding) in experiment.findings.iter().enumerate() {
            let agreement = |is_swapped| {
                let runs = runs_with_the_reports_figures(&experiment, index, is_swapped);
                let document = experiment.assemble(runs, &Ending::default());
                document.findings[index].agreement
            };
            let claim = format!("{name}: {}", finding.text);
            let own = agreement(false);
            if own == Agreement::NotKnown {
                continue;
            }
            assert_eq!(own, Agreement::Agrees, "{claim}");
            let is_ratio = finding.pairs.iter().all(|(_, over)| over.is_some());
            if is_ratio && claims_a_difference(finding) {
                assert_eq!(agreement(true), Agreement::Disagrees, "{claim}");
                swapped_ones += 1;
            }
        }
    }
    assert_eq!(swapped_ones, CLAIMED_DIFFERENCES);
}

/// A claim of a difference accepts neither that there is none nor its opposite.
#[test]
fn no_finding_of_a_difference_accepts_that_there_is_none() {
    for (name, _) in REPORTS {
        for finding in experiment(name, false).findings {
            let is_ratio = finding.pairs.iter().any(|(_, over)| over.is_some());
            let accepts_equal = finding.accepted.contains(1.0);
            assert!(
                !is_ratio || !claims_a_difference(&finding) || !accepts_equal,
                "{name}: {}: {:?}",
                finding.text,
                finding.accepted
            );
        }
    }
}

/// A range with 1 in its middle says that there is no difference.
fn claims_a_difference(finding: &Finding) -> bool {
    (finding.accepted.low + finding.accepted.high - 2.0).abs() > 1e-12
}

/// Six runs of each cell with the figures that the report has of it; swapped: of the cell that the
/// finding holds it against.
fn runs_with_the_reports_figures(
    experiment: &Experiment,
    finding: usize,
    is_swapped: bool,
) -> Vec<Run> {
    let pairs = &experiment.findings[finding].pairs;
    let cell_of_figures = |cell: usize| {
        let pair = pairs.iter().find_map(|(own, over)| match *over {
            Some(over) if *own == cell => Some(over),
            Some(over) if over == cell => Some(*own),
            _ => None,
        });
        pair.filter(|_| is_swapped).unwrap_or(cell)
    };
    let run = |cell: usize, repeat| Run {
        levels: experiment.level_names(cell),
        repeat,
        attempt: 1,
        treatments: "none".to_owned(),
        faults: Vec::new(),
        error: None,
        figures: experiment.figures[cell_of_figures(cell)].clone(),
        record: None,
    };
    let cells = 0..experiment.cells.len();
    cells
        .flat_map(|cell| (1..=6).map(move |repeat| (cell, repeat)))
        .map(|(cell, repeat)| run(cell, repeat))
        .collect()
}

/// Findings of which the reports have figures.
const WITH_FIGURES: usize = 32;

/// Those of them that claim a difference between two treatments.
const CLAIMED_DIFFERENCES: usize = 24;
