//! Which runs are asked for, as SQL.

use rusqlite::types::Value;

/// What a run must be; by default any is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// To this path.
    pub path: Option<String>,
    /// Of this workload.
    pub workload: Option<String>,
    /// Which was run so, as [`crate::NewRun::detail`] says.
    pub detail: Option<String>,
    /// With a document of these schemas; empty: any.
    pub schemas: Vec<String>,
    /// With all of these labels.
    pub labels: Vec<(String, String)>,
    /// Of this series, as [`crate::NewRun::series`] says.
    pub series: Option<String>,
    /// Begun since.
    pub since: Option<Since>,
    /// The run of this number.
    pub id: Option<i64>,
    /// Saved as this number or later.
    pub from_id: Option<i64>,
    /// At most so many, the newest.
    pub most: Option<u32>,
    /// Without so many of the newest.
    pub skip: u32,
}

/// A moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    /// So many seconds ago.
    Ago(u64),
    /// RFC 3339 in UTC, or the beginning of one: `2026-11-23`.
    Moment(String),
}

impl Since {
    /// An expression with the value of its one parameter.
    pub(super) fn sql(&self) -> (&'static str, Value) {
        match self {
            Self::Ago(seconds) => (
                "strftime('%Y-%m-%dT%H:%M:%SZ', 'now', ?)",
                format!("-{seconds} seconds").into(),
            ),
            Self::Moment(moment) => ("?", moment.clone().into()),
        }
    }
}

impl Filter {
    /// Where the runs are taken from, their time and their number: the first label's index has its
    /// runs in the order of time.
    fn source(&self) -> [&'static str; 3] {
        if self.labels.is_empty() {
            ["runs", "runs.started_at", "id"]
        } else {
            let from = "labels AS first CROSS JOIN runs ON id = first.run";
            [from, "first.started_at", "first.run"]
        }
    }

    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let mut terms: Vec<String> = Vec::new();
        let mut values: Vec<Value> = Vec::new();
        let mut add = |term: &str, value: Value| {
            terms.push(term.to_owned());
            values.push(value);
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        for (term, value) in [
            ("id = ?", self.id.map(Value::from)),
            ("id >= ?", self.from_id.map(Value::from)),
            ("path = ?", text(&self.path)),
            ("workload = ?", text(&self.workload)),
            ("detail = ?", text(&self.detail)),
            ("series = ?", text(&self.series)),
        ] {
            value.into_iter().for_each(|value| add(term, value));
        }
        let [from, time, number] = self.source();
        if let Some(since) = &self.since {
            let (sql, value) = since.sql();
            add(&format!("{time} >= {sql}"), value);
        }
        for (place, (key, value)) in self.labels.iter().enumerate() {
            let (begin, end) = if place == 0 {
                ("first.key = ?", "first.value = ?")
            } else {
                (
                    "EXISTS (SELECT 1 FROM labels WHERE run = id AND key = ?",
                    "value = ?)",
                )
            };
            add(begin, key.clone().into());
            add(end, value.clone().into());
        }
        if !self.schemas.is_empty() {
            let places = vec!["?"; self.schemas.len()].join(", ");
            terms.push(format!("schema IN ({places})"));
            values.extend(self.schemas.iter().cloned().map(Value::from));
        }
        let terms = if terms.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", terms.join(" AND "))
        };
        let most = self.most.map_or(-1, i64::from);
        values.extend([most.into(), i64::from(self.skip).into()]);
        let sql = format!(
            "SELECT id, runs.started_at AS started_at, schema, path, workload, detail, series, \
             answer, cause, \
             (SELECT group_concat(key || '=' || value, ' ') FROM labels WHERE run = id), \
             unixepoch(runs.started_at) AS at_s \
             FROM {from} {terms} ORDER BY {time} DESC, {number} DESC LIMIT ? OFFSET ?"
        );
        (sql, values)
    }
}
