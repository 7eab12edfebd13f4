//! Why there is no model, or no projection from it.

use thiserror::Error;

/// No model can be fitted, or no projection made from it.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// Fewer runs than would over-determine the terms.
    #[error("{runs} runs for {terms} terms: a model needs at least {needed}")]
    TooFew {
        /// Runs that there are.
        runs: usize,
        /// Terms that they exercise.
        terms: usize,
        /// Runs that are needed.
        needed: usize,
    },
    /// A run without CPU time.
    #[error("a run of the design (`{point}`) took no CPU time that could be seen")]
    NoTime {
        /// Where in the design.
        point: String,
    },
}

impl ProjectionError {
    /// What would mend it; empty where nothing is known to.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::TooFew { .. } => {
                "see why points of the design were left out: each that can be run is more to fit to"
            }
            Self::NoTime { .. } => "give a longer --time: no run of the design is longer than that",
        }
    }
}

/// A test whose CPU time the model has no terms for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "there is no model of MPTCP: what its own layer does to each segment is none of the terms, and \
     no setting of the design \
     tells it apart; use --protocol tcp"
)]
pub struct NoModel;

/// Why a change is not projected, or its measurement none of it.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum NotProjected {
    /// The design has no run to start from, or to be like.
    #[error("there is no run of the design's `{point}`: {why}")]
    NoRun {
        /// The point.
        point: String,
        /// Why it was left out.
        why: String,
    },
    /// No model was fitted.
    #[error("there is no model: {0}")]
    NoModel(#[from] ProjectionError),
    /// Some runs were of one kernel at both ends and some of two.
    #[error("the ends were not the same through the design")]
    OtherEnds,
    /// The path has another MTU than the devices at its ends.
    #[error("the path carries packets of {found} bytes, not {asked}")]
    PathMtu {
        /// As the sender's kernel believes, bytes.
        found: u32,
        /// As it was to be, bytes.
        asked: u32,
    },
    /// The path, or the receiver, dropped all that was sent.
    #[error("nothing arrived in a run with it")]
    NothingArrived,
    /// The path dropped larger packets without a word.
    #[error("nothing arrived: the path may not carry such packets")]
    NotCarried,
    /// No fragments that could be done without.
    #[error("the datagrams were not fragmented as it is")]
    NotFragmented,
    /// Fragments, where there were to be none.
    #[error("the datagrams were fragmented still: the path carries no packets of that size")]
    StillFragmented,
    /// Nothing that linerate can set is the change.
    #[error("nothing that linerate can set is the change")]
    NotProvable,
    /// Its runs were not made.
    #[error("it is of datagrams: -u projects it, and --prove does beside TCP's")]
    OfDatagrams,
}

impl NotProjected {
    pub(super) fn unless_mtu(found: u32, asked: u32) -> Result<(), Self> {
        if found == asked {
            Ok(())
        } else {
            Err(Self::PathMtu { found, asked })
        }
    }
}
