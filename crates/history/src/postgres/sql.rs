//! The SQL of PostgreSQL: the tables and their partitions, filters, texts.

use std::collections::{BTreeMap, BTreeSet};

use ::postgres::types::ToSql;
use ::postgres::{Client, Error, GenericClient, Transaction};

use super::cannot;
use crate::{Filter, HistoryError, Result, Since, first_moment};

// Tables in a schema of their own, and their partitions.

/// Brings the tables to the last version. Of two processes the second finds it done.
pub(super) fn migrate(client: &mut Client) -> Result<()> {
    let cannot = cannot("cannot be opened");
    let known = MIGRATIONS.len() as u32;
    if version(client).map_err(&cannot)? == known {
        return Ok(());
    }
    let mut change = client.transaction().map_err(&cannot)?;
    take_turn(&mut change).map_err(&cannot)?;
    let found = version(&mut change).map_err(&cannot)?;
    let Some(missing) = MIGRATIONS.get(found as usize..) else {
        return Err(HistoryError::Newer { found, known });
    };
    let migrated = || {
        // Whoever may not make one can be given one: IF NOT EXISTS asks for the right to make it
        // first.
        let there = "SELECT 1 FROM pg_namespace WHERE nspname = 'linerate'";
        if change.query_opt(there, &[])?.is_none() {
            change.batch_execute("CREATE SCHEMA linerate")?;
        }
        missing.iter().try_for_each(|step| change.batch_execute(step))?;
        change.commit()
    };
    migrated().map_err(&cannot)
}

fn version(client: &mut impl GenericClient) -> std::result::Result<u32, Error> {
    if !has_table(client, "version")? {
        return Ok(0);
    }
    let row = client.query_one("SELECT number FROM linerate.version", &[])?;
    Ok(u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX))
}

/// Asked of the catalogue itself: what `to_regclass` remembers may be older than the turn that was
/// waited for.
fn has_table(client: &mut impl GenericClient, name: &str) -> std::result::Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_tables \
         WHERE schemaname = 'linerate' AND tablename = $1::text)";
    Ok(client.query_one(sql, &[&name])?.get(0))
}

/// Waits until nobody else writes. Then runs become visible in the order of their numbers, and a
/// partition is neither made twice nor dropped while somebody writes into it.
pub(super) fn take_turn(change: &mut Transaction<'_>) -> std::result::Result<(), Error> {
    change.execute("SELECT pg_advisory_xact_lock($1)", &[&WRITERS])?;
    Ok(())
}

/// Makes the partitions of these months, such as `2026-11`, where they are not there.
pub(super) fn make_partitions(
    change: &mut Transaction<'_>,
    months: &BTreeSet<&str>,
) -> std::result::Result<(), Error> {
    for month in months {
        let name = month.replace('-', "_");
        if has_table(change, &format!("runs_{name}"))? {
            continue;
        }
        for table in PARTITIONED {
            // The month is digits alone.
            change.batch_execute(&format!(
                "DO $$ BEGIN EXECUTE format('CREATE TABLE {table}_{name} PARTITION OF {table} \
                 FOR VALUES FROM (%L) TO (%L)', timestamptz '{month}-01 00:00Z', \
                 (timestamp '{month}-01' + interval '1 month') AT TIME ZONE 'UTC'); END $$"
            ))?;
        }
    }
    Ok(())
}

/// Drops the partitions that have no runs, but for the newest one.
pub(super) fn drop_empty_partitions(
    change: &mut Transaction<'_>,
) -> std::result::Result<(), Error> {
    let sql = "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid \
         WHERE inhparent = 'linerate.runs'::regclass ORDER BY relname DESC OFFSET 1";
    for row in change.query(sql, &[])? {
        let runs: String = row.get(0);
        let is_empty = format!("SELECT NOT EXISTS (SELECT 1 FROM {runs})");
        if change.query_one(&*is_empty, &[])?.get(0) {
            let month = runs.trim_start_matches("runs");
            for table in PARTITIONED {
                change.batch_execute(&format!("DROP TABLE {table}{month}"))?;
            }
        }
    }
    Ok(())
}

/// From each version to the next; the table `version` has the number. Entries are added, never
/// changed.
const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    // As the last one of SQLite.
    "ALTER TABLE linerate.alarms ADD COLUMN owner text NOT NULL DEFAULT '';
    ALTER TABLE linerate.alarms DROP CONSTRAINT alarms_series_run_key;
    ALTER TABLE linerate.alarms ADD UNIQUE (owner, series, run);
    CREATE TABLE linerate.untold (
        alarm bigint NOT NULL REFERENCES linerate.alarms,
        channel text NOT NULL,
        attempts integer NOT NULL DEFAULT 0,
        PRIMARY KEY (alarm, channel)
    );
    INSERT INTO linerate.untold (alarm, channel) SELECT id, unnest('{command,webhook}'::text[])
        FROM linerate.alarms WHERE NOT told;
    ALTER TABLE linerate.alarms DROP COLUMN told;
    UPDATE linerate.version SET number = 2;",
];

