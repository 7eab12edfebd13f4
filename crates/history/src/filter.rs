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
    /// Begun since.
    pub since: Option<Since>,
    /// The run of this number.
    pub id: Option<i64>,
    /// Saved as this number or later.
    pub from_id: Option<i64>,
    /// At most so many, the newest.
    pub most: Option<u32>,
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
    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let mut terms: Vec<String> = Vec::new();
        let mut values: Vec<Value> = Vec::new();
        let mut add = |term: &str, value: Value| {
            terms.push(term.to_owned());
            values.push(value);
        };
        if let Some(id) = self.id {
            add("id = ?", id.into());
        }
        if let Some(id) = self.from_id {
            add("id >= ?", id.into());
        }
        if let Some(path) = &self.path {
            add("path = ?", path.clone().into());
        }
        if let Some(workload) = &self.workload {
            add("workload = ?", workload.clone().into());
        }
        if let Some(detail) = &self.detail {
            add("detail = ?", detail.clone().into());
        }
        if let Some(since) = &self.since {
            let (sql, value) = since.sql();
            add(&format!("started_at >= {sql}"), value);
        }
        for (key, value) in &self.labels {
            add(
                "id IN (SELECT run FROM labels WHERE key = ?",
                key.clone().into(),
            );
            add("value = ?)", value.clone().into());
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
        values.push(most.into());
        let sql = format!(
            "SELECT id, started_at, schema, path, workload, detail, answer, cause, \
             (SELECT group_concat(key || '=' || value, ' ') FROM labels WHERE run = id) \
             FROM runs {terms} ORDER BY started_at DESC, id DESC LIMIT ?"
        );
        (sql, values)
    }
}
