//! The client's end of the control connection.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

use super::reader::{ReadError, Reader, framed};
use super::{Cookie, ErrorCode, GRACE, PARAMS_TIMEOUT, Params, RESULTS_TIMEOUT, Results, State};

/// A server waits so long for a stream at most, and answers no later.
const OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// What the client's engine is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// Open the data connections.
    Open,
    /// Send and receive, until [`Client::end`].
    Begin,
    /// The server has stopped and wants this end's account: [`Client::report`].
    Report,
    /// The server's account; the test is over.
    Results(Box<Results>),
    /// It is over before its time.
    Failed(ClientError),
}

/// Why a test ended before its time, or never began.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// Bytes that belong to nothing.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Results that are none.
    #[error("the server sent {0}")]
    Results(String),
    /// The server has another client, or knows this one not.
    #[error("the iperf3 server is busy with another client")]
    Denied,
    /// The connection ended before the server had said anything: it is between two clients.
    #[error("the iperf3 server closed the connection without a word")]
    Unanswered,
    /// The server says no.
    #[error("the iperf3 server refuses: {} (error {})", .0.words(), .0.0)]
    Server(ErrorCode),
    /// The server was stopped.
    #[error("the iperf3 server was stopped")]
    Terminated,
    /// A state byte that has no place here.
    #[error("the server sent {0}, which has no place here: it is no iperf3 server")]
    OutOfTurn(u8),
    /// Something took too long.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The connection ended.
    #[error("the iperf3 server closed the connection{0}")]
    Hangup(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// For the server to ask.
    Greeted,
    /// For its answer to the parameters.
    Asked,
    /// For it to have all streams.
    Opening,
    Running,
    /// For it to stop.
    Ending,
    /// For the engine's account.
    Reporting,
    /// For its results.
    Results,
    /// For it to have said all.
    Display,
    /// The two numbers of an error.
    Error,
    Closed,
}

/// The control connection of one test.
#[derive(Debug)]
pub struct Client {
    stage: Stage,
    reader: Reader,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<ClientEvent>,
    deadline: Option<Duration>,
    params: Params,
}

impl Client {
    /// Greets with a cookie, to ask for a test.
    pub fn new(now: Duration, cookie: Cookie, params: Params) -> Self {
        Self {
            stage: Stage::Greeted,
            reader: Reader::default(),
            out: VecDeque::from([cookie.0.to_vec()]),
            events: VecDeque::new(),
            deadline: Some(now + PARAMS_TIMEOUT),
            params,
        }
    }

