//! The document of what was seen: from looks at sockets, and of the listening sockets on the way.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::SystemTime;

use linerate_core::connection::{
    Connection, ConnectionsDocument, LimitSource, ListenTotals, Listener, Process, Source, State,
    Vantage, explain,
};
use linerate_core::record::{Caveat, CaveatKind, Environment};
use linerate_core::units::format_rfc3339;
use linerate_sys::netlink::sock_diag::{Filter, SockDiag};
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::processes::{self, Owner};
use linerate_sys::proc::sysctl;

use super::select::sockets_of;
use super::watch::{SeenConnection, WatchReading};
use super::{ConnectionsError, Selection, Watch, evidence};

impl Watch {
    /// What moved since the watch began, or [began again](Watch::begin_again); the largest rate
    /// first. Processes are named as far as they are known already.
    pub fn document(&self) -> ConnectionsDocument {
        let mut document = ConnectionsDocument::new(self.source.clone());
        document.environment = Environment::new(self.facts.clone(), None);
        self.fill(&mut document, self.seen().collect());
        document
    }

    /// Turns the document of the last period into that of this one. Connections that were and are
    /// idle stay in it as they are, which saves most of the work where there are many.
    pub fn update(&self, document: &mut ConnectionsDocument) {
        let seconds = self.seconds();
        let mut anew: HashSet<u64> = self.changed.clone();
        document.connections.retain_mut(|one| {
            one.seconds = seconds;
            let was_idle = one.bytes_sent + one.bytes_received == 0 && !one.ended && !one.began;
            if !was_idle {
                anew.insert(one.cookie);
            }
            !anew.contains(&one.cookie)
        });
        let anew = anew.into_iter().filter_map(|cookie| self.find(cookie));
        self.fill(document, anew.collect());
    }

    /// Puts these in front, those with the largest rates first.
    fn fill(&self, document: &mut ConnectionsDocument, mut seen: Vec<&SeenConnection>) {
        document.started_at = format_rfc3339(SystemTime::now());
        document.seconds = self.seconds();
        let lost = || {
            let message = "more connections closed at once than could be noted";
            Caveat::new(CaveatKind::NotReadable, message, "a shorter --interval")
        };
        document.caveats = self.has_lost.then(lost).into_iter().collect();
        seen.sort_unstable_by_key(|one| (one.local, one.remote));
        let mut made: Vec<Connection> = seen.into_iter().map(|one| self.connection(one)).collect();
        for connection in &mut made {
            explain(connection, &document.environment);
        }
        // They are large: each is moved once. Rates are ordered as their bits are.
        made.sort_by_cached_key(|one| Reverse(one.throughput_bps.max(0.0).to_bits()));
        if document.connections.is_empty() {
            document.connections = made;
        } else {
            document.connections.splice(..0, made);
        }
    }

    /// Names the processes of the first `most` connections: those that are shown. It takes a look
    /// at each descriptor of the host.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn name_owners(
        &mut self,
        document: &mut ConnectionsDocument,
        most: usize,
    ) -> Result<(), ConnectionsError> {
        let unnamed = |one: &&Connection| one.process.is_none();
        let shown = || document.connections.iter().take(most).filter(unnamed);
        let inode = |one: &Connection| Some(self.find(one.cookie)?.inode);
        let wanted = shown().filter_map(inode).collect();
        self.find_owners(wanted)?;
        let inode = |one: &Connection| Some(self.find(one.cookie)?.inode);
        for one in document.connections.iter_mut().take(most) {
            if one.process.is_none() {
                one.process = inode(one).and_then(|inode| self.owner(inode)).map(process);
            }
        }
        let shown = document.connections.iter().take(most).filter(unnamed);
        let is_hidden = |one: &&Connection| {
            !one.ended && inode(one).is_some_and(|inode| self.unowned.contains(&inode))
        };
        let hidden = shown.filter(is_hidden).count();
        if self.hidden > 0 && hidden > 0 {
            let caveat = hidden_caveat(hidden, "connections");
            document.caveats.push(caveat);
        }
        Ok(())
    }

    fn connection(&self, seen: &SeenConnection) -> Connection {
        let seconds = self.seconds();
        let (sent, received) = seen.bytes();
        let vantage = if sent >= received { Vantage::Sender } else { Vantage::Receiver };
        let (local, remote) = (seen.local.to_string(), seen.remote.to_string());
        let mut connection = Connection::new(local, remote, vantage);
        connection.state = State::from_number(seen.state);
        connection.process = self.owner(seen.inode).map(process);
        connection.cookie = seen.cookie;
        connection.began = seen.is_new;
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
}

impl SeenConnection {
    /// Payload acknowledged and payload received since the first reading.
    fn bytes(&self) -> (u64, u64) {
        let payload =
            |reading: Option<&WatchReading>, sends| reading.map_or(0, |it| it.payload(sends));
        let (first, last) = (self.readings.first(), self.readings.last());
        let grown = |sends| payload(last, sends).saturating_sub(payload(first, sends));
        (grown(true), grown(false))
    }
}

