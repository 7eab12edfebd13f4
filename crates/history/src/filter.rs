//! Which runs are asked for.

/// What a run must be; by default any run passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// To this path.
    pub path: Option<String>,
    /// Workload of the runs, such as `stream`.
    pub workload: Option<String>,
    /// With this [`crate::NewRun::detail`].
    pub detail: Option<String>,
    /// With a document of one of these schemas; empty: any.
    pub schemas: Vec<String>,
    /// With all of these labels.
    pub labels: Vec<(String, String)>,
    /// With a label of this key, whatever its value.
    pub label_key: Option<String>,
    /// Series of the runs.
    pub series: Option<String>,
    /// Begun at this moment or later.
    pub since: Option<Since>,
    /// Begun before this moment.
    pub before: Option<Since>,
    /// The run of this number.
    pub id: Option<i64>,
    /// With this number or a higher one.
    pub from_id: Option<i64>,
    /// With a lower number than this.
    pub before_id: Option<i64>,
    /// At most so many, the newest.
    pub most: Option<u32>,
    /// Without so many of the newest.
    pub skip: u32,
    /// The oldest instead of the newest.
    pub oldest_first: bool,
}

impl Filter {
    /// The order of the runs, in SQL.
    pub(crate) fn order(&self) -> &'static str {
        if self.oldest_first { "ASC" } else { "DESC" }
    }
}

/// A moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    /// So many seconds ago.
    Ago(u64),
    /// RFC 3339 in UTC, or the beginning of one: `2026-11-23` is the first moment of that day.
    Moment(String),
}

/// The first moment of which the text of RFC 3339 is the beginning; 1970 for what is no time.
pub fn first_moment(text: &str) -> String {
    const FORM: &str = "0000-01-01T00:00:00Z";
    let rest = FORM.get(text.len()..).unwrap_or_default();
    let whole = format!("{text}{rest}");
    let is_time = whole.bytes().zip(FORM.bytes()).all(|(byte, form)| match form {
        b'0' | b'1' => byte.is_ascii_digit(),
        b'Z' => matches!(byte, b'Z' | b'.'),
        _ => byte == form,
    });
    let fraction = whole.get(FORM.len()..).unwrap_or_default().trim_end_matches('Z');
    let is_time = is_time && text.len() >= "2026-11-23".len();
    if is_time && whole.ends_with('Z') && fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        whole
    } else {
        "1970-01-01T00:00:00Z".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_time_is_its_first_moment() {
        for (text, moment) in [
            ("2026-11-23", "2026-11-23T00:00:00Z"),
            ("2026-11-23T1", "2026-11-23T10:00:00Z"),
            ("2026-11-23T14:05", "2026-11-23T14:05:00Z"),
            ("2026-11-23T14:05:06Z", "2026-11-23T14:05:06Z"),
            ("2026-11-23T14:05:06.250000Z", "2026-11-23T14:05:06.250000Z"),
            ("yesterday", "1970-01-01T00:00:00Z"),
            ("2026-11-23T14:05:06.25'Z", "1970-01-01T00:00:00Z"),
            ("", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(first_moment(text), moment, "{text}");
        }
    }
}
