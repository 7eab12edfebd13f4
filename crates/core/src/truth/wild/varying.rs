//! Links whose rate does not stay.

use std::fmt::Write as _;

use super::super::conditions::Line;
use super::super::scenario::Steps;
use super::shaped::queue;
use super::{Draft, Place, Queue, QueueKind, rate, usual};
use crate::ceilings::Cause;
use crate::link::{Distribution, Jitter, QueueLimit};
use crate::plan::Direction;
use crate::units::{Dice, Nanos, Span};

/// Wi-Fi sends what has gathered at once, and rests; the rate of LTE wanders.
pub(super) fn wifi_lte(random: &mut Dice) -> Draft {
    let mean = rate(random, 5e6, 80e6) as f64;
    let trace = if random.chance(0.5) {
        aggregated(mean, random)
    } else {
        wandering(mean, random)
    };
    let rtt_s = random.log_uniform(0.005, 0.06);
    let mut made = on_trace(&trace, rtt_s, random);
    // No packet arrives before it is sent: three deviations are within the one-way delay, also
    // where the path is written down in whole microseconds.
    let most_s = (rtt_s / 2.0 * 1e6).floor() / 1e6 / 3.0;
    let size = Nanos((random.log_uniform(3e-4, 5e-3).min(most_s) * 1e9) as u64);
    let distribution = Distribution::Normal;
    made.payloads_link().jitter = Some(Jitter { distribution, size });
    made
}

pub(super) fn rate_steps(random: &mut Dice) -> Draft {
    let high = rate(random, 10e6, 100e6);
    let low = (high as f64 * random.uniform(0.3, 0.7)) as u64;
    let every_s = random.uniform(0.8, 2.0);
    if random.chance(0.5) {
        let steps = vec![(every_s, high), (every_s, low)];
        let rtt_s = random.log_uniform(0.005, 0.06);
        return on_trace(&Trace { steps }, rtt_s, random);
    }
    let fast = queue(QueueKind::Tbf, high, 0.0, random);
    let slow = Queue {
        rate_bps: low,
        ..fast
    };
    let mut made = Draft::new(usual(random), Cause::PathRate, random);
    made.shape(Place::Router, &fast);
    made.limited_to(low.midpoint(high));
    made.seconds = Some((1.0, 6.0));
    let commands = [slow.setup(), fast.setup()].concat();
    made.around.shapers[0].steps = Some(Steps {
        every: Span(std::time::Duration::from_secs_f64(every_s)),
        commands,
    });
    made.around.shapers[0].words = format!("{slow} and {fast} in turn");
    made
}

/// A sequence of rates that is repeated.
struct Trace {
    /// Seconds and bits/s.
    steps: Vec<(f64, u64)>,
}

/// Rounds of 4 to 20 ms; everything is sent in the first part of each.
fn aggregated(mean: f64, random: &mut Dice) -> Trace {
    let round_s = random.log_uniform(0.004, 0.02);
    let share = random.uniform(0.3, 0.7);
    Trace {
        steps: vec![
            (round_s * share, (mean / share) as u64),
            (round_s * (1.0 - share), 0),
        ],
    }
}

/// Steps of 100 ms, most of them within a factor of two.
fn wandering(mean: f64, random: &mut Dice) -> Trace {
    let factors: Vec<f64> = (0..20).map(|_| (0.4 * random.normal()).exp()).collect();
    let scale = mean * factors.len() as f64 / factors.iter().sum::<f64>();
    let step = |factor: &f64| (0.1, (factor * scale) as u64);
    Trace {
        steps: factors.iter().map(step).collect(),
    }
}

impl Trace {
    fn seconds(&self) -> f64 {
        self.steps.iter().map(|(seconds, _)| seconds).sum()
    }

    fn mean_bps(&self) -> f64 {
        let steps = self.steps.iter();
        let bits = steps.map(|(seconds, bps)| seconds * *bps as f64);
        bits.sum::<f64>() / self.seconds()
    }

    /// The text that [`RateTrace::parse`](crate::link::RateTrace::parse) reads.
    fn text(&self) -> String {
        let (mut text, mut at) = (String::new(), 0.0);
        for (seconds, bps) in &self.steps {
            let _ = writeln!(text, "{at:.6} {bps}bit");
            at += seconds;
        }
        let _ = writeln!(text, "{at:.6} end");
        text
    }
}

/// A draft on a link of the lab's with these rates and 0.3 s of queue in the payload's direction.
fn on_trace(trace: &Trace, rtt_s: f64, random: &mut Dice) -> Draft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4]);
    conditions.line = Some(Line::new(rtt_s));
    let mut made = Draft::new(conditions, Cause::PathRate, random);
    let link = made.payloads_link();
    link.trace = Some(NAME.to_owned());
    link.queue = QueueLimit::Bytes((trace.mean_bps() / 8.0 * 0.3).max(100_000.0) as u64);
    made.around.traces.insert(NAME.to_owned(), trace.text());
    made.limited_to(trace.mean_bps() as u64);
    made.seconds = Some((1.5, 6.0));
    made
}

impl Draft {
    /// The direction of its link that carries the payload.
    pub(super) fn payloads_link(&mut self) -> &mut crate::link::LinkSpec {
        let path = self.path.get_or_insert_default();
        match self.conditions.direction {
            Direction::Down => &mut path.down,
            Direction::Up | Direction::Both => &mut path.up,
        }
    }
}

/// The name of the rates in the path's spec.
const NAME: &str = "drawn";
