//! The history on a PostgreSQL server, 12 or newer.
//!
//! Runs, figures and results are partitioned by the month in which a run began; all rows are
//! written by COPY. The tables are in the schema `linerate`.

mod sql;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use ::postgres::config::{Host, SslMode};
use ::postgres::types::ToSql;
use ::postgres::{Client, Config, NoTls, Row, Transaction};

use crate::rollup::{medians_of, of_most_runs, roll_up};
use crate::{
    Filter, HistoryError, NewAlarm, NewRun, PairFigures, PairRun, Period, Point, Result, Rollup,
    RollupFilter, Run, Store, Untold, first_moment,
};
use sql::{Values, json_without_nul, select};

/// How long the server may take to answer at first.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a peer may be silent that owes an acknowledgement.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a statement may take, with its wait for others that write, as PostgreSQL writes it.
const STATEMENT: &str = "5min";

/// A connection to the server, which is made anew when it is lost.
pub(crate) struct Postgres {
    config: Config,
    client: RefCell<Client>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&self.config).finish()
    }
}

type Try<T> = std::result::Result<T, ::postgres::Error>;

fn cannot(operation: &'static str) -> impl Fn(::postgres::Error) -> HistoryError {
    move |error| {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            let _ = write!(why, ": {error}");
            source = error.source();
        }
        let code = error.code().map(|code| code.code().to_owned());
        HistoryError::Postgres { operation, why, code }
    }
}

impl Postgres {
    /// Connects, and makes the tables where there are none.
    pub(crate) fn open(url: &str) -> Result<Self> {
        let mut config: Config = url.parse().map_err(cannot("cannot be opened"))?;
        config.application_name("linerate");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(PATIENCE);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE);
        }
        if !url.contains("keepalives") {
            config.keepalives_idle(SILENCE);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host_path(DEFAULT_SOCKET);
        }
        if config.get_password().is_none()
            && let Some(password) = std::env::var_os("PGPASSWORD")
        {
            config.password(password.into_encoded_bytes());
        }
        check_encryption(&config)?;
        let mut client = connect(&config).map_err(cannot("cannot be opened"))?;
        sql::migrate(&mut client)?;
        let client = RefCell::new(client);
        Ok(Self { config, client })
    }

    fn client(&self) -> Try<RefMut<'_, Client>> {
        let mut client = self.client.borrow_mut();
        // Between two saves a server may be started again, or a firewall may forget the connection.
        if client.is_valid(PATIENCE).is_err() {
            *client = connect(&self.config)?;
        }
        Ok(client)
    }

    fn rows<T>(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        read: impl FnMut(&Row) -> T,
    ) -> Result<Vec<T>> {
        let found = self.client().and_then(|mut client| client.query(sql, values));
        Ok(found.map_err(cannot("cannot be read"))?.iter().map(read).collect())
    }

    /// Writes all of it or nothing, while nobody else writes.
    fn write<T>(&self, work: impl FnOnce(&mut Transaction<'_>) -> Try<T>) -> Result<T> {
        let written = || {
            let mut client = self.client()?;
            let mut change = client.transaction()?;
            sql::take_turn(&mut change)?;
            let done = work(&mut change)?;
            change.commit()?;
            Ok(done)
        };
        written().map_err(cannot("cannot be written"))
    }
}

/// Where a server of Debian and most other distributions listens.
const DEFAULT_SOCKET: &str = "/var/run/postgresql";

fn connect(config: &Config) -> Try<Client> {
    let mut client = config.connect(NoTls)?;
    // A matrix is many short look-ups: to compile them takes longer than to make them.
    client.batch_execute(&format!(
        "SET search_path TO linerate; SET jit TO off; SET TimeZone TO UTC; \
         SET statement_timeout TO '{STATEMENT}'"
    ))?;
    Ok(client)
}

/// There is no TLS here: what leaves the host must have been asked for as plain text.
fn check_encryption(config: &Config) -> Result<()> {
    let is_here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
    };
    let addresses = config.get_hostaddrs();
    let stays_here = if addresses.is_empty() {
        config.get_hosts().iter().all(is_here)
    } else {
        addresses.iter().all(IpAddr::is_loopback)
    };
    match config.get_ssl_mode() {
        SslMode::Disable => Ok(()),
        SslMode::Prefer if stays_here => Ok(()),
        _ => Err(HistoryError::Postgres {
            operation: "cannot be opened",
            why:
                "linerate speaks no TLS with PostgreSQL: add sslmode=disable where the network is \
                  trusted, or reach the server through a tunnel (ssh -L)"
                    .to_owned(),
            code: None,
        }),
    }
}

