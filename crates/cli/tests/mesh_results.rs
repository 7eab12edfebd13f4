//! What a test reads of the history of a mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use linerate_history::{Filter, History};
use serde_json::Value;

/// A saved run of a mesh.
pub(crate) struct Run {
    pub(crate) labels: BTreeMap<String, String>,
    /// Date and hour at which it began, by its own clock.
    pub(crate) hour: String,
    /// When it began, in seconds of the hour: no test lasts one.
    began_s: f64,
    seconds: f64,
}

impl Run {
    /// Its sites: the one that sends, the one that receives.
    pub(crate) fn ends(&self) -> [&str; 2] {
        ["from", "to"].map(|end| &*self.labels[end])
    }

    /// Its sites by name.
    fn pair(&self) -> [&str; 2] {
        let mut ends = self.ends();
        ends.sort_unstable();
        ends
    }

    /// Whether no moment belongs to both runs.
    fn is_apart(&self, other: &Self) -> bool {
        (self.began_s - other.began_s).rem_euclid(3600.0) >= other.seconds
            && (other.began_s - self.began_s).rem_euclid(3600.0) >= self.seconds
    }
}

/// The runs of one test in a history, read as they are saved.
pub(crate) struct Saved {
    history: History,
    test: &'static str,
    last: i64,
    pub(crate) runs: Vec<Run>,
}

impl Saved {
    pub(crate) fn new(history: &Path, test: &'static str) -> Self {
        let history = linerate_history::open(&history.into()).unwrap();
        let mut saved = Self { history, test, last: 0, runs: Vec::new() };
        saved.renew();
        saved
    }

    /// Reads what was saved since the last time, and returns the number of all.
    pub(crate) fn renew(&mut self) -> usize {
        let filter = Filter {
            labels: vec![("test".to_owned(), self.test.to_owned())],
            from_id: Some(self.last + 1),
            ..Filter::default()
        };
        for run in self.history.list(&filter).unwrap() {
            self.last = self.last.max(run.id);
            let document = self.history.document(run.id).unwrap().unwrap();
            let document: Value = serde_json::from_str(&document).unwrap();
            let text = document["started_at"].as_str().unwrap();
            let (minutes, seconds) = (&text[14..16], text[17..].trim_end_matches('Z'));
            self.runs.push(Run {
                labels: self.history.labels(run.id).unwrap(),
                hour: text[..13].to_owned(),
                began_s: minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap(),
                seconds: document["seconds"].as_f64().unwrap(),
            });
        }
        self.runs.len()
    }
}

/// The runs of a test so far.
pub(crate) fn runs(history: &Path, test: &'static str) -> Vec<Run> {
    Saved::new(history, test).runs
}

/// The pairs of sites that have a run, whichever of them sent.
pub(crate) fn pairs(runs: &[Run]) -> BTreeSet<[&str; 2]> {
    runs.iter().map(Run::pair).collect()
}

/// No two runs that share a site, or one of the names that `links` gives for a run, are at one
/// time, by the times in their own records.
pub(crate) fn assert_apart(runs: &[Run], links: impl Fn(&Run) -> BTreeSet<String>) {
    let of = |run: &Run| {
        let mut all = links(run);
        all.extend(run.ends().map(str::to_owned));
        all
    };
    let mut by_name: BTreeMap<String, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        for name in of(run) {
            by_name.entry(name).or_default().push(run);
        }
    }
    for (name, of_name) in by_name {
        for (number, one) in of_name.iter().enumerate() {
            for other in &of_name[..number] {
                assert!(one.is_apart(other), "at {name}: {:?} and {:?}", one.labels, other.labels);
            }
        }
    }
}

/// Runs share nothing but sites.
pub(crate) fn no_links(_: &Run) -> BTreeSet<String> {
    BTreeSet::new()
}
