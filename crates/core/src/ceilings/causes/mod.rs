//! The table of causes; each cause has a file (application and CPU: one for both ends).

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

pub(crate) use receive_window::{is_closing, is_held_by_receiver};

pub(super) use congestion::with_cubic;
pub(super) use path_rate::slower_link_bps;
pub(super) use send_buffer::{full_buffers_bps, whole_buffers_bps};

use super::view::View;
use super::{Cause, Ceiling};
use crate::remedy::Remedy;

/// The rule by which a cause is judged.
pub(super) struct Rule {
    pub(super) cause: Cause,
    /// Kind of its evidence.
    pub(super) basis: Basis,
    /// Largest distance of the measured rate from the ceiling, as a share of the ceiling.
    pub(super) tolerance: f64,
    /// The most that the cause would let through, without cause and evidence; `None` where its
    /// figures are missing.
    pub(super) ceiling: fn(&View<'_>) -> Option<Ceiling>,
    /// The kernel's evidence; `None` where there is none.
    pub(super) signs: fn(&View<'_>) -> Option<Signs>,
    /// The remedy that lifts the cause far enough for this rate, bits per second, if there is one.
    pub(super) remedy: fn(&View<'_>, f64) -> Option<Remedy>,
}

/// What the evidence of a rule is, surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The kernel counted that the cause held: limited times, times of threads, bytes of classes.
    Counted,
    /// A limit follows from sizes and rates that are known exactly, and the run reached it.
    Computed,
    /// The run reached what a model of TCP or of the host's cost gives.
    Modelled,
    /// A pattern of delays or losses has thresholds that were fitted to runs.
    Fitted,
}

/// The kernel's evidence for or against a cause.
pub(super) struct Signs {
    /// Whether it is for the cause.
    pub(super) hold: bool,
    /// The evidence in sentences with figures.
    pub(super) say: Vec<String>,
    /// A tolerance above the rule's, where the evidence is sure enough for a rate farther from the
    /// ceiling.
    pub(super) tolerance: f64,
}

/// The rules in the order in which they are asked: the first one that holds and agrees with its
/// ceiling gives the verdict.
///
/// Slow start comes first: a transfer that ended in it tells nothing of the other causes; a rate
/// that still grew shows none that was not set. An end that does not keep up shows in its threads,
/// and makes windows fill or stay empty, which would otherwise look like causes of their own. A
/// class of the sender's own host counts what it lets through, and is surer than anything that is
/// seen through it. A limit that an application has set (pacing, buffers, windows) leaves the
/// congestion window unused, so it comes before the network's own causes. Of these a queue is surer
/// than the pattern of losses.
pub(super) const RULES: [Rule; 25] = [
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
    pacing::EACH_FLOW,
    startup::GROWTH,
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
    /// Whether the evidence is for the cause, and the sentences that tell why.
    fn new(hold: bool, say: impl IntoIterator<Item = String>) -> Option<Self> {
        Some(Self { hold, say: say.into_iter().collect(), tolerance: 0.0 })
    }

    fn within(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }
}

impl Ceiling {
    /// A ceiling whose cause and evidence come from its rule.
    fn new(limit_bps: f64, formula: impl Into<String>) -> Self {
        Self { limit_bps, formula: formula.into(), independent: true, ..Self::default() }
    }

    fn input(mut self, key: &str, value: Option<f64>) -> Self {
        self.inputs.extend(value.map(|value| (key.to_owned(), value)));
        self
    }

    /// The rate that the cause would let through if it held all the time, and not a share of it:
    /// the measured rate over that share.
    fn rate_over(view: &View<'_>, formula: &str, (key, share): (&str, f64)) -> Self {
        Self::new(view.throughput_bps / share, formula)
            .input("throughput_bps", Some(view.throughput_bps))
            .input(key, Some(share))
            .dependent()
    }

    /// An input is the measured rate itself: that the rate agrees with such a ceiling proves
    /// nothing. A rate outside the tolerance still rules the cause out.
    fn dependent(mut self) -> Self {
        self.independent = false;
        self
    }
}
