//! The endpoint's half of the session.

use std::collections::VecDeque;
use std::time::Duration;

use super::message::{
    ClientMessage, HalfReport, Limits, MAX_CLIENT_FRAME, MAX_SERVER_FRAME, Progress, Refusal,
    RefusalReason, ServerMessage, Welcome,
};
use crate::capacity::{CapacityHalf, CapacityRequest, HoldPorts, HoldProgress};
use crate::plan::Test;
use crate::profile::ProfileRequest;
use crate::trace::{TraceDocument, TraceRequest};
use crate::treatment::HostChange;
use crate::wire::{Key, Seal};

use super::admission;
use super::channel::{Channel, Incoming};
use super::{
    GRACE, GREETING_TIMEOUT, HOLDING_TIMEOUT, IDLE_TIMEOUT, OPENING_TIMEOUT, RELEASE_TIMEOUT,
    REPORT_TIMEOUT, SILENCE_TIMEOUT, SessionError, TRACING_TIMEOUT, TREATING_TIMEOUT,
};

/// Longest body before the client has proved its key.
const MAX_GREETING_FRAME: usize = 4 << 10;

/// What the driver of a [`Server`] is told.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// Profile this host while the next test runs; the rate was checked. [`ServerEvent::Open`]
    /// follows.
    Profile(ProfileRequest),
    /// Make ready for this test; it was checked and is within the limits. Answer by
    /// [`Server::opened`] or [`Server::refuse`].
    Open(Box<Test>),
    /// Begin.
    Begin,
    /// Stop and hand in the account by [`Server::report`].
    End,
    /// Change this host so, and in no other way; the owner allows treatments, and each of these was
    /// checked. Answer by [`Server::treated`] or [`Server::refuse`].
    Treat(Vec<HostChange>),
    /// Undo what was changed. Answer by [`Server::untreated`].
    Untreat,
    /// Trace the way to the client's own address; the request is within what endpoints allow.
    /// Answer by
    /// [`Server::traced`] or [`Server::refuse`].
    Trace(TraceRequest),
    /// Make ready to hold as many connections; the request is within the owner's limits. Answer by
    /// [`Server::holding`] or [`Server::refuse`].
    Hold(CapacityRequest),
    /// Close what is held and hand in the account by [`Server::released`].
    Release,
    /// The session is over: said goodbye to, or the reason.
    Closed(Option<SessionError>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Handshake,
    Introduction,
    Idle,
    Opening,
    Binding,
    Ready,
    Running,
    Reporting,
    Treating,
    Untreating,
    Tracing,
    Preparing,
    Holding,
    Releasing,
    Closed,
}

/// The endpoint's half, from after the client's hello; see the module's picture.
#[derive(Debug)]
pub struct Server {
    channel: Channel,
    state: State,
    welcome: Option<Box<Welcome>>,
    limits: Limits,
    operations: Vec<String>,
    events: VecDeque<ServerEvent>,
    deadline: Duration,
    /// Latest end of the running test.
    run_until: Option<Duration>,
    planned: Option<Duration>,
}

impl Server {
    /// A session whose client's hello was read; `sealed` is what the hello said.
    pub fn new(now: Duration, welcome: Welcome, key: Option<&Key>, sealed: bool) -> Self {
        let mut server = Self {
            channel: Channel::new(MAX_GREETING_FRAME, None),
            state: State::Introduction,
            limits: welcome.limits,
            operations: welcome.operations.clone(),
            welcome: Some(Box::new(welcome)),
            events: VecDeque::new(),
            deadline: now + GREETING_TIMEOUT,
            run_until: None,
            planned: None,
        };
        match (key, sealed) {
            (Some(key), true) => match Seal::server(key) {
                Ok(seal) => {
                    server.channel = Channel::new(MAX_GREETING_FRAME, Some(seal));
                    server.state = State::Handshake;
                }
                Err(error) => server.fail(error.into()),
            },
            (None, false) => {}
            (Some(_), false) => server.fail(SessionError::Key(
                "the endpoint takes only clients with its key: give --key-file",
            )),
            (None, true) => server.fail(SessionError::Key(
                "the endpoint has no key: leave --key-file out, or start it with one",
            )),
        }
        server
    }

