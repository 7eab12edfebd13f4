//! Proof of what limits a path: one thing is changed at a time, and the rate follows it or not.
//!
//! A resource is the limit if the rate follows it when it alone is changed; nothing else is, if the
//! rate does not follow. So each change of our own test ([`INTERVENTIONS`]) has, for each cause,
//! the ratio that it predicts ([`Predicted`]). [`Prover`] chooses the runs and draws the conclusion
//! ([`ProofFindings`]). It has no sockets and no clock: it says which run to make, and takes its
//! figures.
//!
//! # How it decides
//!
//! * Runs come in blocks of two, a plain and a changed one, in an order drawn by a coin. What
//!   counts is the logarithm of the ratio of the two.
//! * Each block is a witness: how surprising its ratio is under each cause, by Student's t with
//!   three degrees of freedom around what the cause predicts. The scatter comes from plain runs
//!   beside each other and from repeated blocks. No block tells more than half of what excludes a
//!   cause.
//! * What a change of the receive window predicts follows from the window that the sender then saw:
//!   another tool's server makes of a size what it likes.
//! * A cause is excluded when enough speaks against it. The next change is the one that separates
//!   most of what is left for its cost.
//! * **Proved** is the one cause that is left, if two changes agree with it, no figure is far from
//!   its prediction, and figures have clearly changed in two runs as it predicts. A link or a
//!   policer is also tested by a rate that stays where the change raises it for most others. Two
//!   causes are proved if both are left and the rate rose by less than a quarter.
//! * Once a cause is proved, its remedy is tried as far as a test can lift the limit, if the budget
//!   has room for it: its worth is measured.
//! * **Likely** is the most probable cause that no change contradicts, if the plain runs' evidence
//!   names it or a change is a test of it. Else it is **open**; the least bad of excluded causes is
//!   never named. Plain runs that drift or scatter too much prove nothing, and the findings say so
//!   ([`crate::record::ProofDoubt`]).
//!
//! How often that is wrong is simulated on six kinds of noise: `docs/error-rates.md`.
//!
//! # How it is driven
//!
//! ```
//! use linerate_core::plan::{Extent, Test};
//! use linerate_core::proof::{
//!     PlainRuns, ProofBudget, ProofRun, Prover, RunFigures,
//! };
//! use linerate_core::record::{Cause, ProofLevel};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut test = Test::stream().resolve(7)?;
//! test.extent = Extent::Time("1.3s".parse()?);
//! // What a first plain run has shown: a window of 262 kB over 21 ms.
//! let seen = PlainRuns {
//!     rtt_min_s: Some(0.021),
//!     rtt_s: Some(0.021),
//!     mss_bytes: Some(1448.0),
//!     receive_window_bytes: Some(262_000.0),
//!     max_receive_window_bytes: Some(6e6),
//!     can_hold_window: true,
//!     retransmitted_share: Some(0.0),
//!     thread_shares: [Some(0.1); 2],
//!     core_shares: [Some(0.2); 2],
//!     host_shares: [Some(0.1); 2],
//!     max_pacing_bps: Some(f64::INFINITY),
//!     is_class_full: Some(false),
//!     rate_bps: 100e6,
//!     ..PlainRuns::default()
//! };
//! let ranking = [(Cause::ReceiveWindow, 0.9), (Cause::PathRate, 0.1)];
//! let mut prover = Prover::new(&test, &seen, &ranking, &[], ProofBudget::default(), 7);
//! while let Some(run) = prover.next_run() {
//!     // The engine makes the run here; this path has the rate of its window.
//!     let rate = match run {
//!         ProofRun::Plain => 100e6,
//!         ProofRun::Changed { change: "receive_window=0.6", .. } => 60e6,
//!         ProofRun::Changed { change: "receive_window=2" | "streams=2", .. } => 195e6,
//!         ProofRun::Changed { .. } => 100e6,
//!     };
//!     prover.record(RunFigures { rate, seconds: 1.3, ..RunFigures::default() });
//! }
//! let findings = prover.findings();
//! assert_eq!(findings.proof.level, ProofLevel::Proved);
//! assert_eq!(findings.proof.causes, [Cause::ReceiveWindow]);
//! assert!(findings.runs <= 10);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | `plain_runs` | what the plain runs showed |
//! | `change` | the table of interventions: how each changes a test, what it needs |
//! | `predict` | what each cause predicts for each of them; what exact evidence rules out |
//! | `offer` | a change with its predictions; the figures of a run |
//! | `evidence` | what the runs tell for and against each cause |
//! | `prover` | the next run, and the findings |

mod change;
mod evidence;
mod offer;
mod plain_runs;
mod predict;
mod prover;
#[cfg(test)]
mod tests;

pub use change::{
    ChangedEnd, INTERVENTIONS, Intervention, Refusal, intervention, is_provable, words,
};
pub use evidence::NAMED;
pub use offer::{Offer, RunFigures};
pub use plain_runs::PlainRuns;
pub use predict::{Case, Predicted, Watched, ruled_out};
pub use prover::{PROOF_RUNS, ProofBudget, ProofFindings, ProofRun, Prover};
