//! The client's state machine, for one OMNI test with a netserver of 2.6 or newer.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

use super::answer::{Ready, Results};
use super::request::{DataTest, Length, Message, Role, Transport};
use super::{Block, PAD_SECONDS, WIDE_BYTES, Width, errno, kind};

/// Longest time from a message to its answer, beside the length of the test.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// An event for the driver of a [`Client`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The other end is a netserver.
    Greeted,
    /// The netserver is ready: connect, or send, to this port; then [`Client::begun`].
    Ready(Box<Ready>),
    /// The netserver has sent its results.
    Results(Box<Results>),
    /// The test failed.
    Failed(ClientError),
}

/// Why a test with a netserver failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The netserver answered with an errno.
    #[error("the netserver refuses the test: error {0}{note}", note = note(*.0))]
    Refused(i32),
    /// The answer is not netperf's, or not allowed now.
    #[error("what answers there is no netserver of 2.6 or newer")]
    NotNetserver,
    /// A deadline has passed.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The control connection ended.
    #[error("the netserver closed the control connection (it may want a passphrase)")]
    Closed,
}

/// Type of the second answer of some netservers: the type of the first one, whose bytes they swap
/// twice.
const OLD_RESPONSE: i32 = kind::OMNI_RESPONSE.swap_bytes();

fn note(number: i32) -> &'static str {
    match number {
        errno::UNKNOWN_TEST => " (it does not know the test)",
        errno::EINVAL => " (a figure that it does not take)",
        errno::EPERM => " (more than its owner allows)",
        errno::EBUSY => " (it is busy)",
        _ => "",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientState {
    Greeting,
    Idle,
    Opening,
    Running,
    Over,
}

/// The client's half of a control connection. It never waits without a deadline.
#[derive(Debug)]
pub struct Client {
    state: ClientState,
    input: Vec<u8>,
    deadline: Option<Duration>,
    output: VecDeque<Vec<u8>>,
    events: VecDeque<ClientEvent>,
}

impl Client {
    /// Begins at `now` with a message that changes nothing, to find out whether a netserver
    /// answers.
    pub fn new(now: Duration) -> Self {
        let hello = Block::new(Width::Wide, kind::DEBUG_OFF).with_second(-1);
        Self {
            state: ClientState::Greeting,
            input: Vec::new(),
            deadline: Some(now + ANSWER_TIMEOUT),
            output: VecDeque::from([hello.into_bytes()]),
            events: VecDeque::new(),
        }
    }

    /// A test in which the netserver has this role.
    pub fn test(role: Role, transport: Transport, length: Length) -> DataTest {
        DataTest::plain(Message::Omni, role, transport).with_length(length)
    }

    /// Asks for a test.
    pub fn open(&mut self, now: Duration, test: &DataTest) {
        if self.state == ClientState::Idle {
            self.state = ClientState::Opening;
            self.deadline = Some(now + ANSWER_TIMEOUT);
            self.output.push_back(test.to_omni().into_bytes());
        }
    }

    /// The data is on its way: the results are due after `length` and the time that a netserver
    /// adds.
    pub fn begun(&mut self, now: Duration, length: Duration) {
        if self.state == ClientState::Running {
            let pad = Duration::from_secs(PAD_SECONDS.into());
            self.deadline = Some(now + length + pad + ANSWER_TIMEOUT);
        }
    }

    /// Takes bytes from the netserver.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        if self.state == ClientState::Over {
            return;
        }
        self.input.extend_from_slice(bytes);
        while self.state != ClientState::Over && self.input.len() >= WIDE_BYTES {
            let rest = self.input.split_off(WIDE_BYTES);
            let bytes = std::mem::replace(&mut self.input, rest);
            match Block::decode(Width::Wide, &bytes) {
                Some(block) => self.take(&block),
                None => self.fail(ClientError::NotNetserver),
            }
        }
    }

    /// The connection ended.
    pub fn handle_close(&mut self) {
        self.fail(ClientError::Closed);
    }

    /// Checks the deadline.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.fail(ClientError::Timeout(match self.state {
                ClientState::Greeting => "no answer as of a netserver",
                ClientState::Opening => "the netserver does not make ready",
                _ => "the netserver's results do not come",
            }));
        }
    }

    /// The next bytes for the netserver.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.output.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadline
    }

    fn take(&mut self, block: &Block) {
        self.deadline = None;
        match (self.state, block.kind()) {
            (ClientState::Greeting, kind::DEBUG_OK) => {
                self.state = ClientState::Idle;
                self.events.push_back(ClientEvent::Greeted);
            }
            (ClientState::Opening, kind::OMNI_RESPONSE) => match Ready::parse(block) {
                Ok(ready) if ready.port > 0 => {
                    self.state = ClientState::Running;
                    self.events.push_back(ClientEvent::Ready(Box::new(ready)));
                }
                Ok(_) => self.fail(ClientError::NotNetserver),
                Err(errno) => self.fail(ClientError::Refused(errno)),
            },
            (ClientState::Running, kind::OMNI_RESPONSE | kind::OMNI_RESULTS | OLD_RESPONSE) => {
                match Results::parse(block) {
                    Ok(results) => {
                        self.state = ClientState::Idle;
                        let results = Box::new(results);
                        self.events.push_back(ClientEvent::Results(results));
                    }
                    Err(errno) => self.fail(ClientError::Refused(errno)),
                }
            }
            (_, _) if block.second() > 0 => self.fail(ClientError::Refused(block.second())),
            _ => self.fail(ClientError::NotNetserver),
        }
    }

    fn fail(&mut self, error: ClientError) {
        if self.state != ClientState::Over {
            self.state = ClientState::Over;
            self.deadline = None;
            self.events.push_back(ClientEvent::Failed(error));
        }
    }
}
