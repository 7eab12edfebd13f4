//! The messages of one byte on the control connection.

use super::ACCESS_DENIED;

/// A message of one byte. Any byte can arrive; the constants are those that iperf3 sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State(pub u8);

impl State {
    /// Set up the timers.
    pub const TEST_START: Self = Self(1);
    /// Send and receive.
    pub const TEST_RUNNING: Self = Self(2);
    /// The client has ended the test.
    pub const TEST_END: Self = Self(4);
    /// Send the parameters.
    pub const PARAM_EXCHANGE: Self = Self(9);
    /// Open the data connections.
    pub const CREATE_STREAMS: Self = Self(10);
    /// The server ends.
    pub const SERVER_TERMINATE: Self = Self(11);
    /// The client gives up.
    pub const CLIENT_TERMINATE: Self = Self(12);
    /// Send your results, then take mine.
    pub const EXCHANGE_RESULTS: Self = Self(13);
    /// All results are exchanged.
    pub const DISPLAY_RESULTS: Self = Self(14);
    /// Goodbye.
    pub const IPERF_DONE: Self = Self(16);
    /// The server is busy, or has no place for this connection.
    pub const ACCESS_DENIED: Self = Self(ACCESS_DENIED);
    /// Two numbers follow: iperf3's error, and errno.
    pub const SERVER_ERROR: Self = Self(0xfe);
}
