//! The client's state machine of the session.

use std::collections::VecDeque;
use std::time::Duration;

use super::message::{
    ClientMessage, MAX_SERVER_FRAME, Progress, Refusal, RefusalReason, ServerMessage, Welcome,
};
use super::operation::{Operation, Reply, Request, Stage};
use super::{
    ALIVE_EVERY, Channel, GREETING_TIMEOUT, Incoming, OPENING_TIMEOUT, SessionError, Silence,
};
use crate::capacity::HoldProgress;
use crate::wire::{Hello, HelloKind, Key, Seal, is_hello_start};

/// An event for the driver of a [`Client`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The endpoint has let the client in.
    Welcome(Box<Welcome>),
    /// The answer to the request, checked.
    Reply(Reply),
    /// The request was refused; the session goes on. If it was a treatment, the one before it may
    /// be undone.
    Refused(Refusal),
    /// All flows of the test are bound.
    Ready,
    /// What the endpoint has received so far.
    Progress(Progress),
    /// The endpoint's part of the run is over.
    Finished,
    /// The connections that the endpoint holds.
    Held(HoldProgress),
    /// The session is over.
    Failed(SessionError),
}

/// The client's state machine; see the diagram of the module.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    stage: Stage,
    /// The request that waits for its answer.
    asked: Option<Request>,
    software: String,
    events: VecDeque<ClientEvent>,
    deadline: Option<Duration>,
    silence: Silence,
    say_alive_at: Option<Duration>,
    /// Flows of the last test that was asked for.
    flows: u32,
    /// Whether bytes have come: until then the peer may be any server.
    heard: bool,
}

impl Client {
    /// Begins a session: its hello is ready to be sent.
    pub fn new(now: Duration, software: &str, key: Option<&Key>) -> Self {
        let mut client = Self {
            channel: Channel::new(MAX_SERVER_FRAME, None),
            stage: Stage::Greeting,
            asked: None,
            software: software.to_owned(),
            events: VecDeque::new(),
            deadline: Some(now + GREETING_TIMEOUT),
            silence: Silence::default(),
            say_alive_at: None,
            flows: 0,
            heard: false,
        };
        if let Err(error) = client.greet(key) {
            client.fail(error);
        }
        client
    }

    fn greet(&mut self, key: Option<&Key>) -> Result<(), SessionError> {
        let hello = Hello::new(HelloKind::Control { sealed: key.is_some() });
        self.channel.send_raw(hello.encode().to_vec());
        match key {
            Some(key) => {
                let seal = Seal::client(key)?;
                let mut channel = Channel::new(MAX_SERVER_FRAME, Some(seal));
                channel.send_raw(hello.encode().to_vec());
                self.channel = channel;
                self.channel.send_handshake()
            }
            None => self.introduce(),
        }
    }

    fn introduce(&mut self) -> Result<(), SessionError> {
        self.stage = Stage::Introducing;
        self.channel.send(&ClientMessage::Introduce { software: self.software.clone() })
    }

