//! The formulas of the recommended values. Each rule answers for one setting; the answer shows the
//! inputs and the result.
//!
//! | module | what is in it |
//! |---|---|
//! | `buffers` | memory of sockets |
//! | `connections` | how many there can be |
//! | `protocol` | what TCP does |
//! | `device` | devices, and the CPUs that work for them |

mod buffers;
mod connections;
mod device;
mod protocol;

use super::advice::{Advice, Question, SettingState};

type Rule = fn(&Question<'_>) -> Advice;

macro_rules! rules {
    ($($module:ident: $($rule:ident)*;)*) => {
        /// The rule of that name.
        pub(super) fn named(name: &str) -> Option<Rule> {
            match name {
                "not_judged" => Some(not_judged),
                $($(stringify!($rule) => Some($module::$rule),)*)*
                _ => None,
            }
        }
    };
}

rules! {
    buffers: asked_buffer pages receive_buffer send_buffer;
    connections: accept_queue closing cookies descriptors files files_of_process fin_timeout ports
        reuse syn_queue tracked tracking_buckets tracking_timeout tracking_wait;
    device: adaptive backlog coalescing governor interrupts offload polling queue_length
        receive_steering rx_ring send_steering tx_ring;
    protocol: after_idle congestion discipline metrics on probing scaling;
}

/// Advises nothing.
pub(super) fn not_judged(_: &Question<'_>) -> Advice {
    answer(SettingState::Shown, "there is no advice for it")
}

impl Advice {
    pub(super) fn with(mut self, inputs: Vec<(&'static str, f64)>) -> Self {
        self.inputs = inputs;
        self
    }
}

pub(super) fn answer(state: SettingState, why: impl Into<String>) -> Advice {
    Advice { state, right: None, why: why.into(), inputs: Vec::new() }
}

pub(super) fn fine(why: impl Into<String>) -> Advice {
    answer(SettingState::Fine, why)
}

pub(super) fn change(right: impl Into<String>, why: impl Into<String>) -> Advice {
    Advice { right: Some(right.into()), ..answer(SettingState::Change, why) }
}

pub(super) fn open(what: &str) -> Advice {
    answer(SettingState::Open, format!("depends on {what}"))
}

pub(super) fn unreadable() -> Advice {
    answer(SettingState::Unknown, "the kernel writes it in a form that is not known")
}

pub(super) fn at_least(
    q: &Question<'_>,
    needed: f64,
    right: u64,
    low: impl Into<String>,
) -> Advice {
    match q.now.parse::<u64>() {
        Ok(now) if now as f64 >= needed => fine("it is enough"),
        Ok(now) if now >= right => fine("no more is advised"),
        Ok(_) => change(right.to_string(), low),
        Err(_) => unreadable(),
    }
}

pub(super) fn at_most(q: &Question<'_>, most: u64, high: &str) -> Advice {
    match q.now.parse::<u64>() {
        Ok(now) if now <= most => fine("it is short enough"),
        Ok(_) => change(most.to_string(), high),
        Err(_) => unreadable(),
    }
}

pub(super) fn numbers(text: &str) -> Vec<u64> {
    let numbers: Result<_, _> = text.split_whitespace().map(str::parse).collect();
    numbers.unwrap_or_default()
}

pub(super) fn power_of_two(number: f64) -> u64 {
    // The cast saturates; nothing here needs more.
    (number.ceil() as u64).clamp(1, 1 << 30).next_power_of_two()
}

pub(super) const PATH: &str = "--rate and --rtt, or --for HOST";
pub(super) const CONNECTIONS: &str = "--connections";
