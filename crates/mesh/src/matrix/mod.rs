//! The last result of each pair of sites as a document, `linerate.matrix/1`.

mod tomography;

use std::collections::BTreeMap;
use std::time::SystemTime;

use linerate_core::record::Cause;
use linerate_core::stats::median;
use linerate_core::units::parse_rfc3339;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::plan::Mesh;
use tomography::suspects;
pub use tomography::{Suspect, SuspectKind, SuspectMetric};

/// The value of the document's key `schema`.
pub const MATRIX_SCHEMA: &str = "linerate.matrix/1";

/// The last result of each pair of sites, the medians of each site, and the sites and groups that
/// explain bad pairs.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixDocument {
    /// [`MATRIX_SCHEMA`].
    pub schema: String,
    /// Results up to this time count, RFC 3339.
    pub until: String,
    /// Name of the test.
    pub test: String,
    /// All sites, in the order of the mesh's file.
    pub sites: Vec<MatrixSite>,
    /// The last result of each ordered pair that has one.
    pub cells: Vec<MatrixCell>,
    /// Number of ordered pairs without a result.
    pub missing_pairs: u64,
    /// Number of pairs that each cause holds back, the largest first.
    pub causes: Vec<CauseCount>,
    /// The sites, directions of sites and groups that explain bad pairs, the surest first. For each
    /// metric the probability that chance alone names one is at most 5 %.
    pub suspects: Vec<Suspect>,
}

/// A site of the matrix.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixSite {
    /// Its name.
    pub name: String,
    /// Groups that it shares with other sites.
    pub groups: Vec<String>,
    /// Median throughput from it to the other sites, bits per second.
    pub median_out_bps: Option<f64>,
    /// Median throughput from the other sites to it, bits per second.
    pub median_in_bps: Option<f64>,
    /// Median round-trip time to and from the other sites, µs.
    pub median_rtt_us: Option<f64>,
}

/// A result of an ordered pair.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixCell {
    /// Index in `sites` of the sending site, from 0.
    pub from: u32,
    /// Index in `sites` of the receiving site.
    pub to: u32,
    /// When the test began, RFC 3339.
    #[serde(deserialize_with = "linerate_core::units::deserialize_rfc3339")]
    pub started_at: String,
    /// Payload that the receiver counted, bits per second.
    pub throughput_bps: Option<f64>,
    /// Share of what was sent that was lost or retransmitted, per cent.
    pub loss_percent: Option<f64>,
    /// Round trip, µs.
    pub rtt_us: Option<f64>,
    /// The cause that holds the pair back.
    pub cause: Option<Cause>,
    /// Confidence in the cause, 0–1.
    pub confidence: Option<f64>,
}

/// Number of pairs that a cause holds back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseCount {
    /// The cause.
    pub cause: Cause,
    /// Number of ordered pairs.
    pub pairs: u64,
}

impl MatrixDocument {
    /// The matrix of one test of a mesh, from results in any order, of which the last one of each
    /// pair until the moment `until` counts. A result from the future, which a clock that was ahead
    /// has left, hides no later one, and one without a time does not count.
    pub fn new(
        mesh: &Mesh,
        test: usize,
        until: &str,
        results: impl IntoIterator<Item = MatrixCell>,
    ) -> Self {
        let until_at = parse_rfc3339(until).ok();
        let mut last: BTreeMap<(u32, u32), (SystemTime, MatrixCell)> = BTreeMap::new();
        for result in results {
            let pair = (result.from, result.to);
            let Ok(at) = parse_rfc3339(&result.started_at) else {
                continue;
            };
            let is_future = until_at.is_some_and(|until| at > until);
            let is_older = last.get(&pair).is_some_and(|(known, _)| *known > at);
            if pair.0 != pair.1 && !is_future && !is_older {
                last.insert(pair, (at, result));
            }
        }
        let cells: Vec<MatrixCell> = last.into_values().map(|(_, cell)| cell).collect();
        let sites = mesh.tests[test].sites.len() as u64;
        let mut document = Self {
            schema: MATRIX_SCHEMA.to_owned(),
            until: until.to_owned(),
            test: mesh.tests[test].name.clone(),
            sites: Vec::from_iter(
                (0..mesh.sites.len()).map(|at| MatrixSite::new(mesh, at, &cells)),
            ),
            missing_pairs: (sites * (sites - 1)).saturating_sub(cells.len() as u64),
            causes: causes(&cells),
            suspects: Vec::new(),
            cells,
        };
        document.suspects = suspects(&document);
        document
    }

