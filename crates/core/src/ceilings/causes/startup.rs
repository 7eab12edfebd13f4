//! A transfer that is too short to leave slow start.

use super::super::formulas::{INITIAL_WINDOW_SEGMENTS, SlowStart};
use super::super::signals::{is_bbr, lost, positive, rtt_s};
use super::super::thresholds::{MODEL_TOLERANCE, READINGS_OF_A_RATE, SLOW_START_SHARE};
use super::super::view::{TcpFlow, View, bps, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::plan::{Direction, MAX_SECONDS};
use crate::record::TcpSender;
use crate::remedy::{Remedy, RunOption};

pub(super) const RULE: Rule = Rule {
    cause: Cause::Startup,
    basis: Basis::Modelled,
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

/// A run with a warm-up whose rate still grew.
pub(super) const GROWTH: Rule = Rule {
    cause: Cause::Startup,
    basis: Basis::Modelled,
    tolerance: MODEL_TOLERANCE,
    ceiling: |view| {
        let formula = "rate that still grew when the measured time ended";
        still_grows(view).then(|| Ceiling::new(view.throughput_bps, formula).dependent())
    },
    signs: growth_signs,
    remedy: |view, _| {
        // Four times as long.
        let seconds = (4.0 * view.seconds).ceil().clamp(MIN_SECONDS, MAX_SECONDS);
        Some(Remedy::option(RunOption::Time, format!("{seconds:.0}s")))
    },
};

fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let waits = round_trips_before_data(view);
    let rate = |flow: &TcpFlow<'_>| {
        // The last round ends where it arrives, half a round trip after it was sent, or where that
        // is acknowledged.
        let until = if view.counts_acknowledged() { 0.0 } else { 0.5 };
        let paced = match &flow.tcp.congestion {
            Some(_) if is_bbr(flow.tcp) => BBR_ROUNDS,
            Some(_) => 0.0,
            // Of packets: whether a clock spread these few frames nothing tells.
            None => BBR_ROUNDS / 2.0,
        };
        let rounds = waits + paced - until;
        let seconds = slow_start(view, flow)?.seconds + rounds * shortest_rtt_s(flow)?;
        positive(flow.bytes as f64 * 8.0 / seconds)
    };
    let rounds = view.sum(|flow| Some(slow_start(view, flow)?.rounds))?;
    let formula = "Σ bytes ÷ (round trips before the first byte + rounds of slow start − ½ + rest ÷ \
        largest delivery rate)";
    let ceiling = Ceiling::new(view.sum(rate)?, formula)
        .input("bytes", view.sum(|flow| Some(flow.bytes as f64)))
        .input("initial_window_segments", Some(INITIAL_WINDOW_SEGMENTS))
        .input("round_trips_before_data", Some(waits))
        .input("rounds", Some(rounds / view.tcp.len() as f64))
        .input("rtt_us", view.mean(|tcp| Some(tcp.rtt_mean_us.into())));
    Some(ceiling)
}

/// `None` if the warm-up left slow start out of the measured time.
fn slow_start(view: &View<'_>, flow: &TcpFlow<'_>) -> Option<SlowStart> {
    if !view.has_slow_start {
        return None;
    }
    let reached = flow.tcp.delivery_rate_max_bps.map(|bps| bps as f64);
    let keeps = |rate: &f64| has_left(flow.tcp) && rate_was_kept(view, flow, *rate);
    let steady = reached.and_then(positive).filter(keeps);
    Some(SlowStart::of(
        positive(flow.bytes as f64)?,
        positive(flow.tcp.mss_bytes.into())?,
        shortest_rtt_s(flow)?,
        steady.unwrap_or(f64::INFINITY),
    ))
}

/// Whether slow start is over: a threshold was set. BBR sets none; its largest rate counts once
/// there are enough readings of it.
fn has_left(tcp: &TcpSender) -> bool {
    if is_bbr(tcp) {
        tcp.samples.is_some_and(|n| n >= READINGS_OF_A_RATE)
    } else {
        tcp.ssthresh_bytes.is_some()
    }
}

