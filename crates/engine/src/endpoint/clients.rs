//! The clients of the endpoint, whose number is limited, the newcomers that have yet to prove that
//! they have a key, and limits on how often something may happen.
//!
//! Newcomers take no client's place, so that a host without the key cannot keep out one that has
//! it. Each address may have a few newcomers; one too many cuts off the oldest. Where clients need
//! no key, one address cannot take all places.
//!
//! Other tools use a control connection for each flow: all connections of one tool from one address
//! are one client, with as many flows as a test may have.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use linerate_core::foreign::Tool;
use linerate_core::session::message::Limits;
pub(super) use linerate_core::units::one_host as one_address;

use super::ServeEvent;
use crate::clock::now_ns;
use crate::shares::lock;

/// Most newcomers at once, of all addresses and of one.
const NEWCOMERS: usize = 64;
const NEWCOMERS_OF_ONE: usize = 16;

/// All clients and newcomers.
#[derive(Clone)]
pub(super) struct Clients(Arc<Mutex<Present>>);

struct Present {
    limits: Limits,
    next: u64,
    /// Number of control connections of each client.
    clients: HashMap<CountedClient, u32>,
    /// The oldest first.
    newcomers: VecDeque<Newcomer>,
}

/// One of the clients whose number is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CountedClient {
    address: IpAddr,
    who: Who,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who {
    /// A client of linerate's; each one counts.
    Own(u64),
    /// All connections of this tool from one address.
    Other(Tool),
}

struct Newcomer {
    number: u64,
    address: IpAddr,
    /// The control connection, to cut the newcomer off.
    stream: TcpStream,
}

/// The control connection of a client or of a newcomer; it counts until it is dropped.
pub(super) struct Presence {
    clients: Clients,
    number: u64,
    client: CountedClient,
    /// It was a newcomer: a client that has entered has proved something.
    proves: bool,
    standing: Cell<ClientStanding>,
}

/// How a control connection counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStanding {
    Newcomer,
    Client,
    /// As nobody's: another mechanism limits how many are aside.
    Aside,
}

/// The most that one address may have of `all` that is shared by clients without a key: a quarter
/// stays for others.
pub(crate) fn share_of_one(all: u64) -> u64 {
    all - all / 4
}

impl Clients {
    /// Admits as many clients at once as the owner allows.
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Present {
            limits,
            next: 0,
            clients: HashMap::new(),
            newcomers: VecDeque::new(),
        })))
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        lock(&self.0)
    }

    /// Whether there are neither clients nor newcomers.
    pub(super) fn is_empty(&self) -> bool {
        let present = self.present();
        present.clients.is_empty() && present.newcomers.is_empty()
    }

    /// Admits a client of another `tool`, or of linerate's own; with `newcomer`, its control
    /// connection, as one that has yet to prove something.
    ///
    /// # Errors
    /// All places are taken, or all those of its address; no descriptors. The message says which.
    pub(super) fn admit(
        &self,
        peer: IpAddr,
        tool: Option<Tool>,
        newcomer: Option<&TcpStream>,
    ) -> Result<Presence, String> {
        if let Some(stream) = newcomer {
            let met = self.meet(peer, tool, stream);
            return met.map_err(|error| format!("the endpoint has no room: {error}"));
        }
        let mut present = self.present();
        let (number, client) = present.number(peer, tool);
        present.enter(client, false)?;
        Ok(self.presence(number, client, ClientStanding::Client))
    }

    fn meet(
        &self,
        peer: IpAddr,
        tool: Option<Tool>,
        stream: &TcpStream,
    ) -> std::io::Result<Presence> {
        let stream = stream.try_clone()?;
        let mut present = self.present();
        let (number, client) = present.number(peer, tool);
        let address = client.address;
        present.newcomers.push_back(Newcomer { number, address, stream });
        present.make_room(address);
        Ok(self.presence(number, client, ClientStanding::Newcomer))
    }

    fn presence(&self, number: u64, client: CountedClient, standing: ClientStanding) -> Presence {
        Presence {
            clients: self.clone(),
            number,
            client,
            proves: standing == ClientStanding::Newcomer,
            standing: Cell::new(standing),
        }
    }
}