    /// Takes bytes from the endpoint.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.stage == Stage::Closed || bytes.is_empty() {
            return;
        }
        if !self.heard
            && let Some(name) = other_server(bytes[0])
        {
            self.fail(SessionError::NotLinerate(name));
            return;
        }
        self.heard = true;
        self.channel.push(bytes);
        while self.stage != Stage::Closed {
            match self.channel.next(ServerMessage::parse) {
                Ok(None) => return,
                Ok(Some(incoming)) => {
                    if let Err(error) = self.take(now, incoming) {
                        self.fail(error);
                    }
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// The connection ended.
    pub fn handle_close(&mut self) {
        if self.stage != Stage::Closed {
            self.fail(SessionError::Closed);
        }
    }

    fn take(
        &mut self,
        now: Duration,
        incoming: Incoming<ServerMessage>,
    ) -> Result<(), SessionError> {
        let message = match incoming {
            Incoming::Handshake => return self.introduce(),
            Incoming::Message(message) => message,
        };
        let is_asking = self.asked.is_some();
        match (message, self.stage) {
            (ServerMessage::Refuse(refusal), _) => return self.refused(refusal),
            (ServerMessage::Answer(reply), _) => return self.answered(now, reply),
            (ServerMessage::Welcome(welcome), Stage::Introducing) => {
                self.enter(now, Stage::Idle);
                self.events.push_back(ClientEvent::Welcome(welcome));
            }
            // Sent before the endpoint knew of the end.
            (ServerMessage::Ready, Stage::Binding) if is_asking => {}
            (ServerMessage::Progress(_), Stage::Running) if is_asking => {}
            (ServerMessage::Held(_), Stage::Holding) if is_asking => {}
            (ServerMessage::Ready, Stage::Binding) => {
                self.enter(now, Stage::Ready);
                self.events.push_back(ClientEvent::Ready);
            }
            (ServerMessage::Progress(progress), Stage::Running) => {
                self.deadline = Some(self.silence.heard(now));
                self.events.push_back(ClientEvent::Progress(progress));
            }
            (ServerMessage::Held(progress), Stage::Holding) => {
                self.deadline = Some(self.silence.heard(now));
                self.events.push_back(ClientEvent::Held(progress));
            }
            (ServerMessage::Finished, Stage::Running) => {
                self.events.push_back(ClientEvent::Finished);
            }
            _ => return Err(SessionError::OutOfTurn("from the endpoint")),
        }
        Ok(())
    }

    fn answered(&mut self, now: Duration, reply: Reply) -> Result<(), SessionError> {
        let asked = self.asked.take();
        let believed = asked.as_ref().and_then(|asked| asked.believe(reply));
        let (Some(asked), Some(reply)) = (asked, believed) else {
            return Err(SessionError::OutOfTurn("from the endpoint"));
        };
        let reply = reply.map_err(SessionError::Message)?;
        if let Reply::End(report) = &reply {
            report.check(self.flows).map_err(SessionError::Message)?;
        }
        self.enter(now, asked.rules().then);
        self.events.push_back(ClientEvent::Reply(reply));
        Ok(())
    }

    /// A refused operation leaves the session as it was; any other refusal ends it.
    fn refused(&mut self, refusal: Refusal) -> Result<(), SessionError> {
        use RefusalReason::{Busy, Limit, Test, Treatment};
        let is_refusable = (self.asked.as_ref()).is_some_and(|asked| asked.rules().is_refusable);
        if !is_refusable || !matches!(refusal.reason, Limit | Test | Treatment | Busy) {
            return Err(SessionError::Refused(refusal));
        }
        self.asked = None;
        self.deadline = None;
        self.events.push_back(ClientEvent::Refused(refusal));
        Ok(())
    }

    /// Asks for an operation. The session fails if another request waits for its answer, or if the
    /// stage is none of [`Operation::STAGES`]. An endpoint that does not have the operation refuses
    /// it.
    pub fn ask(&mut self, now: Duration, operation: impl Operation) {
        let request: Request = operation.into();
        let rules = request.rules();
        if let Request::Open(open) = &request {
            self.flows = open.test.flows();
        }
        let message = ClientMessage::Ask(request);
        if !self.command(rules.stages, &message) {
            return;
        }
        let ClientMessage::Ask(request) = message else {
            return;
        };
        self.asked = Some(request);
        self.deadline = Some(now + rules.timeout);
        self.say_alive_at = None;
    }

    /// Begins the test after [`ClientEvent::Ready`]: at once, or at this time of the endpoint's
    /// clock, µs.
    pub fn begin(&mut self, now: Duration, at_us: Option<u64>) {
        if self.command(&[Stage::Ready], &ClientMessage::Begin { at_us }) {
            self.enter(now, Stage::Running);
        }
    }

    /// That many bytes of the running test have moved: the endpoint is alive, whatever holds up its
    /// messages.
    pub fn moved(&mut self, now: Duration, bytes: u64) {
        if self.stage == Stage::Running && self.asked.is_none() {
            self.deadline = self.silence.moved(now, bytes).or(self.deadline);
        }
    }

    /// Says goodbye and ends the session.
    pub fn close(&mut self) {
        if !matches!(self.stage, Stage::Closed | Stage::Greeting) {
            // The session ends either way: a goodbye that cannot be encoded changes nothing.
            let _ = self.channel.send(&ClientMessage::Bye);
        }
        self.end();
    }

    /// Sends a message that is only allowed in these stages, and returns whether it was sent.
    fn command(&mut self, stages: &[Stage], message: &ClientMessage) -> bool {
        if self.stage == Stage::Closed {
            return false;
        }
        if self.asked.is_some() || !stages.contains(&self.stage) {
            self.fail(SessionError::OutOfTurn("from this end"));
            return false;
        }
        let sent = self.channel.send(message);
        sent.map_err(|error| self.fail(error)).is_ok()
    }

    fn enter(&mut self, now: Duration, stage: Stage) {
        let runs = matches!(stage, Stage::Running | Stage::Holding);
        self.stage = stage;
        self.say_alive_at = runs.then(|| now + ALIVE_EVERY);
        self.deadline = match stage {
            Stage::Running | Stage::Holding => {
                self.silence = Silence::new(now);
                Some(self.silence.deadline(now))
            }
            Stage::Binding => Some(now + OPENING_TIMEOUT),
            _ => None,
        };
    }

    fn end(&mut self) {
        self.stage = Stage::Closed;
        self.asked = None;
        self.deadline = None;
        self.say_alive_at = None;
    }

    fn fail(&mut self, error: SessionError) {
        self.end();
        self.events.push_back(ClientEvent::Failed(error));
    }

    /// Call at or after [`Client::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.say_alive_at.is_some_and(|at| now >= at) {
            self.say_alive_at = Some(now + ALIVE_EVERY);
            if let Err(error) = self.channel.send(&ClientMessage::Alive) {
                self.fail(error);
            }
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            let waiting_for = match (&self.asked, self.stage) {
                (Some(asked), _) => asked.rules().silence,
                (None, Stage::Greeting | Stage::Introducing) => {
                    "the endpoint does not answer the greeting"
                }
                (None, Stage::Binding) => "the data connections did not reach the endpoint",
                (None, _) => "the endpoint is silent",
            };
            self.fail(SessionError::Timeout(waiting_for));
        }
    }

    /// When to call [`Client::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        match (self.deadline, self.say_alive_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next bytes for the endpoint.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.channel.poll_transmit()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }
}

/// The kind of server whose first byte this is; `None` for one of linerate's frames.
fn other_server(first: u8) -> Option<&'static str> {
    match first {
        1..=3 => None,
        // PARAM_EXCHANGE to our hello taken as a cookie, or ACCESS_DENIED of a busy server.
        9 | 0xff => Some("an iperf3 server"),
        b'S' => Some("an SSH (or other text) server"),
        b'H' => Some("an HTTP server"),
        _ if is_hello_start(first) => Some("another linerate client"),
        _ => Some("something else"),
    }
}
