//! A client that goes to a given stage and then misbehaves.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linerate_core::plan::Test;
use linerate_core::session::message::{Refusal, ServerMessage};
use linerate_core::session::operation::{End, Open, Reply, Treat};
use linerate_core::session::{Client, ClientEvent};
use linerate_core::treatment::HostChange;
use linerate_core::wire::{FrameReader, Hello, HelloKind, Key, Token};
use linerate_sys::socket::reset_on_close;
use linerate_testkit::{PATIENCE, uninterrupted};

/// The stage at which a client begins to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Connected,
    HalfHello,
    Hello,
    Welcomed,
    Opened,
    HalfTheFlows,
    Ready,
    Running,
    Ended,
}

pub(crate) const STAGES: [Stage; 9] = [
    Stage::Connected,
    Stage::HalfHello,
    Stage::Hello,
    Stage::Welcomed,
    Stage::Opened,
    Stage::HalfTheFlows,
    Stage::Ready,
    Stage::Running,
    Stage::Ended,
];

/// How a client leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Leave {
    Close,
    Reset,
}

pub(crate) struct Stranger {
    pub(crate) control: TcpStream,
    pub(crate) flows: Vec<TcpStream>,
    pub(crate) token: Token,
    address: SocketAddr,
    session: Client,
    began: Instant,
}

impl Stranger {
    /// Connected; nothing was sent.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::with(address, None)
    }

    fn with(address: SocketAddr, key: Option<&Key>) -> Self {
        let control = TcpStream::connect(address).expect("the endpoint listens");
        control.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        Self {
            control,
            flows: Vec::new(),
            token: Token([0; 16]),
            address,
            session: Client::new(Duration::ZERO, "stranger", key),
            began: Instant::now(),
        }
    }

    /// Goes as far as `stage` with `test`. Nothing of a flow is read or written but its hello.
    pub(crate) fn at(address: SocketAddr, test: &Test, stage: Stage) -> Self {
        let mut stranger = Self::new(address);
        stranger.advance(test, stage);
        stranger
    }

    /// A client with the key that has changed the endpoint's host, and then goes on to `stage` with
    /// `test`.
    pub(crate) fn treated(
        address: SocketAddr,
        key: &Key,
        changes: &[HostChange],
        test: &Test,
        stage: Stage,
    ) -> Self {
        let mut stranger = Self::with(address, Some(key));
        stranger.advance(test, Stage::Welcomed);
        stranger.session.ask(stranger.now(), Treat { changes: changes.to_vec() });
        let answer = stranger.event();
        assert!(matches!(answer, ClientEvent::Reply(Reply::Treat(_))), "{answer:?}");
        if stage > Stage::Welcomed {
            stranger.begin(test, stage);
        }
        stranger
    }

    fn advance(&mut self, test: &Test, stage: Stage) {
        let hello = self.session.poll_transmit().expect("the hello comes first");
        let said = match stage {
            Stage::Connected => 0,
            Stage::HalfHello => hello.len() / 2,
            _ => hello.len(),
        };
        self.write(&hello[..said]);
        if stage <= Stage::Hello {
            return;
        }
        let ClientEvent::Welcome(welcome) = self.event() else {
            panic!("no welcome");
        };
        self.token = token(&welcome.token);
        if stage > Stage::Welcomed {
            self.begin(test, stage);
        }
    }

    fn begin(&mut self, test: &Test, stage: Stage) {
        let open = Open { test: Box::new(test.clone()), profile: None };
        self.session.ask(self.now(), open);
        assert_eq!(self.event(), ClientEvent::Reply(Reply::Open(())));
        if stage == Stage::Opened {
            return;
        }
        // A test that makes its connections within the run is ready without them.
        let flows = match stage {
            Stage::HalfTheFlows => test.flows() / 2,
            _ => test.flows(),
        };
        for flow in 0..flows {
            self.connect_flow(flow);
        }
        if stage == Stage::HalfTheFlows {
            return;
        }
        assert_eq!(self.event(), ClientEvent::Ready);
        if stage == Stage::Ready {
            return;
        }
        self.session.begin(self.now(), None);
        self.flush();
        if stage == Stage::Ended {
            self.session.ask(self.now(), End);
            self.flush();
        }
    }

    pub(crate) fn connect_flow(&mut self, flow: u32) {
        let stream = data_connection(self.address, self.token, flow);
        self.flows.push(stream);
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn flush(&mut self) {
        while let Some(bytes) = self.session.poll_transmit() {
            self.write(&bytes);
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.control.write_all(bytes).expect("the endpoint takes it");
    }

    /// The next event of the session.
    pub(crate) fn event(&mut self) -> ClientEvent {
        loop {
            self.flush();
            if let Some(event) = self.session.poll_event() {
                return event;
            }
            let mut bytes = [0; 4096];
            match uninterrupted(|| self.control.read(&mut bytes)) {
                Ok(0) => self.session.handle_close(),
                Ok(n) => self.session.handle_input(self.now(), &bytes[..n]),
                Err(error) => panic!("nothing from the endpoint: {error}"),
            }
        }
    }

    /// Requests a test as JSON that no client of linerate would send; the result is the answer.
    pub(crate) fn ask(&mut self, test: &serde_json::Value) -> Refusal {
        let body =
            serde_json::json!({"say": "ask", "operation": "open", "request": {"test": test}});
        let body = body.to_string();
        self.write(&frame(body.as_bytes()));
        refusal(&mut self.control)
    }

    pub(crate) fn leave(self, how: Leave) {
        if let Leave::Reset = how {
            for stream in self.flows.iter().chain([&self.control]) {
                reset_on_close(stream).expect("a socket of ours");
            }
        }
    }
}

pub(crate) fn data_connection(address: SocketAddr, token: Token, flow: u32) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the endpoint listens");
    let hello = Hello::new(HelloKind::Data { token, flow }).encode();
    stream.write_all(&hello).expect("a fresh connection");
    stream
}

/// A frame in clear.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = (1u32 << 24 | body.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// The next message, which is a refusal; welcomes before it are ignored.
pub(crate) fn refusal(stream: &mut TcpStream) -> Refusal {
    let mut reader = FrameReader::new(1 << 20);
    let mut bytes = [0; 4096];
    loop {
        match reader.next_frame().expect("frames of linerate's") {
            None => {
                let read = uninterrupted(|| stream.read(&mut bytes));
                let n = read.expect("the endpoint answers");
                assert_ne!(n, 0, "closed without a word");
                reader.push(&bytes[..n]);
            }
            Some(frame) => match ServerMessage::parse(&frame.body) {
                Ok(ServerMessage::Refuse(refusal)) => return refusal,
                Ok(ServerMessage::Welcome(_)) => {}
                other => panic!("{other:?}"),
            },
        }
    }
}

/// Whether the endpoint has closed this connection; waits for it.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    match uninterrupted(|| stream.read(&mut [0; 16])) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn token(text: &str) -> Token {
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("32 digits");
    }
    Token(bytes)
}

/// Like [`is_closed`], after all that the endpoint sends before it closes.
pub(crate) fn is_closed_after_words(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let mut words = Vec::new();
    match stream.take(1 << 20).read_to_end(&mut words) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}
