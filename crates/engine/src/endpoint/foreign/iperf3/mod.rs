//! iperf3's clients: many at once, each with a thread for its control connection (`session`) and a
//! thread for each of its streams.
//!
//! This file has what their sessions need: who may test at all, which test a UDP flow belongs to,
//! and the server's output.

#[cfg_attr(not(feature = "iperf3-auth"), path = "no_key.rs")]
mod key;
mod session;

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use key::PrivateKey;
use linerate_core::foreign::iperf3::{Cookie, Credentials, NotAllowed, Users, from_base64};
use linerate_core::record::TcpEvidence;
use linerate_core::session::message::{FlowHalf, HalfReport};
use linerate_core::units::{BitRate, ByteCount, FileError, printable};
pub(in crate::endpoint) use session::run;
use thiserror::Error;

use crate::endpoint::clients::Guesses;
use crate::endpoint::registry::{Registration, Registry, SessionName};
use crate::measure::flow::Flow;
use crate::shares::lock;

// Access: a list of users, and a private key, whose public key their clients have.

/// The users who may test, and the key that decrypts their tokens.
pub struct Iperf3Access {
    users: Users,
    key: PrivateKey,
    allows_pkcs1: bool,
    /// Refused tokens.
    guesses: Guesses,
}

impl fmt::Debug for Iperf3Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, which must not be printed.
        write!(f, "Iperf3Access({:?})", self.users)
    }
}

/// Why the files give no access.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The list of users is wrong.
    #[error(transparent)]
    Users(#[from] FileError),
    /// The key is wrong.
    #[error("{0}")]
    Key(&'static str),
    /// This program cannot decrypt tokens.
    #[error(
        "this linerate was built without the users of iperf3; \
         build it with: cargo build --release --features iperf3-auth"
    )]
    NotBuilt,
}

impl Iperf3Access {
    /// Reads the text of both files: the users, and an RSA key of 2048 to 8192 bits in PEM, not
    /// encrypted. Tokens of iperf3 before 3.17, which are padded by PKCS #1 v1.5, are accepted only
    /// if `allows_pkcs1`: whoever can tell a right padding from a wrong one can decrypt the tokens
    /// of others.
    ///
    /// # Errors
    /// A file is wrong, or this program was built without the feature `iperf3-auth`.
    pub fn new(users: &str, key: &str, allows_pkcs1: bool) -> Result<Self, AccessError> {
        let users = Users::parse(users)?;
        let key = PrivateKey::from_pem(key)?;
        Ok(Self { users, key, allows_pkcs1, guesses: Guesses::default() })
    }

    /// Whether a client with this token may test. After some wrong tokens from an address none is
    /// checked for a minute. All errors of a token have the same answer, so that nobody can use the
    /// endpoint to find out about the tokens of others.
    ///
    /// # Errors
    /// Why the client may not test.
    fn admit(&self, token: Option<&str>, peer: IpAddr) -> Result<(), NotAllowed> {
        if self.guesses.are_used_up(peer) {
            return Err(NotAllowed::Guesses);
        }
        let checked = self.check(token);
        checked.inspect_err(|_| self.guesses.note_wrong(peer))
    }

    fn check(&self, token: Option<&str>) -> Result<(), NotAllowed> {
        let cipher = token.and_then(from_base64).ok_or(NotAllowed::Token)?;
        let credentials = self.read(&cipher).ok_or(NotAllowed::Token)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.users.admit(&credentials, now, |bytes| self.key.sha256(bytes))
    }

    /// Clients since 3.17 pad by OAEP. A text that parses as credentials is taken for a token.
    fn read(&self, cipher: &[u8]) -> Option<Credentials> {
        let read = |plain: Option<Vec<u8>>| Credentials::parse(&plain?);
        let pkcs1 = || read((self.key.decrypt_pkcs1(cipher)).filter(|_| self.allows_pkcs1));
        read(self.key.decrypt_oaep(cipher)).or_else(pkcs1)
    }
}

// Assignment of UDP flows to tests: a greeting does not name its test, so that from each address
// one test at a time opens its flows.

/// The tests whose turn it is, by the address of their client.
#[derive(Clone, Default)]
pub(in crate::endpoint) struct Turns(Arc<Mutex<HashMap<IpAddr, OpeningTurn>>>);

struct OpeningTurn {
    cookie: Cookie,
    /// When the turn began, or when its last flow arrived.
    at: Instant,
    /// Addresses that have their socket: a second greeting from one of them is a late copy.
    bound: HashSet<SocketAddr>,
}

/// A test that opens no flow for this long loses its turn if another one waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// A test's entry in the registry, and its turns.
struct Call {
    registration: Registration,
    turns: Turns,
    cookie: Cookie,
    peer: IpAddr,
}

impl Turns {
    /// The test that a greeting from this address belongs to, if the address lacks its socket.
    pub(in crate::endpoint) fn test_of(&self, from: SocketAddr) -> Option<SessionName> {
        let turns = lock(&self.0);
        let turn = turns.get(&from.ip())?;
        (!turn.bound.contains(&from)).then_some(SessionName::Cookie(turn.cookie))
    }

    /// The address has its socket now.
    pub(in crate::endpoint) fn bind(&self, from: SocketAddr) {
        if let Some(turn) = lock(&self.0).get_mut(&from.ip()) {
            turn.at = Instant::now();
            turn.bound.insert(from);
        }
    }
}

