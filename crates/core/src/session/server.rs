//! The endpoint's state machine of the session.

use std::collections::VecDeque;
use std::time::Duration;

use super::admission::Owner;
use super::message::{
    ClientMessage, MAX_CLIENT_FRAME, Progress, Refusal, RefusalReason, ServerMessage, Welcome,
};
use super::operation::{Reply, Request, Stage};
use super::{
    Channel, GRACE, GREETING_TIMEOUT, IDLE_TIMEOUT, Incoming, OPENING_TIMEOUT, SILENCE_TIMEOUT,
    SessionError, Silence,
};
use crate::capacity::HoldProgress;
use crate::wire::{Key, Seal};

/// Longest body before the client has proved its key.
const MAX_GREETING_FRAME: usize = 4 << 10;

/// An event for the driver of a [`Server`].
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// Carry out this request, which is within the owner's limits. Answer by [`Server::reply`], or
    /// by [`Server::refuse`] if the operation is refusable.
    Request(Request),
    /// Begin the test.
    Begin {
        /// The time by this end's clock, µs; `None`: at once.
        at_us: Option<u64>,
    },
    /// The session is over, after a goodbye or with an error.
    Closed(Option<SessionError>),
}

/// The endpoint's state machine, from after the client's hello; see the diagram of the module.
#[derive(Debug)]
pub struct Server {
    channel: Channel,
    stage: Stage,
    /// The request that the driver is to answer.
    asked: Option<Request>,
    /// The welcome that the client was sent.
    welcome: Option<Box<Welcome>>,
    events: VecDeque<ServerEvent>,
    deadline: Duration,
    silence: Silence,
    /// Deadline for the next request. A refused request does not put it off, nor does a slot that
    /// is another client's.
    idle_until: Duration,
    /// Latest end of the running test.
    run_until: Option<Duration>,
    planned: Option<Duration>,
}