    /// Computes anew which sites and groups explain the bad pairs.
    pub fn explain(&mut self) {
        self.suspects = suspects(self);
    }

    /// The cells with a throughput, the slowest first.
    pub fn slowest(&self) -> Vec<&MatrixCell> {
        let mut cells: Vec<&MatrixCell> = self.cells.iter().collect();
        cells.retain(|cell| cell.throughput_bps.is_some());
        let rate = |cell: &&MatrixCell| cell.throughput_bps.unwrap_or(0.0);
        cells.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        cells
    }

    /// The cells, the worst first: the slowest, or those with the longest round trip if the test
    /// measures no throughput.
    pub fn worst(&self) -> Vec<&MatrixCell> {
        let slowest = self.slowest();
        if !slowest.is_empty() {
            return slowest;
        }
        let mut cells: Vec<&MatrixCell> = self.cells.iter().collect();
        let rtt = |cell: &&MatrixCell| cell.rtt_us.unwrap_or(0.0);
        cells.sort_by(|a, b| rtt(b).total_cmp(&rtt(a)));
        cells
    }

    /// The name of a site by its index.
    pub fn name(&self, site: u32) -> &str {
        self.sites.get(site as usize).map_or("?", |it| &it.name)
    }
}

impl MatrixSite {
    fn new(mesh: &Mesh, at: usize, cells: &[MatrixCell]) -> Self {
        let site = &mesh.sites[at];
        let median_of = |of: &dyn Fn(&MatrixCell) -> Option<f64>| {
            let values: Vec<f64> = cells.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let is = |index: u32| index as usize == at;
        let groups = site.groups.iter();
        Self {
            name: site.name.clone(),
            groups: groups.map(|it| mesh.groups[*it].name.clone()).collect(),
            median_out_bps: median_of(&|cell| cell.throughput_bps.filter(|_| is(cell.from))),
            median_in_bps: median_of(&|cell| cell.throughput_bps.filter(|_| is(cell.to))),
            median_rtt_us: median_of(&|cell| cell.rtt_us.filter(|_| is(cell.from) || is(cell.to))),
        }
    }
}

fn causes(cells: &[MatrixCell]) -> Vec<CauseCount> {
    let mut counts: Vec<CauseCount> = Vec::new();
    for cause in cells.iter().filter_map(|cell| cell.cause) {
        match counts.iter_mut().find(|count| count.cause == cause) {
            Some(count) => count.pairs += 1,
            None => counts.push(CauseCount { cause, pairs: 1 }),
        }
    }
    counts.sort_by_key(|count| std::cmp::Reverse(count.pairs));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_result_of_each_pair_counts_and_missing_pairs_are_counted() {
        let site = |name| format!("[[site]]\nname = \"{name}\"\nhost = \"192.0.2.1\"\n");
        let sites: String = ["a", "b", "c"].map(site).concat();
        let test = "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\" }\n";
        let mesh = Mesh::from_toml(&format!("{sites}{test}"), 7).unwrap();
        let result = |from, to, day: u32, rate| MatrixCell {
            from,
            to,
            started_at: format!("2026-11-{day}T00:00:00Z"),
            throughput_bps: Some(rate),
            loss_percent: None,
            rtt_us: Some(100.0),
            cause: Some(Cause::PathRate),
            confidence: None,
        };
        let results = [
            result(0, 1, 24, 2e6),
            result(0, 1, 23, 1e6),
            result(0, 2, 23, 4e6),
            result(0, 2, 25, 8e6),
            result(0, 2, 99, 8e6),
            result(0, 0, 23, 4e6),
        ];
        let matrix = MatrixDocument::new(&mesh, 0, "2026-11-24T02:00:00Z", results);
        assert_eq!(matrix.cells.len(), 2);
        assert_eq!(matrix.missing_pairs, 4);
        // Neither the result of tomorrow nor that of no day.
        assert_eq!(matrix.sites[0].median_out_bps, Some(3e6));
        assert_eq!(matrix.sites[0].median_in_bps, None);
        assert_eq!(matrix.causes[0].pairs, 2);
        let slowest = matrix.slowest();
        assert_eq!((matrix.name(slowest[0].from), slowest[0].throughput_bps), ("a", Some(2e6)));
        assert!(matrix.suspects.is_empty());
    }
}
