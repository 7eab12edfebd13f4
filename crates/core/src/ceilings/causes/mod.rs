//! One file for each cause (application and CPU: one for both ends), and the table of them.

mod application;
mod as_asked;
mod congestion;
mod cpu;
mod pacing;
mod packets;
mod path_rate;
mod policer;
mod qos_class;
mod receive_window;
mod segment_size;
mod send_buffer;
mod startup;

pub(super) use congestion::with_cubic;
pub(super) use receive_window::{is_closing, is_held_by_receiver};
pub(super) use send_buffer::{full_buffers_bps, whole_buffers_bps};

use super::view::View;
use super::{Cause, Ceiling};
use crate::remedy::Remedy;

/// What is known of one cause.
pub(super) struct Rule {
    pub(super) cause: Cause,
    /// How near the measured rate must come to the ceiling, as a share of the ceiling.
    pub(super) tolerance: f64,
    /// What the cause would let through; `None` where the figures for it are missing.
    pub(super) ceiling: fn(&View<'_>) -> Option<Ceiling>,
    /// What the kernel says of it; `None` where it says nothing.
    pub(super) signs: fn(&View<'_>) -> Option<Signs>,
    /// What lifts it far enough for this rate, bits per second, if anything does.
    pub(super) remedy: fn(&View<'_>, f64) -> Option<Remedy>,
}

/// The kernel's evidence for or against a cause.
pub(super) struct Signs {
    /// It is for it.
    pub(super) hold: bool,
    /// Sentences with figures.
    pub(super) say: Vec<String>,
    /// How near the rate must come to the ceiling at least, where they are surer than that.
    pub(super) tolerance: f64,
}

/// In the order in which they are asked; the first that holds and agrees with its ceiling is the
/// verdict.
///
/// A transfer that ended in slow start says nothing of the rest. An end that does not keep up shows
/// in its threads, and makes windows fill or stay empty that would else be a cause of their own. A
/// class of the sender's own host counts what it lets through and is surer than anything that is
/// seen through it. What an application set (pacing, buffers, windows) leaves the congestion window
/// unused, and so comes before the network's own causes; of these a queue is surer than the pattern
/// of losses.
pub(super) const RULES: [Rule; 23] = [
    startup::RULE,
    qos_class::SHAPER,
    segment_size::RULE,
    cpu::RECEIVE,
    application::RECEIVE,
    cpu::SEND,
    qos_class::METER,
    application::SEND,
    as_asked::RULE,
    qos_class::CLASS,
    pacing::RULE,
    send_buffer::RULE,
    packets::READER,
    packets::WRITER,
    receive_window::RULE,
    receive_window::OWN,
    cpu::HOST,
    path_rate::LINK,
    path_rate::QUEUE,
    path_rate::RECEIVED,
    path_rate::TRAIN,
    policer::RULE,
    congestion::RULE,
];

impl Signs {
    /// `hold` and why.
    fn new(hold: bool, say: impl IntoIterator<Item = String>) -> Option<Self> {
        Some(Self {
            hold,
            say: say.into_iter().collect(),
            tolerance: 0.0,
        })
    }

    fn within(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }
}

impl Ceiling {
    fn new(cause: Cause, limit_bps: f64, formula: impl Into<String>) -> Self {
        Self {
            cause,
            limit_bps,
            formula: formula.into(),
            inputs: Default::default(),
            evidence: Vec::new(),
            independent: true,
        }
    }

    fn input(mut self, key: &str, value: Option<f64>) -> Self {
        self.inputs
            .extend(value.map(|value| (key.to_owned(), value)));
        self
    }

    /// An input is the measured rate itself.
    fn dependent(mut self) -> Self {
        self.independent = false;
        self
    }
}
