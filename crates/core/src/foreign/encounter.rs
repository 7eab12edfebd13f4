//! The record of a test that linerate has made with another tool at the far end.

use crate::ceilings;
use crate::plan::{Family, Test};
use crate::record::{Caveat, CaveatKind, ExchangeTotals, Record, Run, Status};
use crate::wire::message::HalfReport;

use super::Tool;

/// Which end of the test linerate was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The endpoint, which served a client of the tool's.
    Served,
    /// The client of the tool's server.
    Used,
}

/// A test with another tool, as linerate's end knows it when it is over.
#[derive(Debug, Clone)]
pub struct Encounter {
    /// What the other end is.
    pub tool: Tool,
    /// Its version, as it tells it.
    pub version: Option<String>,
    /// Which end this is.
    pub role: Role,
    /// What was run, seen from the client: `Up` is client to server.
    pub test: Test,
    /// The other end: as the user named it, or its address where it has called.
    pub host: String,
    /// Its address and port.
    pub peer: String,
    /// Over which family.
    pub family: Family,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Whether it ended as planned.
    pub status: Status,
    /// This end's account.
    pub here: HalfReport,
    /// What the other end has told, in so far as it fits: of its flows the counts, of its host the CPU time.
    pub there: Option<HalfReport>,
    /// What the requests' worker counted, where this end asked.
    pub exchange: Option<ExchangeTotals>,
}

impl Encounter {
    /// The record with ceilings and verdict, from what this end has seen; what it cannot know is a caveat.
    pub fn into_record(mut self) -> Record {
        let told = self.there.is_some();
        let (role, tool) = (self.role, self.tool);
        self.here.caveats.extend(self.doubts());
        let (client, server) = match role {
            Role::Used => (self.here, self.there),
            Role::Served => (self.there.unwrap_or_default(), Some(self.here)),
        };
        let run = Run {
            test: self.test,
            host: self.host,
            peer: self.peer,
            family: self.family,
            started_at: self.started_at,
            status: self.status,
            client,
            server,
            exchange: self.exchange,
        };
        let mut record = run.into_record();
        record.via = Some(tool);
        record.served = role == Role::Served;
        if role == Role::Served && !told {
            forget_client(&mut record);
        }
        ceilings::annotate(&mut record);
        record
    }

    /// What this record lacks beside one between two ends of linerate's.
    fn doubts(&self) -> Vec<Caveat> {
        let mut doubts = Vec::new();
        let version = self.version.as_deref().unwrap_or_default();
        let name = format!("{} {version}", self.tool);
        let sends = self.here.flows.iter().any(|flow| flow.sends);
        let receives = self.here.flows.iter().any(|flow| !flow.sends);
        let lacks = match (sends, receives) {
            (true, false) => "the receiver's CPU, buffers and drops",
            (false, true) => "the sender's windows, losses and CPU",
            _ => "its windows, losses, buffers and CPU",
        };
        doubts.push(Caveat::new(
            CaveatKind::OtherTool,
            format!(
                "the other end is {}: {lacks} are not known, so a cause that lies there cannot be told",
                name.trim()
            ),
            "run linerate at both ends",
        ));
        if self.there.is_none() {
            doubts.push(Caveat::new(
                CaveatKind::Partial,
                format!("{} has told nothing of its half", self.tool),
                "run it again, or linerate at both ends",
            ));
        }
        doubts
    }
}

/// A client that has told nothing has no account, rather than one of zeros.
fn forget_client(record: &mut Record) {
    use crate::plan::Direction;
    match record.direction {
        Direction::Up => record.sender = None,
        Direction::Down => record.receiver = None,
        Direction::Both => record.sender = None,
    }
    for (direction, part) in &mut record.directions {
        match direction.as_str() {
            "up" => part.sender = None,
            _ => part.receiver = None,
        }
    }
}
