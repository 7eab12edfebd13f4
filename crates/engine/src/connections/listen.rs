//! Listening sockets: who waits to be accepted, and which limit applies.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::SystemTime;

use linerate_core::connection::{ConnectionsDocument, LimitSource, ListenTotals, Listener, Source};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::units::format_rfc3339;
use linerate_sys::netlink::sock_diag::{Filter, SockDiag};
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::{owner, sysctl};

use super::document::process;
use super::select::sockets_of;
use super::{ConnectionsError, Selection};

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
    let owners = owner::owners(&wanted, pids.as_deref()).map_err(ConnectionsError::Proc)?;
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
