#![forbid(unsafe_code)]
//! The history: every run that was saved, in a file of SQLite or, with the feature `postgres`, on a
//! PostgreSQL server.
//!
//! This crate stores and does not judge. The caller gives it a document as JSON, with the words and
//! figures by which the run is found; these are indexed.
//!
//! - [`Store`] is what a history does. [`open`] gives the store of a [`Place`].
//! - [`Filter`] says which runs are asked for.
//! - [`PairFigures`] are the results between two sites of a mesh; [`Store::matrix`] has the newest
//!   of each pair.
//! - [`Rollup`]s are the hourly and daily medians of a series. They stay when runs are pruned.
//!
//! Several processes can write at once: each waits for its turn. A run that was saved is on the
//! disk, and an unfinished save leaves nothing, however the process ends.
//!
//! ```
//! use linerate_history::{Filter, NewRun, in_memory};
//!
//! let mut history = in_memory()?;
//! let id = history.save(&NewRun {
//!     started_at: "2026-11-23T09:00:00Z",
//!     schema: "linerate.record/1",
//!     path: "pit",
//!     workload: "stream",
//!     detail: "tcp up",
//!     series: "stream tcp up to pit",
//!     answer: "13.9 Mbit/s up to pit",
//!     cause: Some("receive_window"),
//!     figures: &[("throughput_bps".to_owned(), 13.9e6)],
//!     pairs: &[],
//!     labels: &[],
//!     document: "{}",
//! })?;
//! assert_eq!(history.list(&Filter::default())?[0].id, id);
//! # Ok::<(), linerate_history::HistoryError>(())
//! ```

mod filter;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
mod rollup;
mod sqlite;

use std::collections::BTreeMap;
use std::fmt::Debug;

use rusqlite::ErrorCode;
use thiserror::Error;

pub use filter::{Filter, Since, first_moment};
pub use place::Place;
pub use rollup::{Period, Rollup, RollupFilter};

/// A history that is open.
pub type History = Box<dyn Store>;

/// Why the history cannot be read or written.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// SQLite reports an error.
    #[error("the history {operation}: {error}")]
    Sqlite {
        /// Operation that failed, such as `open`.
        operation: &'static str,
        /// The error; its own source is only its number.
        error: rusqlite::Error,
    },
    /// The PostgreSQL server reports an error, or cannot be reached.
    #[error("the history {operation}: {why}")]
    Postgres {
        /// Operation that failed, such as `open`.
        operation: &'static str,
        /// The error with all its sources.
        why: String,
        /// The five letters of the server's error (PostgreSQL's appendix A), if it is one.
        code: Option<String>,
    },
    /// The tables were changed by a later version of linerate.
    #[error(
        "the history is of version {found}, made by a newer linerate; this one reads up to {known}"
    )]
    Newer {
        /// The version of the tables.
        found: u32,
        /// The latest version that this program knows.
        known: u32,
    },
    /// The program has no client for PostgreSQL.
    #[error(
        "this program was built without PostgreSQL; build it with: cargo build --release \
         --features postgres; or give a file"
    )]
    NotBuilt,
}

impl HistoryError {
    /// Whether what was to be written is at fault, so that it will never be taken; else the history
    /// cannot be reached or written at present.
    pub fn is_of_data(&self) -> bool {
        match self {
            Self::Sqlite { error, .. } => match error.sqlite_error_code() {
                Some(code) => matches!(
                    code,
                    ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig
                ),
                // A value that is not of the column's type.
                None => true,
            },
            // Connection, resources, operator, system, rollback, state; read-only is the server's.
            Self::Postgres { code, .. } => code.as_deref().is_some_and(|code| {
                let passes = ["08", "53", "57", "58", "40", "55", "25", "28", "42", "XX"];
                !passes.iter().any(|class| code.starts_with(class))
            }),
            Self::Newer { .. } | Self::NotBuilt => false,
        }
    }
}

type Result<T> = std::result::Result<T, HistoryError>;

