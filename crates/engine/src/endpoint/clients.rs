//! Who is at the endpoint: clients, each in a place, and newcomers that have yet to prove something.
//!
//! Newcomers take no client's place: whoever has no key keeps nobody out who has it. Each address
//! has few of them, and for one too many the oldest is cut off. Of clients that prove nothing, one
//! address leaves some places to others.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Newcomers at once, of all addresses and of one.
const NEWCOMERS: usize = 64;
const NEWCOMERS_OF_ONE: usize = 16;

/// All that are there.
#[derive(Clone)]
pub(super) struct Clients(Arc<Mutex<Present>>);

struct Present {
    limit: u32,
    next: u64,
    clients: Vec<(u64, IpAddr)>,
    /// The oldest first.
    newcomers: VecDeque<Newcomer>,
}

struct Newcomer {
    number: u64,
    address: IpAddr,
    /// To cut it off by.
    stream: TcpStream,
}

/// One client or newcomer, until it is dropped.
pub(super) struct Presence {
    clients: Clients,
    number: u64,
    address: IpAddr,
}

/// What counts as one address: a host has a whole /64 of IPv6 (RFC 4291, 2.5.4).
pub(super) fn one_address(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Most that one address has of what all strangers share: a quarter is left for others.
pub(super) fn share_of_one(all: u64) -> u64 {
    all - all / 4
}

impl Clients {
    /// So many clients at once.
    pub(super) fn new(limit: u32) -> Self {
        Self(Arc::new(Mutex::new(Present {
            limit,
            next: 0,
            clients: Vec::new(),
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

    /// A client that has nothing to prove.
    ///
    /// # Errors
    /// All places are taken, or those of its address: in words.
    pub(super) fn admit(&self, peer: IpAddr) -> Result<Presence, String> {
        let mut present = self.present();
        let (limit, address) = (present.limit, one_address(peer));
        let of_one = present.clients.iter().filter(|(_, of)| *of == address);
        let (of_one, share) = (of_one.count() as u64, share_of_one(limit.into()));
        if of_one >= share && of_one < limit.into() {
            return Err(format!(
                "the endpoint is busy: {of_one} of at most {share} clients of one address are there"
            ));
        }
        let number = present.take_number();
        present.enter(number, address)?;
        Ok(self.presence(number, address))
    }

    /// A newcomer; `stream` is its control connection.
    ///
    /// # Errors
    /// No descriptors.
    pub(super) fn meet(&self, peer: IpAddr, stream: &TcpStream) -> std::io::Result<Presence> {
        let stream = stream.try_clone()?;
        let address = one_address(peer);
        let mut present = self.present();
        let number = present.take_number();
        present.newcomers.push_back(Newcomer {
            number,
            address,
            stream,
        });
        present.make_room(address);
        Ok(self.presence(number, address))
    }

    fn presence(&self, number: u64, address: IpAddr) -> Presence {
        Presence {
            clients: self.clone(),
            number,
            address,
        }
    }
}

impl Present {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn enter(&mut self, number: u64, address: IpAddr) -> Result<(), String> {
        let (there, limit) = (self.clients.len(), self.limit);
        if there >= limit as usize {
            return Err(format!(
                "the endpoint is busy: {there} of at most {limit} clients are there"
            ));
        }
        self.clients.push((number, address));
        Ok(())
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
        let mut present = self.clients.present();
        if present
            .clients
            .iter()
            .any(|(number, _)| *number == self.number)
        {
            return Ok(());
        }
        present
            .newcomers
            .retain(|newcomer| newcomer.number != self.number);
        present.enter(self.number, self.address)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut present = self.clients.present();
        present.clients.retain(|(number, _)| *number != self.number);
        present
            .newcomers
            .retain(|newcomer| newcomer.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [198, 18, 0, last].into()
    }

    #[test]
    fn one_address_leaves_a_quarter_of_the_places_to_others() {
        let clients = Clients::new(8);
        let mut here: Vec<_> = (0..6).map(|_| clients.admit(address(1)).unwrap()).collect();
        let words = clients.admit(address(1)).err().unwrap();
        assert!(
            words.contains("6 of at most 6 clients of one address"),
            "{words}"
        );
        here.extend((2..4).map(|n| clients.admit(address(n)).unwrap()));
        let words = clients.admit(address(4)).err().unwrap();
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
    fn newcomers_keep_no_client_out_and_the_oldest_of_their_address_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, far)
        };
        let clients = Clients::new(2);
        let (honest, _far) = connect();
        let honest = clients.meet(address(1), &honest).unwrap();
        let mut others = Vec::new();
        for _ in 0..=NEWCOMERS_OF_ONE {
            let (near, far) = connect();
            others.push((clients.meet(address(2), &near).unwrap(), near, far));
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