    /// Bytes of the server.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.is_closed() {
            return;
        }
        if let Err(error) = self.reader.push(bytes, 4 + Results::MAX_FROM_SERVER) {
            return self.fail(error.into());
        }
        while !self.is_closed() && self.take(now) {}
    }

    /// The connection is gone.
    pub fn handle_close(&mut self) {
        match self.stage {
            Stage::Closed => {}
            Stage::Greeted => self.fail(ClientError::Unanswered),
            // What it does with a client that it does not know.
            Stage::Asked => self.fail(ClientError::Hangup(
                " on the parameters: it may want a user and a password, which linerate does not \
                 send",
            )),
            _ => self.fail(ClientError::Hangup("")),
        }
    }

    /// Looks at the deadline.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let what = match self.stage {
            Stage::Closed => return,
            Stage::Greeted => "the server did not answer",
            Stage::Asked => "the server did not answer the parameters",
            Stage::Opening => "the server did not take the data connections",
            Stage::Running => "the test did not end",
            Stage::Ending | Stage::Reporting | Stage::Results | Stage::Display => {
                "the server's results did not come"
            }
            Stage::Error => "the server's error did not come",
        };
        self.fail(ClientError::Timeout(what));
    }

    /// When [`Client::handle_timeout`] is due; `None` at the end.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadline
    }

    /// Bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    /// What to do.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Whether nothing more will happen. What is to be sent is still to be sent.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Ends the test.
    pub fn end(&mut self, now: Duration) {
        if self.stage == Stage::Running {
            self.say(State::TestEnd);
            self.enter(Stage::Ending, Some(now + RESULTS_TIMEOUT));
        }
    }

    /// Gives this end's account, after [`ClientEvent::Report`].
    pub fn report(&mut self, now: Duration, results: &Results) {
        if self.stage == Stage::Reporting {
            self.out.push_back(framed(&results.to_json()));
            self.enter(Stage::Results, Some(now + RESULTS_TIMEOUT));
        }
    }

    /// Gives up.
    pub fn terminate(&mut self) {
        if !self.is_closed() {
            self.say(State::ClientTerminate);
            self.enter(Stage::Closed, None);
        }
    }

    fn take(&mut self, now: Duration) -> bool {
        match self.stage {
            Stage::Results => self.take_results(now),
            Stage::Error => self.take_error(),
            // What comes before this end has spoken waits for its turn.
            Stage::Reporting | Stage::Closed => false,
            _ => match self.reader.byte() {
                Some(byte) => {
                    self.take_state(now, byte);
                    true
                }
                None => false,
            },
        }
    }

    fn take_state(&mut self, now: Duration, byte: u8) {
        match (State::from_byte(byte), self.stage) {
            (Some(State::ParamExchange), Stage::Greeted) => {
                self.out.push_back(framed(&self.params.to_json()));
                self.enter(Stage::Asked, Some(now + PARAMS_TIMEOUT));
            }
            (Some(State::CreateStreams), Stage::Asked) => {
                self.enter(Stage::Opening, Some(now + OPENING_TIMEOUT));
                self.events.push_back(ClientEvent::Open);
            }
            (Some(State::TestStart), Stage::Opening) => {}
            (Some(State::TestRunning), Stage::Opening) => {
                let deadline = self.params.seconds();
                let deadline = deadline.map(|s| now + Duration::from_secs_f64(s) + GRACE);
                self.enter(Stage::Running, deadline);
                self.events.push_back(ClientEvent::Begin);
            }
            (Some(State::ExchangeResults), Stage::Ending) => {
                self.enter(Stage::Reporting, Some(now + RESULTS_TIMEOUT));
                self.events.push_back(ClientEvent::Report);
            }
            (Some(State::DisplayResults), Stage::Display) => {
                self.say(State::IperfDone);
                self.enter(Stage::Closed, None);
            }
            (Some(State::ServerError), _) => {
                self.enter(Stage::Error, Some(now + RESULTS_TIMEOUT));
            }
            (Some(State::AccessDenied), _) => self.fail(ClientError::Denied),
            (Some(State::ServerTerminate), _) => self.fail(ClientError::Terminated),
            _ => self.fail(ClientError::OutOfTurn(byte)),
        }
    }

    fn take_results(&mut self, now: Duration) -> bool {
        let json = match self.reader.json(Results::MAX_FROM_SERVER) {
            Ok(Some(json)) => json,
            Ok(None) => return false,
            Err(error) => {
                self.fail(error.into());
                return false;
            }
        };
        match Results::parse(&json, self.params.flows()) {
            Ok(results) => {
                self.enter(Stage::Display, Some(now + RESULTS_TIMEOUT));
                self.events
                    .push_back(ClientEvent::Results(Box::new(results)));
            }
            Err(error) => self.fail(ClientError::Results(error)),
        }
        true
    }

    fn take_error(&mut self) -> bool {
        let Some((code, _)) = self.reader.numbers() else {
            return false;
        };
        self.fail(ClientError::Server(ErrorCode(code)));
        true
    }

    fn say(&mut self, state: State) {
        self.out.push_back(vec![state.byte()]);
    }

    fn enter(&mut self, stage: Stage, deadline: Option<Duration>) {
        self.stage = stage;
        self.deadline = deadline;
    }

    fn fail(&mut self, error: ClientError) {
        self.enter(Stage::Closed, None);
        self.events.push_back(ClientEvent::Failed(error));
    }
}