/// A run to be saved.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    /// When it began, RFC 3339 in UTC.
    pub started_at: &'a str,
    /// What the document is, such as `linerate.record/1`.
    pub schema: &'a str,
    /// Where to: the endpoint as the user named it, or the emulated path.
    pub path: &'a str,
    /// Workload of the run, such as `stream`.
    pub workload: &'a str,
    /// How it was run, such as `tcp up`: runs of different details are not to be compared.
    pub detail: &'a str,
    /// The name of the series of comparable runs that it belongs to.
    pub series: &'a str,
    /// The result in one sentence.
    pub answer: &'a str,
    /// The bottleneck.
    pub cause: Option<&'a str>,
    /// Its figures by their names, the most important first.
    pub figures: &'a [(String, f64)],
    /// Its results between two sites of a mesh, one for each direction.
    pub pairs: &'a [PairFigures],
    /// The user's labels: keys and values.
    pub labels: &'a [(String, String)],
    /// The document, as JSON.
    pub document: &'a str,
}

/// What a test of a mesh measured from one site to another. What was not measured is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PairFigures {
    /// Name of the test.
    pub test: String,
    /// Name of the site that sent.
    pub from: String,
    /// Name of the site that received.
    pub to: String,
    /// What the receiver counted, bits per second.
    pub throughput_bps: Option<f64>,
    /// Lost or retransmitted of what was sent, per cent.
    pub loss_percent: Option<f64>,
    /// Round trip, µs.
    pub rtt_us: Option<f64>,
    /// The bottleneck.
    pub cause: Option<String>,
    /// The confidence in the bottleneck, 0 to 1.
    pub confidence: Option<f64>,
}

/// The figures of a pair, with the run that they are of.
#[derive(Debug, Clone, PartialEq)]
pub struct PairRun {
    /// The run's number.
    pub run: i64,
    /// When it began, RFC 3339 in UTC.
    pub started_at: String,
    /// Figures of the pair.
    pub figures: PairFigures,
}

/// A run that was saved, without its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number: ascending, and never given twice.
    pub id: i64,
    /// As in [`NewRun`].
    pub started_at: String,
    /// Time of `started_at`, seconds since 1970.
    pub at_s: u64,
    /// As in [`NewRun`].
    pub schema: String,
    /// As in [`NewRun`].
    pub path: String,
    /// As in [`NewRun`].
    pub workload: String,
    /// As in [`NewRun`].
    pub detail: String,
    /// As in [`NewRun`].
    pub series: String,
    /// As in [`NewRun`].
    pub answer: String,
    /// As in [`NewRun`].
    pub cause: Option<String>,
    /// As in [`NewRun`], `key=value key=value`.
    pub labels: String,
}

/// A figure of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The run's number.
    pub run: i64,
    /// When it began, seconds since 1970.
    pub at_s: u64,
    /// The figure's name.
    pub metric: String,
    /// The figure.
    pub value: f64,
    /// The run's bottleneck.
    pub cause: Option<String>,
}

/// A change of a series of which the user is to be told.
#[derive(Debug, Clone, Copy)]
pub struct NewAlarm<'a> {
    /// Who noticed it: only they tell it.
    pub owner: &'a str,
    /// The series.
    pub series: &'a str,
    /// The first run after the change.
    pub run: i64,
    /// The change, as it is told.
    pub change: &'a str,
    /// The channels by which it is told.
    pub channels: &'a [&'a str],
}

/// A change that a channel has not told yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// The alarm's number.
    pub alarm: i64,
    /// The change.
    pub change: String,
    /// How often the channel has failed to tell it.
    pub attempts: u32,
}

/// What a history does, whatever it is stored in.
///
/// # Errors
/// Every method fails where the store cannot be read or written; a write that fails leaves nothing.
#[allow(clippy::missing_errors_doc, reason = "the same for all, said above")]
pub trait Store: Debug + Send {
    /// Saves a run and returns its number.
    fn save(&mut self, run: &NewRun<'_>) -> Result<i64> {
        let ids = self.save_all(&[*run])?;
        Ok(*ids.first().expect("a run that was saved has a number"))
    }

