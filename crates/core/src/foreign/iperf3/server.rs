//! The server's end of the control connection.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

use super::reader::{ReadError, Reader, framed};
use super::{
    ErrorCode, GRACE, PARAMS_TIMEOUT, Params, ParamsError, RESULTS_TIMEOUT, Results,
    STREAM_TIMEOUT, State,
};

/// What the server's engine is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// The client asks for this test: [`Server::accept`] or [`Server::refuse`].
    Asked(Box<Params>),
    /// The test has begun: send and receive.
    Begin,
    /// The client has ended it: stop, then [`Server::report`].
    End,
    /// The client's account.
    Results(Box<Results>),
    /// It is over: as planned, or for a reason.
    Closed(Option<ServerError>),
}

/// Why a test ended before its time, or never began.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerError {
    /// Bytes that belong to nothing.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The parameters make no test.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// Results that are none.
    #[error("{0}")]
    Results(String),
    /// A state byte that has no place here.
    #[error("the client sent {0}, which has no place here")]
    OutOfTurn(u8),
    /// The client has given up.
    #[error("the client has given up")]
    Terminated,
    /// This end has refused, or given up.
    #[error("{0}")]
    Refused(String),
    /// Something took too long.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The connection ended.
    #[error("the client closed the connection")]
    Hangup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// For the parameters.
    Params,
    /// For the engine's answer to them.
    Asked,
    /// For the data connections.
    Streams,
    Running,
    /// For the engine's account.
    Ending,
    /// For the client's.
    Results,
    /// For the goodbye.
    Goodbye,
    Closed,
}

/// One client's control connection, from its cookie on.
#[derive(Debug)]
pub struct Server {
    stage: Stage,
    reader: Reader,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<ServerEvent>,
    deadline: Option<Duration>,
    flows: u32,
    seconds: Option<f64>,
    /// The client's.
    version: Option<String>,
    /// The longest that the owner lets a test take.
    longest: Duration,
    results: Vec<u8>,
}

impl Server {
    /// A client whose cookie has come; a test takes `longest` at most.
    pub fn new(now: Duration, longest: Duration) -> Self {
        Self {
            stage: Stage::Params,
            reader: Reader::default(),
            out: VecDeque::from([vec![State::ParamExchange.byte()]]),
            events: VecDeque::new(),
            deadline: Some(now + PARAMS_TIMEOUT),
            flows: 0,
            seconds: None,
            version: None,
            longest,
            results: Vec::new(),
        }
    }

    /// Bytes of the client.
    pub fn handle_input(&mut self, now: Duration, bytes: &[u8]) {
        if self.is_closed() {
            return;
        }
        let wanted = match self.stage {
            Stage::Results => 4 + Results::MAX_FROM_CLIENT,
            _ => 4 + Params::MAX_BYTES,
        };
        if let Err(error) = self.reader.push(bytes, wanted) {
            return self.fail(ErrorCode::MESSAGE, error.into());
        }
        while !self.is_closed() && self.take(now) {}
    }

    /// The connection is gone.
    pub fn handle_close(&mut self) {
        match self.stage {
            Stage::Closed => {}
            // The client has all that it wanted.
            Stage::Goodbye => self.close(None),
            _ => self.close(Some(ServerError::Hangup)),
        }
    }

