//! A filter as SQL of SQLite.

use rusqlite::types::Value;

use crate::{Filter, Since};

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
