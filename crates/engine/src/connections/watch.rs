//! Looking at sockets again and again: what moved between two looks.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use indexmap::map::Entry;
use linerate_core::connection::Source;
use linerate_core::record::HostFacts;
use linerate_sys::netlink::NetlinkError;
use linerate_sys::netlink::sock_diag::{ClosedSockets, Filter, SockDiag, Socket};
use linerate_sys::proc::processes::{self, Owner};
use linerate_sys::socket::SocketMemory;
use linerate_sys::tcp_info::TcpInfo;

use super::select::sockets_of;
use super::{ConnectionsError, Selection};
use crate::clock::now_ns;
use crate::host;

/// What the kernel said of one socket at one look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchReading {
    /// On this process's monotonic clock.
    pub(crate) at_ns: u64,
    pub(crate) info: TcpInfo,
    pub(crate) memory: SocketMemory,
    /// Bytes that wait to be read.
    pub(crate) unread: u32,
}

impl WatchReading {
    /// Payload bytes of its life: those acknowledged if this host sends, else those received.
    pub(super) fn payload(&self, sends: bool) -> u64 {
        if sends { self.info.bytes_acked } else { self.info.bytes_received }
    }
}

/// One socket, as far as it was seen.
#[derive(Debug)]
pub(crate) struct SeenConnection {
    /// The kernel's number for the socket.
    pub(crate) cookie: u64,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: u8,
    pub(crate) inode: u32,
    pub(crate) uid: u32,
    pub(crate) is_mptcp: bool,
    pub(crate) congestion: Option<String>,
    /// The first reading, and each later one at which something had moved.
    pub(crate) readings: Vec<WatchReading>,
    pub(crate) has_ended: bool,
    look: u64,
    /// Those of the last reading; if they are the same again the socket is idle.
    counts: SegmentCounts,
    /// It was opened during the watch, so its first reading is empty.
    pub(crate) is_new: bool,
}

/// The sockets of one network namespace that a selection means.
pub struct Watch {
    diag: SockDiag,
    closed: Option<ClosedSockets>,
    filter: Filter,
    pids: Option<Vec<u32>>,
    /// The sockets of those processes, those that have ended included.
    of_pids: HashSet<u32>,
    /// As the kernel lists them, so that a look goes through memory in its order.
    seen: IndexMap<u64, SeenConnection>,
    /// Sockets that came, moved or ended since the watch began, or began again.
    pub(super) changed: HashSet<u64>,
    looks: u64,
    pub(super) began_ns: u64,
    pub(super) last_ns: u64,
    pub(super) source: Source,
    pub(super) facts: HostFacts,
    owners: HashMap<u32, Owner>,
    /// Time that went into the search for owners.
    searched: Duration,
    /// Inodes whose owners were not found.
    pub(super) unowned: HashSet<u32>,
    /// How many processes the last search could not look at.
    pub(super) hidden: usize,
    /// More sockets closed than could be noted.
    pub(super) has_lost: bool,
}

impl Watch {
    /// Opens what is needed and looks for the first time.
    ///
    /// # Errors
    /// No such namespace or process, not permitted, or the kernel shows no sockets.
    pub fn open(selection: &Selection) -> Result<Self, ConnectionsError> {
        let pids = selection.pids()?;
        // What closes is told where that is permitted; it is no reason to fail where not.
        let opened = selection.place.run(|| {
            let diag = SockDiag::open()?;
            Ok::<_, NetlinkError>((diag, ClosedSockets::open().ok(), host::facts(None)))
        });
        let (diag, closed, facts) = opened??;
        let mut watch = Self {
            diag,
            closed,
            filter: selection.filter(),
            pids,
            of_pids: HashSet::new(),
            seen: IndexMap::new(),
            changed: HashSet::new(),
            looks: 0,
            began_ns: now_ns(),
            last_ns: now_ns(),
            source: Source::Host { namespace: selection.place.name() },
            facts,
            owners: HashMap::new(),
            searched: Duration::ZERO,
            unowned: HashSet::new(),
            hidden: 0,
            has_lost: false,
        };
        watch.look()?;
        watch.began_ns = watch.last_ns;
        Ok(watch)
    }