impl Call {
    /// An entry for a test; `None` if its cookie has one already.
    fn new(registry: &Registry, turns: &Turns, cookie: Cookie, peer: IpAddr) -> Option<Self> {
        Some(Self {
            registration: registry.register(SessionName::Cookie(cookie), peer)?,
            turns: turns.clone(),
            cookie,
            peer: peer.to_canonical(),
        })
    }

    /// Takes this many flows from now on, in the order in which they arrive.
    fn open(&self, flows: u32) -> Receiver<Flow> {
        self.registration.open(flows, None)
    }

    /// Takes the turn to open UDP flows from the client's address; false if another test has it.
    fn take_turn(&self) -> bool {
        let mine =
            || OpeningTurn { cookie: self.cookie, at: Instant::now(), bound: HashSet::new() };
        let mut turns = lock(&self.turns.0);
        let turn = turns.entry(self.peer).or_insert_with(mine);
        if turn.cookie != self.cookie && turn.at.elapsed() > PATIENCE {
            *turn = mine();
        }
        turn.cookie == self.cookie
    }

    /// Ends the turn, if this test has it: all flows have arrived.
    fn end_turn(&self) {
        let mut turns = lock(&self.turns.0);
        let turn = turns.get(&self.peer);
        if turn.is_some_and(|turn| turn.cookie == self.cookie) {
            turns.remove(&self.peer);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end_turn();
    }
}

// The server's output, for a client that asks for it.

/// One line for each stream.
fn text(report: &HalfReport) -> String {
    let mut text =
        format!("linerate {} on {}\n", report.facts.linerate, printable(&report.facts.hostname));
    for flow in &report.flows {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}", line(flow));
    }
    text
}

fn line(flow: &FlowHalf) -> String {
    let verb = if flow.sends { "sent" } else { "received" };
    let rate = if flow.seconds > 0.0 {
        BitRate((flow.bytes as f64 * 8.0 / flow.seconds) as u64)
    } else {
        BitRate(0)
    };
    let mut line = format!(
        "{} <-> {}: {verb} {} in {:.2} s, {rate}",
        flow.local,
        flow.remote,
        ByteCount(flow.bytes),
        flow.seconds
    );
    if let Some(tcp) = flow.tcp.as_ref().and_then(TcpEvidence::sender) {
        let _ = write!(
            line,
            ", {} segments retransmitted, rtt {} us, cwnd {}",
            tcp.retransmitted_segments,
            tcp.rtt_mean_us,
            ByteCount(tcp.cwnd_bytes)
        );
    }
    if let Some(udp) = &flow.udp_received {
        let expected = udp.expected.unwrap_or(udp.received);
        let _ = write!(
            line,
            ", {} of {expected} datagrams lost, {} of them by this socket, {} late, {} twice, \
             jitter {:.0} us",
            expected.saturating_sub(udp.received),
            udp.socket_drops.unwrap_or(0),
            udp.reordered,
            udp.duplicated,
            udp.jitter_ns / 1000.0
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use linerate_core::record::HostFacts;

    use super::*;
    use crate::measure::flow::FlowSocket;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn cookie(letter: u8) -> Cookie {
        let mut bytes = [letter; 37];
        bytes[36] = 0;
        Cookie(bytes)
    }

    fn socket() -> FlowSocket {
        FlowSocket::Udp(UdpSocket::bind((HERE, 0)).unwrap())
    }

    #[test]
    fn a_data_connection_goes_only_to_the_test_of_its_cookie_and_address() {
        let (registry, turns) = (Registry::default(), Turns::default());
        let call = Call::new(&registry, &turns, cookie(b'a'), HERE).unwrap();
        assert!(Call::new(&registry, &turns, cookie(b'a'), HERE).is_none());
        let [own, other] = [b'a', b'b'].map(|letter| SessionName::Cookie(cookie(letter)));
        assert!(registry.has(own) && !registry.has(other));
        assert!(!registry.expects(own, None, HERE));
        let flows = call.open(2);
        let elsewhere = "198.18.0.1".parse().unwrap();
        assert!(!registry.expects(own, None, elsewhere) && !registry.expects(other, None, HERE));
        registry.deliver(own, elsewhere, None, socket());
        for _ in 0..3 {
            registry.deliver(own, HERE, None, socket());
        }
        let numbers: Vec<u32> = flows.try_iter().map(|flow| flow.id).collect();
        assert_eq!(numbers, [0, 1]);
        assert!(!registry.expects(own, None, HERE));
        drop(call);
        assert!(!registry.has(own));
    }

    #[test]
    fn one_test_at_a_time_gets_the_greetings_of_an_address() {
        let (registry, turns) = (Registry::default(), Turns::default());
        let first = Call::new(&registry, &turns, cookie(b'a'), HERE).unwrap();
        let second = Call::new(&registry, &turns, cookie(b'b'), HERE).unwrap();
        let from: SocketAddr = (HERE, 1000).into();
        assert!(turns.test_of(from).is_none());
        assert!(first.take_turn() && !second.take_turn());
        assert_eq!(turns.test_of(from), Some(SessionName::Cookie(cookie(b'a'))));
        turns.bind(from);
        assert!(turns.test_of(from).is_none());
        drop(first);
        assert!(second.take_turn());
        assert_eq!(turns.test_of(from), Some(SessionName::Cookie(cookie(b'b'))));
    }

    #[test]
    fn control_characters_of_the_host_name_are_escaped() {
        let facts = HostFacts { hostname: "pit\u{1b}[2J".into(), ..HostFacts::default() };
        let report = HalfReport { facts: Box::new(facts), ..HalfReport::default() };
        assert!(text(&report).ends_with("on pit\\u{1b}[2J\n"));
    }
}
