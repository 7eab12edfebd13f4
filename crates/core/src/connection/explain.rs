//! The verdict on a connection, as far as the end that was seen can know it.

use super::document::{Connection, ConnectionsDocument, Vantage};
use super::remedy;
use super::view::view;
use crate::ceilings;
use crate::record::{Cause, Environment, Verdict};

impl ConnectionsDocument {
    /// Explains each of its connections anew.
    pub fn explain(&mut self) {
        for connection in &mut self.connections {
            explain(connection, &self.environment);
        }
    }
}

/// Finds ceilings and verdict of a connection anew, from its own evidence and its host's facts.
pub fn explain(connection: &mut Connection, environment: &Environment) {
    connection.ceilings.clear();
    connection.verdict = None;
    connection.needs_other_end = None;
    let Some(view) = view(connection, environment) else {
        return;
    };
    let ceilings::Explained { verdict, ceilings, .. } = ceilings::explain_view(&view);
    let held = ceilings::is_held_by_receiver(&view);
    // Behind a link the rate is even; a reader that is late makes the round trip long, too.
    let uneven = held && !ceilings::is_even(&view);
    let closing = ceilings::is_closing(&view) || (uneven && verdict.cause == Cause::PathRate);
    let is_known = knows(connection).is_none_or(|known| known.contains(&verdict.cause));
    // A writer that always runs is not the one that waits for the window to open.
    let explains = [Cause::ReceiveWindow, Cause::ApplicationReceive, Cause::CpuSend];
    let verdict = if closing && !explains.contains(&verdict.cause) {
        let evidence = "the receiver's window closes and opens: its program or CPU is late, or its \
                        window is small";
        unexplained(evidence.to_owned(), verdict)
    } else if is_known {
        verdict
    } else {
        let end = match connection.vantage {
            Vantage::Receiver => "receiver",
            Vantage::Sender | Vantage::Between => "sender",
        };
        let evidence = format!("what holds it back is not known at the {end}'s end");
        unexplained(evidence, verdict)
    };
    let elsewhere = match connection.vantage {
        Vantage::Receiver => verdict.cause == Cause::Unexplained,
        // Why the window is small, or closes, the sender cannot know.
        Vantage::Sender | Vantage::Between => held && verdict.cause != Cause::Startup,
    };
    let verdict = remedy::of_its_own(connection, verdict).typed(&view.run());
    connection.needs_other_end = elsewhere.then(|| remedy::at_other_end(connection));
    connection.ceilings = ceilings;
    connection.verdict = Some(verdict);
}

/// The causes that an end can know; `None`: all that its evidence shows.
fn knows(connection: &Connection) -> Option<&'static [Cause]> {
    // What a sender knew, its packets tell at the receiver, too.
    let tells_sender = connection.tcp.as_ref().is_some_and(|tcp| tcp.sender().is_some());
    let of_packets = connection.end.is_none() && tells_sender;
    match connection.vantage {
        _ if of_packets => None,
        Vantage::Sender => Some(&[
            Cause::ReceiveWindow,
            Cause::SendBuffer,
            Cause::Pacing,
            Cause::Congestion,
            Cause::PathRate,
            Cause::Policer,
            Cause::SegmentSize,
            Cause::Startup,
            Cause::ApplicationSend,
            Cause::CpuSend,
            Cause::QosClass,
            Cause::Unexplained,
        ]),
        Vantage::Receiver => Some(&[
            Cause::ApplicationReceive,
            Cause::ReceiveWindow,
            Cause::CpuReceive,
            Cause::Unexplained,
        ]),
        Vantage::Between => None,
    }
}

/// A verdict without a cause, with this evidence.
fn unexplained(evidence: String, verdict: Verdict) -> Verdict {
    Verdict { evidence: vec![evidence], runner_up: verdict.runner_up, ..Verdict::default() }
}