/// The tables that have a partition for each month.
const PARTITIONED: [&str; 3] = ["results", "figures", "runs"];

/// The number of the lock of all who write; any that no other program uses.
const WRITERS: i64 = 0x6c69_6e65_7261_7465;

// A filter as SQL.

/// The parameters of a statement.
#[derive(Default)]
pub(super) struct Values(Vec<Box<dyn ToSql + Sync>>);

impl Values {
    /// Adds one; how the statement names it.
    pub(super) fn add(&mut self, value: impl ToSql + Sync + 'static) -> String {
        self.0.push(Box::new(value));
        format!("${}", self.0.len())
    }

    /// As [`Self::add`], of a moment.
    pub(super) fn since(&mut self, moment: &Since) -> String {
        match moment {
            Since::Ago(seconds) => {
                format!("(now() - make_interval(secs => {}))", self.add(*seconds as f64))
            }
            Since::Moment(text) => format!("{}::text::timestamptz", self.add(first_moment(text))),
        }
    }

    pub(super) fn list(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.0.iter().map(AsRef::as_ref).collect()
    }
}

/// `columns` of the runs that pass, the newest first.
pub(super) fn select(columns: &str, filter: &Filter) -> (String, Values) {
    let mut values = Values::default();
    let mut terms = vec!["true".to_owned()];
    for (column, value) in [
        ("path", &filter.path),
        ("workload", &filter.workload),
        ("detail", &filter.detail),
        ("series", &filter.series),
    ] {
        if let Some(value) = value {
            terms.push(format!("{column} = {}", values.add(text_without_nul(value))));
        }
    }
    for (term, id) in [("id =", filter.id), ("id >=", filter.from_id), ("id <", filter.before_id)] {
        if let Some(id) = id {
            terms.push(format!("{term} {}", values.add(id)));
        }
    }
    for (operator, moment) in [(">=", &filter.since), ("<", &filter.before)] {
        if let Some(moment) = moment {
            terms.push(format!("started_at {operator} {}", values.since(moment)));
        }
    }
    if let Some(key) = &filter.label_key {
        let key = values.add(text_without_nul(key));
        terms.push(format!("jsonb_exists(labels, {key})"));
    }
    // One by one: with all of them at once, two values of a key are one.
    for label in &filter.labels {
        let label = values.add(labels(std::slice::from_ref(label)));
        terms.push(format!("labels @> {label}::text::jsonb"));
    }
    if !filter.schemas.is_empty() {
        let schemas = values.add(filter.schemas.clone());
        terms.push(format!("schema = ANY ({schemas})"));
    }
    let most = values.add(filter.most.map(i64::from));
    let skip = values.add(i64::from(filter.skip));
    let order = filter.order();
    let sql = format!(
        "SELECT {columns} FROM runs WHERE {} ORDER BY started_at {order}, id {order} \
         LIMIT {most}::bigint OFFSET {skip}::bigint",
        terms.join(" AND ")
    );
    (sql, values)
}

/// Labels as an object of JSON. Of two with the same key the last one counts.
pub(super) fn labels(labels: &[(String, String)]) -> String {
    let pair = |(key, value): &(String, String)| (text_without_nul(key), text_without_nul(value));
    let labels: BTreeMap<String, String> = labels.iter().map(pair).collect();
    serde_json::to_string(&labels).expect("texts are JSON")
}

// Texts as PostgreSQL takes them.

/// A text of PostgreSQL has no character 0.
fn text_without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// JSON without the escaped character 0, which `jsonb` refuses.
pub(super) fn json_without_nul(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let (escape, replaced) = match escape.get(..6) {
            Some("\\u0000") => (6, "\\ufffd"),
            // A backslash in JSON is followed by one byte of ASCII.
            _ => (2, escape.get(..2).unwrap_or(escape)),
        };
        out.push_str(replaced);
        rest = rest.get(at + escape..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_all_but_the_character_0() {
        for (json, kept) in [
            (r#"{"a":"\u0000\n"}"#, r#"{"a":"\ufffd\n"}"#),
            (r#"{"a":"\\u0000é"}"#, r#"{"a":"\\u0000é"}"#),
            (r#"{"a":"\\\u0000"}"#, r#"{"a":"\\\ufffd"}"#),
            ("{}", "{}"),
        ] {
            assert_eq!(json_without_nul(json), kept);
        }
    }
}
