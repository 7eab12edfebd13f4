//! Which iperf3 test a data connection belongs to: over TCP its cookie says so; over UDP it is the
//! test whose turn it is to open flows from that address.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use linerate_core::foreign::iperf3::Cookie;

use crate::measure::flow::{Flow, FlowSocket};
use crate::shares::lock;

/// The open tests, by cookie.
#[derive(Clone, Default)]
pub(in crate::endpoint) struct Calls(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    tests: HashMap<Cookie, ExpectedTest>,
    /// A UDP greeting does not name its test: from each address one test at a time opens its flows.
    turns: HashMap<IpAddr, OpeningTurn>,
}

struct OpeningTurn {
    cookie: Cookie,
    /// When the turn began, or when its last flow arrived.
    at: Instant,
}

/// A test that opens no flow for this long loses its turn if another one waits.
const PATIENCE: Duration = Duration::from_secs(3);

struct ExpectedTest {
    /// The address of the control connection, from which data connections must come.
    peer: IpAddr,
    inbox: Option<Inbox>,
}

struct Inbox {
    sender: SyncSender<Flow>,
    flows: u32,
    /// Number of flows that have arrived, which is the number of the next one.
    next: u32,
    /// Addresses that have their socket: a second greeting from one of them is a late copy.
    bound: HashSet<SocketAddr>,
}

/// A test's entry. When it is dropped, the cookie is no longer valid.
pub(super) struct Call {
    calls: Calls,
    cookie: Cookie,
    peer: IpAddr,
}

/// What a connection that begins with a cookie is.
pub(in crate::endpoint) enum Caller {
    /// A data connection, which was handed to its test.
    Delivered,
    /// A data connection that its test does not expect.
    Unwanted(TcpStream),
    /// The control connection of a new test.
    New(TcpStream),
}

impl Calls {
    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.0)
    }

    /// An entry for a test; `None` if the cookie has one already.
    pub(super) fn register(&self, cookie: Cookie, peer: IpAddr) -> Option<Call> {
        let peer = peer.to_canonical();
        let mut book = self.book();
        if book.tests.contains_key(&cookie) {
            return None;
        }
        book.tests
            .insert(cookie, ExpectedTest { peer, inbox: None });
        Some(Call {
            calls: self.clone(),
            cookie,
            peer,
        })
    }

    /// Hands a connection to the test that its cookie names.
    pub(in crate::endpoint) fn deliver(
        &self,
        cookie: Cookie,
        from: IpAddr,
        stream: TcpStream,
    ) -> Caller {
        let mut book = self.book();
        let Some(test) = book.tests.get_mut(&cookie) else {
            return Caller::New(stream);
        };
        let inbox = test
            .inbox
            .as_mut()
            .filter(|_| test.peer == from.to_canonical());
        let Some(inbox) = inbox.filter(|inbox| inbox.next < inbox.flows) else {
            return Caller::Unwanted(stream);
        };
        if stream.set_nonblocking(false).is_err() {
            return Caller::Unwanted(stream);
        }
        inbox.take(FlowSocket::Tcp(stream));
        Caller::Delivered
    }

    /// Whether a greeting from this address belongs to the test whose turn it is.
    pub(in crate::endpoint) fn expects(&self, from: SocketAddr) -> bool {
        let book = self.book();
        let turn = book.turns.get(&from.ip());
        let test = turn.and_then(|turn| book.tests.get(&turn.cookie));
        let inbox = test.and_then(|test| test.inbox.as_ref());
        inbox.is_some_and(|inbox| inbox.next < inbox.flows && !inbox.bound.contains(&from))
    }

    /// Hands a socket that is connected to `from` to the test whose turn it is.
    pub(in crate::endpoint) fn deliver_datagrams(
        &self,
        from: SocketAddr,
        socket: std::net::UdpSocket,
    ) {
        let mut book = self.book();
        let Some(turn) = book.turns.get_mut(&from.ip()) else {
            return;
        };
        turn.at = Instant::now();
        let cookie = turn.cookie;
        let inbox = book.tests.get_mut(&cookie).and_then(|t| t.inbox.as_mut());
        if let Some(inbox) = inbox.filter(|inbox| inbox.next < inbox.flows)
            && inbox.bound.insert(from)
        {
            inbox.take(FlowSocket::Udp(socket));
        }
    }
}

