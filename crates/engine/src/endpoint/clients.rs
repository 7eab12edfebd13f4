//! The clients of the endpoint, whose number is limited, and the newcomers that have yet to prove
//! that they have a key.
//!
//! Newcomers take no client's place, so that a host without the key cannot keep out one that has
//! it. Each address may have a few newcomers; one too many cuts off the oldest. Where clients need
//! no key, one address cannot take all places.
//!
//! Other tools use a control connection for each flow: all connections of one tool from one address
//! are one client, with as many flows as a test may have.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use linerate_core::foreign::Tool;
use linerate_core::session::message::Limits;
pub(super) use linerate_core::units::one_host as one_address;

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
}
