#![forbid(unsafe_code)]
//! What linerate keeps: every run that was saved, in a file of SQLite.
//!
//! This crate keeps and does not judge. It knows a document as a text with a few words and figures
//! beside it, which the caller takes from it; those are indexed, the text comes back as it was.
//!
//! Several processes can write at once: each waits for its turn. A run that was saved is on the
//! disk, and one that was not is not there at all, however the process ends.
//!
//! ```
//! use linerate_history::{Filter, History, NewRun};
//!
//! let mut history = History::in_memory()?;
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
//!     labels: &[],
//!     document: "{}",
//! })?;
//! assert_eq!(history.list(&Filter::default())?[0].id, id);
//! # Ok::<(), linerate_history::HistoryError>(())
//! ```

mod filter;
mod schema;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Params, Row, TransactionBehavior, params,
    params_from_iter,
};
use thiserror::Error;

pub use filter::{Filter, Since};

/// Why the history cannot be read or written.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// SQLite says no.
    #[error("the history {operation}: {error}")]
    Sqlite {
        /// What was tried.
        operation: &'static str,
        /// Why not; SQLite's own number of it says no more.
        error: rusqlite::Error,
    },
    /// A later version of linerate has changed the tables.
    #[error(
        "the history is of version {found}, made by a newer linerate; this one reads up to {known}"
    )]
    Newer {
        /// The file's version.
        found: u32,
        /// The latest known.
        known: u32,
    },
}

type Result<T> = std::result::Result<T, HistoryError>;

fn cannot(operation: &'static str) -> impl Fn(rusqlite::Error) -> HistoryError {
    move |error| HistoryError::Sqlite { operation, error }
}

/// A run to be saved.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    /// When it began, RFC 3339 in UTC.
    pub started_at: &'a str,
    /// What the document is, such as `linerate.record/1`.
    pub schema: &'a str,
    /// Where to: the endpoint as the user named it, or the emulated path.
    pub path: &'a str,
    /// What was run, such as `stream`.
    pub workload: &'a str,
    /// How it was run, such as `tcp up`: what tells runs apart that are not to be compared.
    pub detail: &'a str,
    /// Which runs it is one of, to be set beside each other.
    pub series: &'a str,
    /// What came of it, in a sentence.
    pub answer: &'a str,
    /// What held it back.
    pub cause: Option<&'a str>,
    /// Its figures by their names, that which matters most first.
    pub figures: &'a [(String, f64)],
    /// What the user calls it: keys and values.
    pub labels: &'a [(String, String)],
    /// The document, as JSON.
    pub document: &'a str,
}

/// A run that was saved, without its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number: ascending, and never given twice.
    pub id: i64,
    /// As in [`NewRun`].
    pub started_at: String,
    /// The same, seconds since 1970.
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
    /// What held the run back.
    pub cause: Option<String>,
}

/// Which runs are to stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// The last so many.
    Last(u64),
    /// Those since.
    Since(Since),
}

/// The runs that were saved.
#[derive(Debug)]
pub struct History {
    db: Connection,
}

/// How long a process waits for another one's turn.
const PATIENCE: Duration = Duration::from_secs(20);