/// What BBR reached in the last round of slow start, it has not had for most of the time; and until
/// it leaves slow start its pace is 2.9 times what it has measured (`bbr_high_gain`), so that it
/// never has what it paces at, however often anybody looked.
fn rate_was_kept(view: &View<'_>, flow: &TcpFlow<'_>, rate: f64) -> bool {
    let mean = flow.bytes as f64 * 8.0 / view.seconds;
    !is_bbr(flow.tcp) || (mean >= KEPT * rate && view.keeps_its_pace())
}

/// Without the queue that a growing window makes in the end.
fn shortest_rtt_s(flow: &TcpFlow<'_>) -> Option<f64> {
    let shortest = flow.tcp.rtt_min_us.map(|us| f64::from(us) / 1e6);
    shortest.and_then(positive).or_else(|| rtt_s(flow.tcp))
}

/// Round trips before the first payload: a whole transfer begins with its handshake; otherwise a
/// client that receives begins to count when it asks. Other programs' connections are counted from
/// their first data.
fn round_trips_before_data(view: &View<'_>) -> f64 {
    if view.counts_acknowledged() {
        return 0.0;
    }
    let whole = view.stream().is_some_and(|stream| stream.whole);
    f64::from(u8::from(whole || view.direction == Direction::Down))
}

/// Whether a test with a warm-up shows no limit yet: its rate grew from interval to interval, with
/// neither a loss nor a queue that a window beyond the path would make. What another program sends
/// may grow for reasons of its own.
fn still_grows(view: &View<'_>) -> bool {
    let rates = &view.interval_rates_bps;
    let quarter = (rates.len() / 4).max(1);
    let rises = rates.windows(2).all(|pair| pair[1] >= SAME_RATE * pair[0]);
    let (first, last) = (rates.iter().take(quarter), rates.iter().rev().take(quarter));
    view.asked.is_some()
        && !view.has_slow_start
        && rates.len() >= MIN_INTERVALS
        && rises
        && last.sum::<f64>() >= GROWS * first.sum::<f64>()
        && is_lossless(view)
        && !view.queue_or_marks()
}

fn is_lossless(view: &View<'_>) -> bool {
    !view.tcp.is_empty() && view.tcp.iter().all(|flow| lost(flow.tcp) <= 0.0)
}

fn growth_signs(view: &View<'_>) -> Option<Signs> {
    let rates = &view.interval_rates_bps;
    let [first, last] = [rates.first()?, rates.last()?].map(|rate| bps(*rate));
    let say = format!("the rate grew from {first} to {last}, without a loss or a queue");
    still_grows(view).then(|| Signs::new(true, [say])).flatten()
}

/// Slow start takes most of the measured time, and no loss ended it.
fn signs(view: &View<'_>) -> Option<Signs> {
    let time = view.sum(|flow| Some(slow_start(view, flow)?.rounds * shortest_rtt_s(flow)?))?;
    let share = time / view.tcp.len() as f64 / positive(view.seconds)?;
    let takes = percent(share.min(1.0));
    let say = format!("slow start takes {takes} of the measured time");
    Signs::new(share >= SLOW_START_SHARE && is_lossless(view), [say])
}

/// A run of which slow start is a twentieth.
fn remedy(view: &View<'_>, _: f64) -> Option<Remedy> {
    let flows = view.tcp.len() as f64;
    let time = view.sum(|flow| Some(slow_start(view, flow)?.rounds * rtt_s(flow.tcp)?));
    let seconds =
        time.map_or(0.0, |time| (time / flows * 20.0).ceil()).clamp(MIN_SECONDS, MAX_SECONDS);
    Some(Remedy::option(RunOption::Time, format!("{seconds:.0}s")))
}

/// Length of `linerate stream` by default, seconds.
const MIN_SECONDS: f64 = 10.0;
/// Rounds that BBR takes besides: it paces each, so that its last byte leaves a third of a round
/// later, and it measures the next one's pace by that.
const BBR_ROUNDS: f64 = 1.0;
/// Last quarter of the intervals over the first from which on the rate grew: a window that doubles
/// each round trip, or grows by a half in a second, as CUBIC's does, is beyond it.
const GROWS: f64 = 1.5;
/// Rate of an interval over that of the one before that is as much: less, and it did not grow.
const SAME_RATE: f64 = 0.95;
/// Intervals that show a growth.
const MIN_INTERVALS: usize = 3;
/// Mean rate over the largest from which on the largest was kept: three doublings come to a quarter
/// of the last one's.
const KEPT: f64 = 0.5;
