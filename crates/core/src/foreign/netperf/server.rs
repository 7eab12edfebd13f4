//! The server's state machine: it reads requests, asks its driver to run tests, and writes answers.

use std::collections::VecDeque;
use std::time::Duration;

use super::answer::{self, Ready, Results};
use super::request::{DataTest, Message, Refusal};
use super::{Block, NARROW_BYTES, PAD_SECONDS, WIDE_BYTES, Width, kind};
use crate::session::message::Limits;
use crate::wire::is_same_secret;

/// From the connection to the first whole message.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time between two messages of a client.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// After as many bytes as an old client's block has, this silence shows that the block is whole.
const NARROW_AFTER: Duration = Duration::from_millis(200);
/// Time beyond the length of a test: clients wait before they connect, and queues drain.
const GRACE: Duration = Duration::from_secs(30);
/// Longest passphrase with its zero, bytes: it fits the payload of an old client's block.
const PASSPHRASE_BYTES: usize = NARROW_BYTES - 8;

/// The answer to a question about the host, each field after its separator.
const SYSTEM_WORDS: &str = ",Linux,-,-,-";

/// Settings of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The passphrase that a client must send first, 1 to 247 bytes.
    pub passphrase: Option<String>,
    /// The owner's limits.
    pub limits: Limits,
    /// Number of CPUs of this host, for a client that asks.
    pub cpus: u32,
    /// Ticks per second in which their time is counted.
    pub cpu_rate: f32,
}

/// An event for the driver of a [`Server`].
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// Make ready for this test, and answer by [`Server::ready`] or [`Server::refuse`]; after it by
    /// [`Server::report`] or [`Server::refuse`].
    Test(Box<DataTest>),
    /// A request was refused.
    Refused(Refusal),
    /// The session is over; a running test is to be stopped.
    Closed(End),
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client closed between two messages.
    Done,
    /// The client closed with a test in progress, or in the middle of a message.
    Gone,
    /// Something took too long.
    Timeout(&'static str),
    /// The client does not have the passphrase.
    Passphrase,
    /// The client sent a message while it was to wait.
    OutOfTurn,
}

