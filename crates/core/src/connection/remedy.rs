//! Remedies for the program or the host of a connection.
//!
//! The rules give remedies for linerate's own runs. In place of an option of a run, another program
//! has its own directive or a socket option; remedies that only another run would show are left
//! out.

use std::net::SocketAddr;

use super::document::{Connection, Vantage};
use crate::record::{RunnerUp, Verdict};
use crate::remedy::{Change, LookObject, Name, Remedy, RunOption};

/// The verdict with remedies that the connection's program and hosts can apply; they have no
/// commands yet.
pub(super) fn of_its_own(connection: &Connection, verdict: Verdict) -> Verdict {
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
pub(super) fn at_other_end(connection: &Connection) -> Remedy {
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