    /// Looks at the deadline.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let (code, what) = match self.stage {
            Stage::Closed => return,
            Stage::Goodbye => return self.close(None),
            Stage::Params | Stage::Asked => (ErrorCode::NO_MESSAGE, "the parameters did not come"),
            Stage::Streams => (ErrorCode::STREAM, "the data connections did not come"),
            Stage::Running | Stage::Ending => (ErrorCode::EXPIRED, "the test did not end"),
            Stage::Results => (ErrorCode::NO_MESSAGE, "the client's results did not come"),
        };
        self.fail(code, ServerError::Timeout(what));
    }

    /// When [`Server::handle_timeout`] is due; `None` while this end is the one that is waited for,
    /// and at the end.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadline
    }

    /// Bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    /// What to do.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Whether nothing more will happen. What is to be sent is still to be sent.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Takes the test that was asked for: the client may open its streams.
    pub fn accept(&mut self, now: Duration) {
        if self.stage == Stage::Asked {
            self.say(State::CreateStreams);
            self.enter(Stage::Streams, Some(now + STREAM_TIMEOUT));
        }
    }

    /// One of the streams has come.
    pub fn stream_came(&mut self, now: Duration) {
        if self.stage == Stage::Streams {
            self.deadline = Some(now + STREAM_TIMEOUT);
        }
    }

    /// All streams are there: the test begins.
    pub fn begin(&mut self, now: Duration) {
        if self.stage != Stage::Streams {
            return;
        }
        self.say(State::TestStart);
        self.say(State::TestRunning);
        let planned = self.seconds.map(Duration::from_secs_f64);
        let time = planned.map_or(self.longest, |time| time.min(self.longest));
        // A client may take its time to end a test, but not the owner's.
        let until = (time + GRACE).min(self.longest + PAST_LIMIT);
        self.enter(Stage::Running, Some(now + until));
        self.events.push_back(ServerEvent::Begin);
    }

    /// Gives this end's account, after [`ServerEvent::End`].
    pub fn report(&mut self, now: Duration, results: &Results) {
        if self.stage == Stage::Ending {
            self.results = results.to_json();
            self.say(State::ExchangeResults);
            self.enter(Stage::Results, Some(now + RESULTS_TIMEOUT));
        }
    }

    /// Ends it with an error that the client prints.
    pub fn refuse(&mut self, code: ErrorCode, why: impl Into<String>) {
        if !self.is_closed() {
            self.fail(code, ServerError::Refused(why.into()));
        }
    }

    /// The owner stops the endpoint.
    pub fn terminate(&mut self) {
        if !self.is_closed() {
            self.say(State::ServerTerminate);
            self.close(Some(ServerError::Refused(
                "the endpoint is shutting down".into(),
            )));
        }
    }

    /// Takes one thing that has come; false if it is not whole yet, or has to wait.
    fn take(&mut self, now: Duration) -> bool {
        match self.stage {
            Stage::Params => self.take_params(),
            Stage::Results => self.take_results(now),
            Stage::Asked | Stage::Ending | Stage::Closed => false,
            Stage::Streams | Stage::Running | Stage::Goodbye => match self.reader.byte() {
                Some(byte) => {
                    self.take_state(now, byte);
                    true
                }
                None => false,
            },
        }
    }

    fn take_params(&mut self) -> bool {
        let json = match self.reader.json(Params::MAX_BYTES) {
            Ok(Some(json)) => json,
            Ok(None) => return false,
            Err(error) => {
                self.fail(ErrorCode::PARAMS, error.into());
                return false;
            }
        };
        match Params::parse(&json) {
            Ok(params) => {
                self.flows = params.flows();
                self.seconds = params.seconds();
                self.version.clone_from(&params.version);
                self.enter(Stage::Asked, None);
                self.events.push_back(ServerEvent::Asked(Box::new(params)));
            }
            Err(error) => self.fail(error.code, error.into()),
        }
        true
    }

    fn take_results(&mut self, now: Duration) -> bool {
        let json = match self.reader.json(Results::MAX_FROM_CLIENT) {
            Ok(Some(json)) => json,
            Ok(None) => return false,
            Err(error) => {
                self.fail(ErrorCode::MESSAGE, error.into());
                return false;
            }
        };
        match Results::parse(&json, self.flows) {
            Ok(results) => {
                self.out
                    .push_back(framed(&std::mem::take(&mut self.results)));
                self.say(State::DisplayResults);
                self.enter(Stage::Goodbye, Some(now + RESULTS_TIMEOUT));
                self.events
                    .push_back(ServerEvent::Results(Box::new(results)));
            }
            Err(error) => self.fail(ErrorCode::MESSAGE, ServerError::Results(error)),
        }
        true
    }

    fn take_state(&mut self, now: Duration, byte: u8) {
        match (State::from_byte(byte), self.stage) {
            (Some(State::TestEnd), Stage::Running) => {
                self.enter(Stage::Ending, Some(now + GRACE));
                self.events.push_back(ServerEvent::End);
            }
            (Some(State::IperfDone), Stage::Goodbye) => self.close(None),
            // A client that fails by itself says goodbye in any state.
            (Some(State::ClientTerminate | State::IperfDone), _) => {
                self.close(Some(ServerError::Terminated));
            }
            _ => self.fail(ErrorCode::MESSAGE, ServerError::OutOfTurn(byte)),
        }
    }

    fn say(&mut self, state: State) {
        self.out.push_back(vec![state.byte()]);
    }

    fn enter(&mut self, stage: Stage, deadline: Option<Duration>) {
        self.stage = stage;
        self.deadline = deadline;
    }

    fn fail(&mut self, code: ErrorCode, error: ServerError) {
        let code = code.known_to(self.version.as_deref());
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend_from_slice(&code.0.to_be_bytes());
        bytes.extend_from_slice(&0i32.to_be_bytes());
        self.out.push_back(bytes);
        self.close(Some(error));
    }

    fn close(&mut self, error: Option<ServerError>) {
        self.enter(Stage::Closed, None);
        self.events.push_back(ServerEvent::Closed(error));
    }
}

/// Over the owner's longest test, for what is in flight at its end.
const PAST_LIMIT: Duration = Duration::from_secs(4);
