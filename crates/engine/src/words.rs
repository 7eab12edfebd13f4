//! Small texts: errors with their sources, log lines of tests.

use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;

use linerate_core::plan::{Test, Traffic};
use linerate_core::session::message::HalfReport;
use linerate_core::units::{BitRate, ByteCount, digits};

/// Shows a message to the user.
pub(crate) type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The message of an error and those of its sources, joined by colons.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let _ = write!(text, ": {error}");
        source = error.source();
    }
    text
}

/// The result of a test as a line for the endpoint's log.
pub(crate) fn tested(test: &Test, report: &HalfReport) -> String {
    if let Traffic::Stream(_) = test.traffic {
        return summary(report);
    }
    let transactions: u64 = report.flows.iter().map(|flow| flow.messages).sum();
    let seconds = report.flows.iter().map(|flow| flow.seconds).fold(0.0, f64::max);
    format!("{transactions} transactions in {} s", digits(seconds))
}

/// The bytes that a half received and sent as a line for the endpoint's log.
pub(crate) fn summary(report: &HalfReport) -> String {
    let total = |sends: bool| -> (u64, f64) {
        let flows = report.flows.iter().filter(|flow| flow.sends == sends);
        flows.fold((0, 0.0), |(bytes, seconds), flow| {
            (bytes + flow.bytes, f64::max(seconds, flow.seconds))
        })
    };
    let words: Vec<String> = [(false, "received"), (true, "sent")]
        .into_iter()
        .filter_map(|(sends, verb)| {
            let (bytes, seconds) = total(sends);
            (bytes > 0 && seconds > 0.0).then(|| {
                let rate = BitRate((bytes as f64 * 8.0 / seconds) as u64);
                format!("{verb} {} in {} s, {rate}", ByteCount(bytes), digits(seconds))
            })
        })
        .collect();
    if words.is_empty() { "no payload".to_owned() } else { words.join("; ") }
}