impl Server {
    /// A session after the client's hello; `sealed` is the flag of the hello.
    pub fn new(now: Duration, key: Option<&Key>, sealed: bool) -> Self {
        let mut server = Self {
            channel: Channel::new(MAX_GREETING_FRAME, None),
            stage: Stage::Introducing,
            asked: None,
            welcome: None,
            events: VecDeque::new(),
            deadline: now + GREETING_TIMEOUT,
            silence: Silence::default(),
            idle_until: now,
            run_until: None,
            planned: None,
        };
        match (key, sealed) {
            (Some(key), true) => match Seal::server(key) {
                Ok(seal) => {
                    server.channel = Channel::new(MAX_GREETING_FRAME, Some(seal));
                    server.stage = Stage::Greeting;
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

    /// Takes bytes from the client.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.stage == Stage::Closed {
            return;
        }
        self.channel.push(bytes);
        while self.stage != Stage::Closed {
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
        if self.stage != Stage::Closed {
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
                self.stage = Stage::Introducing;
                return Ok(());
            }
            Incoming::Message(message) => message,
        };
        match (message, self.stage) {
            (ClientMessage::Introduce { .. }, Stage::Introducing) => {
                self.channel.set_limit(MAX_CLIENT_FRAME);
                self.stage = Stage::Introduced;
            }
            (ClientMessage::Bye, _) => self.close(None),
            (ClientMessage::Ask(request), _) if self.asked.is_none() => {
                return self.take_request(now, request);
            }
            (ClientMessage::Begin { at_us }, Stage::Ready) if self.asked.is_none() => {
                self.enter(now, Stage::Running);
                self.events.push_back(ServerEvent::Begin { at_us });
            }
            (ClientMessage::Alive, Stage::Running | Stage::Holding) if self.asked.is_none() => {
                self.deadline = self.silence.heard(now);
            }
            _ => return Err(SessionError::OutOfTurn("from the client")),
        }
        Ok(())
    }

    fn take_request(&mut self, now: Duration, request: Request) -> Result<(), SessionError> {
        let rules = request.rules();
        let is_in_turn = rules.stages.contains(&self.stage);
        let Some(welcome) = self.welcome.as_ref().filter(|_| is_in_turn) else {
            return Err(SessionError::OutOfTurn("from the client"));
        };
        let owner = Owner { limits: &welcome.limits, operations: &welcome.operations };
        if let Err(refusal) = request.admit(&owner) {
            // Refused without asking the driver; the session goes on.
            return self.channel.send(&ServerMessage::Refuse(refusal));
        }
        let seconds = request.seconds(&welcome.limits);
        self.planned = seconds.map(Duration::from_secs_f64);
        self.run_until = None;
        self.deadline = now + rules.timeout;
        self.asked = Some(request.clone());
        self.events.push_back(ServerEvent::Request(request));
        Ok(())
    }

    /// Whether the client has proved its key, and waits for the welcome.
    pub fn is_introduced(&self) -> bool {
        self.stage == Stage::Introduced
    }

    /// Lets the client in.
    pub fn welcome(&mut self, now: Duration, welcome: Welcome) {
        let welcome = self.welcome.insert(Box::new(welcome)).clone();
        if self.tell(Stage::Introduced, &ServerMessage::Welcome(welcome)) {
            self.enter(now, Stage::Idle);
        }
    }

    /// Answers the request. An answer to another request is too late and is dropped.
    pub fn reply(&mut self, now: Duration, reply: Reply) {
        let asked = self.asked.take_if(|asked| asked.is_answered_by(&reply));
        if let Some(asked) = asked {
            let idle_until = self.idle_until;
            self.enter(now, asked.rules().then);
            match reply.rests() {
                Some(rests) => {
                    self.deadline += rests;
                    self.idle_until += rests;
                }
                None => (self.deadline, self.idle_until) = (idle_until, idle_until),
            }
            self.send(&ServerMessage::Answer(reply.shorten()));
        }
    }

    /// Refuses the request; the session goes on.
    pub fn refuse(&mut self, reason: RefusalReason, message: String) {
        let asked = self.asked.take_if(|asked| asked.rules().is_refusable);
        if asked.is_some() {
            self.deadline = self.idle_until;
            self.send(&ServerMessage::Refuse(Refusal { reason, message }));
        }
    }

    /// All flows are bound.
    pub fn ready(&mut self, now: Duration) {
        if self.tell(Stage::Binding, &ServerMessage::Ready) {
            self.enter(now, Stage::Ready);
        }
    }

    /// That many bytes of the running test have moved: the client is alive, whatever holds up its
    /// messages.
    pub fn moved(&mut self, now: Duration, bytes: u64) {
        if self.stage == Stage::Running && self.asked.is_none() {
            self.deadline = self.silence.moved(now, bytes).unwrap_or(self.deadline);
        }
    }

    /// Reports what has arrived so far.
    pub fn progress(&mut self, progress: Progress) {
        self.tell(Stage::Running, &ServerMessage::Progress(progress));
    }

    /// This end has nothing more to send or to receive.
    pub fn finished(&mut self) {
        self.tell(Stage::Running, &ServerMessage::Finished);
    }

    /// Reports the connections that are held.
    pub fn held(&mut self, progress: HoldProgress) {
        self.tell(Stage::Holding, &ServerMessage::Held(progress));
    }

    /// Sends a message that is only allowed in this stage. It is no error if the client has just
    /// given up.
    fn tell(&mut self, stage: Stage, message: &ServerMessage) -> bool {
        let fits = self.stage == stage && self.asked.is_none();
        if fits {
            self.send(message);
        }
        fits && self.stage == stage
    }

    /// Ends the session with a reason that is sent to the client.
    pub fn hang_up(&mut self, reason: RefusalReason, message: &str) {
        if self.stage != Stage::Closed {
            self.fail(SessionError::Refused(Refusal { reason, message: message.to_owned() }));
        }
    }

    fn send(&mut self, message: &ServerMessage) {
        if let Err(error) = self.channel.send(message) {
            self.fail(error);
        }
    }

    fn enter(&mut self, now: Duration, stage: Stage) {
        self.stage = stage;
        self.deadline = now
            + match stage {
                Stage::Greeting | Stage::Introducing | Stage::Introduced => GREETING_TIMEOUT,
                Stage::Binding | Stage::Ready => OPENING_TIMEOUT,
                Stage::Running | Stage::Holding => SILENCE_TIMEOUT,
                Stage::Idle | Stage::Closed => IDLE_TIMEOUT,
            };
        if stage == Stage::Idle {
            self.idle_until = self.deadline;
        }
        let runs = matches!(stage, Stage::Running | Stage::Holding);
        if runs {
            self.silence = Silence::new(now);
        }
        self.run_until = self.planned.filter(|_| runs).map(|planned| now + planned + GRACE);
    }

    fn fail(&mut self, error: SessionError) {
        if self.channel.is_sealed() && self.stage == Stage::Greeting {
            // The client does not have the key: the reason is sent in clear, and contains no
            // secret.
            self.channel.unseal();
        }
        // The session ends either way: a refusal that cannot be encoded changes nothing.
        let _ = self.channel.send(&ServerMessage::Refuse(error.refusal()));
        self.close(Some(error));
    }

    fn close(&mut self, error: Option<SessionError>) {
        self.stage = Stage::Closed;
        self.asked = None;
        self.events.push_back(ServerEvent::Closed(error));
    }

    /// Call at or after [`Server::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Duration) {
        let overdue = self.run_until.is_some_and(|until| now >= until);
        if self.stage == Stage::Closed || (now < self.deadline && !overdue) {
            return;
        }
        let waited_for = match (&self.asked, self.stage) {
            (Some(_), _) => "the endpoint was too slow",
            (None, Stage::Greeting | Stage::Introducing | Stage::Introduced) => {
                "the client did not greet in time"
            }
            (None, Stage::Idle) => "the client asked for nothing in time",
            (None, Stage::Binding) => "the client's data connections did not come in time",
            (None, Stage::Ready) => "the client did not begin in time",
            (None, _) if overdue => "the test took longer than the endpoint allows",
            (None, _) => "the client fell silent",
        };
        self.fail(SessionError::Timeout(waited_for));
    }

    /// When to call [`Server::handle_timeout`]; `None` when the session is over.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let deadline = (self.run_until).map_or(self.deadline, |until| self.deadline.min(until));
        (self.stage != Stage::Closed).then_some(deadline)
    }

    /// The next bytes for the client.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.channel.poll_transmit()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Whether the session is over. Bytes may remain to be sent.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }
}