impl Store for Postgres {
    fn save_all(&mut self, runs: &[NewRun<'_>]) -> Result<Vec<i64>> {
        let times: Vec<String> = runs.iter().map(|run| first_moment(run.started_at)).collect();
        self.write(|change| {
            let months = times.iter().map(|time| &time[..7]).collect();
            sql::make_partitions(change, &months)?;
            let numbers = "SELECT nextval('run_id') FROM generate_series(1, $1::bigint)";
            let drawn = change.query(numbers, &[&(runs.len() as i64)])?;
            let ids: Vec<i64> = drawn.iter().map(|row| row.get(0)).collect();
            let pairs = pairs(change, runs)?;
            let mut rows = CopyRows::default();
            for ((run, id), time) in runs.iter().zip(&ids).zip(&times) {
                rows.add(run, *id, time, &pairs);
            }
            rows.copy(change)?;
            Ok(ids)
        })
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Run>> {
        let columns = format!(
            "id, {}, schema, path, workload, detail, series, answer, cause, \
             coalesce((SELECT string_agg(key || '=' || value, ' ' ORDER BY key COLLATE \"C\") \
             FROM jsonb_each_text(labels)), ''), {}",
            rfc3339("started_at"),
            seconds("started_at")
        );
        let (sql, values) = select(&columns, filter);
        self.rows(&sql, &values.list(), |row| Run {
            id: row.get(0),
            started_at: row.get(1),
            schema: row.get(2),
            path: row.get(3),
            workload: row.get(4),
            detail: row.get(5),
            series: row.get(6),
            answer: row.get(7),
            cause: row.get(8),
            labels: row.get(9),
            at_s: at_s(row, 10),
        })
    }

    fn first(&self, filter: &Filter) -> Result<Option<i64>> {
        let (sql, values) = select("id", filter);
        let sql = format!("SELECT min(id) FROM ({sql}) AS those");
        let found = self.rows(&sql, &values.list(), |row| row.get(0))?;
        Ok(found.into_iter().next().flatten())
    }

    fn newest(&self) -> Result<i64> {
        let found = self.rows("SELECT coalesce(max(id), 0) FROM runs", &[], |row| row.get(0))?;
        Ok(found.into_iter().next().unwrap_or(0))
    }

    fn all_series(&self) -> Result<Vec<(String, i64)>> {
        let sql = "SELECT series, count(*) FROM runs GROUP BY series ORDER BY series";
        self.rows(sql, &[], |row| (row.get(0), row.get(1)))
    }

    fn before(&self, id: i64) -> Result<Option<i64>> {
        let sql = "SELECT older.id FROM runs JOIN runs AS older ON older.series = runs.series \
             AND (older.started_at, older.id) < (runs.started_at, runs.id) \
             WHERE runs.id = $1 ORDER BY older.started_at DESC, older.id DESC LIMIT 1";
        Ok(self.rows(sql, &[&id], |row| row.get(0))?.pop())
    }

    fn document(&self, id: i64) -> Result<Option<String>> {
        let sql = "SELECT document::text FROM runs WHERE id = $1";
        Ok(self.rows(sql, &[&id], |row| row.get(0))?.pop())
    }

    fn figures(&self, id: i64) -> Result<Vec<(String, f64)>> {
        let sql = "SELECT metric, value FROM figures WHERE run = $1 ORDER BY place";
        self.rows(sql, &[&id], |row| (row.get(0), row.get(1)))
    }

    fn labels(&self, id: i64) -> Result<BTreeMap<String, String>> {
        let sql = "SELECT key, value FROM runs, jsonb_each_text(labels) WHERE id = $1";
        let labels = self.rows(sql, &[&id], |row| (row.get(0), row.get(1)))?;
        Ok(labels.into_iter().collect())
    }

    fn series(&self, filter: &Filter, metric: Option<&str>) -> Result<Vec<Point>> {
        let (runs, mut values) = select("id, started_at, cause", filter);
        let of = which_metric(metric, &mut values);
        let sql = format!(
            "SELECT id, {}, metric, value, cause FROM ({runs}) AS runs JOIN figures \
             ON run = id AND figures.started_at = runs.started_at AND {of} \
             ORDER BY runs.started_at, id",
            seconds("runs.started_at")
        );
        self.rows(&sql, &values.list(), |row| Point {
            run: row.get(0),
            at_s: at_s(row, 1),
            metric: row.get(2),
            value: row.get(3),
            cause: row.get(4),
        })
    }

    fn rollups(&self, filter: &RollupFilter) -> Result<Vec<Rollup>> {
        let mut values = Values::default();
        let period = filter.period;
        let mut terms = which_metric(filter.metric.as_deref(), &mut values);
        if let Some(name) = &filter.series {
            let _ = write!(terms, " AND series = {}", values.add(name.clone()));
        }
        let since = match &filter.since {
            Some(moment) => begin_of(period, &values.since(moment)),
            None => "'-infinity'::timestamptz".to_owned(),
        };
        let saved = format!(
            "SELECT series, metric, place, value, {} AS begins FROM runs JOIN figures \
             ON run = id AND figures.started_at = runs.started_at \
             WHERE {terms} AND runs.started_at >= {since}",
            begin_of(period, "runs.started_at")
        );
        let sql = format!(
            "SELECT series, metric, to_char(begins AT TIME ZONE 'UTC', '{}'), runs, low, median, \
             high FROM (SELECT series, metric, begins, runs, low, median, high FROM ({}) AS fresh \
             UNION ALL SELECT series, metric, begins, runs, low, median, high FROM rollups \
             WHERE {terms} AND period = '{}' AND begins >= {since}) AS both_kinds",
            match period {
                Period::Hour => "YYYY-MM-DD\"T\"HH24",
                Period::Day => "YYYY-MM-DD",
            },
            medians_of(&saved),
            period.name()
        );
        let all = self.rows(&sql, &values.list(), |row| Rollup {
            series: row.get(0),
            metric: row.get(1),
            begins: row.get(2),
            runs: row.get(3),
            min: row.get(4),
            median: row.get(5),
            max: row.get(6),
        })?;
        Ok(of_most_runs(all))
    }

    fn matrix(&self, test: &str, until: Option<&str>) -> Result<Vec<PairRun>> {
        let until = until.map_or_else(|| "infinity".to_owned(), first_moment);
        let sql = format!(
            "SELECT {} FROM pairs CROSS JOIN LATERAL (SELECT * FROM results \
             WHERE pair = pairs.id AND started_at <= $2::text::timestamptz \
             ORDER BY started_at DESC, run DESC LIMIT 1) AS it WHERE test = $1",
            pair_columns()
        );
        self.rows(&sql, &[&test, &until], pair_run)
    }

    fn pair(&self, test: &str, from: &str, to: &str, most: u32) -> Result<Vec<PairRun>> {
        let sql = format!(
            "SELECT {} FROM pairs JOIN results AS it ON pair = pairs.id \
             WHERE test = $1 AND from_site = $2 AND to_site = $3 \
             ORDER BY it.started_at DESC, run DESC LIMIT $4",
            pair_columns()
        );
        self.rows(&sql, &[&test, &from, &to, &i64::from(most)], pair_run)
    }

    fn raise(&mut self, alarm: &NewAlarm<'_>) -> Result<()> {
        let sql = "WITH added AS (INSERT INTO alarms (owner, series, run, change) \
             VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING id) \
             INSERT INTO untold (alarm, channel) SELECT id, unnest($5::text[]) FROM added";
        let NewAlarm { owner, series, run, change, channels } = alarm;
        let values: [&(dyn ToSql + Sync); 5] = [owner, series, run, change, channels];
        self.write(|tables| tables.execute(sql, &values).map(drop))
    }

    fn amend(&mut self, alarm: &NewAlarm<'_>) -> Result<()> {
        let sql = "UPDATE alarms SET change = $4 WHERE owner = $1 AND series = $2 AND run = $3";
        let NewAlarm { owner, series, run, change, .. } = alarm;
        self.write(|tables| tables.execute(sql, &[owner, series, run, change]).map(drop))
    }

    fn changed_since(&self, owner: &str, series: &str) -> Result<Option<i64>> {
        let sql = "SELECT max(run) FROM alarms WHERE owner IN ($1, '') AND series = $2";
        Ok(self.rows(sql, &[&owner, &series], |row| row.get(0))?.pop().flatten())
    }

    fn untold(&self, owner: &str, channel: &str) -> Result<Vec<Untold>> {
        let sql = "SELECT id, change, attempts FROM untold JOIN alarms ON id = alarm \
             WHERE owner IN ($1, '') AND channel = $2 ORDER BY attempts, id";
        self.rows(sql, &[&owner, &channel], |row| Untold {
            alarm: row.get(0),
            change: row.get(1),
            attempts: row.get::<_, i32>(2).try_into().unwrap_or(0),
        })
    }

    fn told(&mut self, alarm: i64, channel: &str) -> Result<()> {
        let sql = "DELETE FROM untold WHERE alarm = $1 AND channel = $2";
        self.write(|tables| tables.execute(sql, &[&alarm, &channel]).map(drop))
    }

    fn not_told(&mut self, alarm: i64, channel: &str) -> Result<()> {
        let sql = "UPDATE untold SET attempts = attempts + 1 WHERE alarm = $1 AND channel = $2";
        self.write(|tables| tables.execute(sql, &[&alarm, &channel]).map(drop))
    }

    fn prune(&mut self, which: &Filter) -> Result<usize> {
        let (runs, values) = select("id, series, started_at", which);
        self.write(|change| {
            // A statement that makes a table has no parameters.
            change.batch_execute(
                "CREATE TEMP TABLE gone (id bigint, series text COLLATE \"C\", \
                 started_at timestamptz) ON COMMIT DROP",
            )?;
            change.execute(&*format!("INSERT INTO gone {runs}"), &values.list())?;
            change.batch_execute("ANALYZE gone")?;
            for period in Period::ALL {
                change.batch_execute(&roll_up(period, &affected(period)))?;
            }
            for table in ["results", "figures"] {
                change.batch_execute(&format!(
                    "DELETE FROM {table} AS it USING gone \
                     WHERE it.run = gone.id AND it.started_at = gone.started_at"
                ))?;
            }
            let runs = "DELETE FROM runs AS it USING gone \
                 WHERE it.id = gone.id AND it.started_at = gone.started_at";
            let gone = change.execute(runs, &[])?;
            sql::drop_empty_partitions(change)?;
            Ok(gone as usize)
        })
    }
}

/// The number of each pair, by test, sender and receiver.
type Pairs = HashMap<[String; 3], i32>;

/// The numbers of the pairs of these runs; new ones are added.
fn pairs(change: &mut Transaction<'_>, runs: &[NewRun<'_>]) -> Try<Pairs> {
    let results = runs.iter().flat_map(|run| run.pairs);
    let all: BTreeSet<[&str; 3]> = results.map(|it| [&*it.test, &*it.from, &*it.to]).collect();
    if all.is_empty() {
        return Ok(Pairs::new());
    }
    let [test, from, to] = [0, 1, 2].map(|at| all.iter().map(|it| it[at]).collect::<Vec<_>>());
    let values: [&(dyn ToSql + Sync); 3] = [&test, &from, &to];
    let given = "unnest($1::text[], $2::text[], $3::text[])";
    let add = format!(
        "INSERT INTO pairs (test, from_site, to_site) SELECT * FROM {given} \
         EXCEPT SELECT test, from_site, to_site FROM pairs WHERE test = ANY ($1)"
    );
    let known = format!(
        "SELECT test, from_site, to_site, id FROM pairs JOIN {given} AS given (a, b, c) \
         ON test = a AND from_site = b AND to_site = c"
    );
    let mut found = change.query(&*known, &values)?;
    if found.len() < all.len() {
        change.execute(&*add, &values)?;
        found = change.query(&*known, &values)?;
    }
    let pair = |row: &Row| ([0_usize, 1, 2].map(|at| row.get(at)), row.get(3));
    Ok(found.iter().map(pair).collect())
}

/// The rows of several runs in COPY's text format, of `runs`, `figures` and `results`.
#[derive(Default)]
struct CopyRows {
    runs: String,
    figures: String,
    results: String,
}

impl CopyRows {
    fn add(&mut self, run: &NewRun<'_>, id: i64, time: &str, pairs: &Pairs) {
        let (id, labels) = (id.to_string(), sql::labels(run.labels));
        let document = json_without_nul(run.document);
        let cells = [
            Some(&*id),
            Some(time),
            Some(run.schema),
            Some(run.path),
            Some(run.workload),
            Some(run.detail),
            Some(run.series),
            Some(run.answer),
            run.cause,
            Some(&*labels),
            Some(&*document),
        ];
        row(&mut self.runs, &cells);
        let mut names = BTreeSet::new();
        for (place, (metric, value)) in run.figures.iter().enumerate() {
            // As with SQLite, the first of a name counts, and what is no number is none.
            if !value.is_nan() && names.insert(metric) {
                let (place, value) = (place.to_string(), value.to_string());
                let cells = [&*id, time, &*place, metric, &*value];
                row(&mut self.figures, &cells.map(Some));
            }
        }
        let mut seen = BTreeSet::new();
        for it in run.pairs {
            let pair = pairs[&[it.test.clone(), it.from.clone(), it.to.clone()]];
            if !seen.insert(pair) {
                continue;
            }
            let number = |value: Option<f64>| value.map(|value| value.to_string());
            let (pair, values) = (
                pair.to_string(),
                [it.throughput_bps, it.loss_percent, it.rtt_us, it.confidence].map(number),
            );
            let [bps, loss, rtt, confidence] = values.each_ref().map(Option::as_deref);
            let (id, pair) = (Some(&*id), Some(&*pair));
            let cells = [id, Some(time), pair, bps, loss, rtt, it.cause.as_deref(), confidence];
            row(&mut self.results, &cells);
        }
    }