    /// Looks at all sockets once.
    ///
    /// # Errors
    /// The kernel does not tell, or the processes asked for are somebody else's.
    pub fn look(&mut self) -> Result<(), ConnectionsError> {
        if let Some(pids) = &self.pids {
            self.of_pids.extend(sockets_of(pids)?);
        }
        self.looks += 1;
        let (at_ns, look, before_ns) = (now_ns(), self.looks, self.last_ns);
        let (seen, changed, began_ns) = (&mut self.seen, &mut self.changed, self.began_ns);
        let of_pids = self.pids.as_ref().map(|_| &self.of_pids);
        let is_wanted = |inode: u32| of_pids.is_none_or(|inodes| inodes.contains(&inode));
        let mut shown = 0;
        self.diag.sockets(&self.filter, |socket| {
            if is_wanted(socket.inode) {
                let entry = seen.entry(socket.cookie);
                let one = entry.or_insert_with(|| match of_pids {
                    None if look > 1 => SeenConnection::opened(socket, before_ns),
                    // What a process holds may have come from another.
                    _ => SeenConnection::new(socket),
                });
                let is_here = one.look > 0;
                shown += usize::from(one.look < look);
                one.look = look;
                if one.note(socket, at_ns, began_ns) || !is_here {
                    changed.insert(socket.cookie);
                }
            }
        })?;
        if shown < seen.len() {
            // What is not shown any more has ended; its last figures may have been told meanwhile.
            for (cookie, one) in seen.iter_mut().filter(|(_, one)| one.look < look) {
                one.has_ended = true;
                changed.insert(*cookie);
            }
        }
        if let Some(closed) = &mut self.closed {
            let filter = &self.filter;
            self.has_lost |= closed.take(|socket| {
                // A listener or a socket that was never connected has no peer's port.
                let was_connected = socket.remote.port() != 0 && filter.is_of_ends(socket);
                let is_new = of_pids.is_none() && look > 1 && was_connected;
                let room = seen.len() < MAX_SEEN;
                let one = match seen.entry(socket.cookie) {
                    Entry::Occupied(one) => one.into_mut(),
                    Entry::Vacant(one) if is_new && room => {
                        one.insert(SeenConnection::opened(socket, before_ns))
                    }
                    Entry::Vacant(_) => return,
                };
                one.note(socket, at_ns, began_ns);
                one.has_ended = true;
                changed.insert(socket.cookie);
            });
        }
        self.last_ns = at_ns;
        self.find_owners_of_new()
    }

    /// Looks for the owners of new sockets at once: a socket that has ended has none any more.
    fn find_owners_of_new(&mut self) -> Result<(), ConnectionsError> {
        let changed = self.changed.iter().filter_map(|cookie| self.seen.get(cookie));
        let new: HashSet<u32> =
            changed.filter(|one| one.is_new && !one.has_ended).map(|one| one.inode).collect();
        let may_take = (now_ns().saturating_sub(self.began_ns) / SEARCHED_PART).max(SEARCH_NS);
        if self.searched.as_nanos() >= may_take.into() {
            return Ok(());
        }
        self.find_owners(new)
    }

    /// Forgets what has ended, and all but the last reading of what has not: the next look is the
    /// second.
    pub fn begin_again(&mut self) {
        self.began_ns = self.last_ns;
        for cookie in self.changed.drain() {
            let Entry::Occupied(mut one) = self.seen.entry(cookie) else {
                continue;
            };
            if one.get().has_ended {
                one.swap_remove();
            } else {
                one.get_mut().begin_again();
            }
        }
    }

    /// How many more looks than the first and the last there may be in that time, 50 ms apart at
    /// least: looking at many sockets is work.
    pub fn looks_within(&self, time: Duration) -> u32 {
        let affordable = LOOKED_AT_PER_S / (self.seen.len() as u64).max(1);
        let rate = affordable.clamp(1, MAX_RATE) as f64;
        (time.as_secs_f64() * rate).clamp(1.0, f64::from(u32::MAX)) as u32
    }

    pub(crate) fn seen(&self) -> impl Iterator<Item = &SeenConnection> {
        self.seen.values()
    }

    /// By the number that the kernel gave its socket.
    pub(super) fn find(&self, cookie: u64) -> Option<&SeenConnection> {
        self.seen.get(&cookie)
    }

