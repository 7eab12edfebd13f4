//! Lines that are overwritten while a run is in progress. They never wrap, so that they can be
//! erased.

use linerate_core::plan::{Direction, Workload};
use linerate_core::record::Interval;
use linerate_core::units::printable;

use super::Style;
use super::number::{NBSP, bar, bytes, count, micros, rate, seconds};

/// The progress of a run.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The current step, such as `up, run 2 of 5`.
    pub step: &'a str,
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Planned duration, seconds; `None` where bytes or a count end the run.
    pub planned_s: Option<f64>,
    /// The newest interval.
    pub interval: Option<&'a Interval>,
    /// The workload of the test.
    pub workload: Workload,
}

/// An interval of a test of this workload, as a line without newline or colour; the figures of
/// successive lines are aligned.
pub fn interval_line(interval: &Interval, workload: Workload, style: Style) -> String {
    let end = interval.start_s + interval.seconds;
    let times = format!("{:>8.2} -{end:>8.2} s", interval.start_s);
    fitted(&[times], &figures(interval, workload), style)
}

/// A bar, the time and the newest interval's figures, as a line without newline or colour.
pub fn progress(progress: &Progress<'_>, style: Style) -> String {
    let step = progress.step;
    let of = |interval| figures(interval, progress.workload);
    let figures = progress.interval.map(of).unwrap_or_default();
    match progress.planned_s {
        Some(planned) if planned > 0.0 => {
            let bar = bar(progress.elapsed_s / planned);
            let time = format!("{:.1} of {}", progress.elapsed_s, seconds(planned));
            let with_bar = format!("{step}  {bar} {time}");
            let beginnings = [with_bar, format!("{step}  {time}"), time];
            fitted(&beginnings, &figures, style)
        }
        _ => {
            let time = format!("{:.1}{NBSP}s", progress.elapsed_s);
            fitted(&[format!("{step}  {time}"), time], &figures, style)
        }
    }
}

/// A time in words, seconds: `40 s`, `12 min`, `3.5 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        ..99.5 => format!("{seconds:.0} s"),
        ..5970.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The duration of a command, from its minimum and maximum in seconds: `about 27 s`, `50 s to 3
/// min`.
pub fn takes([least, most]: [f64; 2]) -> String {
    let [least, most] = [least, most].map(duration);
    if most == "0 s" {
        "less than 1 s".to_owned()
    } else if least == "0 s" {
        format!("at most {most}")
    } else if least == most {
        format!("about {least}")
    } else {
        format!("{least} to {most}")
    }
}

/// A step with the time that has passed and the expected time: `up, run 3 of 6 (12 s of about 27
/// s)`.
pub fn step(step: &str, elapsed_s: f64, takes_s: Option<[f64; 2]>) -> String {
    match takes_s {
        Some(all) => format!("{step} ({} of {})", duration(elapsed_s), takes(all)),
        None => step.to_owned(),
    }
}

/// The direction with its rate, then further figures, the most important first.
fn figures(interval: &Interval, workload: Workload) -> Vec<String> {
    let direction = match interval.direction {
        Some(Direction::Up) => "  up  ",
        Some(Direction::Down) => "  down",
        Some(Direction::Both) | None => "",
    };
    let transactions = interval.transactions.filter(|_| interval.seconds > 0.0);
    let reached = match transactions {
        Some(answered) => {
            let per_s = count((answered as f64 / interval.seconds).round() as u64);
            let unit = if workload == Workload::Crr { "conn/s" } else { "trans/s" };
            format!("{direction}  {:>17}", format!("{per_s}{NBSP}{unit}"))
        }
        None => format!("{direction}  {:>11}", rate(interval.throughput_bps)),
    };
    let figures = [
        ("rtt", 8, interval.rtt_us.map(micros)),
        ("cwnd", 9, interval.cwnd_bytes.map(bytes)),
        ("retr", 4, interval.retransmitted_segments.map(count)),
        ("lost", 4, interval.lost.map(count)),
    ];
    let others = figures
        .into_iter()
        .filter_map(|(label, width, text)| Some(format!("  {label}{:>width$}", text?)));
    [reached].into_iter().chain(others).collect()
}