    /// Bytes from the client.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.state == State::Closed {
            return;
        }
        self.channel.push(bytes);
        while self.state != State::Closed {
            match self.channel.next(ClientMessage::parse) {
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
            self.close(Some(SessionError::Closed));
        }
    }

    fn take(
        &mut self,
        now: Duration,
        incoming: Incoming<ClientMessage>,
    ) -> Result<(), SessionError> {
        let message = match incoming {
            Incoming::Handshake => {
                self.channel.send_handshake()?;
                self.state = State::Introduction;
                return Ok(());
            }
            Incoming::Message(message) => message,
        };
        match (message, self.state) {
            (ClientMessage::Introduce { .. }, State::Introduction) => {
                self.channel.set_limit(MAX_CLIENT_FRAME);
                self.enter(State::Idle, now + IDLE_TIMEOUT);
                match self.welcome.take() {
                    Some(welcome) => self.channel.send(&ServerMessage::Welcome(welcome)),
                    None => Err(SessionError::OutOfTurn("a second introduction")),
                }
            }
            (ClientMessage::Open { test, profile }, State::Idle) => {
                self.take_test(now, test, profile)
            }
            (ClientMessage::Begin, State::Ready) => {
                self.enter(State::Running, now + SILENCE_TIMEOUT);
                self.run_until = self.planned.map(|planned| now + planned + GRACE);
                self.events.push_back(ServerEvent::Begin);
                Ok(())
            }
            (ClientMessage::Alive, State::Running) => {
                self.deadline = now + SILENCE_TIMEOUT;
                Ok(())
            }
            // A client may give up a test at any time; what there is, is reported.
            (ClientMessage::End, State::Binding | State::Ready | State::Running) => {
                self.enter(State::Reporting, now + REPORT_TIMEOUT);
                self.events.push_back(ServerEvent::End);
                Ok(())
            }
            (ClientMessage::Treat { changes }, State::Idle) => self.take_changes(now, changes),
            (ClientMessage::Untreat, State::Idle) => {
                self.enter(State::Untreating, now + TREATING_TIMEOUT);
                self.events.push_back(ServerEvent::Untreat);
                Ok(())
            }
            (ClientMessage::Trace { request }, State::Idle) => self.take_request(now, request),
            (ClientMessage::Hold { request }, State::Idle) => self.take_hold(now, request),
            (ClientMessage::Alive, State::Holding) => {
                self.deadline = now + SILENCE_TIMEOUT;
                Ok(())
            }
            (ClientMessage::End, State::Holding) => {
                self.enter(State::Releasing, now + RELEASE_TIMEOUT);
                self.run_until = None;
                self.events.push_back(ServerEvent::Release);
                Ok(())
            }
            (ClientMessage::Bye, _) => {
                self.close(None);
                Ok(())
            }
            _ => Err(SessionError::OutOfTurn("from the client")),
        }
    }

    fn take_test(
        &mut self,
        now: Duration,
        test: Box<Test>,
        profile: Option<ProfileRequest>,
    ) -> Result<(), SessionError> {
        let admitted = admission::test(&test, &self.limits, &self.operations).and_then(|()| {
            (profile.iter()).try_for_each(|asked| admission::profile(asked, &self.operations))
        });
        if let Err(refusal) = admitted {
            return self.turn_down(now, refusal);
        }
        // A count or an amount has no time of its own: it gets all that the owner allows.
        let seconds = test.seconds().unwrap_or(self.limits.seconds);
        self.planned = Some(Duration::from_secs_f64(seconds.min(self.limits.seconds)));
        self.enter(State::Opening, now + OPENING_TIMEOUT);
        self.events.extend(profile.map(ServerEvent::Profile));
        self.events.push_back(ServerEvent::Open(test));
        Ok(())
    }

    fn take_changes(
        &mut self,
        now: Duration,
        changes: Vec<HostChange>,
    ) -> Result<(), SessionError> {
        if let Err(refusal) = admission::changes(&changes, &self.operations) {
            return self.turn_down(now, refusal);
        }
        self.enter(State::Treating, now + TREATING_TIMEOUT);
        self.events.push_back(ServerEvent::Treat(changes));
        Ok(())
    }

    fn take_request(&mut self, now: Duration, request: TraceRequest) -> Result<(), SessionError> {
        if let Err(refusal) = admission::trace(&request, &self.operations) {
            return self.turn_down(now, refusal);
        }
        self.enter(State::Tracing, now + TRACING_TIMEOUT);
        self.events.push_back(ServerEvent::Trace(request));
        Ok(())
    }

    fn take_hold(&mut self, now: Duration, request: CapacityRequest) -> Result<(), SessionError> {
        if let Err(refusal) = admission::capacity(&request, &self.limits, &self.operations) {
            return self.turn_down(now, refusal);
        }
        let seconds = request.seconds.min(self.limits.seconds);
        self.planned = Some(Duration::from_secs_f64(seconds));
        self.enter(State::Preparing, now + HOLDING_TIMEOUT);
        self.events.push_back(ServerEvent::Hold(request));
        Ok(())
    }

    /// Says no without asking the driver; the session goes on.
    fn turn_down(&mut self, now: Duration, refusal: Refusal) -> Result<(), SessionError> {
        self.deadline = now + IDLE_TIMEOUT;
        self.channel.send(&ServerMessage::Refuse(refusal))
    }

    /// The test can be done: the client may connect its flows.
    pub fn opened(&mut self, now: Duration) {
        self.answer(State::Opening, State::Binding, &ServerMessage::Opened);
        self.deadline = now + OPENING_TIMEOUT;
    }

    /// The test or the trace cannot be done here, or the changes not be made; the session goes on.
    pub fn refuse(&mut self, now: Duration, reason: RefusalReason, message: String) {
        let refusal = ServerMessage::Refuse(Refusal { reason, message });
        let asked = match self.state {
            State::Treating | State::Tracing | State::Preparing => self.state,
            _ => State::Opening,
        };
        self.answer(asked, State::Idle, &refusal);
        self.deadline = now + IDLE_TIMEOUT;
    }

    /// The changes are in force, and were read back so.
    pub fn treated(&mut self, now: Duration, read_back: Vec<String>) {
        let message = ServerMessage::Treated { read_back };
        self.answer(State::Treating, State::Idle, &message);
        self.deadline = now + IDLE_TIMEOUT;
    }

    /// This host is as it was before the session changed it.
    pub fn untreated(&mut self, now: Duration) {
        self.answer(State::Untreating, State::Idle, &ServerMessage::Untreated);
        self.deadline = now + IDLE_TIMEOUT;
    }

    /// The way to the client as this end sees it.
    pub fn traced(&mut self, now: Duration, document: TraceDocument) {
        let message = ServerMessage::Traced(Box::new(document));
        self.answer(State::Tracing, State::Idle, &message);
        self.deadline = now + IDLE_TIMEOUT;
    }

    /// The client may connect to these ports.
    pub fn holding(&mut self, now: Duration, ports: HoldPorts) {
        let message = ServerMessage::Holding(ports);
        self.answer(State::Preparing, State::Holding, &message);
        self.deadline = now + SILENCE_TIMEOUT;
        self.run_until = self.planned.map(|planned| now + planned + GRACE);
    }

    /// What is held at present.
    pub fn held(&mut self, progress: HoldProgress) {
        let message = ServerMessage::Held(progress);
        self.answer(State::Holding, State::Holding, &message);
    }

    /// All is closed: the account of it.
    pub fn released(&mut self, now: Duration, half: CapacityHalf) {
        let message = ServerMessage::HoldReport(Box::new(half.bounded()));
        self.answer(State::Releasing, State::Idle, &message);
        self.deadline = now + IDLE_TIMEOUT;
    }

    /// All flows are bound.
    pub fn ready(&mut self, now: Duration) {
        self.answer(State::Binding, State::Ready, &ServerMessage::Ready);
        self.deadline = now + OPENING_TIMEOUT;
    }

    /// What has arrived so far.
    pub fn progress(&mut self, progress: Progress) {
        if self.state == State::Running {
            self.answer(
                State::Running,
                State::Running,
                &ServerMessage::Progress(progress),
            );
        }
    }

    /// This end has nothing more to send or to receive.
    pub fn finished(&mut self) {
        if self.state == State::Running {
            self.answer(State::Running, State::Running, &ServerMessage::Finished);
        }
    }

    /// The account of the test that ended.
    pub fn report(&mut self, now: Duration, mut report: HalfReport) {
        // Sealing adds 16 bytes to every 64 KiB, and the message its name: far less than a
        // hundredth.
        report.thin_to(MAX_SERVER_FRAME / 100 * 99);
        let message = ServerMessage::Report(Box::new(report));
        self.answer(State::Reporting, State::Idle, &message);
        self.deadline = now + IDLE_TIMEOUT;
        self.run_until = None;
    }

    /// Ends the session with a reason that the client is told.
    pub fn hang_up(&mut self, reason: RefusalReason, message: &str) {
        if self.state != State::Closed {
            self.fail(SessionError::Refused(Refusal {
                reason,
                message: message.to_owned(),
            }));
        }
    }

    fn answer(&mut self, from: State, to: State, message: &ServerMessage) {
        // The driver may answer a test that the client has just given up: that is no error.
        if self.state != from {
            return;
        }
        self.state = to;
        if let Err(error) = self.channel.send(message) {
            self.fail(error);
        }
    }

    fn enter(&mut self, state: State, deadline: Duration) {
        self.state = state;
        self.deadline = deadline;
    }

    fn fail(&mut self, error: SessionError) {
        if self.channel.is_sealed() && self.state == State::Handshake {
            // Nobody there has the key: the reason goes out in clear, and says nothing secret.
            self.channel.unseal();
        }
        // The session ends either way: a refusal that cannot be encoded changes nothing.
        let _ = self.channel.send(&ServerMessage::Refuse(error.refusal()));
        self.close(Some(error));
    }

    fn close(&mut self, error: Option<SessionError>) {
        self.state = State::Closed;
        self.events.push_back(ServerEvent::Closed(error));
    }

    /// Call at or after [`Server::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Duration) {
        let overdue = self.run_until.is_some_and(|until| now >= until);
        if self.state == State::Closed || (now < self.deadline && !overdue) {
            return;
        }
        let waited_for = match self.state {
            State::Handshake | State::Introduction => "the client did not greet in time",
            State::Idle => "the client asked for nothing in time",
            State::Opening
            | State::Reporting
            | State::Treating
            | State::Untreating
            | State::Tracing
            | State::Preparing
            | State::Releasing => "the endpoint was too slow",
            State::Binding => "the client's data connections did not come in time",
            State::Ready => "the client did not begin in time",
            State::Running | State::Holding if overdue => {
                "the test took longer than the endpoint allows"
            }
            State::Running | State::Holding => "the client fell silent",
            State::Closed => return,
        };
        self.fail(SessionError::Timeout(waited_for));
    }

    /// When to call [`Server::handle_timeout`]; `None` when the session is over.
    pub fn poll_timeout(&self) -> Option<Duration> {
        match (self.state, self.run_until) {
            (State::Closed, _) => None,
            (State::Running | State::Holding, Some(until)) => Some(self.deadline.min(until)),
            _ => Some(self.deadline),
        }
    }

    /// Bytes for the client.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.channel.poll_transmit()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Whether nothing more will come of it, once its last bytes are sent.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }
}
