//! The table of settings, `settings.toml`. The next one is an entry there, with its rule in
//! `rules`; a kernel setting that a treatment may change takes its range and meaning from the
//! treatments' table, and what is read and set in another way than by sysctl(8) has its hand in the
//! engine.

use std::sync::LazyLock;

use serde::Deserialize;

use super::rules;
use super::setting::{Place, Setting};
use crate::toml_reader;
use crate::treatment::{ValueKind, sysctl_of};

/// All settings of which something is advised, in the order in which they are shown.
pub fn settings() -> &'static [Setting] {
    &TABLE
}

static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let entries: Vec<Entry> = toml_reader::entries(include_str!("settings.toml"));
    entries.into_iter().map(Setting::from).collect()
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: &'static str,
    place: Place,
    value: Option<ValueKind>,
    means: Option<&'static str>,
    limits: &'static str,
    formula: &'static str,
    source: &'static str,
    rule: &'static str,
}

impl From<Entry> for Setting {
    fn from(entry: Entry) -> Self {
        let treatment = || sysctl_of(entry.key).expect("a treatment has what an entry lacks");
        Self {
            key: entry.key,
            place: entry.place,
            value: entry.value.unwrap_or_else(|| treatment().value),
            means: entry.means.unwrap_or_else(|| treatment().means),
            limits: entry.limits,
            formula: entry.formula,
            source: entry.source,
            rule: rules::named(entry.rule).expect("each entry's rule is in `rules`"),
        }
    }
}
