//! Keys that the files of a monitor and of a mesh share.

use std::fmt::Display;

use crate::toml_reader::{At, Fault, Section, text};
use crate::units::{BitRate, ByteCount, Percent, Span};

/// When nothing runs: from one second of the day to another, in UTC; over midnight if the end is
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    /// First second of the hours.
    pub from_s: u64,
    /// First second after the hours.
    pub to_s: u64,
}

impl QuietHours {
    /// The end of this part of a day, if a run from `at` on would be in it.
    pub fn ends_after(&self, at: u64, takes_s: u64) -> Option<u64> {
        let lasts = (self.to_s + DAY_S - self.from_s) % DAY_S;
        let into = (at % DAY_S + DAY_S - self.from_s) % DAY_S;
        if into < lasts {
            return Some(at + lasts - into);
        }
        let left = DAY_S - into;
        (takes_s > left).then_some(at + left + lasts)
    }
}

/// `name`. Names go into labels and commands of others: words alone.
///
/// # Errors
/// A fault with its place.
pub fn name(section: &Section<'_>) -> Result<String, Fault> {
    let at = section.required("name", "what it is called")?;
    if !is_name(at.value) {
        return Fault::malformed(at, "name", "write 1 to 64 letters, digits, -, _ and .");
    }
    Ok(at.value.to_owned())
}

/// Whether a text can be a name: 1 to 64 letters, digits, `-`, `_` and `.`.
pub fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(is_word)
}

/// `labels`: what is saved with each run; `taken` are those that linerate gives itself.
///
/// # Errors
/// A fault with its place.
pub fn labels(section: &Section<'_>, taken: &[&str]) -> Result<Vec<(String, String)>, Fault> {
    let mut labels = Vec::new();
    for (key, value) in section.entries("labels")? {
        let value = text(key.value, value)?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_first = |c: char| c.is_ascii_alphabetic();
        if !key.value.chars().all(is_word)
            || !key.value.starts_with(is_first)
            || key.value.len() > 64
        {
            return Fault::malformed(key, "label", "write letters, digits and _, a letter first");
        }
        if taken.contains(&key.value) {
            return Fault::malformed(key, "label of yours", "linerate gives that one itself");
        }
        if value.value.is_empty() || value.value.len() > 200 {
            return Fault::malformed(value.as_str(), "label's value", "write 1 to 200 bytes");
        }
        labels.push((key.value.to_owned(), value.value));
    }
    Ok(labels)
}

/// `bytes-per-day`
///
/// # Errors
/// A fault with its place.
pub fn bytes(section: &Section<'_>) -> Result<Option<u64>, Fault> {
    let hint = "write \"500MB\" or \"10GB\"";
    let is_some = |bytes: &ByteCount| bytes.0 > 0;
    let bytes = section.parsed("bytes-per-day", "number of bytes", hint, is_some)?;
    Ok(bytes.map(|bytes| bytes.0))
}

/// `keep`: the time that runs are kept, in seconds.
///
/// # Errors
/// A fault with its place.
pub fn keep(section: &Section<'_>) -> Result<Option<u64>, Fault> {
    let Some(at) = section.string("keep")? else {
        return Ok(None);
    };
    let days = at.value.strip_suffix('d').map(str::parse::<u64>);
    match days {
        Some(Ok(days)) if (1..=MAX_DAYS).contains(&days) => Ok(Some(days * DAY_S)),
        _ => Fault::malformed(at, "time to keep", "write \"1d\" to \"3650d\""),
    }
}

/// Most days that runs are kept.
const MAX_DAYS: u64 = 3650;

/// `rate`, `share` and `bytes-per-day`: what a link carries, and what tests may carry over it in
/// any 24 hours.
///
/// # Errors
/// A fault with its place.
pub fn link(section: &Section<'_>) -> Result<(Option<BitRate>, Option<u64>), Fault> {
    let hint = "write what the link carries: \"100mbit\"";
    let rate = section.parsed("rate", "rate", hint, |rate: &BitRate| rate.0 > 0)?;
    let budgets = [bytes(section)?, share(section, rate)?];
    Ok((rate, budgets.into_iter().flatten().min()))
}

/// The bytes per day of a share of a link.
fn share(section: &Section<'_>, rate: Option<BitRate>) -> Result<Option<u64>, Fault> {
    let hint = "write \"1%\", above 0 % and at most 100 %";
    let is_share = |share: &Percent| share.0 > 0.0 && share.0 <= 100.0;
    match (section.parsed("share", "share", hint, is_share)?, rate) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(section.missing("rate", "what the link carries, for `share`")),
        (Some(share), Some(rate)) => {
            let bytes_per_s = rate.as_f64() / 8.0 * share.0 / 100.0;
            Ok(Some((bytes_per_s * DAY_S as f64) as u64))
        }
    }
}

/// Refuses a test of which a single run exceeds a day's budget: it could never be run. `most` is
/// what the run carries at most, bytes.
///
/// # Errors
/// The run and its budget.
pub fn check_budget(
    section: &Section<'_>,
    run: impl Display,
    most: Option<u64>,
    budgets: [Option<u64>; 2],
) -> Result<(), Fault> {
    match (most, budgets.into_iter().flatten().min()) {
        (Some(most), Some(budget)) if most > budget => {
            let (most, budget) = (ByteCount(most), ByteCount(budget));
            let what = format!("one run of {run} may carry {most}, and a day's budget is {budget}");
            Fault::contradiction(section.offset, what, "give a shorter test or more")
        }
        _ => Ok(()),
    }
}

/// A span of whole seconds, at most 30 days.
///
/// # Errors
/// A fault with its place.
pub fn whole_seconds(
    at: At<&str>,
    what: &'static str,
    min: u64,
    hint: &'static str,
) -> Result<u64, Fault> {
    let range = min..=30 * DAY_S;
    let is_whole = |span: &Span| span.0.subsec_nanos() == 0 && range.contains(&span.0.as_secs());
    Ok(at.parsed(what, hint, is_whole)?.0.as_secs())
}

/// `quiet`: hours of the day in which nothing runs.
///
/// # Errors
/// A fault with its place.
pub fn quiet(root: &Section<'_>) -> Result<Vec<QuietHours>, Fault> {
    let hint = "write \"22:00-06:00\", UTC";
    let mut quiet = Vec::new();
    for at in root.strings("quiet")?.unwrap_or_default() {
        let ends = at.value.split_once('-');
        match ends.and_then(|(from, to)| Some((second_of_day(from)?, second_of_day(to)?))) {
            Some((from_s, to_s)) if from_s != to_s => quiet.push(QuietHours { from_s, to_s }),
            _ => return Fault::malformed(at, "part of a day", hint),
        }
    }
    Ok(quiet)
}

fn second_of_day(text: &str) -> Option<u64> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.len() == 2);
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(3600 * hours + 60 * minutes)
}

/// Seconds of a day.
pub const DAY_S: u64 = 86_400;
