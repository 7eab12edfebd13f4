//! Dates of the calendar, and times as RFC 3339 writes them.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::TextError;

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar: `civil_from_days` of
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". Years begin in March, so that the
/// leap day comes last.
pub fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month = (months_since_march + 2) % 12 + 1;
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A moment as RFC 3339 writes it, in UTC with microseconds: `2026-11-21T09:29:14.000123Z`. Moments
/// before 1970 are written as its first.
pub fn format_rfc3339(moment: SystemTime) -> String {
    let since_epoch = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = date_and_time(since_epoch.as_secs());
    format!("{seconds}.{:06}Z", since_epoch.subsec_micros())
}

/// A whole number of seconds since 1970 as RFC 3339 writes it, in UTC: `2026-11-21T09:29:14Z`.
pub fn format_rfc3339_seconds(since_epoch: u64) -> String {
    date_and_time(since_epoch) + "Z"
}

/// The moment of a time as linerate writes it: RFC 3339 in UTC, from 1970 to 9999, with or without
/// a fraction of a second of up to nine digits. Documents come from strangers, and times are compared
/// as text: anything else is refused, and so is a date that is not in the calendar.
///
/// # Errors
/// It is no such time.
pub fn parse_rfc3339(text: &str) -> Result<SystemTime, TextError> {
    let why = "it is not a time in UTC such as 2026-11-21T09:29:14.000123Z";
    let since_epoch = since_epoch(text).ok_or_else(|| TextError::new(text, why))?;
    Ok(UNIX_EPOCH + since_epoch)
}

/// Reads the time of a document with serde: as [`parse_rfc3339`] takes it, or empty where it is not
/// known.
///
/// # Errors
/// It is neither.
pub fn deserialize_rfc3339<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Clone + Into<Option<String>>,
{
    let read = T::deserialize(from)?;
    match read.clone().into().filter(|text| !text.is_empty()) {
        Some(text) => parse_rfc3339(&text).map_err(D::Error::custom).map(|_| read),
        None => Ok(read),
    }
}

fn since_epoch(text: &str) -> Option<Duration> {
    let text = text.strip_suffix('Z')?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let number = |range: Range<usize>| whole.get(range)?.parse::<u64>().ok();
    let days = days_since_epoch(number(0..4)?, number(5..7)?, number(8..10)?)?;
    let seconds = 86_400 * days + 3600 * number(11..13)? + 60 * number(14..16)? + number(17..19)?;
    // Written again it is the same text, unless a part is out of its range, signed or misplaced.
    let is_fraction =
        matches!(fraction.len(), 1..=9) && fraction.bytes().all(|b| b.is_ascii_digit());
    let is_time = is_fraction && date_and_time(seconds) == whole;
    is_time.then(|| Duration::from_secs(seconds) + Duration::from_nanos(rfc3339_fraction_ns(text)))
}

/// The inverse of [`civil_date`]: `days_from_civil` of the same source.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    let months_since_march = (month + 9) % 12;
    let year = year.checked_sub(u64::from(month <= 2))?;
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * months_since_march + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

/// What a moment of RFC 3339 in UTC has beyond its whole seconds, ns; digits beyond nine are cut.
pub fn rfc3339_fraction_ns(moment: &str) -> u64 {
    let fraction = moment.trim_end_matches('Z').split_once('.');
    let digits = fraction.map_or("", |(_, digits)| digits);
    format!("{digits:0<9.9}").parse().unwrap_or(0)
}

fn date_and_time(seconds: u64) -> String {
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_rfc3339() {
        let at = |seconds, micros: u32| {
            format_rfc3339(UNIX_EPOCH + Duration::new(seconds, micros * 1000))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_399, 999_999), "2000-02-28T23:59:59.999999Z");
        assert_eq!(at(951_782_400, 1), "2000-02-29T00:00:00.000001Z");
        assert_eq!(at(1_709_251_199, 0), "2024-02-29T23:59:59.000000Z");
        assert_eq!(at(1_795_253_354, 0), "2026-11-21T09:29:14.000000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000000Z");
        let fraction = rfc3339_fraction_ns("2026-11-21T09:29:14.000250Z");
        assert_eq!(fraction, 250_000);
        assert_eq!(rfc3339_fraction_ns("2026-11-21T09:29:14Z"), 0);
        let seconds = format_rfc3339_seconds(951_782_399);
        assert_eq!(seconds, "2000-02-28T23:59:59Z");
        assert_eq!(format_rfc3339(UNIX_EPOCH - Duration::from_secs(1)), at(0, 0));
    }

    #[test]
    fn a_time_is_read_as_it_is_written_and_nothing_else_is_one() {
        for seconds in (0..253_402_300_800).step_by(86_400 * 31 + 12_345) {
            let moment = UNIX_EPOCH + Duration::new(seconds, 123_456_000);
            assert_eq!(parse_rfc3339(&format_rfc3339(moment)), Ok(moment));
            let whole = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(parse_rfc3339(&format_rfc3339_seconds(seconds)), Ok(whole));
        }
        for text in [
            "",
            "Z",
            "x",
            "2026-99-99T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T09:60:00Z",
            "2026-11-21T09:29:60Z",
            "2026-11-21T09:29:14",
            "2026-11-21T09:29:14.Z",
            "2026-11-21T09:29:14.+1Z",
            "2026-11-21T09:29:14.1234567890Z",
            "2026-11-21T09:29:14+01:00",
            "2026-11-21 09:29:14Z",
            "+026-11-21T09:29:14Z",
            "2026-+1-21T09:29:14Z",
            "1969-12-31T23:59:59Z",
            "0000-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "2026-11-21T09:29:14ZZ",
            "2026-11-2\u{e9}T09:29:14Z",
        ] {
            assert!(parse_rfc3339(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(19_782), (2024, 2, 29));
        let mut previous = civil_date(0);
        for day in 1..146_097 {
            let date = civil_date(day);
            let is_next_day = date == (previous.0, previous.1, previous.2 + 1);
            let begins_a_month = date.2 == 1 && previous.2 >= 28;
            assert!(is_next_day || begins_a_month, "{previous:?} {date:?}");
            previous = date;
        }
        assert_eq!(previous, (2369, 12, 31));
    }
}