impl End {
    /// Why the session ended early; `None` if the client left in order.
    pub fn reason(self) -> Option<String> {
        Some(match self {
            Self::Done => return None,
            Self::Gone => "the client closed the control connection".into(),
            Self::Timeout(what) => format!("timed out: {what}"),
            Self::Passphrase => "no passphrase, or another one".into(),
            Self::OutOfTurn => "the client sent an unexpected message".into(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    /// No whole message has come yet.
    Greeting,
    Idle,
    /// The driver makes ready.
    Opening(Message),
    Running(Message),
    Closed,
}

/// The server's half of a control connection, from its first byte. It reads at most one message
/// ahead and never waits without a deadline.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    state: ServerState,
    width: Option<Width>,
    input: Vec<u8>,
    /// When the last byte came.
    heard: Duration,
    trusted: bool,
    deadline: Duration,
    output: VecDeque<Vec<u8>>,
    events: VecDeque<ServerEvent>,
}

impl Server {
    /// A connection that was accepted at `now`.
    pub fn new(now: Duration, settings: Settings) -> Self {
        Self {
            trusted: settings.passphrase.is_none(),
            settings,
            state: ServerState::Greeting,
            width: None,
            input: Vec::new(),
            heard: now,
            deadline: now + GREETING_TIMEOUT,
            output: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes bytes from the client.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.state == ServerState::Closed {
            return;
        }
        if self.input.len() + bytes.len() > 2 * WIDE_BYTES {
            // No client sends a third message before the first is answered.
            self.close(End::OutOfTurn);
            return;
        }
        self.input.extend_from_slice(bytes);
        self.heard = now;
        self.take_blocks(now);
    }

    /// The client closed its direction, or the connection is lost.
    pub fn handle_close(&mut self) {
        let end = match self.state {
            ServerState::Greeting | ServerState::Idle if self.input.is_empty() => End::Done,
            _ => End::Gone,
        };
        self.close(end);
    }

    /// Checks the deadlines.
    pub fn handle_timeout(&mut self, now: Duration) {
        // The deadline first: reading a block now would put it off.
        if now >= self.deadline {
            self.close(End::Timeout(match self.state {
                ServerState::Greeting => "nothing readable was received",
                ServerState::Idle => "no test was asked for",
                _ => "the test did not end",
            }));
        } else if self.may_be_narrow() && now >= self.heard + NARROW_AFTER {
            self.width = Some(Width::Narrow);
            self.take_blocks(now);
        }
    }

    /// The next bytes for the client.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.output.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let narrow = self.may_be_narrow().then_some(self.heard + NARROW_AFTER);
        (self.state != ServerState::Closed)
            .then(|| narrow.map_or(self.deadline, |narrow| narrow.min(self.deadline)))
    }

    /// Whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.state == ServerState::Closed
    }

    /// Tells the client that the test can begin.
    pub fn ready(&mut self, ready: &Ready) {
        if let ServerState::Opening(message) = self.state {
            self.state = ServerState::Running(message);
            let block = answer::ready(message, self.answer_width(), ready);
            self.output.push_back(block.into_bytes());
        }
    }

    /// Sends the results of the test.
    pub fn report(&mut self, now: Duration, results: &Results) {
        if let ServerState::Running(message) = self.state {
            let block = answer::results(message, self.answer_width(), results);
            self.output.push_back(block.into_bytes());
            self.rest(now);
        }
    }

    /// Tells the client that the test is refused, or failed.
    pub fn refuse(&mut self, now: Duration, refusal: Refusal) {
        if let ServerState::Opening(message) | ServerState::Running(message) = self.state {
            self.say_no(Some(message), refusal);
            self.rest(now);
        }
    }

    fn rest(&mut self, now: Duration) {
        self.state = ServerState::Idle;
        self.deadline = now + IDLE_TIMEOUT;
        self.take_blocks(now);
    }

    fn close(&mut self, end: End) {
        if self.state != ServerState::Closed {
            self.state = ServerState::Closed;
            self.events.push_back(ServerEvent::Closed(end));
        }
    }

    fn may_be_narrow(&self) -> bool {
        self.width.is_none() && self.input.len() == NARROW_BYTES && self.listens()
    }

    fn listens(&self) -> bool {
        matches!(self.state, ServerState::Greeting | ServerState::Idle)
    }

    fn answer_width(&self) -> Width {
        self.width.unwrap_or(Width::Wide)
    }

    fn take_blocks(&mut self, now: Duration) {
        while self.listens() {
            let width = match self.width {
                Some(width) => width,
                None if self.input.len() > NARROW_BYTES => Width::Wide,
                None => return,
            };
            if self.input.len() < width.bytes() {
                return;
            }
            let rest = self.input.split_off(width.bytes());
            let bytes = std::mem::replace(&mut self.input, rest);
            self.width = Some(width);
            if let Some(block) = Block::decode(width, &bytes) {
                self.state = ServerState::Idle;
                self.deadline = now + IDLE_TIMEOUT;
                self.take(now, &block);
            }
        }
    }

    fn take(&mut self, now: Duration, block: &Block) {
        if !self.trusted {
            if block.kind() == kind::PASSPHRASE && self.has_passphrase(block) {
                self.trusted = true;
            } else {
                self.close(End::Passphrase);
            }
            return;
        }
        let width = block.width();
        match block.kind() {
            kind::DEBUG_ON | kind::DEBUG_OFF => self.say(Block::new(width, kind::DEBUG_OK)),
            kind::CPU_CALIBRATE => {
                let words = [self.settings.cpu_rate.to_bits(), self.settings.cpus];
                self.say(Block::of_words(width, kind::CPU_CALIBRATE, &words));
            }
            // Clients of 2.5 and 2.6 ask for four words about the host, and newer netservers tell
            // none either.
            kind::SYSTEM => {
                let mut block = Block::new(width, kind::SYSTEM_ANSWER);
                block.set_text(0, 0, PASSPHRASE_BYTES, SYSTEM_WORDS);
                self.say(block);
            }
            // Not asked for, and never answered.
            kind::PASSPHRASE => {}
            _ => self.open(now, block),
        }
    }

    fn open(&mut self, now: Duration, block: &Block) {
        match DataTest::parse(block, &self.settings.limits) {
            Ok(test) => {
                let seconds = test.seconds(&self.settings.limits) + f64::from(PAD_SECONDS);
                self.deadline = now + Duration::from_secs_f64(seconds) + GRACE;
                self.state = ServerState::Opening(test.message);
                self.events.push_back(ServerEvent::Test(Box::new(test)));
            }
            Err(refusal) => {
                let classic = super::classic::Classic::of_request(block.kind());
                self.say_no(classic.map(Message::Classic), refusal);
            }
        }
    }

    fn say(&mut self, block: Block) {
        self.output.push_back(block.into_bytes());
    }

    fn say_no(&mut self, message: Option<Message>, refusal: Refusal) {
        self.say(answer::refused(message, self.answer_width(), &refusal));
        self.events.push_back(ServerEvent::Refused(refusal));
    }

    fn has_passphrase(&self, block: &Block) -> bool {
        let Some(passphrase) = &self.settings.passphrase else {
            return true;
        };
        let sent = block.text_bytes(0, 0, PASSPHRASE_BYTES);
        is_same_secret(passphrase.as_bytes(), sent)
    }
}
