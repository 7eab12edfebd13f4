//! Which runs are asked for.

/// What a run must be; by default any run passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// To this path.
    pub path: Option<String>,
    /// Of this workload.
    pub workload: Option<String>,
    /// With this [`crate::NewRun::detail`].
    pub detail: Option<String>,
    /// With a document of one of these schemas; empty: any.
    pub schemas: Vec<String>,
    /// With all of these labels.
    pub labels: Vec<(String, String)>,
    /// With a label of this key, whatever its value.
    pub label_key: Option<String>,
    /// Of this series.
    pub series: Option<String>,
    /// Begun at this moment or later.
    pub since: Option<Since>,
    /// Begun before this moment.
    pub before: Option<Since>,
    /// The run of this number.
    pub id: Option<i64>,
    /// With this number or a higher one.
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
    /// RFC 3339 in UTC, or the beginning of one: `2026-11-23` is the first moment of that day.
    Moment(String),
}
