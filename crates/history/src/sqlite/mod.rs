//! The history in a file of SQLite.

mod sql;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Params, Row, Transaction, TransactionBehavior,
    params, params_from_iter,
};

use crate::rollup::{medians_of, of_most_runs, roll_up};
use crate::{
    Filter, HistoryError, NewAlarm, NewRun, PairFigures, PairRun, Period, Point, Result, Rollup,
    RollupFilter, Run, Store, Untold,
};
use sql::{select, since};

/// How long a process waits for another one that writes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to the file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    db: Connection,
}

fn cannot(operation: &'static str) -> impl Fn(rusqlite::Error) -> HistoryError {
    move |error| HistoryError::Sqlite { operation, error }
}

impl Sqlite {
    /// Opens the file, and makes it where it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::new(Connection::open(path).map_err(cannot("cannot be opened"))?)
    }

    pub(crate) fn in_memory() -> Result<Self> {
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
        sql::migrate(&mut db)?;
        Ok(Self { db })
    }

    /// Writes all of it or nothing.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let written = || {
            let change = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&change)?;
            change.commit()?;
            Ok(done)
        };
        written().map_err(cannot("cannot be written"))
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

    /// The first column of the only row.
    fn value<T: rusqlite::types::FromSql>(&self, sql: &str, values: impl Params) -> Result<T> {
        let found = self.db.query_row(sql, values, |row| row.get(0));
        found.map_err(cannot("cannot be read"))
    }
}