/// The first of `beginnings` that leaves room for the first figure, with as many further figures as
/// fit. One column stays free: some terminals wrap when the last one is filled.
fn fitted(beginnings: &[String], figures: &[String], style: Style) -> String {
    let room = style.columns() - 1;
    let width = |text: &str| printable(text).chars().count();
    let reached = figures.first().map_or(0, |figure| width(figure));
    let fits = |beginning: &&String| width(beginning) + reached <= room;
    let found = beginnings.iter().find(fits).or(beginnings.last());
    let mut line = found.cloned().unwrap_or_default();
    for figure in figures {
        if width(&line) + width(figure) > room {
            break;
        }
        line.push_str(figure);
    }
    let line = printable(&line).replace(NBSP, " ");
    line.chars().take(room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval() -> Interval {
        Interval {
            start_s: 3.0,
            seconds: 1.0,
            bytes: 11_762_500,
            throughput_bps: 94_100_000.0,
            rtt_us: Some(29_400.0),
            cwnd_bytes: Some(87_256),
            retransmitted_segments: Some(12),
            ..Interval::default()
        }
    }

    #[test]
    fn intervals_of_any_figures_stand_under_each_other() {
        let slow = Interval {
            start_s: 100.0,
            throughput_bps: 950.0,
            rtt_us: Some(87.0),
            cwnd_bytes: Some(400),
            retransmitted_segments: Some(0),
            ..interval()
        };
        let style = Style::default();
        assert_eq!(
            interval_line(&interval(), Workload::Stream, style),
            "    3.00 -    4.00 s  94.1 Mbit/s  rtt 29.4 ms  cwnd 85.2 KiB  retr  12"
        );
        assert_eq!(
            interval_line(&slow, Workload::Stream, style),
            "  100.00 -  101.00 s    950 bit/s  rtt 87.0 µs  cwnd    400 B  retr   0"
        );
    }

    #[test]
    fn times_are_written_as_people_say_them() {
        assert_eq!(takes([27.2, 27.2]), "about 27 s");
        assert_eq!(takes([52.0, 200.0]), "52 s to 3 min");
        assert_eq!(takes([7000.0, 7000.0]), "about 1.9 h");
        assert_eq!(step("idle", 1.2, None), "idle");
        assert_eq!(step("idle", 1.2, Some([5.0; 2])), "idle (1 s of about 5 s)");
    }

    #[test]
    fn requests_are_counted_by_the_second() {
        let requests = Interval {
            seconds: 0.5,
            transactions: Some(12_000),
            direction: Some(Direction::Up),
            ..Interval::default()
        };
        for (workload, line) in [
            (Workload::Rr, "    0.00 -    0.50 s  up       24,000 trans/s"),
            (Workload::Crr, "    0.00 -    0.50 s  up        24,000 conn/s"),
        ] {
            assert_eq!(interval_line(&requests, workload, Style::default()), line);
        }
    }

    #[test]
    fn a_live_line_never_fills_its_terminal() {
        let step = "x\u{1b}[2J".repeat(40);
        for width in [0, 40, 80] {
            let live = Progress {
                step: &step,
                elapsed_s: 4.0,
                planned_s: Some(10.0),
                interval: Some(&interval()),
                workload: Workload::Stream,
            };
            let style = Style { width, colour: false, ..Style::default() };
            let line = progress(&live, style);
            assert!(line.chars().count() < width.max(40), "{line}");
            assert!(!line.contains('\u{1b}'));
        }
    }

    #[test]
    fn in_80_columns_the_rate_is_whole_and_the_bar_gives_way() {
        let live = Progress {
            step: "run 1 of 1 (3 s of about 13 s)",
            elapsed_s: 4.0,
            planned_s: Some(10.0),
            interval: Some(&interval()),
            workload: Workload::Stream,
        };
        let in_columns = |width| {
            let style = Style { width, ..Style::default() };
            progress(&live, style)
        };
        let both = Progress { step: "down, run 12 of 16 (13 s of about 20 min)", ..live };
        assert_eq!(
            in_columns(84),
            "run 1 of 1 (3 s of about 13 s)  [########------------] 4.0 of 10.0 s  94.1 Mbit/s"
        );
        assert_eq!(
            in_columns(80),
            "run 1 of 1 (3 s of about 13 s)  4.0 of 10.0 s  94.1 Mbit/s  rtt 29.4 ms"
        );
        assert_eq!(
            progress(&both, Style::default()),
            "down, run 12 of 16 (13 s of about 20 min)  4.0 of 10.0 s  94.1 Mbit/s"
        );
    }

    #[test]
    fn the_bar_stops_at_its_end_and_is_left_out_where_no_time_is_planned() {
        let mut live = Progress {
            step: "up",
            elapsed_s: 4.0,
            planned_s: Some(10.0),
            interval: None,
            workload: Workload::Stream,
        };
        let style = Style::default();
        assert_eq!(progress(&live, style), "up  [########------------] 4.0 of 10.0 s");
        live.elapsed_s = 11.0;
        assert_eq!(progress(&live, style), "up  [####################] 11.0 of 10.0 s");
        live.planned_s = None;
        assert_eq!(progress(&live, style), "up  11.0 s");
    }
}
