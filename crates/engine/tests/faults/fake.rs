//! An endpoint that goes to a given stage and then misbehaves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_core::plan::Protocol;
use linerate_core::record::HostFacts;
use linerate_core::session::message::{Limits, Welcome};
use linerate_core::session::operation::{End, Open, Reply, Request};
use linerate_core::session::{Server, ServerEvent};
use linerate_core::wire::HELLO_BYTES;

/// The stage at which an endpoint begins to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Accepted,
    Welcomed,
    /// The test was requested, and there is no answer.
    Asked,
    Opened,
    Ready,
    Running,
    /// The report was requested, and not sent.
    Ended,
}

/// A client's connections at a fake endpoint.
pub(crate) struct Fake {
    pub(crate) control: TcpStream,
    /// Accepted and never read.
    flows: Vec<TcpStream>,
    listener: TcpListener,
    session: Server,
    welcome: Welcome,
    began: Instant,
}

/// Serves one client up to `stage`; `then` does the rest.
pub(crate) fn endpoint(
    stage: Stage,
    welcome: Welcome,
    then: impl FnOnce(&mut Fake) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (control, _) = listener.accept().unwrap();
        let mut fake = Fake {
            control,
            flows: Vec::new(),
            listener,
            session: Server::new(Duration::ZERO, None, false),
            welcome,
            began: Instant::now(),
        };
        fake.advance(stage);
        then(&mut fake);
    });
    (address, thread)
}

pub(crate) fn welcome() -> Welcome {
    Welcome {
        software: "fake".into(),
        token: "07".repeat(16),
        operations: vec!["stream".into()],
        limits: Limits {
            clients: 1,
            streams: 8,
            seconds: 60.0,
            rate_bps: None,
            connections: 100_000,
        },
        facts: Box::new(HostFacts::default()),
    }
}

impl Fake {
    fn advance(&mut self, stage: Stage) {
        if stage == Stage::Accepted {
            return;
        }
        self.control.read_exact(&mut [0; HELLO_BYTES]).unwrap();
        if stage == Stage::Welcomed {
            self.take();
            return;
        }
        let ServerEvent::Request(Request::Open(Open { test, .. })) = self.event() else {
            panic!("no test was asked for");
        };
        if stage == Stage::Asked {
            return;
        }
        self.session.reply(self.began.elapsed(), Reply::Open(()));
        self.flush();
        let is_tcp = test.protocol != Protocol::Udp;
        for _ in 0..if is_tcp { test.flows() } else { 0 } {
            let (mut flow, _) = self.listener.accept().unwrap();
            flow.read_exact(&mut [0; HELLO_BYTES]).unwrap();
            self.flows.push(flow);
        }
        if stage == Stage::Opened {
            return;
        }
        self.session.ready(self.began.elapsed());
        self.flush();
        if stage == Stage::Ready {
            return;
        }
        assert_eq!(self.event(), ServerEvent::Begin { at_us: None });
        if stage == Stage::Running {
            return;
        }
        self.session.finished();
        assert_eq!(self.event(), ServerEvent::Request(Request::End(End)));
    }

    fn event(&mut self) -> ServerEvent {
        loop {
            if let Some(event) = self.session.poll_event() {
                return event;
            }
            self.take();
        }
    }

    /// The client's next message.
    fn take(&mut self) {
        let mut bytes = [0; 4096];
        let n = self.control.read(&mut bytes).unwrap();
        assert_ne!(n, 0, "the client hung up");
        self.session.handle_input(self.began.elapsed(), &bytes[..n]);
        if self.session.is_introduced() {
            (self.session).welcome(self.began.elapsed(), self.welcome.clone());
        }
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(bytes) = self.session.poll_transmit() {
            self.control.write_all(&bytes).unwrap();
        }
    }

    /// Sends nothing more until the client leaves.
    pub(crate) fn stall(&mut self) {
        let mut bytes = [0; 4096];
        while matches!(self.control.read(&mut bytes), Ok(n) if n > 0) {}
    }

    /// Sends bytes of its own, then stalls. A client that has hung up meanwhile has seen enough.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.control.write_all(bytes);
        self.stall();
    }

    /// Sends bytes of its own in pieces that arrive one by one, then stalls.
    pub(crate) fn say_slowly(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(16) {
            self.control.write_all(piece).unwrap();
            thread::sleep(Duration::from_millis(30));
        }
        self.stall();
    }
}