impl Store for Sqlite {
    fn save_all(&mut self, runs: &[NewRun<'_>]) -> Result<Vec<i64>> {
        self.write(|change| runs.iter().map(|run| insert(change, run)).collect())
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Run>> {
        let (sql, values) = select(filter);
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

    fn first(&self, filter: &Filter) -> Result<Option<i64>> {
        let (sql, values) = select(filter);
        let sql = format!("SELECT min(id) FROM ({sql})");
        self.value(&sql, params_from_iter(values))
    }

    fn newest(&self) -> Result<i64> {
        self.value("SELECT coalesce(max(id), 0) FROM runs", [])
    }

    fn all_series(&self) -> Result<Vec<(String, i64)>> {
        let sql = "SELECT series, count(*) FROM runs GROUP BY series ORDER BY series";
        self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn before(&self, id: i64) -> Result<Option<i64>> {
        let sql = "SELECT older.id FROM runs JOIN runs AS older ON older.series = runs.series \
             AND (older.started_at, older.id) < (runs.started_at, runs.id) \
             WHERE runs.id = ?1 ORDER BY older.started_at DESC, older.id DESC LIMIT 1";
        let found = self.db.query_row(sql, [id], |row| row.get(0)).optional();
        found.map_err(cannot("cannot be read"))
    }

    fn document(&self, id: i64) -> Result<Option<String>> {
        let sql = "SELECT json FROM documents WHERE run = ?1";
        let found = self.db.query_row(sql, [id], |row| row.get(0)).optional();
        found.map_err(cannot("cannot be read"))
    }

    fn figures(&self, id: i64) -> Result<Vec<(String, f64)>> {
        let sql = "SELECT metric, value FROM figures WHERE run = ?1 ORDER BY place";
        self.rows(sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn labels(&self, id: i64) -> Result<BTreeMap<String, String>> {
        let sql = "SELECT key, value FROM labels WHERE run = ?1";
        let labels = self.rows(sql, [id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(labels.into_iter().collect())
    }

    fn series(&self, filter: &Filter, metric: Option<&str>) -> Result<Vec<Point>> {
        let (runs, mut values) = select(filter);
        let of = which_metric(metric, &mut values);
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

    fn rollups(&self, filter: &RollupFilter) -> Result<Vec<Rollup>> {
        let mut values: Vec<Value> = Vec::new();
        let length = begin_of(filter.period);
        let mut terms = |series: &str, begins: &str| {
            let mut terms = which_metric(filter.metric.as_deref(), &mut values).to_owned();
            if let Some(name) = &filter.series {
                terms += &format!(" AND {series} = ?");
                values.push(name.clone().into());
            }
            if let Some(moment) = &filter.since {
                let (sql, value) = since(moment);
                terms += &format!(" AND {begins} >= substr({sql}, 1, {length})");
                values.push(value);
            }
            terms
        };
        let saved = format!(
            "SELECT runs.series, metric, place, value, \
             substr(runs.started_at, 1, {length}) AS begins FROM runs JOIN figures ON run = id \
             WHERE {}",
            terms("runs.series", "runs.started_at")
        );
        let stored = terms("series", "begins");
        let sql = format!(
            "SELECT series, metric, begins, runs, low, median, high FROM ({}) UNION ALL \
             SELECT series, metric, begins, runs, low, median, high FROM rollups \
             WHERE {stored} AND period = '{}'",
            medians_of(&saved),
            filter.period.name()
        );
        let all = self.rows(&sql, params_from_iter(values), |row| {
            Ok(Rollup {
                series: row.get(0)?,
                metric: row.get(1)?,
                begins: row.get(2)?,
                runs: row.get(3)?,
                min: row.get(4)?,
                median: row.get(5)?,
                max: row.get(6)?,
            })
        })?;
        Ok(of_most_runs(all))
    }

    fn matrix(&self, test: &str, until: Option<&str>) -> Result<Vec<PairRun>> {
        let sql = format!(
            "SELECT {PAIR_COLUMNS} FROM pairs JOIN results AS it ON it.pair = pairs.id AND \
             (it.started_at, it.run) = (SELECT started_at, run FROM results WHERE pair = pairs.id \
             AND started_at <= ?2 ORDER BY started_at DESC, run DESC LIMIT 1) WHERE test = ?1"
        );
        // Later than any time of RFC 3339.
        let until = until.unwrap_or("~");
        self.rows(&sql, [test, until], pair_run)
    }

    fn pair(&self, test: &str, from: &str, to: &str, most: u32) -> Result<Vec<PairRun>> {
        let sql = format!(
            "SELECT {PAIR_COLUMNS} FROM pairs JOIN results AS it ON it.pair = pairs.id \
             WHERE test = ?1 AND from_site = ?2 AND to_site = ?3 \
             ORDER BY it.started_at DESC, it.run DESC LIMIT ?4"
        );
        self.rows(&sql, params![test, from, to, most], pair_run)
    }

    fn raise(&mut self, alarm: &NewAlarm<'_>) -> Result<()> {
        let add =
            "INSERT OR IGNORE INTO alarms (owner, series, run, change) VALUES (?1, ?2, ?3, ?4)";
        let channel = "INSERT INTO untold (alarm, channel) VALUES (?1, ?2)";
        self.write(|tables| {
            let values = params![alarm.owner, alarm.series, alarm.run, alarm.change];
            if tables.execute(add, values)? == 0 {
                return Ok(());
            }
            let id = tables.last_insert_rowid();
            let mut channels = alarm.channels.iter();
            channels.try_for_each(|name| tables.execute(channel, params![id, name]).map(drop))
        })
    }

    fn amend(&mut self, alarm: &NewAlarm<'_>) -> Result<()> {
        let sql = "UPDATE alarms SET change = ?4 WHERE owner = ?1 AND series = ?2 AND run = ?3";
        let NewAlarm { owner, series, run, change, .. } = alarm;
        self.write(|tables| tables.execute(sql, params![owner, series, run, change]).map(drop))
    }

    fn changed_since(&self, owner: &str, series: &str) -> Result<Option<i64>> {
        let sql = "SELECT max(run) FROM alarms WHERE owner IN (?1, '') AND series = ?2";
        self.value(sql, [owner, series])
    }

    fn untold(&self, owner: &str, channel: &str) -> Result<Vec<Untold>> {
        let sql = "SELECT id, change, attempts FROM untold JOIN alarms ON id = alarm \
             WHERE owner IN (?1, '') AND channel = ?2 ORDER BY attempts, id";
        self.rows(sql, [owner, channel], |row| {
            Ok(Untold { alarm: row.get(0)?, change: row.get(1)?, attempts: row.get(2)? })
        })
    }

    fn told(&mut self, alarm: i64, channel: &str) -> Result<()> {
        let sql = "DELETE FROM untold WHERE alarm = ?1 AND channel = ?2";
        self.write(|tables| tables.execute(sql, params![alarm, channel]).map(drop))
    }

    fn not_told(&mut self, alarm: i64, channel: &str) -> Result<()> {
        let sql = "UPDATE untold SET attempts = attempts + 1 WHERE alarm = ?1 AND channel = ?2";
        self.write(|tables| tables.execute(sql, params![alarm, channel]).map(drop))
    }

    fn prune(&mut self, which: &Filter) -> Result<usize> {
        let (runs, values) = select(which);
        let gone = self.write(|change| {
            let sql =
                format!("CREATE TEMP TABLE gone AS SELECT id, series, started_at FROM ({runs})");
            change.execute(&sql, params_from_iter(values))?;
            for period in Period::ALL {
                change.execute(&roll_up(period, &affected(period)), [])?;
            }
            let gone = change.execute("DELETE FROM runs WHERE id IN (SELECT id FROM gone)", [])?;
            change.execute("DROP TABLE temp.gone", [])?;
            Ok(gone)
        })?;
        // The space goes back to the file system, as far as nobody else is reading.
        let _ =
            self.db.execute_batch("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);");
        Ok(gone)
    }
}

fn insert(change: &Transaction<'_>, run: &NewRun<'_>) -> rusqlite::Result<i64> {
    change
        .prepare(
            "INSERT INTO runs (started_at, schema, path, workload, detail, series, answer, cause) \
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
    let mut add = change.prepare("INSERT OR IGNORE INTO figures VALUES (?1, ?2, ?3, ?4)")?;
    for (place, (metric, value)) in (0_i64..).zip(run.figures) {
        add.execute(params![id, place, metric, value])?;
    }
    let mut add = change.prepare("INSERT OR REPLACE INTO labels VALUES (?1, ?2, ?3, ?4)")?;
    for (key, value) in run.labels {
        add.execute(params![id, key, value, run.started_at])?;
    }
    if !run.pairs.is_empty() {
        insert_results(change, id, run)?;
    }
    Ok(id)
}

fn insert_results(change: &Transaction<'_>, id: i64, run: &NewRun<'_>) -> rusqlite::Result<()> {
    let mut add_pair = change
        .prepare("INSERT OR IGNORE INTO pairs (test, from_site, to_site) VALUES (?1, ?2, ?3)")?;
    let mut add_result = change.prepare(
        "INSERT OR IGNORE INTO results SELECT id, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM pairs \
         WHERE test = ?1 AND from_site = ?2 AND to_site = ?3",
    )?;
    for it in run.pairs {
        add_pair.execute(params![it.test, it.from, it.to])?;
        add_result.execute(params![
            it.test,
            it.from,
            it.to,
            run.started_at,
            id,
            it.throughput_bps,
            it.loss_percent,
            it.rtt_us,
            it.cause,
            it.confidence
        ])?;
    }
    Ok(())
}

/// Columns of a [`PairRun`], of the tables `pairs` and `results AS it`.
const PAIR_COLUMNS: &str = "it.run, it.started_at, test, from_site, to_site, it.throughput_bps, \
    it.loss_percent, it.rtt_us, it.cause, it.confidence";

fn pair_run(row: &Row<'_>) -> rusqlite::Result<PairRun> {
    Ok(PairRun {
        run: row.get(0)?,
        started_at: row.get(1)?,
        figures: PairFigures {
            test: row.get(2)?,
            from: row.get(3)?,
            to: row.get(4)?,
            throughput_bps: row.get(5)?,
            loss_percent: row.get(6)?,
            rtt_us: row.get(7)?,
            cause: row.get(8)?,
            confidence: row.get(9)?,
        },
    })
}

/// A condition for the figure of that name, or for the most important one.
fn which_metric(metric: Option<&str>, values: &mut Vec<Value>) -> &'static str {
    match metric {
        Some(metric) => {
            values.push(metric.to_owned().into());
            "metric = ?"
        }
        None => "place = 0",
    }
}

/// So many characters of a time of RFC 3339 tell its hour or day.
fn begin_of(period: Period) -> usize {
    match period {
        Period::Hour => "2026-11-23T09".len(),
        Period::Day => "2026-11-23".len(),
    }
}

/// The figures of all runs of the hours or days of which runs are in the table `gone`.
fn affected(period: Period) -> String {
    let length = begin_of(period);
    format!(
        "SELECT runs.series, metric, place, value, part.begins FROM \
         (SELECT DISTINCT series, substr(started_at, 1, {length}) AS begins FROM gone) AS part \
         JOIN runs ON runs.series = part.series AND runs.started_at >= part.begins \
         AND runs.started_at < part.begins || '~' JOIN figures ON run = id"
    )
}

/// Seconds since 1970; 0 where the column has no time.
fn moment(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let at: Option<i64> = row.get(column)?;
    Ok(at.and_then(|at| at.try_into().ok()).unwrap_or(0))
}

/// With this log a writer does not stop readers. Of several processes that open a new file at once,
/// the later ones get an error at once, however long they would wait.
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