    /// How long it was watched.
    pub(super) fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.began_ns) as f64 / 1e9
    }

    /// Finds the processes of these sockets, as far as they are not known already.
    pub(super) fn find_owners(&mut self, inodes: HashSet<u32>) -> Result<(), ConnectionsError> {
        let known = |inode: &u32| self.owners.contains_key(inode) || self.unowned.contains(inode);
        let mut wanted = inodes;
        wanted.retain(|inode| *inode != 0 && !known(inode));
        if wanted.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        let found =
            processes::owners(&wanted, self.pids.as_deref()).map_err(ConnectionsError::Proc)?;
        self.searched += began.elapsed();
        let missing = |inode: &&u32| !found.by_inode.contains_key(*inode);
        self.unowned.extend(wanted.iter().filter(missing));
        self.hidden = found.hidden;
        self.owners.extend(found.by_inode);
        Ok(())
    }

    pub(super) fn owner(&self, inode: u32) -> Option<&Owner> {
        self.owners.get(&inode)
    }
}

impl SeenConnection {
    fn new(socket: &Socket<'_>) -> Self {
        Self {
            cookie: socket.cookie,
            local: socket.local,
            remote: socket.remote,
            state: socket.state,
            inode: socket.inode,
            uid: socket.uid,
            is_mptcp: socket.is_mptcp,
            congestion: socket.congestion.map(str::to_owned),
            // Of most there is no other: they are idle.
            readings: Vec::with_capacity(1),
            has_ended: false,
            look: 0,
            counts: SegmentCounts::default(),
            is_new: false,
        }
    }

    /// A socket that was opened since the look before, so that all it carried was carried since.
    fn opened(socket: &Socket<'_>, before_ns: u64) -> Self {
        let first = WatchReading {
            at_ns: before_ns,
            info: TcpInfo::default(),
            memory: socket.memory.unwrap_or_default(),
            unread: 0,
        };
        Self { readings: vec![first], is_new: true, ..Self::new(socket) }
    }

    /// Takes in what the kernel says of it. True if anything has moved since the watch began, or
    /// began again.
    fn note(&mut self, socket: &Socket<'_>, at_ns: u64, began_ns: u64) -> bool {
        // One that closes has neither any more.
        if socket.inode != 0 {
            self.inode = socket.inode;
            self.state = socket.state;
        }
        // One that is still being made has none.
        if self.congestion.is_none() {
            self.congestion = socket.congestion.map(str::to_owned);
        }
        let Some(info) = socket.info else {
            return false;
        };
        // One that is idle is not worth remembering.
        let counts = SegmentCounts::new(&info);
        let waits = info.unacked > 0 || socket.receive_queue > 0;
        if self.readings.len() == 1 && !waits && counts == self.counts {
            return false;
        }
        self.counts = counts;
        if let [first] = &mut self.readings[..] {
            // Nothing has moved before.
            first.at_ns = first.at_ns.max(began_ns);
            if self.is_new {
                first.info = info.before_all();
            }
        }
        let last = self.readings.last();
        self.readings.push(WatchReading {
            at_ns,
            info,
            memory: (socket.memory)
                .unwrap_or_else(|| last.map_or_else(Default::default, |last| last.memory)),
            unread: socket.receive_queue,
        });
        true
    }

    /// Only its last reading is left.
    fn begin_again(&mut self) {
        self.is_new = false;
        let newest = self.readings.len().saturating_sub(1);
        self.readings.drain(..newest);
    }
}

/// Segments sent, received and sent again: at least one grows whenever anything moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SegmentCounts([u32; 3]);

impl SegmentCounts {
    fn new(info: &TcpInfo) -> Self {
        Self([info.segs_out, info.segs_in, info.total_retrans])
    }
}

/// The most sockets to read in a second; it takes about 1 % of a core.
const LOOKED_AT_PER_S: u64 = 10_000;
/// The most sockets to remember in one period.
const MAX_SEEN: usize = 1 << 20;
/// The search for owners may take one such part of the time (2 %), but always at least `SEARCH_NS`.
const SEARCHED_PART: u64 = 50;
const SEARCH_NS: u64 = 20_000_000;
/// Looks in a second.
const MAX_RATE: u64 = 20;
