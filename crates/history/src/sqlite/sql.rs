//! The SQL of SQLite: the tables with the changes of their versions, and filters.

use rusqlite::types::Value;
use rusqlite::{Connection, TransactionBehavior};

use super::cannot;
use crate::{Filter, HistoryError, Result, Since};

// Tables, and how those of an older version are changed into them.

/// The change from each version to the next; `user_version` is the version of a file. Entries are
/// added, never changed.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        started_at TEXT NOT NULL,
        schema TEXT NOT NULL,
        path TEXT NOT NULL,
        workload TEXT NOT NULL,
        detail TEXT NOT NULL,
        answer TEXT NOT NULL,
        cause TEXT
    ) STRICT;
    CREATE INDEX runs_of_time ON runs (started_at);
    CREATE INDEX runs_of_path ON runs (path, started_at);
    CREATE INDEX runs_of_workload ON runs (workload, started_at);
    CREATE TABLE documents (
        run INTEGER PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
        json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE figures (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        place INTEGER NOT NULL,
        metric TEXT NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (run, metric)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE labels (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (run, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX labels_of_key ON labels (key, value, run);
",
    // What the monitor has noticed. A run that is pruned takes no alarm with it: it would be raised
    // again.
    "
    CREATE TABLE alarms (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        series TEXT NOT NULL,
        run INTEGER NOT NULL,
        change TEXT NOT NULL,
        told INTEGER NOT NULL DEFAULT 0,
        UNIQUE (series, run)
    ) STRICT;
",
    // Runs of one series are found at once, and those of a label in the order of time.
    "
    ALTER TABLE runs ADD COLUMN series TEXT NOT NULL DEFAULT '';
    UPDATE runs SET series = coalesce(
        (SELECT value FROM labels WHERE run = id AND key = 'test') || ' to ' ||
        (SELECT value FROM labels WHERE run = id AND key = 'path'),
        trim(workload || ' ' || detail) || ' to ' || path);
    CREATE INDEX runs_of_series ON runs (series, started_at);
    ALTER TABLE labels ADD COLUMN started_at TEXT NOT NULL DEFAULT '';
    UPDATE labels SET started_at = (SELECT started_at FROM runs WHERE id = run);
    DROP INDEX labels_of_key;
    CREATE INDEX labels_of_key ON labels (key, value, started_at, run);
",
    // The results between the sites of a mesh, those of earlier runs as far as their figures tell
    // them; roll-ups, which outlive the runs.
    "
    CREATE TABLE pairs (
        id INTEGER PRIMARY KEY,
        test TEXT NOT NULL,
        from_site TEXT NOT NULL,
        to_site TEXT NOT NULL,
        UNIQUE (test, from_site, to_site)
    ) STRICT;
    CREATE TABLE results (
        pair INTEGER NOT NULL REFERENCES pairs,
        started_at TEXT NOT NULL,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        throughput_bps REAL,
        loss_percent REAL,
        rtt_us REAL,
        cause TEXT,
        confidence REAL,
        PRIMARY KEY (pair, started_at, run)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX results_of_run ON results (run);
    CREATE TEMP TABLE meshed AS SELECT id AS run, runs.started_at, cause, test.value AS test,
        iif(detail LIKE '% down', its_to.value, its_from.value) AS from_site,
        iif(detail LIKE '% down', its_from.value, its_to.value) AS to_site
        FROM runs JOIN labels AS test ON test.run = id AND test.key = 'test'
        JOIN labels AS its_from ON its_from.run = id AND its_from.key = 'from'
        JOIN labels AS its_to ON its_to.run = id AND its_to.key = 'to';
    INSERT INTO pairs (test, from_site, to_site)
        SELECT DISTINCT test, from_site, to_site FROM meshed;
    INSERT INTO results SELECT pairs.id, started_at, run,
        (SELECT value FROM figures WHERE run = meshed.run AND metric = 'throughput_bps'), NULL,
        (SELECT value FROM figures WHERE run = meshed.run AND metric = 'latency_us.p50'),
        cause, NULL FROM meshed JOIN pairs USING (test, from_site, to_site);
    DROP TABLE temp.meshed;
    CREATE TABLE rollups (
        series TEXT NOT NULL,
        metric TEXT NOT NULL,
        place INTEGER NOT NULL,
        period TEXT NOT NULL,
        begins TEXT NOT NULL,
        runs INTEGER NOT NULL,
        low REAL NOT NULL,
        median REAL NOT NULL,
        high REAL NOT NULL,
        PRIMARY KEY (series, period, metric, begins)
    ) STRICT, WITHOUT ROWID;
",
    // Each alarm has an owner, who tells it; those of before have none and are anybody's. Each
    // channel has told an alarm or not.
    "
    ALTER TABLE alarms RENAME TO earlier_alarms;
    CREATE TABLE alarms (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        owner TEXT NOT NULL,
        series TEXT NOT NULL,
        run INTEGER NOT NULL,
        change TEXT NOT NULL,
        UNIQUE (owner, series, run)
    ) STRICT;
    INSERT INTO alarms SELECT id, '', series, run, change FROM earlier_alarms;
    CREATE TABLE untold (
        alarm INTEGER NOT NULL REFERENCES alarms,
        channel TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (alarm, channel)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO untold (alarm, channel) SELECT id, column1
        FROM earlier_alarms, (VALUES ('command'), ('webhook')) WHERE told = 0;
    DROP TABLE earlier_alarms;
",
];

/// Brings the tables to the last version. Of two processes the second finds it done.
pub(super) fn migrate(db: &mut Connection) -> Result<()> {
    let known = MIGRATIONS.len() as u32;
    let version = |db: &Connection| -> rusqlite::Result<u32> {
        db.query_row("PRAGMA user_version", [], |row| row.get(0))
    };
    let cannot = cannot("cannot be opened");
    if version(db).map_err(&cannot)? == known {
        return Ok(());
    }
    let behavior = TransactionBehavior::Immediate;
    let change = db.transaction_with_behavior(behavior).map_err(&cannot)?;
    let found = version(&change).map_err(&cannot)?;
    let Some(missing) = MIGRATIONS.get(found as usize..) else {
        return Err(HistoryError::Newer { found, known });
    };
    for step in missing {
        change.execute_batch(step).map_err(&cannot)?;
    }
    change.pragma_update(None, "user_version", known).map_err(&cannot)?;
    change.commit().map_err(&cannot)
}

// A filter as SQL.

/// An expression for the moment, with the value of its one parameter.
pub(super) fn since(moment: &Since) -> (&'static str, Value) {
    match moment {
        Since::Ago(seconds) => {
            ("strftime('%Y-%m-%dT%H:%M:%SZ', 'now', ?)", format!("-{seconds} seconds").into())
        }
        Since::Moment(moment) => ("?", moment.clone().into()),
    }
}

/// The runs that pass, the newest first, with the values of the parameters.
pub(super) fn select(filter: &Filter) -> (String, Vec<Value>) {
    let (terms, mut values) = conditions(filter);
    let [from, time, number] = source(filter);
    let terms =
        if terms.is_empty() { String::new() } else { format!("WHERE {}", terms.join(" AND ")) };
    let most = filter.most.map_or(-1, i64::from);
    values.extend([most.into(), i64::from(filter.skip).into()]);
    let order = filter.order();
    let sql = format!(
        "SELECT id, runs.started_at AS started_at, schema, path, workload, detail, series, \
         answer, cause, \
         (SELECT group_concat(key || '=' || value, ' ') FROM labels WHERE run = id), \
         unixepoch(runs.started_at) AS at_s \
         FROM {from} {terms} ORDER BY {time} {order}, {number} {order} LIMIT ? OFFSET ?"
    );
    (sql, values)
}

/// The table of the runs, the columns of their time and number. The index of the first label has
/// its runs in the order of time.
fn source(filter: &Filter) -> [&'static str; 3] {
    if filter.labels.is_empty() {
        ["runs", "runs.started_at", "id"]
    } else {
        let from = "labels AS first CROSS JOIN runs ON id = first.run";
        [from, "first.started_at", "first.run"]
    }
}

fn conditions(filter: &Filter) -> (Vec<String>, Vec<Value>) {
    let mut terms: Vec<String> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let mut add = |term: &str, value: Value| {
        terms.push(term.to_owned());
        values.push(value);
    };
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let has_key = "EXISTS (SELECT 1 FROM labels WHERE run = id AND key = ?)";
    for (term, value) in [
        ("id = ?", filter.id.map(Value::from)),
        ("id >= ?", filter.from_id.map(Value::from)),
        ("id < ?", filter.before_id.map(Value::from)),
        ("path = ?", text(&filter.path)),
        ("workload = ?", text(&filter.workload)),
        ("detail = ?", text(&filter.detail)),
        ("series = ?", text(&filter.series)),
        (has_key, text(&filter.label_key)),
    ] {
        value.into_iter().for_each(|value| add(term, value));
    }
    let [_, time, _] = source(filter);
    for (operator, moment) in [(">=", &filter.since), ("<", &filter.before)] {
        if let Some(moment) = moment {
            let (sql, value) = since(moment);
            add(&format!("{time} {operator} {sql}"), value);
        }
    }
    for (place, (key, value)) in filter.labels.iter().enumerate() {
        let (begin, end) = if place == 0 {
            ("first.key = ?", "first.value = ?")
        } else {
            ("EXISTS (SELECT 1 FROM labels WHERE run = id AND key = ?", "value = ?)")
        };
        add(begin, key.clone().into());
        add(end, value.clone().into());
    }
    if !filter.schemas.is_empty() {
        let places = vec!["?"; filter.schemas.len()].join(", ");
        terms.push(format!("schema IN ({places})"));
        values.extend(filter.schemas.iter().cloned().map(Value::from));
    }
    (terms, values)
}
