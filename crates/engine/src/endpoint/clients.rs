//! Who is at the endpoint: clients, each in a place, and newcomers that have yet to prove
//! something.
//!
//! Newcomers take no client's place: whoever has no key keeps nobody out who has it. Each address
//! has few of them, and for one too many the oldest is cut off. Of clients that prove nothing, one
//! address leaves some places to others.
//!
//! Other tools have a control connection for each flow: all of one tool and address are one client,
//! with as many flows as a test may have.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linerate_core::foreign::Tool;
use linerate_core::session::message::Limits;

/// Newcomers at once, of all addresses and of one.
const NEWCOMERS: usize = 64;
const NEWCOMERS_OF_ONE: usize = 16;

/// All that are there.
#[derive(Clone)]
pub(super) struct Clients(Arc<Mutex<Present>>);

struct Present {
    limits: Limits,
    next: u64,
    /// Each with its control connections.
    clients: HashMap<Client, u32>,
    /// The oldest first.
    newcomers: VecDeque<Newcomer>,
}

/// Who takes a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    address: IpAddr,
    who: Who,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who {
    /// linerate's own, each for itself.
    Own(u64),
    /// All of this tool's.
    Other(Tool),
}

struct Newcomer {
    number: u64,
    address: IpAddr,
    /// To cut it off by.
    stream: TcpStream,
}

/// One client's control connection or a newcomer's, until it is dropped.
pub(super) struct Presence {
    clients: Clients,
    number: u64,
    client: Client,
    /// Whether it counts as its client's.
    has_entered: Cell<bool>,
}

/// What counts as one address: a host has a whole /64 of IPv6 (RFC 4291, 2.5.4).
pub(super) fn one_address(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Most that one address has of what all strangers share: a quarter is left for others.
pub(crate) fn share_of_one(all: u64) -> u64 {
    all - all / 4
}

impl Clients {
    /// So many at once as the owner allows.
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Present {
            limits,
            next: 0,
            clients: HashMap::new(),
            newcomers: VecDeque::new(),
        })))
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        // Everybody comes and goes whole: a panic elsewhere cannot leave one half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is nobody.
    pub(super) fn is_empty(&self) -> bool {
        let present = self.present();
        present.clients.is_empty() && present.newcomers.is_empty()
    }

    /// A client of another `tool` or of linerate's own; a `newcomer` with its control connection if
    /// it has yet to prove something.
    ///
    /// # Errors
    /// All places are taken, or those of its address; no descriptors: in words.
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
        let is_new = !present.clients.contains_key(&client);
        let limit = present.limits.clients.into();
        let there = present.clients.keys();
        let of_one = there.filter(|other| other.address == client.address);
        let (of_one, share) = (of_one.count() as u64, share_of_one(limit));
        if is_new && of_one >= share && of_one < limit {
            return Err(format!(
                "the endpoint is busy: {of_one} of at most {share} clients of one address are there"
            ));
        }
        present.enter(client)?;
        Ok(self.presence(number, client, true))
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
        present.newcomers.push_back(Newcomer {
            number,
            address,
            stream,
        });
        present.make_room(address);
        Ok(self.presence(number, client, false))
    }

    fn presence(&self, number: u64, client: Client, has_entered: bool) -> Presence {
        Presence {
            clients: self.clone(),
            number,
            client,
            has_entered: Cell::new(has_entered),
        }
    }
}

impl Present {
    fn number(&mut self, peer: IpAddr, tool: Option<Tool>) -> (u64, Client) {
        self.next += 1;
        let client = Client {
            address: one_address(peer),
            who: tool.map_or(Who::Own(self.next), Who::Other),
        };
        (self.next, client)
    }

    fn enter(&mut self, client: Client) -> Result<(), String> {
        let (there, limit) = (self.clients.len(), self.limits.clients);
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

    fn leave(&mut self, client: Client) {
        if let Some(flows) = self.clients.get_mut(&client) {
            *flows -= 1;
            if *flows == 0 {
                self.clients.remove(&client);
            }
        }
    }

    /// Cuts the oldest newcomer off: of `address` if that has too many.
    fn make_room(&mut self, address: IpAddr) {
        let of_one = self.newcomers.iter().filter(|n| n.address == address);
        let oldest = if of_one.count() > NEWCOMERS_OF_ONE {
            self.newcomers.iter().position(|n| n.address == address)
        } else {
            (self.newcomers.len() > NEWCOMERS).then_some(0)
        };
        if let Some(oldest) = oldest.and_then(|index| self.newcomers.remove(index)) {
            // Its thread sees the end of the connection. One that is gone need not be cut off.
            let _ = oldest.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Presence {
    /// It has proved what it must: from now on it is a client. Of one that is, nothing changes.
    ///
    /// # Errors
    /// All places are taken, in words.
    pub(super) fn enter(&self) -> Result<(), String> {
        if self.has_entered.get() {
            return Ok(());
        }
        let mut present = self.clients.present();
        (present.newcomers).retain(|newcomer| newcomer.number != self.number);
        present.enter(self.client)?;
        self.has_entered.set(true);
        Ok(())
    }
}

impl Presence {
    /// Gives its place up for as long as it does nothing, which is somebody else's to look at.
    pub(super) fn step_aside(&self) {
        if self.has_entered.replace(false) {
            self.clients.present().leave(self.client);
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut present = self.clients.present();
        if self.has_entered.get() {
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
    fn one_address_leaves_a_quarter_of_the_places_to_others() {
        let clients = clients(8);
        let mut here: Vec<_> = (0..6)
            .map(|_| clients.admit(address(1), None, None).unwrap())
            .collect();
        let words = clients.admit(address(1), None, None).err().unwrap();
        assert!(
            words.contains("6 of at most 6 clients of one address"),
            "{words}"
        );
        here.extend((2..4).map(|n| clients.admit(address(n), None, None).unwrap()));
        let words = clients.admit(address(4), None, None).err().unwrap();
        assert!(
            words.contains("8 of at most 8 clients are there"),
            "{words}"
        );
        here.clear();
        assert!(clients.is_empty());
        // A host's addresses within its /64 are one, and so are the two ways to write one of IPv4.
        let same =
            |a: &str, b: &str| one_address(a.parse().unwrap()) == one_address(b.parse().unwrap());
        assert!(same("2001:2::1", "2001:2::ffff:0:0:2") && !same("2001:2::1", "2001:2:0:1::1"));
        assert!(same("::ffff:198.18.0.1", "198.18.0.1") && !same("198.18.0.1", "198.18.0.2"));
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
    fn newcomers_keep_no_client_out_and_the_oldest_of_their_address_goes() {
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
        // The oldest of that address, and no other's.
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
