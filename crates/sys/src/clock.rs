//! Clocks: monotonic time, precise waits, what reading the clock costs, time stamps for records.

use std::hint::black_box;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::proc::{ProcError, read_text};

/// Nanoseconds of CLOCK_MONOTONIC: since some moment before, never backwards, the same for all
/// processes of this boot.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Turns times of the system's clock, as the kernel stamps packets with, into those of
/// [`monotonic_ns`].
///
/// The two clocks drift apart while the system's is slewed, by 0.5 us in a millisecond at most, and
/// jump apart when it is set. So their distance is measured again for every time that is 10 ms away
/// from the last measurement.
#[derive(Debug, Default)]
pub(crate) struct RealtimeOffset {
    measured_at_ns: u64,
    /// Of the monotonic clock to the system's; it wraps, since one may be ahead of the other.
    offset: u64,
}

impl RealtimeOffset {
    /// `realtime_ns` is in nanoseconds since 1970, and not long ago.
    pub(crate) fn monotonic_ns(&mut self, realtime_ns: u64) -> u64 {
        const VALID_NS: u64 = 10_000_000;
        if realtime_ns.abs_diff(self.measured_at_ns) > VALID_NS {
            (self.measured_at_ns, self.offset) = measure_realtime_offset();
        }
        realtime_ns.wrapping_add(self.offset)
    }
}

/// The system's time, and what is to be added (wrapping) to make it monotonic time: of three
/// measurements that which was interrupted least.
fn measure_realtime_offset() -> (u64, u64) {
    let measure = || {
        let before = monotonic_ns();
        let realtime = read(ClockId::Realtime);
        let width = monotonic_ns() - before;
        (width, realtime, (before + width / 2).wrapping_sub(realtime))
    };
    let (_, realtime, offset) = [measure(), measure(), measure()]
        .into_iter()
        .min()
        .expect("there are three");
    (realtime, offset)
}

/// Nanoseconds of one of the clocks that every Linux has.
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.cast_unsigned() * NANOSECONDS + now.tv_nsec.cast_unsigned()
}

/// Waits until `deadline_ns` of [`monotonic_ns`]: asleep until `spin` before it, then spinning,
/// since a sleeping CPU wakes up late. Signals do not end it early. Returns at once if the deadline
/// has passed.
///
/// About 150 us of `spin` cover the wake-up of most hosts; see also
/// [`wake_sharply`](crate::thread::wake_sharply).
pub fn sleep_until(deadline_ns: u64, spin: Duration) {
    let spin_ns = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX);
    let wake_ns = deadline_ns.saturating_sub(spin_ns);
    if monotonic_ns() < wake_ns {
        let wake = Timespec {
            tv_sec: (wake_ns / NANOSECONDS) as i64,
            tv_nsec: (wake_ns % NANOSECONDS) as i64,
        };
        while clock_nanosleep_absolute(ClockId::Monotonic, &wake) == Err(Errno::INTR) {}
    }
    while monotonic_ns() < deadline_ns {
        std::hint::spin_loop();
    }
}

/// What one reading of the monotonic clock costs, in nanoseconds: the median of many short batches.
/// Some 20 to 50 ns where it is read in user space; a microsecond where it takes a system call or a
/// device's register.
pub fn measure_reading_cost_ns() -> f64 {
    const BATCHES: usize = 65;
    const READINGS: u32 = 200;
    let mut costs: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = monotonic_ns();
            for _ in 0..READINGS {
                black_box(monotonic_ns());
            }
            (monotonic_ns() - start) as f64 / f64::from(READINGS + 1)
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs[BATCHES / 2]
}

/// Where the kernel takes the time from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockSource {
    /// The source in use: `tsc`, `kvm-clock`, `hpet`, …
    pub current: String,
    /// Those that could be used, best first.
    pub available: Vec<String>,
}

impl ClockSource {
    /// Reads them from `/sys`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read() -> Result<Self, ProcError> {
        let file = |name| {
            read_text(format!(
                "/sys/devices/system/clocksource/clocksource0/{name}_clocksource"
            ))
        };
        Ok(Self {
            current: file("current")?.trim().to_owned(),
            available: file("available")?
                .split_ascii_whitespace()
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Whether the source is one of those that take a system call and a slow device for each
    /// reading. A `tsc` that is available no more was found unstable by the kernel, and is the
    /// common reason.
    pub fn is_slow(&self) -> bool {
        const SLOW: [&str; 5] = ["acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"];
        SLOW.contains(&self.current.as_str())
    }
}

/// A moment as RFC 3339 writes it, in UTC with microseconds: `2026-11-21T09:29:14.000123Z`. Moments
/// before 1970 are written as its first.
pub fn format_rfc3339(moment: SystemTime) -> String {
    let since_epoch = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let microsecond = since_epoch.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{microsecond:06}Z")
}

const NANOSECONDS: u64 = 1_000_000_000;

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar: `civil_from_days` of
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". Years begin in March, so that the
/// leap day comes last.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month = if months_since_march < 10 {
        months_since_march + 3
    } else {
        months_since_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
        assert_eq!(
            format_rfc3339(UNIX_EPOCH - Duration::from_secs(1)),
            at(0, 0)
        );
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut previous = civil_date(0);
        for day in 1..146_097 {
            let date = civil_date(day);
            let (year, month, day) = previous;
            let follows = date == (year, month, day + 1)
                || (day >= 28
                    && (date == (year, month + 1, 1) || (month == 12 && date == (year + 1, 1, 1))));
            assert!(follows, "{previous:?} then {date:?}");
            previous = date;
        }
        assert_eq!(previous, (2369, 12, 31));
    }

    #[test]
    fn a_wait_never_ends_before_its_deadline() {
        for (wait_us, spin_us) in [(0, 0), (200, 0), (200, 100), (200, 1000), (2000, 150)] {
            let deadline = monotonic_ns() + wait_us * 1000;
            sleep_until(deadline, Duration::from_micros(spin_us));
            assert!(monotonic_ns() >= deadline);
        }
        sleep_until(0, Duration::from_secs(1));
    }

    #[test]
    fn reading_the_clock_costs_something_and_has_a_source() {
        assert!(measure_reading_cost_ns() > 0.0);
        let source = ClockSource::read().unwrap();
        assert!(source.available.contains(&source.current));
    }

    #[test]
    fn system_time_becomes_monotonic_time() {
        let mut offset = RealtimeOffset::default();
        for _ in 0..3 {
            let before = monotonic_ns();
            let converted = offset.monotonic_ns(read(ClockId::Realtime));
            // A reading may be interrupted for long on a busy machine; an hour would be a wrong
            // sign.
            assert!(
                converted.abs_diff(before) < 1_000_000_000,
                "{converted} {before}"
            );
        }
    }

    #[test]
    fn slow_sources_are_known() {
        let source = |name: &str| ClockSource {
            current: name.to_owned(),
            available: Vec::new(),
        };
        assert!(
            source("hpet").is_slow()
                && !source("tsc").is_slow()
                && !source("arch_sys_counter").is_slow()
        );
    }
}
