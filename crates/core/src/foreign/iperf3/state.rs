//! The single bytes of the control connection.

/// What one end tells the other in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Set up the timers.
    TestStart,
    /// Send and receive.
    TestRunning,
    /// The client has ended the test.
    TestEnd,
    /// Send the parameters.
    ParamExchange,
    /// Open the data connections.
    CreateStreams,
    /// The server ends.
    ServerTerminate,
    /// The client gives up.
    ClientTerminate,
    /// Send your results, then take mine.
    ExchangeResults,
    /// All is said.
    DisplayResults,
    /// Goodbye.
    IperfDone,
    /// Busy, or no place for this connection.
    AccessDenied,
    /// Two numbers follow: iperf3's error, and errno.
    ServerError,
}

const BYTES: [(State, u8); 12] = [
    (State::TestStart, 1),
    (State::TestRunning, 2),
    (State::TestEnd, 4),
    (State::ParamExchange, 9),
    (State::CreateStreams, 10),
    (State::ServerTerminate, 11),
    (State::ClientTerminate, 12),
    (State::ExchangeResults, 13),
    (State::DisplayResults, 14),
    (State::IperfDone, 16),
    (State::AccessDenied, super::ACCESS_DENIED),
    (State::ServerError, 0xfe),
];

impl State {
    /// As on the wire.
    pub fn byte(self) -> u8 {
        let known = BYTES.iter().find(|(state, _)| *state == self);
        // Every state is in the table, which its test holds.
        known.map_or(0, |(_, byte)| *byte)
    }

    /// The state of a byte; `None` for one that is never sent.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let known = BYTES.iter().find(|(_, known)| *known == byte);
        known.map(|(state, _)| *state)
    }
}
