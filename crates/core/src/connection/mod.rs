//! Verdicts on connections of any program, by the rules for linerate's own runs.
//!
//! A [`ConnectionsDocument`] comes from the sockets of a host, watched from outside, or from a
//! capture. [`explain`] gives the rules of [`crate::ceilings`] what one end knows of each
//! [`Connection`]. A cause that this end cannot know is never named: then
//! [`Connection::needs_other_end`] has the command to run at the other end.
//!
//! | module | what is in it |
//! |---|---|
//! | `document` | the document and its parts |
//! | `capture` | evidence from the packets of a capture |
//! | `steady` | the part of a connection after slow start, and what holds its sender back |

mod capture;
mod document;
mod steady;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

pub use document::{
    BesidePath, CONNECTIONS_SCHEMA, Connection, ConnectionsDocument, LimitSource, ListenTotals,
    Listener, PacketKind, Process, Settled, Source, State, Vantage,
};

use crate::ceilings::{self, View};
use crate::plan::Protocol;
use crate::record::{Cause, Environment, Interval, RunnerUp, Verdict};
use crate::remedy::{Change, LookObject, Name, Remedy, RunOption, Target};
use crate::units::Family;

impl ConnectionsDocument {
    /// Explains each of its connections anew.
    pub fn explain(&mut self) {
        for connection in &mut self.connections {
            explain(connection, &self.environment);
        }
        self.path.iter_mut().for_each(|path| ceilings::annotate(path));
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
    let verdict = of_its_own(connection, verdict).typed(&view.run());
    connection.needs_other_end = elsewhere.then(|| at_other_end(connection));
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

// Remedies for the program or the host of a connection.

/// The verdict with remedies that the connection's program and hosts can apply; they have no
/// commands yet.
///
/// The rules give remedies for linerate's own runs. In place of an option of a run, another program
/// has its own directive or a socket option; remedies that only another run would show are left
/// out.
fn of_its_own(connection: &Connection, verdict: Verdict) -> Verdict {
    let remedy = verdict.remedy.and_then(|remedy| own(connection, remedy));
    let is_lifted = remedy.is_some();
    let tell_apart = look_again(connection);
    Verdict {
        remedy,
        predicted_bps: verdict.predicted_bps.filter(|_| is_lifted),
        next_cause: verdict.next_cause.filter(|_| is_lifted),
        runner_up: verdict.runner_up.map(|next| RunnerUp { tell_apart, ..next }),
        ..verdict
    }
}

/// A look at the other end's half of the same connection.
fn at_other_end(connection: &Connection) -> Remedy {
    let remote: Option<SocketAddr> = connection.remote.parse().ok();
    let there = remote.map_or_else(
        || "on the other end's host".to_owned(),
        |remote| format!("on {}", remote.ip()),
    );
    let place = match connection.vantage {
        Vantage::Sender => there + ": whether its program reads late, or its buffer is small",
        Vantage::Receiver => there + ": what holds the sender back",
        Vantage::Between => "on either end's host".to_owned(),
    };
    look_again(connection).because(place).typed(None)
}

fn look_again(connection: &Connection) -> Remedy {
    let port = known_port(connection);
    Remedy::look(LookObject::Connection { port }, None)
}

/// The well-known port of the two: most likely the lower one, which the kernel did not choose.
fn known_port(connection: &Connection) -> u16 {
    let ends = [&connection.local, &connection.remote];
    let ports = ends.map(|text| text.parse().map_or(0, |end: SocketAddr| end.port()));
    match ports {
        [local, 0] => local,
        [local, remote] => local.min(remote),
    }
}

/// The remedy for this connection, from that for a run; `None` if there is none.
fn own(connection: &Connection, remedy: Remedy) -> Option<Remedy> {
    let Change::Option { object, value } = &remedy.change else {
        let tells = matches!(
            remedy.change,
            Change::Look { object: LookObject::ReceiveBuffers | LookObject::SendBuffers }
        );
        return (remedy.changes() || tells).then_some(remedy);
    };
    let own = match object {
        RunOption::Congestion => {
            let change = Change::HostSetting {
                object: "net.ipv4.tcp_congestion_control".to_owned(),
                value: value.clone()?,
            };
            Remedy::new(change, None).because("for new connections")
        }
        RunOption::SendBuffer | RunOption::ReceiveWindow => {
            of_program(connection, *object, value.clone())
        }
        // Without it: a rate that brings less queue or fewer losses is no larger one.
        RunOption::Pacing if value.is_none() => of_program(connection, *object, None),
        _ => return None,
    };
    Some(match remedy.first {
        Some(first) => own.after(*first),
        None => own,
    })
}

fn of_program(connection: &Connection, object: RunOption, value: Option<String>) -> Remedy {
    let process = connection.process.as_ref();
    let program = process.and_then(|process| Name::new(&process.name));
    let change = Change::Program { object, program, port: known_port(connection), value };
    Remedy::new(change, None)
}

/// A connection as one TCP flow of which one end was seen; nothing was asked of it. `None` if it
/// carried nothing.
fn view<'a>(connection: &'a Connection, environment: &'a Environment) -> Option<View<'a>> {
    if connection.bytes() == 0 || connection.seconds <= 0.0 {
        return None;
    }
    let mut seconds = connection.seconds;
    let mut throughput_bps = connection.throughput_bps;
    let mut bytes = connection.bytes();
    let settled = connection.settled.as_ref();
    if let Some(settled) = settled {
        seconds -= settled.from_s;
        throughput_bps = settled.throughput_bps;
        bytes = (throughput_bps * seconds / 8.0) as u64;
    }
    let is_explained = |it: &&Interval| settled.is_none_or(|s| it.start_s >= s.from_s);
    let intervals = connection.intervals.iter().filter(is_explained);
    let tcp = settled.and_then(|s| s.tcp.as_ref()).or(connection.tcp.as_ref());
    let end = |vantage| connection.end.as_ref().filter(|_| connection.vantage == vantage);
    let [sender_host, receiver_host] = environment.hosts_of(connection.direction);
    let addresses = [&connection.local, &connection.remote].map(|text| {
        let address: SocketAddr = text.parse().ok()?;
        Some(address.ip())
    });
    let view = View {
        direction: connection.direction,
        is_both: false,
        protocol: Protocol::Tcp,
        family: addresses[1].map_or(Family::Ipv4, Family::from),
        seconds,
        // A beginning that was not seen, or is left out, was most likely slow start.
        has_slow_start: connection.began && connection.settled.is_none(),
        throughput_bps,
        steps: connection.steps,
        interval_rates_bps: intervals.map(|it| it.throughput_bps).collect(),
        flows: tcp.map(|tcp| (bytes, tcp)).into_iter().collect(),
        total: (bytes, tcp),
        tcp: Vec::new(),
        udp: Vec::new(),
        sender: end(Vantage::Sender),
        receiver: end(Vantage::Receiver),
        sender_host,
        receiver_host,
        has_one_kernel: environment.shared_kernel,
        train: None,
        asked: None,
        target: Target::OtherProgram(addresses[1]),
        addresses,
    };
    Some(view.with_senders())
}
