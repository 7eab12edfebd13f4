//! Both halves against each other in memory, with virtual time.

mod capacity;
mod profile;
mod slot;
mod trace;
mod treatment;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::plan::Test;
use crate::record::HostFacts;
use crate::session::message::{Limits, Progress, RefusalReason, Welcome};
use crate::session::operation::{
    CAPACITY, End, Open, Release, Reply, Request, TRACE, TREATMENTS, Treat, Untreat,
};
use crate::treatment::HostChange;
use crate::units::Span;
use crate::wire::{Frame, FrameKind, HELLO_BYTES, Hello, HelloKind, Key};

fn test_of(seconds: u64, streams: u32) -> Test {
    let time = Span(Duration::from_secs(seconds));
    let draft = Test::stream().time(time).warm_up(Span(Duration::ZERO));
    // More or fewer flows than a plan would let pass, too.
    let test = draft.resolve(1).unwrap();
    Test { streams, ..test }
}

fn open(test: &Test) -> Open {
    Open { test: Box::new(test.clone()), profile: None }
}

fn treat(changes: &[HostChange]) -> Treat {
    Treat { changes: changes.to_vec() }
}

fn welcome() -> Welcome {
    Welcome {
        software: "0.1.0".into(),
        token: "00".repeat(16),
        operations: ["stream", TREATMENTS, TRACE, CAPACITY].map(Into::into).into(),
        limits: Limits {
            clients: 4,
            streams: 8,
            seconds: 60.0,
            rate_bps: None,
            connections: 100_000,
        },
        facts: Box::new(HostFacts::default()),
    }
}

/// Client and server joined by a byte pipe that never waits.
struct Pair {
    now: Duration,
    client: Client,
    server: Server,
    welcome: Welcome,
    piece: usize,
}

impl Pair {
    fn new(client_key: Option<&Key>, server_key: Option<&Key>, piece: usize) -> Self {
        Self::welcomed(welcome(), client_key, server_key, piece)
    }

    fn welcomed(
        welcome: Welcome,
        client_key: Option<&Key>,
        server_key: Option<&Key>,
        piece: usize,
    ) -> Self {
        let now = Duration::from_secs(100);
        let mut client = Client::new(now, "0.1.0", client_key);
        let hello = client.poll_transmit().expect("the client speaks first");
        let hello = Hello::decode(hello[..].try_into().expect("a whole hello")).unwrap();
        let HelloKind::Control { sealed } = hello.kind else {
            panic!("a control connection");
        };
        let server = Server::new(now, server_key, sealed);
        let mut pair = Self { now, client, server, welcome, piece };
        pair.exchange();
        pair
    }

    fn exchange(&mut self) {
        loop {
            let mut idle = true;
            while let Some(bytes) = self.client.poll_transmit() {
                idle = false;
                for piece in bytes.chunks(self.piece) {
                    self.server.handle_input(self.now, piece);
                }
                if self.server.is_introduced() {
                    self.server.welcome(self.now, self.welcome.clone());
                }
            }
            while let Some(bytes) = self.server.poll_transmit() {
                idle = false;
                for piece in bytes.chunks(self.piece) {
                    self.client.handle_input(self.now, piece);
                }
            }
            if idle {
                return;
            }
        }
    }

    fn client_event(&mut self) -> Option<ClientEvent> {
        self.exchange();
        self.client.poll_event()
    }

    fn server_event(&mut self) -> Option<ServerEvent> {
        self.exchange();
        self.server.poll_event()
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
    }

    fn treat(&mut self, changes: &[HostChange]) {
        self.client.ask(self.now, treat(changes));
        let asked = ServerEvent::Request(treat(changes).into());
        assert_eq!(self.server_event(), Some(asked));
        self.server.reply(self.now, Reply::Treat(vec!["as asked".into()]));
        let answer = ClientEvent::Reply(Reply::Treat(vec!["as asked".into()]));
        assert_eq!(self.client_event(), Some(answer));
    }

    fn untreat(&mut self) {
        self.client.ask(self.now, Untreat);
        assert_eq!(self.server_event(), Some(ServerEvent::Request(Request::Untreat(Untreat))));
        self.server.reply(self.now, Reply::Untreat(()));
        assert_eq!(self.client_event(), Some(ClientEvent::Reply(Reply::Untreat(()))));
    }

    fn run_one_test(&mut self) {
        let test = test_of(10, 2);
        self.client.ask(self.now, open(&test));
        assert_eq!(self.server_event(), Some(ServerEvent::Request(open(&test).into())));
        self.server.reply(self.now, Reply::Open(()));
        assert_eq!(self.client_event(), Some(ClientEvent::Reply(Reply::Open(()))));
        self.server.ready(self.now);
        assert_eq!(self.client_event(), Some(ClientEvent::Ready));
        self.client.begin(self.now, Some(7));
        let begin = ServerEvent::Begin { at_us: Some(7) };
        assert_eq!(self.server_event(), Some(begin));
        for _ in 0..10 {
            self.advance(Duration::from_secs(1));
            self.server.progress(Progress::default());
            assert!(matches!(self.client_event(), Some(ClientEvent::Progress(_))));
        }
        self.server.finished();
        assert_eq!(self.client_event(), Some(ClientEvent::Finished));
        self.client.ask(self.now, End);
        assert_eq!(self.server_event(), Some(ServerEvent::Request(Request::End(End))));
        self.server.reply(self.now, Reply::End(Box::default()));
        assert_eq!(self.client_event(), Some(ClientEvent::Reply(Reply::End(Box::default()))));
    }
}