pub(super) fn process(owner: &Owner) -> Process {
    Process { pid: owner.pid, name: owner.name.clone() }
}

// Listening sockets: who waits to be accepted, and which limit applies.

/// Listening sockets of a selection, the fullest first.
///
/// # Errors
/// No such namespace or process, not permitted, or the kernel shows no sockets.
pub fn listeners(selection: &Selection) -> Result<ConnectionsDocument, ConnectionsError> {
    let pids = selection.pids()?;
    let inodes = pids.as_deref().map(sockets_of).transpose()?;
    let (listeners, host) = selection.place.run(|| {
        let found = found(selection, inodes.as_ref());
        found.map(|found| (found, Host::read()))
    })??;
    let wanted: HashSet<u32> = listeners.iter().map(|(inode, _)| *inode).collect();
    let owners = processes::owners(&wanted, pids.as_deref()).map_err(ConnectionsError::Proc)?;
    let mut document = ConnectionsDocument::new(Source::Host { namespace: selection.place.name() });
    document.started_at = format_rfc3339(SystemTime::now());
    for (inode, mut listener) in listeners {
        listener.process = owners.by_inode.get(&inode).map(process);
        listener.limit_by = host.limit_by(listener.limit);
        document.listeners.push(listener);
    }
    document.listen_totals = host.totals;
    let hidden = wanted.len() - owners.by_inode.len();
    if hidden > 0 && owners.hidden > 0 {
        let caveat = hidden_caveat(hidden, "listening sockets");
        document.caveats.push(caveat);
    }
    document.listeners.sort_by(|a, b| {
        let load = |one: &Listener| (one.waiting, one.dropped, one.half_open);
        load(b).cmp(&load(a)).then_with(|| a.local.cmp(&b.local))
    });
    Ok(document)
}

/// What belongs to other users.
pub(super) fn hidden_caveat(number: usize, what: &str) -> Caveat {
    let message = format!("the processes of {number} {what} are not known: they are other users'");
    Caveat::new(CaveatKind::NotReadable, message, "run as root")
}

/// Each with its inode, and connections that are still being made counted to it.
fn found(
    selection: &Selection,
    inodes: Option<&HashSet<u32>>,
) -> Result<Vec<(u32, Listener)>, ConnectionsError> {
    let mut diag = SockDiag::open()?;
    let filter = |states| Filter { states, ..selection.filter() };
    let mut half_open: HashMap<SocketAddr, u64> = HashMap::new();
    diag.sockets(&filter(Filter::HALF_OPEN), |socket| {
        *half_open.entry(socket.local).or_default() += 1;
    })?;
    let mut found = Vec::new();
    diag.sockets(&filter(Filter::LISTENERS), |socket| {
        if inodes.is_none_or(|inodes| inodes.contains(&socket.inode)) {
            let mut listener = Listener::new(socket.local.to_string());
            listener.waiting = socket.receive_queue.into();
            listener.limit = socket.send_queue.into();
            listener.dropped = socket.memory.map_or(0, |memory| memory.drops.into());
            found.push((socket.inode, socket.local, listener));
        }
    })?;
    for (_, local, listener) in &mut found {
        let is_of = |to: &SocketAddr| {
            to.port() == local.port() && (local.ip().is_unspecified() || to.ip() == local.ip())
        };
        let counts = half_open.iter().filter(|(to, _)| is_of(to));
        listener.half_open = counts.map(|(_, count)| count).sum();
    }
    let found = found.into_iter();
    Ok(found.map(|(inode, _, one)| (inode, one)).collect())
}

/// What holds for all of them.
struct Host {
    somaxconn: Option<u64>,
    totals: Option<ListenTotals>,
}

impl Host {
    /// Reads the counters of the calling thread's network namespace.
    fn read() -> Self {
        let somaxconn = sysctl::read("net.core.somaxconn").ok();
        let counters = ProtocolCounters::read().ok();
        let value = |name: &str| counters.as_ref()?.value(name);
        Self {
            somaxconn: somaxconn.and_then(|text| text.trim().parse().ok()),
            totals: value("TcpExtListenOverflows").zip(value("TcpExtListenDrops")).map(
                |(overflows, drops)| ListenTotals {
                    overflows,
                    drops,
                    syn_cookies: value("TcpExtSyncookiesSent").unwrap_or(0),
                },
            ),
        }
    }

    /// The kernel cuts what a program asks for in `listen` (net/socket.c, `__sys_listen`).
    fn limit_by(&self, limit: u64) -> LimitSource {
        if self.somaxconn == Some(limit) { LimitSource::Somaxconn } else { LimitSource::Program }
    }
}
