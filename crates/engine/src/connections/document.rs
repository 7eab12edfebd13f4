//! From looks at sockets to a document.

use std::cmp::Reverse;
use std::time::SystemTime;

use linerate_core::connection::{Connection, ConnectionsDocument, Process, State, Vantage};
use linerate_core::record::{Caveat, CaveatKind, Environment};
use linerate_sys::clock::format_rfc3339;
use linerate_sys::proc::owner::Owner;

use super::listen::hidden_caveat;
use super::watch::Seen;
use super::{ConnectionsError, Watch, evidence};

impl Watch {
    /// What moved since the watch began, or [began again](Watch::begin_again); the largest rate
    /// first. Processes are named as far as they are known already.
    pub fn document(&self) -> ConnectionsDocument {
        let mut document = ConnectionsDocument::new(self.source.clone());
        document.started_at = format_rfc3339(SystemTime::now());
        document.seconds = self.seconds();
        document.environment = Environment::new(self.facts.clone(), None);
        let mut seen: Vec<&Seen> = self.seen().collect();
        seen.sort_unstable_by_key(|one| (one.local, one.remote));
        document.connections = seen.into_iter().map(|one| self.connection(one)).collect();
        document.caveats = self.caveats();
        document.explain();
        // They are large: each is moved once. Rates are ordered as their bits are.
        let slowest_last = |one: &Connection| Reverse(one.throughput_bps.max(0.0).to_bits());
        document.connections.sort_by_cached_key(slowest_last);
        document
    }

    /// Names the processes of the first `most` connections: those that are shown. It takes a look at
    /// each descriptor of the host.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn name_owners(
        &mut self,
        document: &mut ConnectionsDocument,
        most: usize,
    ) -> Result<(), ConnectionsError> {
        let shown = || document.connections.iter().take(most);
        self.find_owners(shown().map(|one| one.inode).collect())?;
        let hidden = shown().filter(|one| !one.ended && self.unowned.contains(&one.inode));
        let hidden = hidden.count();
        if self.hidden > 0 && hidden > 0 {
            let caveat = hidden_caveat(hidden, "connections");
            document.caveats.push(caveat);
        }
        for one in document.connections.iter_mut().take(most) {
            one.process = self.owner(one.inode).map(process);
        }
        Ok(())
    }

    fn connection(&self, seen: &Seen) -> Connection {
        let seconds = self.seconds();
        let (sent, received) = seen.bytes();
        let sends = sent >= received;
        let vantage = if sends {
            Vantage::Sender
        } else {
            Vantage::Receiver
        };
        let mut connection =
            Connection::new(seen.local.to_string(), seen.remote.to_string(), vantage);
        connection.state = State::from_number(seen.state);
        connection.process = self.owner(seen.inode).map(process);
        connection.inode = seen.inode;
        (connection.bytes_sent, connection.bytes_received) = (sent, received);
        connection.seconds = seconds;
        if seconds > 0.0 {
            connection.throughput_bps = connection.bytes() as f64 * 8.0 / seconds;
        }
        connection.ended = seen.has_ended;
        if sent + received > 0 {
            evidence::fill(&mut connection, seen, &self.facts.sysctls, self.began_ns);
        }
        connection
    }

    fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        if self.has_lost {
            let message = "more connections closed at once than could be noted";
            let remedy = "a shorter --interval";
            caveats.push(Caveat::new(CaveatKind::NotReadable, message, remedy));
        }
        caveats
    }
}

impl Seen {
    /// Payload acknowledged and payload received since the first reading.
    fn bytes(&self) -> (u64, u64) {
        let ends = self.readings.first().zip(self.readings.last());
        ends.map_or((0, 0), |(first, last)| {
            let grown = |now: u64, before: u64| now.saturating_sub(before);
            (
                grown(last.info.bytes_acked, first.info.bytes_acked),
                grown(last.info.bytes_received, first.info.bytes_received),
            )
        })
    }
}

pub(super) fn process(owner: &Owner) -> Process {
    Process {
        pid: owner.pid,
        name: owner.name.clone(),
    }
}