    fn copy(&self, change: &mut Transaction<'_>) -> Try<()> {
        let tables = [("runs", &self.runs), ("figures", &self.figures), ("results", &self.results)];
        for (table, rows) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            let mut copy = change.copy_in(&*format!("COPY {table} FROM STDIN"))?;
            // What goes wrong is said at the end.
            let _ = copy.write_all(rows.as_bytes());
            copy.finish()?;
        }
        Ok(())
    }
}

/// Adds a row of COPY's text format.
fn row(to: &mut String, cells: &[Option<&str>]) {
    for (place, cell) in cells.iter().enumerate() {
        if place > 0 {
            to.push('\t');
        }
        let Some(cell) = cell else {
            to.push_str("\\N");
            continue;
        };
        for character in cell.chars() {
            match character {
                '\\' => to.push_str("\\\\"),
                '\t' => to.push_str("\\t"),
                '\n' => to.push_str("\\n"),
                '\r' => to.push_str("\\r"),
                '\0' => to.push('\u{fffd}'),
                other => to.push(other),
            }
        }
    }
    to.push('\n');
}

/// A time as documents have it: RFC 3339 in UTC, with microseconds where there are any.
fn rfc3339(column: &str) -> String {
    let time = format!("{column} AT TIME ZONE 'UTC'");
    format!("replace(to_char({time}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), '.000000Z', 'Z')")
}

