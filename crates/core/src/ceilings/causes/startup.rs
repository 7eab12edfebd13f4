//! A transfer too short to leave slow start.

use super::super::formulas::{INITIAL_WINDOW_SEGMENTS, SlowStart};
use super::super::remedy::stream;
use super::super::signals::{lost, positive, rtt_s};
use super::super::text::percent;
use super::super::thresholds::{MODEL_TOLERANCE, SLOW_START_SHARE};
use super::super::view::{TcpFlow, View};
use super::{Cause, Ceiling, Rule, Signs};
use crate::plan::{MAX_SECONDS, Traffic};

pub(super) const RULE: Rule = Rule {
    cause: Cause::Startup,
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy,
};

fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let handshakes = f64::from(u8::from(counts_handshake(view)));
    let rate = |flow: &TcpFlow<'_>| {
        let seconds = slow_start(view, flow)?.seconds + handshakes * rtt_s(flow.tcp)?;
        positive(flow.bytes as f64 * 8.0 / seconds)
    };
    let rounds = view.sum(|flow| Some(slow_start(view, flow)?.rounds))?;
    Some(
        Ceiling::new(
            Cause::Startup,
            view.sum(rate)?,
            "Σ bytes ÷ (handshake + rounds of slow start + rest ÷ largest delivery rate)",
        )
        .input("bytes", view.sum(|flow| Some(flow.bytes as f64)))
        .input("initial_window_segments", Some(INITIAL_WINDOW_SEGMENTS))
        .input("handshakes", Some(handshakes))
        .input("rounds", Some(rounds / view.tcp.len() as f64))
        .input("rtt_us", view.mean(|tcp| Some(tcp.rtt_mean_us.into()))),
    )
}

/// `None` where a warm-up left slow start out of what was measured.
fn slow_start(view: &View<'_>, flow: &TcpFlow<'_>) -> Option<SlowStart> {
    if view.plan.warm_up.as_secs_f64() > 0.0 {
        return None;
    }
    let steady = flow.tcp.delivery_rate_max_bps.map(|bps| bps as f64);
    Some(SlowStart::of(
        positive(flow.bytes as f64)?,
        positive(flow.tcp.mss_bytes.into())?,
        rtt_s(flow.tcp)?,
        steady.and_then(positive).unwrap_or(f64::INFINITY),
    ))
}

fn counts_handshake(view: &View<'_>) -> bool {
    matches!(&view.plan.traffic, Traffic::Stream(stream) if stream.whole)
}

/// Losses end slow start; without them it lasts for its rounds.
fn signs(view: &View<'_>) -> Option<Signs> {
    let time = view.sum(|flow| Some(slow_start(view, flow)?.rounds * rtt_s(flow.tcp)?))?;
    let share = time / view.tcp.len() as f64 / positive(view.seconds)?;
    let lossless = view.tcp.iter().all(|flow| lost(flow.tcp) <= 0.0);
    Signs::new(
        share >= SLOW_START_SHARE && lossless,
        [format!(
            "slow start takes {} of the measured time",
            percent(share.min(1.0))
        )],
    )
}

/// So long that slow start is a twentieth of it.
fn remedy(view: &View<'_>, _: f64) -> String {
    let flows = view.tcp.len() as f64;
    let time = view.sum(|flow| Some(slow_start(view, flow)?.rounds * rtt_s(flow.tcp)?));
    let seconds = time.map_or(0.0, |time| (time / flows * 20.0).ceil());
    let seconds = seconds.clamp(LEAST_SECONDS, MAX_SECONDS);
    stream(view, &format!("--time {seconds:.0}s"))
}

/// What `linerate stream` takes of itself, seconds.
const LEAST_SECONDS: f64 = 10.0;
