//! The experiment files of the five reports: each can be run as it stands, has the report's figures beside its cells, and
//! a quick form.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use linerate_core::experiment::{Choice, Estimate, Experiment};
use linerate_core::plan::Repeats;

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
    let written = text(&file).unwrap();
    let choice = Choice {
        quick,
        ..Choice::default()
    };
    Experiment::from_toml(&written, &choice, &text)
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn each_file_is_read_and_has_the_figures_of_its_report() {
    for (name, with_figures) in REPORTS {
        let experiment = experiment(name, false);
        let figures = experiment.figures.iter();
        assert_eq!(
            figures.filter(|cell| !cell.is_empty()).count(),
            with_figures,
            "{name}"
        );
        assert!(
            experiment.report.is_some() && experiment.about.is_some(),
            "{name}"
        );
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
        let mut estimate = Estimate::new();
        for cell in 0..remaining.len() {
            if experiment.cells[cell].planned_s().is_none() {
                estimate.add(cell, 1.0);
            }
        }
        let seconds = estimate.remaining_s(&experiment, &remaining);
        assert!(seconds.is_some_and(|s| s < 300.0), "{name}: {seconds:?} s");
    }
}

/// What the reports themselves say agrees with what the findings say they found.
#[test]
fn the_figures_of_the_reports_agree_with_their_own_findings() {
    let mut disagree = BTreeMap::new();
    for (name, _) in REPORTS {
        let experiment = experiment(name, false);
        for finding in &experiment.findings {
            let figure = |cell: usize| experiment.figures[cell].get(&finding.measure.to_string());
            let ratios = finding.pairs.iter().filter_map(|(cell, over)| {
                let over = over.map_or(Some(&1.0), |over| figure(over))?;
                Some(figure(*cell)? / over)
            });
            let mut ratios: Vec<f64> = ratios.collect();
            ratios.sort_by(f64::total_cmp);
            let Some(median) = ratios.get(ratios.len() / 2) else {
                continue;
            };
            let (least, most) = finding.expectation.range();
            if !(least..=most).contains(median) {
                disagree.insert(format!("{name}: {}", finding.text), *median);
            }
        }
    }
    assert!(disagree.is_empty(), "{disagree:#?}");
}
