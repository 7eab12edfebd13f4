//! The client's state machine of the control connection.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

use super::{
    Cookie, ErrorCode, GRACE, PARAMS_TIMEOUT, Params, RESULTS_TIMEOUT, Reader, Results, State,
    framed,
};

/// Longest time from the parameters to the start of the test: a server waits no longer for the
/// streams.
const OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// An action for the client's engine.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// Open the data connections.
    Open,
    /// Send and receive, until [`Client::end`].
    Begin,
    /// The server has stopped and waits for this end's results: [`Client::report`].
    Report,
    /// The server's results; the test is over.
    Results(Box<Results>),
    /// The test failed.
    Failed(ClientError),
}

/// Why a test failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The server sent bytes that are not part of the protocol.
    #[error("{0}")]
    Read(String),
    /// The server sent results that cannot be read.
    #[error("the server sent {0}")]
    Results(String),
    /// The server has another client.
    #[error("the iperf3 server is busy with another client")]
    Denied,
    /// The connection ended before the server sent anything: it is between two clients.
    #[error("the iperf3 server closed the connection without an answer")]
    Unanswered,
    /// The server refuses the test.
    #[error("the iperf3 server refuses: {} (error {})", .0.words(), .0.0)]
    Server(ErrorCode),
    /// The server was stopped.
    #[error("the iperf3 server was stopped")]
    Terminated,
    /// The server sent a state byte that is not allowed now.
    #[error("the server sent {0}, unexpected here: it is not an iperf3 server")]
    OutOfTurn(u8),
    /// A deadline has passed.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The connection ended too early.
    #[error("the iperf3 server closed the connection{0}")]
    Hangup(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStage {
    /// The server is to ask for the parameters.
    Greeted,
    /// The server is to answer the parameters.
    Asked,
    /// The server is to take all data connections.
    Opening,
    Running,
    /// The server is to stop.
    Ending,
    /// The engine is to give its results.
    Reporting,
    /// The server is to send its results.
    Results,
    /// The server is to end the exchange.
    Display,
    /// The server is to send the two numbers of an error.
    Error,
    Closed,
}

/// The control connection of one test.
#[derive(Debug)]
pub struct Client {
    stage: ClientStage,
    reader: Reader,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<ClientEvent>,
    deadline: Option<Duration>,
    params: Params,
}

impl Client {
    /// Begins a control connection with its cookie.
    pub fn new(now: Duration, cookie: Cookie, params: Params) -> Self {
        Self {
            stage: ClientStage::Greeted,
            reader: Reader::default(),
            out: VecDeque::from([cookie.0.to_vec()]),
            events: VecDeque::new(),
            deadline: Some(now + PARAMS_TIMEOUT),
            params,
        }
    }

    /// Takes bytes from the server.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.is_closed() {
            return;
        }
        if let Err(error) = self.reader.push(bytes, 4 + Results::MAX_FROM_SERVER) {
            return self.fail(ClientError::Read(error));
        }
        while !self.is_closed() {
            match self.take(now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.fail(error),
            }
        }
    }

    /// The server closed the connection, or it is lost.
    pub fn handle_close(&mut self) {
        match self.stage {
            ClientStage::Closed => {}
            ClientStage::Greeted => self.fail(ClientError::Unanswered),
            // A server does this to a client that it does not authorise.
            ClientStage::Asked => self.fail(ClientError::Hangup(
                " on the parameters: it may want a user and a password, which linerate does not \
                 send",
            )),
            _ => self.fail(ClientError::Hangup("")),
        }
    }

    /// Checks the deadline.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let what = match self.stage {
            ClientStage::Closed => return,
            ClientStage::Greeted => "the server did not answer",
            ClientStage::Asked => "the server did not answer the parameters",
            ClientStage::Opening => "the server did not take the data connections",
            ClientStage::Running => "the test did not end",
            ClientStage::Ending
            | ClientStage::Reporting
            | ClientStage::Results
            | ClientStage::Display => "the server's results did not come",
            ClientStage::Error => "the server's error did not come",
        };
        self.fail(ClientError::Timeout(what));
    }

    /// When [`Client::handle_timeout`] is due; `None` without a deadline.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadline
    }

    /// The next bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Whether the test is over. Bytes may remain to be sent.
    pub fn is_closed(&self) -> bool {
        self.stage == ClientStage::Closed
    }

    /// Ends the test.
    pub fn end(&mut self, now: Duration) {
        if self.stage == ClientStage::Running {
            self.say(State::TEST_END);
            self.enter(ClientStage::Ending, Some(now + RESULTS_TIMEOUT));
        }
    }

    /// Sends this end's results, after [`ClientEvent::Report`].
    pub fn report(&mut self, now: Duration, results: &Results) {
        if self.stage == ClientStage::Reporting {
            self.out.push_back(framed(&results.to_json()));
            self.enter(ClientStage::Results, Some(now + RESULTS_TIMEOUT));
        }
    }

    /// Gives up.
    pub fn terminate(&mut self) {
        if !self.is_closed() {
            self.say(State::CLIENT_TERMINATE);
            self.enter(ClientStage::Closed, None);
        }
    }

    /// Takes one message; false if none is whole, or if it has to wait.
    fn take(&mut self, now: Duration) -> Result<bool, ClientError> {
        match self.stage {
            ClientStage::Results => {
                let json = self.reader.json(Results::MAX_FROM_SERVER);
                let Some(json) = json.map_err(ClientError::Read)? else {
                    return Ok(false);
                };
                let results =
                    Results::parse(&json, self.params.flows()).map_err(ClientError::Results)?;
                self.enter(ClientStage::Display, Some(now + RESULTS_TIMEOUT));
                self.events.push_back(ClientEvent::Results(Box::new(results)));
            }
            ClientStage::Error => {
                let Some((code, _)) = self.reader.numbers() else {
                    return Ok(false);
                };
                return Err(ClientError::Server(ErrorCode(code)));
            }
            // What comes before this end has sent its results waits for its turn.
            ClientStage::Reporting | ClientStage::Closed => return Ok(false),
            _ => {
                let Some(byte) = self.reader.byte() else {
                    return Ok(false);
                };
                self.take_state(now, State(byte))?;
            }
        }
        Ok(true)
    }

    fn take_state(&mut self, now: Duration, state: State) -> Result<(), ClientError> {
        match (state, self.stage) {
            (State::PARAM_EXCHANGE, ClientStage::Greeted) => {
                self.out.push_back(framed(&self.params.to_json()));
                self.enter(ClientStage::Asked, Some(now + PARAMS_TIMEOUT));
            }
            (State::CREATE_STREAMS, ClientStage::Asked) => {
                self.enter(ClientStage::Opening, Some(now + OPENING_TIMEOUT));
                self.events.push_back(ClientEvent::Open);
            }
            (State::TEST_START, ClientStage::Opening) => {}
            (State::TEST_RUNNING, ClientStage::Opening) => {
                let deadline =
                    self.params.seconds().map(|s| now + Duration::from_secs_f64(s) + GRACE);
                self.enter(ClientStage::Running, deadline);
                self.events.push_back(ClientEvent::Begin);
            }
            (State::EXCHANGE_RESULTS, ClientStage::Ending) => {
                self.enter(ClientStage::Reporting, Some(now + RESULTS_TIMEOUT));
                self.events.push_back(ClientEvent::Report);
            }
            (State::DISPLAY_RESULTS, ClientStage::Display) => {
                self.say(State::IPERF_DONE);
                self.enter(ClientStage::Closed, None);
            }
            (State::SERVER_ERROR, _) => self.enter(ClientStage::Error, Some(now + RESULTS_TIMEOUT)),
            (State::ACCESS_DENIED, _) => return Err(ClientError::Denied),
            (State::SERVER_TERMINATE, _) => return Err(ClientError::Terminated),
            (State(byte), _) => return Err(ClientError::OutOfTurn(byte)),
        }
        Ok(())
    }

    fn say(&mut self, state: State) {
        self.out.push_back(vec![state.0]);
    }

    fn enter(&mut self, stage: ClientStage, deadline: Option<Duration>) {
        self.stage = stage;
        self.deadline = deadline;
    }

    fn fail(&mut self, error: ClientError) {
        self.enter(ClientStage::Closed, None);
        self.events.push_back(ClientEvent::Failed(error));
    }
}
