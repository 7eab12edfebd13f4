//! Clocks: monotonic time, precise waits, what reading the clock costs, time stamps for records.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::proc::ProcError;
use crate::proc::machine::read_line;

/// Nanoseconds of CLOCK_MONOTONIC: since some moment before, never backwards, the same for all
/// processes of this boot.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Time since this host was started, its sleep included: it is never set.
pub fn since_boot() -> Duration {
    Duration::from_nanos(read(ClockId::Boottime))
}

/// Turns times of the system's clock, as the kernel stamps packets with, into those of
/// [`monotonic_ns`].
///
/// The two clocks drift apart by at most 0.5 us in a millisecond while the system's clock is
/// slewed, and jump when it is set. So the offset is measured again for each time that is 10 ms or
/// more from the last measurement, and a stamp from before the clock was set counts as one of now.
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
        const MAX_AGE_NS: u64 = 10 * NANOSECONDS;
        if realtime_ns.abs_diff(self.measured_at_ns) > VALID_NS {
            (self.measured_at_ns, self.offset) = measure_realtime_offset();
        }
        let (at, now) = (realtime_ns.wrapping_add(self.offset), monotonic_ns());
        if now.wrapping_sub(at) > MAX_AGE_NS { now } else { at }
    }
}

/// The system's time, and the offset to monotonic time, to be added with wrapping. Of three
/// measurements it takes the one that was interrupted least.
fn measure_realtime_offset() -> (u64, u64) {
    let measure = || {
        let before = monotonic_ns();
        let realtime = read(ClockId::Realtime);
        let width = monotonic_ns() - before;
        (width, realtime, (before + width / 2).wrapping_sub(realtime))
    };
    let (_, realtime, offset) =
        [measure(), measure(), measure()].into_iter().min().expect("there are three");
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

/// The kernel's current clock source: `tsc`, `kvm-clock`, `hpet`, …
///
/// # Errors
/// The file in `/sys` cannot be read.
pub fn clock_source() -> Result<String, ProcError> {
    read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// A moment as C's `strftime` writes it, in UTC or in this host's time zone; nothing beyond 255
/// bytes.
pub fn format_moment(moment: SystemTime, format: &str, is_utc: bool) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as libc::time_t;
    let Ok(format) = CString::new(format) else {
        return String::new();
    };
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    let mut text = vec![0_u8; 256];
    // SAFETY: zeros are a `tm`; the calls read what lives here and write into `parts`, and into
    // `text` no more than its length.
    let length = unsafe {
        if is_utc {
            libc::gmtime_r(&raw const seconds, parts.as_mut_ptr());
        } else {
            libc::localtime_r(&raw const seconds, parts.as_mut_ptr());
        }
        let to = text.as_mut_ptr().cast();
        libc::strftime(to, text.len(), format.as_ptr(), parts.as_ptr())
    };
    text.truncate(length);
    String::from_utf8_lossy(&text).into_owned()
}

const NANOSECONDS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_from_before_the_clock_was_set_is_one_of_now() {
        let hundred_days = 100 * 86_400 * NANOSECONDS;
        let (now, mut offset) = (read(ClockId::Realtime), RealtimeOffset::default());
        for stamp in [now - hundred_days, now + hundred_days] {
            let before = monotonic_ns();
            let at = offset.monotonic_ns(stamp);
            assert!((before..=monotonic_ns()).contains(&at));
        }
        let at = offset.monotonic_ns(now - NANOSECONDS);
        assert!(at <= monotonic_ns() - NANOSECONDS / 2);
    }

    #[test]
    fn a_moment_is_written_as_the_format_has_it() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (seconds, text) in [
            (1_795_432_931, "Mon, 23 Nov 2026 11:22:11"),
            (0, "Thu, 01 Jan 1970 00:00:00"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00"),
        ] {
            assert_eq!(format_moment(at(seconds), "%a, %d %b %Y %H:%M:%S", true), text);
        }
        assert_eq!(format_moment(at(0), "\0", true), "");
        let long = "%c".repeat(100);
        assert_eq!(format_moment(at(0), &long, false), "", "no room for it");
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
    fn the_clock_has_a_source() {
        assert!(!clock_source().unwrap().is_empty());
    }

    #[test]
    fn system_time_becomes_monotonic_time() {
        for _ in 0..3 {
            let mut offset = RealtimeOffset::default();
            let before = monotonic_ns();
            let converted = offset.monotonic_ns(read(ClockId::Realtime));
            let after = monotonic_ns();
            // The offset is measured between both readings, and is wrong by no more than the time
            // that this takes.
            let width = after - before;
            assert!(
                (before - width..=after + width).contains(&converted),
                "{before} {converted} {after}"
            );
        }
    }
}
