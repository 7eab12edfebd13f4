//! The tests that have messages of their own, with other layouts and the same meaning: all tests of
//! older clients, and a few of newer ones.

use super::answer::{Ready, Results};
use super::request::{
    DataTest, Message, Refusal, Role, Transport, buffer, exchanged, family, length, message, port,
};
use super::{Block, Width};

/// A test with messages of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Classic {
    /// `TCP_STREAM`, and `TCP_SENDFILE` of every version.
    TcpStream,
    /// `TCP_RR`.
    TcpRr,
    /// `UDP_STREAM`.
    UdpStream,
    /// `UDP_RR`.
    UdpRr,
    /// `TCP_CRR`.
    TcpCrr,
    /// `TCP_MAERTS`.
    TcpMaerts,
    /// `TCP_CC`, of every version.
    TcpCc,
}

/// The tests: the type of the request (the types of response and results follow it), what the
/// endpoint does, and over which transport.
const TESTS: [(Classic, i32, Role, Transport); 7] = [
    (Classic::TcpStream, 10, Role::Receive, Transport::Tcp),
    (Classic::TcpRr, 13, Role::Exchange, Transport::Tcp),
    (Classic::UdpStream, 16, Role::Receive, Transport::Udp),
    (Classic::UdpRr, 19, Role::Exchange, Transport::Udp),
    (Classic::TcpCrr, 34, Role::ConnectExchange, Transport::Tcp),
    (Classic::TcpMaerts, 94, Role::Send, Transport::Tcp),
    (Classic::TcpCc, 300, Role::Connect, Transport::Tcp),
];

impl Classic {
    /// The test that a request of this type asks for.
    pub fn of_request(kind: i32) -> Option<Self> {
        let found = TESTS.iter().find(|(_, request, ..)| *request == kind);
        found.map(|(classic, ..)| *classic)
    }

    /// The type of its request.
    pub fn request(self) -> i32 {
        self.entry().1
    }

    fn entry(self) -> (Self, i32, Role, Transport) {
        let found = TESTS.into_iter().find(|(classic, ..)| *classic == self);
        found.expect("each test is in the table")
    }

    pub(super) fn parse(self, block: &Block) -> Result<DataTest, Refusal> {
        let (_, _, role, transport) = self.entry();
        let mut test = DataTest::plain(Message::Classic(self), role, transport);
        // The words of the layout that have the length and the port; the family follows the port.
        let (at_length, at_port) = match self {
            Self::TcpStream | Self::TcpMaerts => {
                test.send_buffer = buffer(block.int(0))?;
                test.receive_buffer = buffer(block.int(1))?;
                let size = message("message", block.int(2))?;
                (test.send_bytes, test.receive_bytes) = (size, size);
                test.nodelay = block.int(5) != 0;
                test.measure_cpu = block.int(6) != 0;
                (8, 13)
            }
            Self::UdpStream => {
                test.receive_buffer = buffer(block.int(0))?;
                test.receive_bytes = message("datagram", block.int(1))?;
                test.measure_cpu = block.int(6) != 0;
                (8, 11)
            }
            Self::TcpRr | Self::UdpRr | Self::TcpCrr | Self::TcpCc => {
                test.receive_buffer = buffer(block.int(0))?;
                test.send_buffer = buffer(block.int(1))?;
                if self != Self::TcpCc {
                    test.request_bytes = exchanged("request", block.int(6))?;
                    test.response_bytes = exchanged("response", block.int(7))?;
                }
                test.nodelay = block.int(8) != 0;
                test.measure_cpu = block.int(9) != 0;
                (11, 14)
            }
        };
        test.length = length(block.int(at_length))?;
        test.port = port(block.int(at_port))?;
        test.family = family(block.int(at_port + 1))?;
        Ok(test)
    }

    pub(super) fn ready(self, width: Width, ready: &Ready) -> Block {
        let (receive, send) = (ready.receive_buffer, ready.send_buffer);
        let (port, length) = (u32::from(ready.port), ready.length);
        let rate = ready.cpu_rate.to_bits();
        let (nodelay, cpu) = (u32::from(ready.nodelay), u32::from(ready.measure_cpu));
        let kind = self.request() + 1;
        match self {
            Self::TcpStream | Self::TcpMaerts => {
                let size = match self {
                    Self::TcpStream => ready.receive_bytes,
                    _ => ready.send_bytes,
                };
                let words = [receive, size, nodelay, cpu, length, send, port, rate];
                Block::of_words(width, kind, &words)
            }
            Self::UdpStream => {
                let words = [receive, send, cpu, length, port, rate];
                Block::of_words(width, kind, &words)
            }
            Self::TcpRr | Self::UdpRr | Self::TcpCrr | Self::TcpCc => {
                let words = [receive, nodelay, cpu, length, send, port, rate];
                Block::of_words(width, kind, &words)
            }
        }
    }

    pub(super) fn results(self, width: Width, results: &Results) -> Block {
        let kind = self.request() + 2;
        let elapsed = results.seconds.to_bits();
        // Without a figure, the -1 that clients know; they work out the service demand themselves.
        let cpu = results.cpu.map_or(-1.0, |cpu| cpu.busy).to_bits();
        let demand = (-1.0_f32).to_bits();
        let (method, cpus) = (results.cpu_method(), results.cpus);
        let halves = |bytes: u64| {
            let bits = (bytes as f64).to_bits();
            [(bits >> 32) as u32, bits as u32]
        };
        match self {
            Self::TcpStream | Self::TcpMaerts => {
                let (bytes, calls) = match self {
                    Self::TcpStream => (results.received_bytes, results.receive_calls),
                    _ => (results.sent_bytes, results.send_calls),
                };
                let [high, low] = halves(bytes);
                let ends = (results.receive_buffer, results.send_buffer);
                let words = [high, low, calls, elapsed, cpu, demand, method, cpus, ends.0, ends.1];
                // The other direction's results end before the buffers.
                let fields = if self == Self::TcpStream { 10 } else { 8 };
                Block::of_words(width, kind, &words[..fields])
            }
            Self::UdpStream => {
                let bytes = results.received_bytes as u32;
                let words = [results.receive_calls, bytes, elapsed, cpu, method, cpus];
                Block::of_words(width, kind, &words)
            }
            Self::TcpRr | Self::UdpRr | Self::TcpCrr | Self::TcpCc => {
                let (bytes, calls) = (results.received_bytes as u32, results.receive_calls);
                let answered = results.transactions;
                let words = [bytes, calls, answered, elapsed, cpu, demand, method, cpus];
                Block::of_words(width, kind, &words)
            }
        }
    }
}