fn key(digit: &str) -> Key {
    Key::from_text(&digit.repeat(64)).unwrap()
}

#[test]
fn tests_run_one_after_another_in_clear_and_sealed() {
    for key in [None, Some(key("a"))] {
        for piece in [1, 7, 100_000] {
            let mut pair = Pair::new(key.as_ref(), key.as_ref(), piece);
            assert!(matches!(pair.client_event(), Some(ClientEvent::Welcome(_))));
            pair.run_one_test();
            pair.run_one_test();
            pair.client.close();
            assert_eq!(pair.server_event(), Some(ServerEvent::Closed(None)));
        }
    }
}

fn change(key: &str) -> HostChange {
    HostChange::Sysctl { key: key.into(), value: "0".into() }
}

fn changes() -> [HostChange; 1] {
    [change("net.ipv4.tcp_sack")]
}

fn failure(pair: &mut Pair) -> String {
    match pair.client_event() {
        Some(ClientEvent::Failed(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_that_do_not_fit_are_told_apart() {
    let a = key("a");
    let b = key("b");
    let mut wrong = Pair::new(Some(&b), Some(&a), 100);
    assert!(failure(&mut wrong).contains("has another key"));
    let mut missing = Pair::new(None, Some(&a), 100);
    assert!(failure(&mut missing).contains("give --key-file"));
    let mut needless = Pair::new(Some(&a), None, 100);
    assert!(failure(&mut needless).contains("leave --key-file out"));
}

#[test]
fn what_the_owner_does_not_allow_is_refused_with_the_number_and_the_session_goes_on() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    for (test, number) in [(test_of(61, 1), "60 s"), (test_of(1, 9), "8 streams")] {
        pair.client.ask(pair.now, open(&test));
        match pair.client_event() {
            Some(ClientEvent::Refused(refusal)) => {
                assert_eq!(refusal.reason, RefusalReason::Limit);
                assert!(refusal.message.contains(number), "{}", refusal.message);
            }
            other => panic!("{other:?}"),
        }
    }
    pair.run_one_test();
}

#[test]
fn absurd_tests_are_refused_by_the_endpoint_itself() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.client.ask(pair.now, open(&test_of(1, 0)));
    assert!(matches!(
        pair.client_event(),
        Some(ClientEvent::Refused(refusal)) if refusal.reason == RefusalReason::Test
    ));
}

#[test]
fn silence_ends_each_stage_on_both_sides() {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.server.handle_timeout(pair.now + IDLE_TIMEOUT);
    assert!(pair.server.is_closed());

    // Whoever asks for what is refused keeps its place no longer.
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    for seconds in [1, 10_000] {
        pair.advance(IDLE_TIMEOUT / 3);
        pair.client.ask(pair.now, open(&test_of(seconds, 1)));
        pair.exchange();
        pair.server.refuse(RefusalReason::Busy, "no".into());
        pair.exchange();
        assert!(!pair.server.is_closed());
    }
    pair.advance(IDLE_TIMEOUT / 3);
    assert!(pair.server.is_closed());

    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.client.ask(pair.now, open(&test_of(10, 1)));
    pair.exchange();
    pair.client.handle_timeout(pair.now + OPENING_TIMEOUT);
    assert!(pair.client.is_closed());
    pair.server.reply(pair.now, Reply::Open(()));
    pair.server.handle_timeout(pair.now + OPENING_TIMEOUT);
    assert!(pair.server.is_closed());
}

/// A session with a test of so many seconds that runs.
fn running(seconds: u64) -> Pair {
    let mut pair = Pair::new(None, None, 100);
    pair.client_event();
    pair.client.ask(pair.now, open(&test_of(seconds, 1)));
    pair.server_event();
    pair.server.reply(pair.now, Reply::Open(()));
    pair.server.ready(pair.now);
    pair.exchange();
    pair.client.begin(pair.now, None);
    pair.exchange();
    pair
}

#[test]
fn a_peer_whose_words_wait_behind_the_tests_data_is_not_silent() {
    let (mut pair, mut bytes) = (running(40), 0);
    let mut wait = |seconds, moves| {
        for _ in 0..seconds {
            pair.advance(Duration::from_secs(1));
            bytes += u64::from(moves);
            pair.client.moved(pair.now, bytes);
            pair.server.moved(pair.now, bytes);
        }
        (pair.client.is_closed(), pair.server.is_closed())
    };
    // Nothing that either end says arrives, but data does; then none any more.
    assert_eq!(wait(15, true), (false, false));
    assert_eq!(wait(29, false), (false, false));
    assert_eq!(wait(1, false), (true, true));
}

#[test]
fn a_running_test_needs_signs_of_life_and_ends_at_the_owners_limit() {
    let mut pair = running(50);
    for _ in 0..79 {
        pair.advance(Duration::from_secs(1));
        pair.server.progress(Progress::default());
        pair.exchange();
        assert!(!pair.server.is_closed());
    }
    pair.advance(Duration::from_secs(2));
    assert!(pair.server.is_closed());
}

#[test]
fn other_servers_are_known_by_their_first_byte() {
    for (bytes, name) in [
        (&[9u8][..], "iperf3"),
        (&[0xff][..], "iperf3"),
        (b"SSH-2.0", "SSH"),
        (b"HTTP/1.1", "HTTP"),
        (&[0][..], "something else"),
    ] {
        let mut client = Client::new(Duration::ZERO, "0.1.0", None);
        client.handle_input(Duration::ZERO, bytes);
        match client.poll_event() {
            Some(ClientEvent::Failed(error)) => {
                assert!(error.to_string().contains(name), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_hello_is_the_first_thing_sent() {
    let mut client = Client::new(Duration::ZERO, "0.1.0", Some(&key("c")));
    assert_eq!(client.poll_transmit().unwrap().len(), HELLO_BYTES);
}

#[derive(Debug, Clone)]
enum Step {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
    Exchange,
    Open,
    Begin,
    End,
    Opened,
    Ready,
    Report,
    Treat,
    Untreat,
    Treated,
    Untreated,
    Trace,
    Traced,
    Refuse,
    Wait(u8),
    CloseClient,
    CloseServer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Step::ToServer),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Step::ToClient),
        6 => Just(Step::Exchange),
        3 => Just(Step::Open),
        3 => Just(Step::Begin),
        3 => Just(Step::End),
        3 => Just(Step::Opened),
        3 => Just(Step::Ready),
        3 => Just(Step::Report),
        3 => Just(Step::Treat),
        2 => Just(Step::Untreat),
        3 => Just(Step::Treated),
        2 => Just(Step::Untreated),
        2 => Just(Step::Trace),
        2 => Just(Step::Traced),
        1 => Just(Step::Refuse),
        1 => any::<u8>().prop_map(Step::Wait),
        1 => Just(Step::CloseClient),
        1 => Just(Step::CloseServer),
    ]
}

proptest! {
    /// Whatever is said in whatever order, neither end panics, a closed end stays closed and
    /// silent, and an open server always has a deadline.
    #[test]
    fn no_sequence_of_operations_breaks_a_session(
        steps in prop::collection::vec(step(), 0..60), sealed: bool,
    ) {
        let key = sealed.then(|| key("d"));
        let mut pair = Pair::new(key.as_ref(), key.as_ref(), 50);
        for step in steps {
            let closed = (pair.client.is_closed(), pair.server.is_closed());
            match step {
                Step::ToServer(bytes) => pair.server.handle_input(pair.now, &bytes),
                Step::ToClient(bytes) => pair.client.handle_input(pair.now, &bytes),
                Step::Exchange => pair.exchange(),
                Step::Open => pair.client.ask(pair.now, open(&test_of(5, 1))),
                Step::Begin => pair.client.begin(pair.now, None),
                Step::End => pair.client.ask(pair.now, End),
                Step::Opened => pair.server.reply(pair.now, Reply::Open(())),
                Step::Ready => pair.server.ready(pair.now),
                Step::Report => pair.server.reply(pair.now, Reply::End(Box::default())),
                Step::Treat => pair.client.ask(pair.now, treat(&changes())),
                Step::Untreat => pair.client.ask(pair.now, Untreat),
                Step::Treated => pair.server.reply(pair.now, Reply::Treat(vec!["so".into()])),
                Step::Untreated => pair.server.reply(pair.now, Reply::Untreat(())),
                Step::Trace => pair.client.ask(pair.now, trace::request()),
                Step::Traced => pair.server.reply(pair.now,
                    Reply::Trace(Box::new(trace::document()))),
                Step::Refuse => pair.server.refuse(RefusalReason::Test, "no".into()),
                Step::Wait(seconds) => pair.advance(Duration::from_secs(u64::from(seconds) / 16)),
                Step::CloseClient => pair.client.close(),
                Step::CloseServer => pair.server.hang_up(RefusalReason::Stopping, "stop"),
            }
            prop_assert!(!closed.0 || pair.client.is_closed());
            prop_assert!(!closed.1 || pair.server.is_closed());
            prop_assert!(pair.server.is_closed() || pair.server.poll_timeout().is_some());
            while pair.client.poll_event().is_some() {}
            while pair.server.poll_event().is_some() {}
        }
    }
}

/// It ends in the log of the endpoint's owner.
#[test]
fn what_is_said_of_a_message_that_cannot_be_read_is_short() {
    let mut server = Server::new(Duration::ZERO, None, false);
    let body = format!(r#"{{"say":"{}"}}"#, "x".repeat(4_000)).into_bytes();
    let kind = FrameKind::Clear;
    let frame = Frame { kind, body }.encode().unwrap();
    server.handle_input(Duration::ZERO, &frame);
    let said = server.poll_transmit().expect("it says why");
    assert!(server.is_closed() && said.len() < 500, "{} B", said.len());
}
