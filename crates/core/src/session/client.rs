//! The client's half of the session.

use std::collections::VecDeque;
use std::time::Duration;

use super::message::{
    ClientMessage, HalfReport, MAX_SERVER_FRAME, Progress, Refusal, RefusalReason, ServerMessage,
    Welcome,
};
use crate::capacity::{CapacityHalf, CapacityRequest, HoldPorts, HoldProgress};
use crate::plan::Test;
use crate::profile::ProfileRequest;
use crate::trace::{TraceDocument, TraceRequest, admit};
use crate::treatment::HostChange;
use crate::wire::{Hello, HelloKind, Key, Seal, is_hello_start};

use super::channel::{Channel, Incoming};
use super::{
    ALIVE_EVERY, GREETING_TIMEOUT, HOLDING_TIMEOUT, OPENING_TIMEOUT, RELEASE_TIMEOUT,
    REPORT_TIMEOUT, SILENCE_TIMEOUT, SessionError, TRACING_TIMEOUT, TREATING_TIMEOUT,
};

/// What the driver of a [`Client`] is told.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The endpoint is there.
    Welcome(Box<Welcome>),
    /// Connect the data connections.
    Opened,
    /// All flows are bound.
    Ready,
    /// What has arrived at the endpoint.
    Progress(Progress),
    /// The endpoint's part of the run is over.
    Finished,
    /// The endpoint's account.
    Report(Box<HalfReport>),
    /// The test, but not the session, was refused.
    TestRefused(Refusal),
    /// The endpoint's host is changed; what it read back.
    Treated(Vec<String>),
    /// The endpoint's host is as it was.
    Untreated,
    /// The changes, but not the session, were refused. What was in force before them may be undone.
    TreatmentRefused(Refusal),
    /// The endpoint's trace of the way to here, with all that it says checked.
    Traced(Box<TraceDocument>),
    /// The trace, but not the session, was refused.
    TraceRefused(Refusal),
    /// The endpoint takes connections on these ports.
    Holding(HoldPorts),
    /// What the endpoint holds.
    Held(HoldProgress),
    /// The endpoint has closed all; its account.
    Released(Box<CapacityHalf>),
    /// Holding, but not the session, was refused.
    HoldRefused(Refusal),
    /// The session is over.
    Failed(SessionError),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Greeting,
    Introducing,
    Idle,
    Opening,
    Binding,
    Ready,
    Running,
    Reporting,
    Treating,
    Untreating,
    Tracing(TraceRequest),
    Preparing(CapacityRequest),
    Holding,
    Releasing,
    Closed,
}

/// The client's half; see the module's picture.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    state: State,
    software: String,
    events: VecDeque<ClientEvent>,
    deadline: Option<Duration>,
    say_alive_at: Option<Duration>,
    /// Of the last test that was asked for.
    flows: u32,
    /// Until the first whole frame the peer may be any server at all.
    heard: bool,
}