impl Inbox {
    fn take(&mut self, socket: FlowSocket) {
        let id = self.next;
        self.next += 1;
        // The channel has room for every flow; the session may have gone.
        let _ = self.sender.try_send(Flow { id, socket });
    }
}

impl Call {
    /// Takes this many flows from now on, in the order in which they arrive.
    pub(super) fn open(&self, flows: u32) -> Receiver<Flow> {
        let (sender, receiver) = sync_channel(flows as usize);
        if let Some(test) = self.calls.book().tests.get_mut(&self.cookie) {
            test.inbox = Some(Inbox {
                sender,
                flows,
                next: 0,
                bound: HashSet::new(),
            });
        }
        receiver
    }

    /// Takes the turn to open UDP flows from the client's address; false if another test has it.
    pub(super) fn take_turn(&self) -> bool {
        let mut book = self.calls.book();
        let mine = || OpeningTurn {
            cookie: self.cookie,
            at: Instant::now(),
        };
        let turn = book.turns.entry(self.peer).or_insert_with(mine);
        if turn.cookie != self.cookie && turn.at.elapsed() > PATIENCE {
            *turn = mine();
        }
        turn.cookie == self.cookie
    }

    /// Ends the turn, if this test has it: all flows have arrived.
    pub(super) fn end_turn(&self) {
        let mut book = self.calls.book();
        let turn = book.turns.get(&self.peer);
        if turn.is_some_and(|turn| turn.cookie == self.cookie) {
            book.turns.remove(&self.peer);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end_turn();
        self.calls.book().tests.remove(&self.cookie);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn cookie(letter: u8) -> Cookie {
        let mut bytes = [letter; 37];
        bytes[36] = 0;
        Cookie(bytes)
    }

    fn connection() -> TcpStream {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    #[test]
    fn a_data_connection_goes_only_to_the_test_of_its_cookie_and_address() {
        let calls = Calls::default();
        let call = calls.register(cookie(b'a'), HERE).unwrap();
        assert!(calls.register(cookie(b'a'), HERE).is_none());
        let deliver = |letter, from| calls.deliver(cookie(letter), from, connection());
        assert!(matches!(deliver(b'b', HERE), Caller::New(_)));
        assert!(matches!(deliver(b'a', HERE), Caller::Unwanted(_)));
        let flows = call.open(1);
        let elsewhere = "198.18.0.1".parse().unwrap();
        assert!(matches!(deliver(b'a', elsewhere), Caller::Unwanted(_)));
        assert!(matches!(deliver(b'a', HERE), Caller::Delivered));
        assert!(matches!(deliver(b'a', HERE), Caller::Unwanted(_)));
        assert_eq!(flows.try_iter().count(), 1);
        drop(call);
        assert!(matches!(deliver(b'a', HERE), Caller::New(_)));
    }

    #[test]
    fn one_test_at_a_time_gets_the_greetings_of_an_address() {
        let calls = Calls::default();
        let first = calls.register(cookie(b'a'), HERE).unwrap();
        let second = calls.register(cookie(b'b'), HERE).unwrap();
        let from: SocketAddr = (HERE, 1000).into();
        let flows = first.open(1);
        assert!(!calls.expects(from));
        assert!(first.take_turn() && !second.take_turn());
        assert!(calls.expects(from));
        let socket = UdpSocket::bind((HERE, 0)).unwrap();
        calls.deliver_datagrams(from, socket);
        assert!(!calls.expects(from));
        assert_eq!(flows.try_iter().count(), 1);
        drop(first);
        assert!(second.take_turn());
    }
}
