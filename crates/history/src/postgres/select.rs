//! A filter as SQL of PostgreSQL.

use std::collections::BTreeMap;

use ::postgres::types::ToSql;

use super::text::text_without_nul;
use crate::{Filter, Since, first_moment};

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