impl Client {
    /// Starts a session: the hello is ready to be sent.
    pub fn new(now: Duration, software: &str, key: Option<&Key>) -> Self {
        let mut client = Self {
            channel: Channel::new(MAX_SERVER_FRAME, None),
            state: State::Greeting,
            software: software.to_owned(),
            events: VecDeque::new(),
            deadline: Some(now + GREETING_TIMEOUT),
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
        let hello = Hello::new(HelloKind::Control {
            sealed: key.is_some(),
        });
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
        self.state = State::Introducing;
        self.channel.send(&ClientMessage::Introduce {
            software: self.software.clone(),
        })
    }

    /// Bytes from the endpoint.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.state == State::Closed || bytes.is_empty() {
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
        while self.state != State::Closed {
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
        if self.state != State::Closed {
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
        let running = matches!(self.state, State::Running | State::Reporting);
        match (message, self.state) {
            (ServerMessage::Refuse(refusal), _) => return self.refused(refusal),
            (ServerMessage::Welcome(welcome), State::Introducing) => {
                self.enter(State::Idle, None);
                self.events.push_back(ClientEvent::Welcome(welcome));
            }
            (ServerMessage::Opened, State::Opening) => {
                self.enter(State::Binding, Some(now + OPENING_TIMEOUT));
                self.events.push_back(ClientEvent::Opened);
            }
            (ServerMessage::Ready, State::Binding) => {
                self.enter(State::Ready, None);
                self.events.push_back(ClientEvent::Ready);
            }
            (ServerMessage::Progress(progress), _) if running => {
                if self.state == State::Running {
                    self.deadline = Some(now + SILENCE_TIMEOUT);
                    self.events.push_back(ClientEvent::Progress(progress));
                }
            }
            (ServerMessage::Finished, _) if running => {
                self.events.push_back(ClientEvent::Finished);
            }
            (ServerMessage::Report(report), State::Reporting) => {
                report.check(self.flows).map_err(SessionError::Message)?;
                self.enter(State::Idle, None);
                self.events.push_back(ClientEvent::Report(report));
            }
            (ServerMessage::Treated { read_back }, State::Treating) => {
                self.enter(State::Idle, None);
                self.events.push_back(ClientEvent::Treated(read_back));
            }
            (ServerMessage::Untreated, State::Untreating) => {
                self.enter(State::Idle, None);
                self.events.push_back(ClientEvent::Untreated);
            }
            (ServerMessage::Traced(document), State::Tracing(request)) => {
                let document = admit(*document, &request).map_err(SessionError::Message)?;
                self.enter(State::Idle, None);
                self.events
                    .push_back(ClientEvent::Traced(Box::new(document)));
            }
            (message, _) => return self.take_hold(now, message),
        }
        Ok(())
    }

    fn take_hold(&mut self, now: Duration, message: ServerMessage) -> Result<(), SessionError> {
        match (message, self.state) {
            (ServerMessage::Holding(ports), State::Preparing(request)) => {
                ports.check(&request).map_err(SessionError::Message)?;
                self.enter(State::Holding, Some(now + SILENCE_TIMEOUT));
                self.say_alive_at = Some(now + ALIVE_EVERY);
                self.events.push_back(ClientEvent::Holding(ports));
            }
            (ServerMessage::Held(progress), State::Holding) => {
                self.deadline = Some(now + SILENCE_TIMEOUT);
                self.events.push_back(ClientEvent::Held(progress));
            }
            // Said before the endpoint knew of the end.
            (ServerMessage::Held(_), State::Releasing) => {}
            (ServerMessage::HoldReport(half), State::Releasing) => {
                half.check().map_err(SessionError::Message)?;
                self.enter(State::Idle, None);
                self.events.push_back(ClientEvent::Released(half));
            }
            _ => return Err(SessionError::OutOfTurn("from the endpoint")),
        }
        Ok(())
    }

    /// A refused test, treatment or trace leaves the session as it was; any other refusal ends it.
    fn refused(&mut self, refusal: Refusal) -> Result<(), SessionError> {
        use RefusalReason::{Busy, Limit, Test, Treatment};
        let event = match (self.state, refusal.reason) {
            (State::Opening, Limit | Test | Busy) => ClientEvent::TestRefused(refusal),
            (State::Treating, Limit | Treatment | Busy) => ClientEvent::TreatmentRefused(refusal),
            (State::Tracing(_), Limit | Test | Busy) => ClientEvent::TraceRefused(refusal),
            (State::Preparing(_), Limit | Test | Busy) => ClientEvent::HoldRefused(refusal),
            _ => return Err(SessionError::Refused(refusal)),
        };
        self.enter(State::Idle, None);
        self.events.push_back(event);
        Ok(())
    }

    /// Asks for a test. Only between tests, else the session fails.
    pub fn open(&mut self, now: Duration, test: &Test) {
        self.open_profiled(now, test, None);
    }

    /// As [`Client::open`], with a profile of the endpoint's host. Only of an endpoint that has the
    /// operation
    /// [`PROFILE`](crate::session::message::PROFILE), else the test is refused.
    pub fn open_profiled(&mut self, now: Duration, test: &Test, profile: Option<ProfileRequest>) {
        let message = ClientMessage::Open {
            test: Box::new(test.clone()),
            profile,
        };
        self.flows = test.flows();
        self.command(State::Idle, State::Opening, &message);
        self.deadline = Some(now + OPENING_TIMEOUT);
    }

    /// Begins the test that is [`ClientEvent::Ready`].
    pub fn begin(&mut self, now: Duration) {
        self.command(State::Ready, State::Running, &ClientMessage::Begin);
        self.deadline = Some(now + SILENCE_TIMEOUT);
        self.say_alive_at = Some(now + ALIVE_EVERY);
    }

    /// Ends the running test; the report comes next.
    pub fn end(&mut self, now: Duration) {
        self.command(State::Running, State::Reporting, &ClientMessage::End);
        self.deadline = Some(now + REPORT_TIMEOUT);
        self.say_alive_at = None;
    }

    /// Asks for changes of the endpoint's host. Only between tests, else the session fails.
    pub fn treat(&mut self, now: Duration, changes: &[HostChange]) {
        let message = ClientMessage::Treat {
            changes: changes.to_vec(),
        };
        self.command(State::Idle, State::Treating, &message);
        self.deadline = Some(now + TREATING_TIMEOUT);
    }

    /// Asks for them to be undone. Only between tests, else the session fails.
    pub fn untreat(&mut self, now: Duration) {
        self.command(State::Idle, State::Untreating, &ClientMessage::Untreat);
        self.deadline = Some(now + TREATING_TIMEOUT);
    }

    /// Asks for the way back. Only between tests, else the session fails.
    pub fn trace(&mut self, now: Duration, request: TraceRequest) {
        let message = ClientMessage::Trace { request };
        self.command(State::Idle, State::Tracing(request), &message);
        self.deadline = Some(now + TRACING_TIMEOUT);
    }

    /// Asks the endpoint to hold connections. Only between tests, else the session fails.
    pub fn hold(&mut self, now: Duration, request: CapacityRequest) {
        let message = ClientMessage::Hold { request };
        self.command(State::Idle, State::Preparing(request), &message);
        self.deadline = Some(now + HOLDING_TIMEOUT);
    }

    /// Ends holding; the endpoint closes all and reports.
    pub fn release(&mut self, now: Duration) {
        self.command(State::Holding, State::Releasing, &ClientMessage::End);
        self.deadline = Some(now + RELEASE_TIMEOUT);
        self.say_alive_at = None;
    }

    /// Says goodbye; nothing more is taken or sent.
    pub fn close(&mut self) {
        if !matches!(self.state, State::Closed | State::Greeting) {
            // The session ends either way: a goodbye that cannot be encoded changes nothing.
            let _ = self.channel.send(&ClientMessage::Bye);
        }
        self.enter(State::Closed, None);
    }

    fn command(&mut self, from: State, to: State, message: &ClientMessage) {
        if self.state == State::Closed {
            return;
        }
        if self.state != from {
            self.fail(SessionError::OutOfTurn("from this end"));
            return;
        }
        self.state = to;
        if let Err(error) = self.channel.send(message) {
            self.fail(error);
        }
    }

    fn enter(&mut self, state: State, deadline: Option<Duration>) {
        self.state = state;
        self.deadline = deadline;
        self.say_alive_at = None;
    }

    fn fail(&mut self, error: SessionError) {
        self.enter(State::Closed, None);
        self.events.push_back(ClientEvent::Failed(error));
    }

    /// Call at or after [`Client::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Duration) {
        let runs = matches!(self.state, State::Running | State::Holding);
        if self.say_alive_at.is_some_and(|at| now >= at) && runs {
            self.say_alive_at = Some(now + ALIVE_EVERY);
            if let Err(error) = self.channel.send(&ClientMessage::Alive) {
                self.fail(error);
            }
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            let waiting_for = match self.state {
                State::Greeting | State::Introducing => "the endpoint does not answer the greeting",
                State::Opening => "the endpoint does not answer the request for a test",
                State::Binding => "the data connections did not reach the endpoint",
                State::Running | State::Holding => "the endpoint is silent",
                State::Reporting => "the endpoint sends no report",
                State::Treating => "the endpoint does not say whether it has changed its host",
                State::Untreating => "the endpoint does not say whether its host is as it was",
                State::Tracing(_) => "the endpoint does not say what it has traced",
                State::Preparing(_) => {
                    "the endpoint does not say whether it is ready to hold connections"
                }
                State::Releasing => "the endpoint does not say that it has closed its connections",
                State::Idle | State::Ready | State::Closed => return,
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

    /// Bytes for the endpoint.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.channel.poll_transmit()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Whether nothing more will come of it.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }
}

/// The server whose first byte this is, if it is none of linerate's frames.
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
