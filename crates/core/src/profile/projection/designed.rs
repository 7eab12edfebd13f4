//! What the runs of a design left.

use super::design::Point;
use super::observation::Observation;
use crate::record::{Caveat, CaveatKind, Record};

/// What running a design left.
#[derive(Debug, Clone, Default)]
pub struct Designed {
    /// MTU of the path as it is, bytes; which points tell something hangs on it.
    pub path_mtu_bytes: Option<u32>,
    /// Every run that says something.
    pub runs: Vec<Observation>,
    /// Points, or runs of them, that say nothing.
    pub left_out: Vec<LeftOut>,
}

/// A point of the design that could not be run, or a run of it that says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub point: String,
    /// Why, in words.
    pub why: String,
    /// What would mend it; empty where nothing is known to.
    pub remedy: &'static str,
}

impl Designed {
    /// Takes a run, if it was what its point is and has the figures.
    pub fn enter(&mut self, point: &Point, record: &Record) {
        let entered = match point.check(record) {
            Ok(()) => Observation::new(point.name, record)
                .map_err(|error| (error.to_string(), error.remedy())),
            Err(error) => Err((error.to_string(), "")),
        };
        match entered {
            Ok(run) => self.runs.push(run),
            Err((why, remedy)) => self.left_out.push(LeftOut {
                point: point.name.to_owned(),
                why,
                remedy,
            }),
        }
    }

    /// Why there is no run of a point.
    pub(super) fn why_none_of(&self, point: &str) -> String {
        let mut left_out = self.left_out.iter();
        let found = left_out.find(|left_out| left_out.point == point);
        found.map_or_else(|| "it was not run".to_owned(), |found| found.why.clone())
    }

    /// Of points that were left out, one for each reason.
    pub fn caveats(&self) -> Vec<Caveat> {
        let mut reasons: Vec<(&LeftOut, Vec<&str>)> = Vec::new();
        for one in &self.left_out {
            let same = |(other, _): &&mut (&LeftOut, Vec<&str>)| other.why == one.why;
            match reasons.iter_mut().find(same) {
                Some((_, points)) if points.contains(&one.point.as_str()) => {}
                Some((_, points)) => points.push(&one.point),
                None => reasons.push((one, vec![&one.point])),
            }
        }
        let caveat = |(one, points): (&LeftOut, Vec<&str>)| {
            let points = points.join(", ");
            Caveat::new(
                CaveatKind::Partial,
                format!(
                    "left out of the projections' design ({points}): {}",
                    one.why
                ),
                one.remedy,
            )
        };
        reasons.into_iter().map(caveat).collect()
    }
}