impl Present {
    fn number(&mut self, peer: IpAddr, tool: Option<Tool>) -> (u64, CountedClient) {
        self.next += 1;
        let client = CountedClient {
            address: one_address(peer),
            who: tool.map_or(Who::Own(self.next), Who::Other),
        };
        (self.next, client)
    }

    /// Gives a client a place, or another flow. One that `proves` nothing gets none beyond its
    /// address's share.
    fn enter(&mut self, client: CountedClient, proves: bool) -> Result<(), String> {
        let (there, limit) = (self.clients.len(), self.limits.clients);
        let of_one = self.clients.keys().filter(|o| o.address == client.address);
        let (of_one, share) = (of_one.count() as u64, share_of_one(limit.into()));
        let is_new = !self.clients.contains_key(&client);
        if is_new && !proves && of_one >= share && of_one < limit.into() {
            return Err(format!(
                "the endpoint is busy: {of_one} of at most {share} clients of one address are there"
            ));
        }
        let most = self.limits.streams;
        match self.clients.get_mut(&client) {
            Some(flows) if *flows >= most => {
                return Err(format!(
                    "the endpoint is busy: {most} of at most {most} flows of one client are there"
                ));
            }
            Some(flows) => *flows += 1,
            None if there >= limit as usize => {
                return Err(format!(
                    "the endpoint is busy: {there} of at most {limit} clients are there"
                ));
            }
            None => _ = self.clients.insert(client, 1),
        }
        Ok(())
    }

    fn leave(&mut self, client: CountedClient) {
        if let Some(flows) = self.clients.get_mut(&client) {
            *flows -= 1;
            if *flows == 0 {
                self.clients.remove(&client);
            }
        }
    }