fn seconds(column: &str) -> String {
    format!("floor(extract(epoch FROM {column}))::bigint")
}

/// Seconds since 1970.
fn at_s(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).try_into().unwrap_or(0)
}

fn which_metric(metric: Option<&str>, values: &mut Values) -> String {
    match metric {
        Some(metric) => format!("metric = {}", values.add(metric.to_owned())),
        None => "place = 0".to_owned(),
    }
}

/// The hour or day of a time.
fn begin_of(period: Period, time: &str) -> String {
    format!("date_trunc('{}', {time}, 'UTC')", period.name())
}

/// The figures of all runs of the hours or days of which runs are in the table `gone`.
fn affected(period: Period) -> String {
    format!(
        "SELECT runs.series, metric, place, value, part.begins FROM \
         (SELECT DISTINCT series, {} AS begins FROM gone) AS part \
         JOIN runs ON runs.series = part.series AND runs.started_at >= part.begins \
         AND runs.started_at < part.begins + interval '1 {}' \
         JOIN figures ON run = id AND figures.started_at = runs.started_at",
        begin_of(period, "started_at"),
        period.name()
    )
}

/// Columns of a [`PairRun`], of the tables `pairs` and `results AS it`.
fn pair_columns() -> String {
    format!(
        "it.run, {}, test, from_site, to_site, it.throughput_bps, it.loss_percent, it.rtt_us, \
         it.cause, it.confidence",
        rfc3339("it.started_at")
    )
}

fn pair_run(row: &Row) -> PairRun {
    PairRun {
        run: row.get(0),
        started_at: row.get(1),
        figures: PairFigures {
            test: row.get(2),
            from: row.get(3),
            to: row.get(4),
            throughput_bps: row.get(5),
            loss_percent: row.get(6),
            rtt_us: row.get(7),
            cause: row.get(8),
            confidence: row.get(9),
        },
    }
}