impl History {
    /// Opens the file, and makes it where it is not there.
    ///
    /// # Errors
    /// It is no history, of a newer linerate, or cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        Self::new(Connection::open(path).map_err(cannot("cannot be opened"))?)
    }

    /// One that is gone with the process, for tests.
    ///
    /// # Errors
    /// No memory.
    pub fn in_memory() -> Result<Self> {
        Self::new(Connection::open_in_memory().map_err(cannot("cannot be opened"))?)
    }

    fn new(mut db: Connection) -> Result<Self> {
        let cannot = cannot("cannot be opened");
        db.busy_timeout(PATIENCE).map_err(&cannot)?;
        // What is committed outlives a crash of the host, too.
        let set = "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = FULL; PRAGMA \
            foreign_keys = ON;";
        db.execute_batch(set).map_err(&cannot)?;
        use_write_ahead_log(&db).map_err(&cannot)?;
        schema::migrate(&mut db)?;
        Ok(Self { db })
    }

    /// Saves a run; its number.
    ///
    /// # Errors
    /// It cannot be written; then nothing of it is there.
    pub fn save(&mut self, run: &NewRun<'_>) -> Result<i64> {
        self.insert(run).map_err(cannot("cannot be written"))
    }

    fn insert(&mut self, run: &NewRun<'_>) -> rusqlite::Result<i64> {
        let change = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        change
            .prepare(
                "INSERT INTO runs (started_at, schema, path, workload, detail, series, answer, \
                 cause) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                run.started_at,
                run.schema,
                run.path,
                run.workload,
                run.detail,
                run.series,
                run.answer,
                run.cause
            ])?;
        let id = change.last_insert_rowid();
        change
            .prepare("INSERT INTO documents (run, json) VALUES (?1, ?2)")?
            .execute(params![id, run.document])?;
        {
            let mut add =
                change.prepare("INSERT OR IGNORE INTO figures VALUES (?1, ?2, ?3, ?4)")?;
            for (place, (metric, value)) in (0_i64..).zip(run.figures) {
                add.execute(params![id, place, metric, value])?;
            }
            let mut add =
                change.prepare("INSERT OR REPLACE INTO labels VALUES (?1, ?2, ?3, ?4)")?;
            for (key, value) in run.labels {
                add.execute(params![id, key, value, run.started_at])?;
            }
        }
        change.commit()?;
        Ok(id)
    }

    /// The runs that pass, the newest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Run>> {
        let (sql, values) = filter.sql();
        self.rows(&sql, params_from_iter(values), |row| {
            Ok(Run {
                id: row.get(0)?,
                started_at: row.get(1)?,
                schema: row.get(2)?,
                path: row.get(3)?,
                workload: row.get(4)?,
                detail: row.get(5)?,
                series: row.get(6)?,
                answer: row.get(7)?,
                cause: row.get(8)?,
                labels: row.get::<_, Option<String>>(9)?.unwrap_or_default(),
                at_s: moment(row, 10)?,
            })
        })
    }

    /// The highest number that a run has; 0 if there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn newest(&self) -> Result<i64> {
        let sql = "SELECT coalesce(max(id), 0) FROM runs";
        let found = self.db.query_row(sql, [], |row| row.get(0));
        found.map_err(cannot("cannot be read"))
    }

    /// All series with the number of their runs, in the order of their names.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn all_series(&self) -> Result<Vec<(String, i64)>> {
        let sql = "SELECT series, count(*) FROM runs GROUP BY series ORDER BY series";
        self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// The run before that one in its series.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn before(&self, id: i64) -> Result<Option<i64>> {
        let sql = "SELECT older.id FROM runs JOIN runs AS older ON older.series = runs.series \
             AND (older.started_at, older.id) < (runs.started_at, runs.id) \
             WHERE runs.id = ?1 ORDER BY older.started_at DESC, older.id DESC LIMIT 1";
        let found = self.db.query_row(sql, [id], |row| row.get(0)).optional();
        found.map_err(cannot("cannot be read"))
    }

    fn rows<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let cannot = cannot("cannot be read");
        let mut found = self.db.prepare(sql).map_err(&cannot)?;
        let rows = found.query_map(values, read).map_err(&cannot)?;
        rows.collect::<rusqlite::Result<_>>().map_err(&cannot)
    }

    /// How SQLite would find these runs: the steps of its plan.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn plan(&self, filter: &Filter) -> Result<Vec<String>> {
        let (sql, values) = filter.sql();
        let sql = format!("EXPLAIN QUERY PLAN {sql}");
        self.rows(&sql, params_from_iter(values), |row| row.get(3))
    }

    /// The document of a run; `None` if there is no such run.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn document(&self, id: i64) -> Result<Option<String>> {
        let sql = "SELECT json FROM documents WHERE run = ?1";
        let found = self.db.query_row(sql, [id], |row| row.get(0)).optional();
        found.map_err(cannot("cannot be read"))
    }

    /// The figures of a run, that which matters most first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn figures(&self, id: i64) -> Result<Vec<(String, f64)>> {
        let sql = "SELECT metric, value FROM figures WHERE run = ?1 ORDER BY place";
        self.rows(sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// A figure of each run that passes and has it, without a name the one that matters most; the
    /// oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn series(&self, filter: &Filter, metric: Option<&str>) -> Result<Vec<Point>> {
        let (runs, mut values) = filter.sql();
        let of = match metric {
            Some(metric) => {
                values.push(metric.to_owned().into());
                "metric = ?"
            }
            None => "place = 0",
        };
        let sql = format!(
            "SELECT id, at_s, metric, value, cause FROM ({runs}) \
             JOIN figures ON run = id AND {of} ORDER BY started_at, id"
        );
        self.rows(&sql, params_from_iter(values), |row| {
            Ok(Point {
                run: row.get(0)?,
                at_s: moment(row, 1)?,
                metric: row.get(2)?,
                value: row.get(3)?,
                cause: row.get(4)?,
            })
        })
    }

    /// Notes a change of a series, from this run on, that somebody is to be told. One that is noted
    /// already stays as it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn raise(&mut self, series: &str, run: i64, change: &str) -> Result<()> {
        let sql = "INSERT OR IGNORE INTO alarms (series, run, change) VALUES (?1, ?2, ?3)";
        let done = self.db.execute(sql, params![series, run, change]);
        done.map(drop).map_err(cannot("cannot be written"))
    }

    /// The run from which on a series was last noted to have changed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn changed_since(&self, series: &str) -> Result<Option<i64>> {
        let sql = "SELECT max(run) FROM alarms WHERE series = ?1";
        let found = self.db.query_row(sql, [series], |row| row.get(0));
        found.map_err(cannot("cannot be read"))
    }

    /// The changes that nobody was told yet, with their numbers; the oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn untold(&self) -> Result<Vec<(i64, String)>> {
        let sql = "SELECT id, change FROM alarms WHERE told = 0 ORDER BY id";
        self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Somebody was told the change of this number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn told(&mut self, alarm: i64) -> Result<()> {
        let sql = "UPDATE alarms SET told = 1 WHERE id = ?1";
        let done = self.db.execute(sql, [alarm]);
        done.map(drop).map_err(cannot("cannot be written"))
    }

    /// The labels of a run, by their keys.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn labels(&self, id: i64) -> Result<BTreeMap<String, String>> {
        let sql = "SELECT key, value FROM labels WHERE run = ?1";
        let labels = self.rows(sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(labels.into_iter().collect())
    }

    /// Takes away all runs but these; how many are gone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn prune(&mut self, keep: &Keep) -> Result<usize> {
        let gone = match keep {
            Keep::Last(count) => self.db.execute(
                "DELETE FROM runs WHERE id NOT IN \
                 (SELECT id FROM runs ORDER BY started_at DESC, id DESC LIMIT ?1)",
                [i64::try_from(*count).unwrap_or(i64::MAX)],
            ),
            Keep::Since(since) => {
                let (sql, value) = since.sql();
                self.db.execute(
                    &format!("DELETE FROM runs WHERE started_at < {sql}"),
                    [value],
                )
            }
        };
        let gone = gone.map_err(cannot("cannot be written"))?;
        // What they took is given back to the file system, as far as nobody else is reading.
        let _ = self
            .db
            .execute_batch("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);");
        Ok(gone)
    }
}

/// Seconds since 1970; 0 of what is no time.
fn moment(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let at: Option<i64> = row.get(column)?;
    Ok(at.and_then(|at| at.try_into().ok()).unwrap_or(0))
}

/// A writer does not stop readers then. Of several processes that open a new file at once, those
/// that come too early are told so at once, whatever their patience.
fn use_write_ahead_log(db: &Connection) -> rusqlite::Result<()> {
    let mut left = PATIENCE;
    loop {
        match db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && !left.is_zero() =>
            {
                thread::sleep(PAUSE);
                left = left.saturating_sub(PAUSE);
            }
            done => return done,
        }
    }
}

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