    /// Cuts off the oldest newcomer if there are too many: that of `address` if `address` has too
    /// many.
    fn make_room(&mut self, address: IpAddr) {
        let of_one = self.newcomers.iter().filter(|n| n.address == address);
        let oldest = if of_one.count() > NEWCOMERS_OF_ONE {
            self.newcomers.iter().position(|n| n.address == address)
        } else {
            (self.newcomers.len() > NEWCOMERS).then_some(0)
        };
        if let Some(oldest) = oldest.and_then(|index| self.newcomers.remove(index)) {
            // Its thread sees the end of the connection. This fails if it has gone already.
            let _ = oldest.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Presence {
    /// Makes a client of a newcomer that has proved what it must, or of one that has stepped aside.
    ///
    /// # Errors
    /// All places are taken, as the message says.
    pub(super) fn enter(&self) -> Result<(), String> {
        if self.standing.get() == ClientStanding::Client {
            return Ok(());
        }
        let mut present = self.clients.present();
        (present.newcomers).retain(|newcomer| newcomer.number != self.number);
        present.enter(self.client, self.proves)?;
        self.standing.set(ClientStanding::Client);
        Ok(())
    }

    /// Gives up the client's place until [`Presence::enter`] takes one again.
    pub(super) fn step_aside(&self) {
        if self.standing.get() == ClientStanding::Client {
            self.standing.set(ClientStanding::Aside);
            self.clients.present().leave(self.client);
        }
    }

    /// Whether the client has given up its place.
    pub(super) fn is_aside(&self) -> bool {
        self.standing.get() == ClientStanding::Aside
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut present = self.clients.present();
        if self.standing.get() == ClientStanding::Client {
            present.leave(self.client);
        }
        (present.newcomers).retain(|newcomer| newcomer.number != self.number);
    }
}

// Limits on how often something may happen: by address within some time (wrong passwords, lines of
// the log, requests), and in all within a second.

const MINUTE: Duration = Duration::from_secs(60);
/// Most addresses that are counted separately; all further ones are counted together.
const ADDRESSES: usize = 1024;
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Counts by address. The time in which an address's events are counted begins with the first.
#[derive(Debug)]
pub(super) struct GuessCounts {
    lasts: Duration,
    by_address: HashMap<IpAddr, (Instant, u64)>,
}

/// Counts within a minute.
impl Default for GuessCounts {
    fn default() -> Self {
        Self::within(MINUTE)
    }
}

impl GuessCounts {
    /// Counts within this time.
    pub(super) fn within(lasts: Duration) -> Self {
        Self { lasts, by_address: HashMap::new() }
    }

    /// Under which address this one is counted.
    fn key(&self, peer: IpAddr) -> IpAddr {
        let address = one_address(peer);
        let is_full = self.by_address.len() >= ADDRESSES;
        if is_full && !self.by_address.contains_key(&address) {
            return OTHERS;
        }
        address
    }

    /// Counts one more; the result is the count within the time.
    pub(super) fn note(&mut self, peer: IpAddr, now: Instant) -> u64 {
        let key = self.key(peer);
        let (_, count) = self.by_address.entry(key).or_insert((now, 0));
        *count += 1;
        *count
    }

    /// The count of an address within its time.
    fn count(&self, peer: IpAddr) -> u64 {
        let entry = self.by_address.get(&self.key(peer));
        entry.map_or(0, |(_, count)| *count)
    }

    /// Whether no address has a count.
    pub(super) fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Removes the addresses whose time is over; the result has their counts.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<(IpAddr, u64)> {
        let lasts = self.lasts;
        let is_over = |(since, _): &(Instant, u64)| now.duration_since(*since) >= lasts;
        let over = self.by_address.extract_if(|_, entry| is_over(entry));
        over.map(|(address, (_, count))| (address, count)).collect()
    }
}

/// Most wrong passwords that an address may send within a minute.
const GUESSES: u64 = 5;

/// Wrong passwords by address.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<GuessCounts>);

impl Guesses {
    /// Whether so many have come from an address that for a minute none is looked at.
    pub(super) fn are_used_up(&self, peer: IpAddr) -> bool {
        let mut counts = lock(&self.0);
        counts.take_over(Instant::now());
        counts.count(peer) >= GUESSES
    }

    pub(super) fn note_wrong(&self, peer: IpAddr) {
        lock(&self.0).note(peer, Instant::now());
    }
}

/// Counts events within a second.
#[derive(Debug, Default)]
pub(super) struct PerSecond {
    began_ns: u64,
    count: u32,
}

impl PerSecond {
    /// Counts one more event; false if there are more than `max` within the second.
    pub(super) fn admits(&mut self, max: u32) -> bool {
        let now = now_ns();
        if now.saturating_sub(self.began_ns) >= 1_000_000_000 {
            (self.began_ns, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= max
    }
}

/// Lines of the log within a minute: for refusals of an address, for all else of an address, and
/// for all else of all addresses.
const REFUSALS: u64 = 10;
const LINES: u64 = 300;
const ALL_LINES: u64 = 1_000;

/// Which events the owner's log gets: the first ones of each minute, and the number of the others.
/// Otherwise one host could fill the owner's disk.
#[derive(Clone, Default)]
pub(super) struct LogLimit(Arc<Mutex<LogCounts>>);

#[derive(Default)]
struct LogCounts {
    refusals: GuessCounts,
    lines: GuessCounts,
    /// The lines that those of one address leave, under one address for all.
    all: GuessCounts,
}

impl LogLimit {
    /// Whether the log gets this event.
    pub(super) fn admits(&self, event: &ServeEvent) -> bool {
        let (counts, now) = (&mut *lock(&self.0), Instant::now());
        match event {
            ServeEvent::Refused { peer, .. } => counts.refusals.note(peer.ip(), now) <= REFUSALS,
            ServeEvent::Connected { peer }
            | ServeEvent::Tested { peer, .. }
            | ServeEvent::Served { peer, .. }
            | ServeEvent::Disconnected { peer, .. } => {
                counts.lines.note(peer.ip(), now) <= LINES
                    && counts.all.note(OTHERS, now) <= ALL_LINES
            }
            // A client needs the key for a treatment; the owner has asked for progress.
            ServeEvent::Treated { .. }
            | ServeEvent::Untreated { .. }
            | ServeEvent::Running { .. }
            | ServeEvent::LeftOut { .. } => true,
        }
    }

    /// Time until [`LogLimit::sum_up`] is to be called again. Other threads count events too.
    pub(super) fn patience(&self) -> Duration {
        let counts = lock(&self.0);
        if counts.refusals.is_empty() && counts.lines.is_empty() { MINUTE } else { MINUTE / 60 }
    }

    /// For each address whose minute is over, the number of events that the log did not get.
    pub(super) fn sum_up(&self, now: Instant) -> Vec<ServeEvent> {
        let counts = &mut *lock(&self.0);
        let limited = [
            (&mut counts.refusals, REFUSALS, "refusals of this address"),
            (&mut counts.lines, LINES, "lines of this address"),
            (&mut counts.all, ALL_LINES, "lines of all addresses"),
        ];
        let sums = limited.into_iter().flat_map(|(counts, max, what)| {
            let over = counts.take_over(now).into_iter();
            let beyond = over.filter(move |(_, count)| *count > max);
            beyond.map(move |(address, count)| ServeEvent::LeftOut {
                peer: SocketAddr::new(address, 0),
                what: format!("{} more {what} within a minute", count - max),
            })
        });
        sums.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    fn clients(clients: u32) -> Clients {
        Clients::new(Limits {
            connections: 0,
            clients,
            streams: 100,
            seconds: 10.0,
            rate_bps: None,
        })
    }

    fn address(last: u8) -> IpAddr {
        [198, 18, 0, last].into()
    }

    #[test]
    fn one_address_can_take_three_quarters_of_the_places() {
        let clients = clients(8);
        let mut here: Vec<_> =
            (0..6).map(|_| clients.admit(address(1), None, None).unwrap()).collect();
        let words = clients.admit(address(1), None, None).err().unwrap();
        assert!(words.contains("6 of at most 6 clients of one address"), "{words}");
        here.extend((2..4).map(|n| clients.admit(address(n), None, None).unwrap()));
        let words = clients.admit(address(4), None, None).err().unwrap();
        assert!(words.contains("8 of at most 8 clients are there"), "{words}");
        here.clear();
        assert!(clients.is_empty());
        // All addresses of a /64 count as one, and so do the two forms of an IPv4 address.
        let same =
            |a: &str, b: &str| one_address(a.parse().unwrap()) == one_address(b.parse().unwrap());
        assert!(same("2001:2::1", "2001:2::ffff:0:0:2") && !same("2001:2::1", "2001:2:0:1::1"));
        assert!(same("::ffff:198.18.0.1", "198.18.0.1") && !same("198.18.0.1", "198.18.0.2"));
    }

    #[test]
    fn who_has_stepped_aside_comes_back_only_to_a_free_place_of_its_address() {
        let clients = clients(4);
        let admit = || clients.admit(address(1), None, None).unwrap();
        let aside = admit();
        aside.step_aside();
        let here = [admit(), admit(), admit()];
        let words = aside.enter().unwrap_err();
        assert!(words.contains("3 of at most 3 clients"), "{words}");
        assert!(aside.is_aside());
        drop(here);
        aside.enter().unwrap();
        assert!(!aside.is_aside());
    }

    #[test]
    fn the_flows_of_another_tools_client_take_one_place() {
        let clients = clients(2);
        let admit = |n, tool| clients.admit(address(n), Some(tool), None);
        let mut flows: Vec<_> = (0..100).map(|_| admit(1, Tool::Netperf).unwrap()).collect();
        let words = admit(1, Tool::Netperf).err().unwrap();
        assert!(words.contains("at most 100 flows of one client"), "{words}");
        let other = admit(2, Tool::Netperf).unwrap();
        let words = admit(2, Tool::Iperf3).err().unwrap();
        assert!(words.contains("2 of at most 2 clients"), "{words}");
        flows.pop();
        flows.push(admit(1, Tool::Netperf).unwrap());
        drop(flows);
        flows = vec![admit(2, Tool::Iperf3).unwrap(), other];
        drop(flows);
        assert!(clients.is_empty());
    }

    #[test]
    fn newcomers_take_no_places_and_the_oldest_of_an_address_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, far)
        };
        let clients = clients(2);
        let (honest, _far) = connect();
        let honest = clients.meet(address(1), None, &honest).unwrap();
        let mut others = Vec::new();
        for _ in 0..=NEWCOMERS_OF_ONE {
            let (near, far) = connect();
            others.push((clients.meet(address(2), None, &near).unwrap(), near, far));
        }
        // The oldest of that address is cut off, and none of another.
        assert_eq!(others[0].2.read(&mut [0]).unwrap(), 0);
        honest.enter().unwrap();
        honest.enter().unwrap();
        let [.., (first, ..), (second, ..)] = &others[..] else {
            panic!("there are more");
        };
        first.enter().unwrap();
        let words = second.enter().unwrap_err();
        assert!(words.contains("2 of at most 2"), "{words}");
        drop((honest, others));
        assert!(clients.is_empty());
    }

    #[test]
    fn a_minute_begins_with_the_first_count_and_excess_addresses_are_counted_together() {
        let (mut counts, began) = (GuessCounts::default(), Instant::now());
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let noted = [1, 1].map(|n| counts.note(address(n), began));
        assert_eq!(noted, [1, 2]);
        let late = began + MINUTE;
        assert_eq!(counts.note(address(2), late), 1);
        assert_eq!(counts.take_over(late), [(address(1), 2)]);
        let left = [1, 2].map(|n| counts.count(address(n)));
        assert_eq!(left, [0, 1]);
        for n in 0..2 * ADDRESSES as u32 {
            counts.note(address(n), late);
        }
        assert!(counts.by_address.len() <= ADDRESSES + 1);
        // One more is counted with them, whether it has come before or not.
        for n in [2 * ADDRESSES as u32 - 1, 4 * ADDRESSES as u32] {
            assert!(counts.count(address(n)) > 1000, "{n}");
        }
        assert_eq!(counts.count(address(3)), 1);
    }

    fn refused(peer: &str) -> ServeEvent {
        ServeEvent::Refused { peer: peer.parse().unwrap(), reason: "junk".into() }
    }

    fn left_out(peer: &str, what: &str) -> ServeEvent {
        ServeEvent::LeftOut { peer: peer.parse().unwrap(), what: format!("{what} within a minute") }
    }

    #[test]
    fn many_refusals_of_an_address_have_ten_lines_and_a_sum() {
        let limit = LogLimit::default();
        assert_eq!(limit.patience(), MINUTE);
        let logged = (0..1204).filter(|n| {
            let event = refused(&format!("198.18.0.1:{}", n + 1));
            limit.admits(&event)
        });
        assert_eq!(logged.count() as u64, REFUSALS);
        assert!(limit.admits(&refused("198.18.0.2:1")));
        assert_eq!(limit.sum_up(Instant::now()), []);
        let sums = limit.sum_up(Instant::now() + MINUTE);
        let sum = left_out("198.18.0.1:0", "1194 more refusals of this address");
        assert_eq!(sums, [sum]);
        assert_eq!(limit.patience(), MINUTE);
    }

    #[test]
    fn the_log_has_so_many_lines_of_an_address_and_of_all() {
        let limit = LogLimit::default();
        let logged = |address: u32, times: u64| {
            let peer = SocketAddr::from((address.to_be_bytes(), 1));
            let event = ServeEvent::Connected { peer };
            (0..times).filter(|_| limit.admits(&event)).count() as u64
        };
        assert_eq!(logged(1, 2 * LINES), LINES);
        assert_eq!(logged(2, 3), 3);
        let of_others: u64 = (3..2 * ADDRESSES as u32).map(|n| logged(n, 1)).sum();
        assert_eq!(of_others, ALL_LINES - LINES - 3);
        // Refusals are counted by themselves.
        assert!(limit.admits(&refused("198.18.0.1:1")));
        let sums = limit.sum_up(Instant::now() + MINUTE);
        let of_one = left_out("0.0.0.1:0", "300 more lines of this address");
        assert!(sums.contains(&of_one), "{sums:?}");
        let of_all = |event: &ServeEvent| {
            matches!(event, ServeEvent::LeftOut { what, .. } if
            what.contains("more lines of all addresses"))
        };
        assert!(sums.iter().any(of_all), "{sums:?}");
        assert_eq!(limit.patience(), MINUTE);
    }
}
