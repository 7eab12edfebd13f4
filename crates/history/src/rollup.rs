//! Roll-ups: the median of each figure of a series in each hour and day. They outlive the runs.
//!
//! Both stores compute them by the same SQL. A roll-up is stored when runs of its time are pruned,
//! and computed from the runs as long as they are there. Where both exist, the one of more runs
//! counts: what is left of a day that was pruned in part says less than the whole day did.

use crate::Since;

/// How long a roll-up is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight, UTC.
    Day,
}

/// Which roll-ups are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollupFilter {
    /// Hourly or daily.
    pub period: Period,
    /// Series to sum up; `None`: every series.
    pub series: Option<String>,
    /// Of this figure; `None`: of the most important one of each run.
    pub metric: Option<String>,
    /// Begun in the period of this moment or later.
    pub since: Option<Since>,
}

/// The median of one figure of the runs of a series in one hour or day.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollup {
    /// The series.
    pub series: String,
    /// The figure's name.
    pub metric: String,
    /// `2026-11-23T09` for an hour, `2026-11-23` for a day; UTC.
    pub begins: String,
    /// How many runs have the figure.
    pub runs: i64,
    /// The lowest.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The highest.
    pub max: f64,
}

impl Period {
    pub(crate) const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// The name in the tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// SQL that gives the roll-ups of a source with the columns `series`, `metric`, `place`, `begins`,
/// `value`.
pub(crate) fn medians_of(source: &str) -> String {
    let group = "PARTITION BY series, metric, begins";
    format!(
        "SELECT series, metric, min(place) AS place, begins, count(*) AS runs, min(value) AS low, \
         avg(value) FILTER (WHERE nth IN ((n + 1) / 2, (n + 2) / 2)) AS median, \
         max(value) AS high FROM \
         (SELECT series, metric, place, begins, value, \
         row_number() OVER ({group} ORDER BY value) AS nth, count(*) OVER ({group}) AS n \
         FROM ({source}) AS figures_of_period) AS ranked GROUP BY series, metric, begins"
    )
}

/// SQL that stores the roll-ups of a source, except where the stored one is of more runs.
pub(crate) fn roll_up(period: Period, source: &str) -> String {
    format!(
        "INSERT INTO rollups (series, metric, place, begins, runs, low, median, high, period) \
         SELECT series, metric, place, begins, runs, low, median, high, '{}' FROM ({}) AS fresh \
         WHERE true ON CONFLICT (series, metric, period, begins) DO UPDATE SET \
         place = excluded.place, runs = excluded.runs, low = excluded.low, \
         median = excluded.median, high = excluded.high WHERE excluded.runs >= rollups.runs",
        period.name(),
        medians_of(source)
    )
}

/// Of several roll-ups of the same figure and time the one of the most runs, in order.
pub(crate) fn of_most_runs(mut all: Vec<Rollup>) -> Vec<Rollup> {
    fn key(it: &Rollup) -> (&str, &str, &str) {
        (&it.series, &it.metric, &it.begins)
    }
    all.sort_by(|a, b| key(a).cmp(&key(b)).then(b.runs.cmp(&a.runs)));
    all.dedup_by(|a, b| key(a) == key(b));
    all
}
