//! The server's state machine of the control connection.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

use super::{
    ErrorCode, GRACE, PARAMS_TIMEOUT, Params, RESULTS_TIMEOUT, Reader, Results, STREAM_TIMEOUT,
    State, framed,
};

/// An action for the server's engine.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// The client asks for this test: [`Server::accept`] or [`Server::refuse`].
    Asked(Box<Params>),
    /// The test has begun: send and receive.
    Begin,
    /// The client has ended it: stop, then [`Server::report`].
    End,
    /// The client's results.
    Results(Box<Results>),
    /// The test is over: as planned, or with an error.
    Closed(Option<ServerError>),
}

/// Why a test failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerError {
    /// What the client sent cannot be read, or this end refused the test or gave it up.
    #[error("{1}")]
    Refused(ErrorCode, String),
    /// The client sent a state byte that is not allowed now.
    #[error("the client sent {0}, which is unexpected here")]
    OutOfTurn(u8),
    /// The client has given up.
    #[error("the client has given up")]
    Terminated,
    /// A deadline has passed.
    #[error("timed out: {1}")]
    Timeout(ErrorCode, &'static str),
    /// The connection ended too early.
    #[error("the client closed the connection")]
    Hangup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerStage {
    /// The client is to send the parameters.
    Params,
    /// The engine is to accept or refuse them.
    Asked,
    /// The client is to open the data connections.
    Streams,
    Running,
    /// The engine is to give its results.
    Ending,
    /// The client is to send its results.
    Results,
    /// The client is to say goodbye.
    Goodbye,
    Closed,
}

/// One client's control connection, from its cookie on.
#[derive(Debug)]
pub struct Server {
    stage: ServerStage,
    reader: Reader,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<ServerEvent>,
    deadline: Option<Duration>,
    flows: u32,
    seconds: Option<f64>,
    /// The client's version.
    version: Option<String>,
    /// Longest test that the owner allows.
    longest: Duration,
    results: Vec<u8>,
}

impl Server {
    /// Begins with a client whose cookie has been read; `longest` is the longest test that the
    /// owner allows.
    pub fn new(now: Duration, longest: Duration) -> Self {
        Self {
            stage: ServerStage::Params,
            reader: Reader::default(),
            out: VecDeque::from([vec![State::PARAM_EXCHANGE.0]]),
            events: VecDeque::new(),
            deadline: Some(now + PARAMS_TIMEOUT),
            flows: 0,
            seconds: None,
            version: None,
            longest,
            results: Vec::new(),
        }
    }

    /// Takes bytes from the client.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.is_closed() {
            return;
        }
        let wanted = match self.stage {
            ServerStage::Results => 4 + Results::MAX_FROM_CLIENT,
            _ => 4 + Params::MAX_BYTES,
        };
        if let Err(error) = self.reader.push(bytes, wanted) {
            return self.fail(ServerError::Refused(ErrorCode::MESSAGE, error));
        }
        while !self.is_closed() {
            match self.take(now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.fail(error),
            }
        }
    }

    /// The client closed the connection, or it is lost.
    pub fn handle_close(&mut self) {
        match self.stage {
            ServerStage::Closed => {}
            // The client has all results.
            ServerStage::Goodbye => self.close(None),
            _ => self.close(Some(ServerError::Hangup)),
        }
    }

    /// Checks the deadline.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let (code, what) = match self.stage {
            ServerStage::Closed => return,
            ServerStage::Goodbye => return self.close(None),
            ServerStage::Params | ServerStage::Asked => {
                (ErrorCode::NO_MESSAGE, "the parameters did not come")
            }
            ServerStage::Streams => (ErrorCode::STREAM, "the data connections did not come"),
            ServerStage::Running | ServerStage::Ending => {
                (ErrorCode::EXPIRED, "the test did not end")
            }
            ServerStage::Results => (ErrorCode::NO_MESSAGE, "the client's results did not come"),
        };
        self.fail(ServerError::Timeout(code, what));
    }

    /// When [`Server::handle_timeout`] is due; `None` while this end is the one that is waited for,
    /// and at the end.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadline
    }

    /// The next bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Whether the test is over. Bytes may remain to be sent.
    pub fn is_closed(&self) -> bool {
        self.stage == ServerStage::Closed
    }

    /// Accepts the test: the client may open its streams.
    pub fn accept(&mut self, now: Duration) {
        if self.stage == ServerStage::Asked {
            self.say(State::CREATE_STREAMS);
            self.enter(ServerStage::Streams, Some(now + STREAM_TIMEOUT));
        }
    }

    /// One of the streams has come.
    pub fn stream_came(&mut self, now: Duration) {
        if self.stage == ServerStage::Streams {
            self.deadline = Some(now + STREAM_TIMEOUT);
        }
    }

    /// All streams are there: the test begins.
    pub fn begin(&mut self, now: Duration) {
        if self.stage != ServerStage::Streams {
            return;
        }
        self.say(State::TEST_START);
        self.say(State::TEST_RUNNING);
        let planned = self.seconds.map(Duration::from_secs_f64);
        let time = planned.map_or(self.longest, |time| time.min(self.longest));
        // A client may take its time to end a test, but not the owner's.
        let until = (time + GRACE).min(self.longest + PAST_LIMIT);
        self.enter(ServerStage::Running, Some(now + until));
        self.events.push_back(ServerEvent::Begin);
    }

    /// Sends this end's results, after [`ServerEvent::End`].
    pub fn report(&mut self, now: Duration, results: &Results) {
        if self.stage == ServerStage::Ending {
            self.results = results.to_json();
            self.say(State::EXCHANGE_RESULTS);
            self.enter(ServerStage::Results, Some(now + RESULTS_TIMEOUT));
        }
    }

    /// Ends the test with an error that the client prints.
    pub fn refuse(&mut self, code: ErrorCode, why: impl Into<String>) {
        if !self.is_closed() {
            self.fail(ServerError::Refused(code, why.into()));
        }
    }

    /// Ends the test because the owner stops the endpoint.
    pub fn terminate(&mut self) {
        if !self.is_closed() {
            self.say(State::SERVER_TERMINATE);
            let why = "the endpoint is shutting down".to_owned();
            self.close(Some(ServerError::Refused(ErrorCode::SERVER_TERMINATED, why)));
        }
    }

    /// Takes one message; false if none is whole, or if it has to wait.
    fn take(&mut self, now: Duration) -> Result<bool, ServerError> {
        match self.stage {
            ServerStage::Params => {
                let Some(json) = self.json(Params::MAX_BYTES, ErrorCode::PARAMS)? else {
                    return Ok(false);
                };
                let params = Params::parse(&json)?;
                self.flows = params.flows();
                self.seconds = params.seconds();
                self.version.clone_from(&params.version);
                self.enter(ServerStage::Asked, None);
                self.events.push_back(ServerEvent::Asked(Box::new(params)));
            }
            ServerStage::Results => {
                let Some(json) = self.json(Results::MAX_FROM_CLIENT, ErrorCode::MESSAGE)? else {
                    return Ok(false);
                };
                let results = Results::parse(&json, self.flows)
                    .map_err(|why| ServerError::Refused(ErrorCode::MESSAGE, why))?;
                self.out.push_back(framed(&std::mem::take(&mut self.results)));
                self.say(State::DISPLAY_RESULTS);
                self.enter(ServerStage::Goodbye, Some(now + RESULTS_TIMEOUT));
                self.events.push_back(ServerEvent::Results(Box::new(results)));
            }
            ServerStage::Asked | ServerStage::Ending | ServerStage::Closed => return Ok(false),
            ServerStage::Streams | ServerStage::Running | ServerStage::Goodbye => {
                let Some(byte) = self.reader.byte() else {
                    return Ok(false);
                };
                self.take_state(now, State(byte))?;
            }
        }
        Ok(true)
    }

    fn json(&mut self, limit: usize, code: ErrorCode) -> Result<Option<Vec<u8>>, ServerError> {
        self.reader.json(limit).map_err(|why| ServerError::Refused(code, why))
    }

    fn take_state(&mut self, now: Duration, state: State) -> Result<(), ServerError> {
        match (state, self.stage) {
            (State::TEST_END, ServerStage::Running) => {
                self.enter(ServerStage::Ending, Some(now + GRACE));
                self.events.push_back(ServerEvent::End);
            }
            (State::IPERF_DONE, ServerStage::Goodbye) => self.close(None),
            // A client that fails says goodbye at any time.
            (State::CLIENT_TERMINATE | State::IPERF_DONE, _) => {
                self.close(Some(ServerError::Terminated));
            }
            (State(byte), _) => return Err(ServerError::OutOfTurn(byte)),
        }
        Ok(())
    }

    fn say(&mut self, state: State) {
        self.out.push_back(vec![state.0]);
    }

    fn enter(&mut self, stage: ServerStage, deadline: Option<Duration>) {
        self.stage = stage;
        self.deadline = deadline;
    }

    fn fail(&mut self, error: ServerError) {
        let code = match error {
            ServerError::Refused(code, _) | ServerError::Timeout(code, _) => code,
            _ => ErrorCode::MESSAGE,
        }
        .known_to(self.version.as_deref());
        let mut bytes = vec![State::SERVER_ERROR.0];
        bytes.extend_from_slice(&code.0.to_be_bytes());
        bytes.extend_from_slice(&0i32.to_be_bytes());
        self.out.push_back(bytes);
        self.close(Some(error));
    }

    fn close(&mut self, error: Option<ServerError>) {
        self.enter(ServerStage::Closed, None);
        self.events.push_back(ServerEvent::Closed(error));
    }
}

/// Time beyond the owner's longest test, for what is in flight at its end.
const PAST_LIMIT: Duration = Duration::from_secs(4);