    /// Saves all of these runs or none, and returns their numbers in the same order.
    fn save_all(&mut self, runs: &[NewRun<'_>]) -> Result<Vec<i64>>;

    /// The runs that pass, the newest first.
    fn list(&self, filter: &Filter) -> Result<Vec<Run>>;

    /// The lowest number of the runs that pass.
    fn first(&self, filter: &Filter) -> Result<Option<i64>>;

    /// The highest number of a run; 0 if there is none.
    fn newest(&self) -> Result<i64>;

    /// All series with the number of their runs, in the order of their names.
    fn all_series(&self) -> Result<Vec<(String, i64)>>;

    /// The run before that one in its series.
    fn before(&self, id: i64) -> Result<Option<i64>>;

    /// The document of a run; `None` if there is no such run. PostgreSQL keeps JSON by its content:
    /// the order of its keys and its white space may be different.
    fn document(&self, id: i64) -> Result<Option<String>>;

    /// The figures of a run, the most important first.
    fn figures(&self, id: i64) -> Result<Vec<(String, f64)>>;

    /// The labels of a run, by their keys.
    fn labels(&self, id: i64) -> Result<BTreeMap<String, String>>;

    /// One figure of each run that passes and has it, the oldest first; without a name the most
    /// important figure of each run.
    fn series(&self, filter: &Filter, metric: Option<&str>) -> Result<Vec<Point>>;

    /// Hourly or daily medians, in the order of series, figure and time: of the runs that are
    /// there, and of those that were pruned.
    fn rollups(&self, filter: &RollupFilter) -> Result<Vec<Rollup>>;

    /// The newest result of each pair of a test that began at `until` (RFC 3339 in UTC) or earlier.
    fn matrix(&self, test: &str, until: Option<&str>) -> Result<Vec<PairRun>>;

    /// The results of a test from one site to another, the newest first, `most` at most.
    fn pair(&self, test: &str, from: &str, to: &str, most: u32) -> Result<Vec<PairRun>>;

    /// Notes a change of which the user is to be told. One that is noted already stays as it is.
    fn raise(&mut self, alarm: &NewAlarm<'_>) -> Result<()>;

    /// Replaces the text of a change that was noted; who was told it before keeps what they have.
    fn amend(&mut self, alarm: &NewAlarm<'_>) -> Result<()>;

    /// The first run after the last change of a series that this owner has noted.
    fn changed_since(&self, owner: &str, series: &str) -> Result<Option<i64>>;

    /// What a channel of this owner has not told yet: what was tried least first, then the oldest.
    fn untold(&self, owner: &str, channel: &str) -> Result<Vec<Untold>>;

    /// Notes that a channel has told an alarm, or has given it up.
    fn told(&mut self, alarm: i64, channel: &str) -> Result<()>;

    /// Notes that a channel has failed to tell an alarm.
    fn not_told(&mut self, alarm: i64, channel: &str) -> Result<()>;

    /// Deletes the runs that pass, with all that belongs to them, and returns their number. Their
    /// hours and days are rolled up before.
    fn prune(&mut self, which: &Filter) -> Result<usize>;
}

/// Opens the history of a place. A file and its tables are made where there are none.
///
/// # Errors
/// It is no history, of a newer linerate, cannot be reached or cannot be written.
pub fn open(place: &Place) -> Result<History> {
    match place {
        Place::File(path) => Ok(Box::new(sqlite::Sqlite::open(path)?)),
        #[cfg(feature = "postgres")]
        Place::Server(url) => Ok(Box::new(postgres::Postgres::open(url)?)),
        #[cfg(not(feature = "postgres"))]
        Place::Server(_) => Err(HistoryError::NotBuilt),
    }
}

/// A history that ends with the process, for tests.
///
/// # Errors
/// There is no memory.
pub fn in_memory() -> Result<History> {
    Ok(Box::new(sqlite::Sqlite::in_memory()?))
}

#[cfg(test)]
mod tests;
