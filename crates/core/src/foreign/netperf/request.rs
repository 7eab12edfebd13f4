//! The request for a test, checked against limits before anything is done.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::classic::Classic;
use super::{Block, Width, errno, kind};
use crate::foreign::Demand;
use crate::plan::MAX_MESSAGE;
use crate::session::message::Limits;
use crate::units::{BitRate, Family};

/// What the endpoint does in a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Reads to the end of the stream (`TCP_STREAM`, `UDP_STREAM`, `TCP_SENDFILE`).
    #[default]
    Receive,
    /// Sends for the time or the bytes (`TCP_MAERTS`).
    Send,
    /// Answers each request (`TCP_RR`, `UDP_RR`).
    Exchange,
    /// Answers one request on each connection (`TCP_CRR`).
    ConnectExchange,
    /// Takes connections and closes them (`TCP_CC`).
    Connect,
}

/// The transport of the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streams.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// When a test is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Length {
    /// After so many seconds, 1 to the owner's limit.
    Seconds(u32),
    /// After so many bytes, or transactions where there are some.
    Units(u32),
    /// When the client ends it, or at the owner's limit.
    #[default]
    Open,
}

/// The kind of the request, and of its answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Message {
    /// The message of almost all tests of newer clients.
    #[default]
    Omni,
    /// A message that only one test has.
    Classic(Classic),
}

/// A data test as a client asks for it, within limits. Sizes and directions are the endpoint's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataTest {
    /// The kind of the request.
    pub message: Message,
    /// What the endpoint does.
    pub role: Role,
    /// The transport of the data.
    pub transport: Transport,
    /// Address family of the data, if the client asks for one.
    pub family: Option<Family>,
    /// When it is over.
    pub length: Length,
    /// Bytes of each write, 1 to 64 MiB; `None`: the endpoint chooses.
    pub send_bytes: Option<u32>,
    /// Bytes of each read, or of each datagram.
    pub receive_bytes: Option<u32>,
    /// Bytes of each request; 0 unless the role has requests.
    pub request_bytes: u32,
    /// Bytes of each response; 0 unless the role has requests.
    pub response_bytes: u32,
    /// `SO_SNDBUF`, bytes as the application asks.
    pub send_buffer: Option<u32>,
    /// `SO_RCVBUF`, bytes as the application asks.
    pub receive_buffer: Option<u32>,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// Send the bytes without a copy.
    pub sendfile: bool,
    /// Report CPU time.
    pub measure_cpu: bool,
    /// Report the name of the congestion control.
    pub name_congestion: bool,
    /// Port that receives the data; 0: the endpoint chooses.
    pub port: u16,
    /// Address that receives the data, if it is not that of the control connection.
    pub address: Option<IpAddr>,
    /// Port to which the endpoint sends datagrams; 0 if they only answer.
    pub client_port: u16,
    /// Address to which the endpoint sends datagrams, as the words of the request; all zero: the
    /// client's own.
    pub client_address: [u32; 4],
    /// Sends in a burst and µs from one burst to the next, if the endpoint is to pace.
    pub burst: Option<(u32, u32)>,
    /// Traffic class of the endpoint's packets.
    pub traffic_class: Option<u8>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
}

/// A refused test: the errno for the client, and the reason for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The answer's second word.
    pub errno: i32,
    /// In words.
    pub reason: String,
}

fn refuse<T>(errno: i32, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(errno, reason))
}

impl Refusal {
    /// A refusal with this reason.
    pub fn new(errno: i32, reason: impl Into<String>) -> Self {
        Self { errno, reason: reason.into() }
    }
}

/// Flags of an OMNI request.
mod flag {
    pub(super) const NODELAY: u32 = 1;
    pub(super) const SENDFILE: u32 = 2;
    pub(super) const CONNECT: u32 = 4;
    pub(super) const MEASURE_CPU: u32 = 8;
    pub(super) const WANT_CONGESTION: u32 = 0x20;
}

/// Directions of an OMNI request.
const SENDS: u32 = 2;
const RECEIVES: u32 = 4;
/// Number of words before the texts of an OMNI request.
const TEXTS: usize = 38;
/// Largest datagram over IPv4 (RFC 768 with RFC 791).
const MAX_DATAGRAM: u32 = 65_507;
/// Largest socket buffer that is tried, bytes; the kernel's own limit is lower.
const MAX_BUFFER: i32 = 1 << 30;
/// Most sends of a burst.
const MAX_BURST_COUNT: u32 = 1 << 20;
/// Longest time between two bursts, µs.
const MAX_BURST_GAP: u32 = 60_000_000;

impl DataTest {
    /// Reads the request for a test.
    ///
    /// # Errors
    /// It is no request, or asks for what is not served or allowed.
    pub fn parse(block: &Block, limits: &Limits) -> Result<Self, Refusal> {
        let test = match block.kind() {
            kind::OMNI_REQUEST => Self::parse_omni(block)?,
            other => match Classic::of_request(other) {
                Some(classic) => classic.parse(block)?,
                None => {
                    let reason = format!("asks for test {other}, which is not served");
                    return refuse(errno::UNKNOWN_TEST, reason);
                }
            },
        };
        test.check(limits)?;
        Ok(test)
    }

    /// A test without options.
    pub(super) fn plain(message: Message, role: Role, transport: Transport) -> Self {
        Self { message, role, transport, ..Self::default() }
    }

    /// The request with another length of the test.
    #[must_use]
    pub fn with_length(self, length: Length) -> Self {
        Self { length, ..self }
    }

    fn parse_omni(block: &Block) -> Result<Self, Refusal> {
        let flags = block.word(12);
        let transport = transport(block)?;
        let role = role(block.word(24), flags & flag::CONNECT != 0, transport)?;
        let mut test = Self::plain(Message::Omni, role, transport);
        test.family = family(block.int(21))?;
        test.length = length(block.int(14))?;
        test.sizes(block)?;
        test.send_buffer = buffer(block.int(0))?;
        test.receive_buffer = buffer(block.int(6))?;
        test.nodelay = flags & flag::NODELAY != 0;
        test.sendfile = flags & flag::SENDFILE != 0;
        test.measure_cpu = flags & flag::MEASURE_CPU != 0;
        test.name_congestion = flags & flag::WANT_CONGESTION != 0;
        test.port = port(block.int(20))?;
        test.address = address(block, test.family);
        test.client_port = port(block.int(25))?;
        test.client_address = [28, 29, 30, 31].map(|index| block.word(index));
        test.burst = burst(block.word(26), block.word(27))?;
        if block.width() == Width::Wide {
            // Narrow blocks end before these.
            test.traffic_class = u8::try_from(block.int(37)).ok();
            test.congestion = congestion(block)?;
        }
        Ok(test)
    }

    fn sizes(&mut self, block: &Block) -> Result<(), Refusal> {
        match self.role {
            Role::Exchange | Role::ConnectExchange => {
                self.request_bytes = exchanged("request", block.int(5))?;
                self.response_bytes = exchanged("response", block.int(11))?;
            }
            Role::Receive | Role::Send | Role::Connect => {
                self.send_bytes = message("send", block.int(1))?;
                self.receive_bytes = message("receive", block.int(7))?;
            }
        }
        Ok(())
    }

    /// Checks what holds for requests of every kind.
    fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        let demand = Demand {
            streams: 1,
            seconds: match self.length {
                Length::Seconds(seconds) => Some(seconds.into()),
                Length::Units(_) | Length::Open => None,
            },
            rate_bps: None,
        };
        if let Some(excess) = demand.excess(limits) {
            return refuse(errno::EPERM, excess.message());
        }
        if self.transport == Transport::Udp {
            let sent = match self.role {
                Role::Exchange => self.request_bytes.max(self.response_bytes),
                Role::Send => self.send_bytes.unwrap_or(0),
                _ => 0,
            };
            if let (Role::Receive | Role::Exchange, Some(limit)) = (self.role, limits.rate_bps) {
                let limit = BitRate(limit);
                let reason =
                    format!("datagrams at the client's pace, where the owner allows {limit}");
                return refuse(errno::EPERM, reason);
            }
            if sent > MAX_DATAGRAM {
                let reason = format!("datagrams of {sent} bytes: at most {MAX_DATAGRAM} fit");
                return refuse(errno::EMSGSIZE, reason);
            }
        }
        Ok(())
    }

    /// Longest time that the test can take, seconds.
    pub fn seconds(&self, limits: &Limits) -> f64 {
        match self.length {
            Length::Seconds(seconds) => f64::from(seconds),
            Length::Units(_) | Length::Open => limits.seconds,
        }
    }

    /// The OMNI request for this test, in a wide block.
    pub fn to_omni(&self) -> Block {
        let size = |bytes: Option<u32>| bytes.unwrap_or(u32::MAX);
        let exchange = matches!(self.role, Role::Exchange | Role::ConnectExchange);
        let asked = |bytes: u32| if exchange { bytes } else { u32::MAX };
        let connects = matches!(self.role, Role::Connect | Role::ConnectExchange);
        let set = |on: bool, flag: u32| if on { flag } else { 0 };
        let (socket, protocol) = match self.transport {
            Transport::Tcp => (1, 6),
            Transport::Udp => (2, 17),
        };
        let mut words = [0; TEXTS];
        (words[0], words[6]) = (size(self.send_buffer), size(self.receive_buffer));
        (words[1], words[7]) = (size(self.send_bytes), size(self.receive_bytes));
        (words[5], words[11]) = (asked(self.request_bytes), asked(self.response_bytes));
        (words[2], words[8]) = (8, 8);
        words[12] = set(self.nodelay, flag::NODELAY)
            | set(self.sendfile, flag::SENDFILE)
            | set(connects, flag::CONNECT)
            | set(self.measure_cpu, flag::MEASURE_CPU);
        words[14] = match self.length {
            Length::Seconds(seconds) => seconds,
            Length::Units(units) => (units as i32).wrapping_neg() as u32,
            Length::Open => 0,
        };
        words[20] = self.port.into();
        words[21] = match self.family {
            Some(Family::Ipv4) => 4,
            Some(Family::Ipv6) => 6,
            None => 0,
        };
        (words[22], words[23]) = (socket, protocol);
        words[24] = match self.role {
            Role::Receive => RECEIVES,
            Role::Send => SENDS,
            Role::Exchange | Role::ConnectExchange => SENDS | RECEIVES,
            Role::Connect => 0,
        };
        words[25] = self.client_port.into();
        (words[26], words[27]) = self.burst.unwrap_or((0, 0));
        words[28..32].copy_from_slice(&self.client_address);
        words[36] = u32::MAX;
        words[37] = self.traffic_class.map_or(u32::MAX, u32::from);
        let mut block = Block::of_words(Width::Wide, kind::OMNI_REQUEST, &words).with_second(-1);
        if let Some(congestion) = &self.congestion {
            block.set_text(TEXTS, 0, 16, congestion);
        }
        block
    }

    /// Whether the client wants datagrams at `peer`, its own address. It may name it or leave it
    /// open; clients of little-endian hosts swap the bytes of each word of an IPv6 address.
    pub fn is_for(&self, peer: IpAddr) -> bool {
        let words = self.client_address;
        if words == [0; 4] {
            return true;
        }
        match peer.to_canonical() {
            IpAddr::V4(peer) => words[0] == u32::from(peer) && words[1..] == [0; 3],
            IpAddr::V6(peer) => {
                let own = words_of(peer);
                own == words || own.map(u32::swap_bytes) == words
            }
        }
    }
}

fn words_of(address: Ipv6Addr) -> [u32; 4] {
    let bits = u128::from(address);
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

fn transport(block: &Block) -> Result<Transport, Refusal> {
    match (block.int(22), block.int(23)) {
        (1, 6) => Ok(Transport::Tcp),
        (2, 17) => Ok(Transport::Udp),
        (socket, protocol) => {
            let reason = format!("asks for IP protocol {protocol} on sockets of type {socket}");
            refuse(errno::EPROTONOSUPPORT, reason)
        }
    }
}

fn role(direction: u32, connects: bool, transport: Transport) -> Result<Role, Refusal> {
    match (direction, connects, transport) {
        (RECEIVES, false, _) => Ok(Role::Receive),
        (SENDS, false, _) => Ok(Role::Send),
        (6, false, _) => Ok(Role::Exchange),
        (6, true, Transport::Tcp) => Ok(Role::ConnectExchange),
        (0, true, Transport::Tcp) => Ok(Role::Connect),
        _ => {
            let with = if connects { "with" } else { "without" };
            let reason =
                format!("asks for direction {direction} {with} a connection for each transaction");
            refuse(errno::EOPNOTSUPP, reason)
        }
    }
}

pub(super) fn family(number: i32) -> Result<Option<Family>, Refusal> {
    match number {
        0 => Ok(None),
        4 => Ok(Some(Family::Ipv4)),
        6 => Ok(Some(Family::Ipv6)),
        _ => refuse(errno::EAFNOSUPPORT, format!("asks for address family {number}")),
    }
}

pub(super) fn length(number: i32) -> Result<Length, Refusal> {
    match number {
        0 => Ok(Length::Open),
        1.. => Ok(Length::Seconds(number.unsigned_abs())),
        // It has no positive counterpart.
        i32::MIN => refuse(errno::EINVAL, format!("asks for a length of {number}")),
        _ => Ok(Length::Units(number.unsigned_abs())),
    }
}

/// The size of a write or a read; zero and less let the endpoint choose.
pub(super) fn message(what: &str, number: i32) -> Result<Option<u32>, Refusal> {
    if i64::from(number) > MAX_MESSAGE as i64 {
        let reason = format!("a {what} size of {number} bytes: at most {MAX_MESSAGE} are served");
        return refuse(errno::EMSGSIZE, reason);
    }
    Ok(u32::try_from(number).ok().filter(|bytes| *bytes > 0))
}

pub(super) fn exchanged(what: &str, number: i32) -> Result<u32, Refusal> {
    message(what, number)?
        .ok_or_else(|| Refusal::new(errno::EINVAL, format!("a {what} size of {number} bytes")))
}

pub(super) fn buffer(number: i32) -> Result<Option<u32>, Refusal> {
    if number > MAX_BUFFER {
        let reason = format!("a socket buffer of {number} bytes: at most {MAX_BUFFER} are tried");
        return refuse(errno::EINVAL, reason);
    }
    Ok(u32::try_from(number).ok().filter(|bytes| *bytes > 0))
}

pub(super) fn port(number: i32) -> Result<u16, Refusal> {
    match u16::try_from(number) {
        // A port below 1024 is the host's own, whoever the endpoint runs as.
        Ok(port) if port == 0 || port >= 1024 => Ok(port),
        _ => {
            let reason = format!("asks for port {number}: 1024 to 65535 are served");
            refuse(errno::EACCES, reason)
        }
    }
}

fn address(block: &Block, family: Option<Family>) -> Option<IpAddr> {
    let words = [32, 33, 34, 35].map(|index| block.word(index));
    match family {
        _ if words == [0; 4] => None,
        Some(Family::Ipv6) => {
            let bits =
                words.iter().fold(0u128, |bits, word| bits << 32 | u128::from(word.swap_bytes()));
            Some(Ipv6Addr::from(bits).into())
        }
        _ => Some(Ipv4Addr::from(words[0]).into()),
    }
}

fn burst(count: u32, microseconds: u32) -> Result<Option<(u32, u32)>, Refusal> {
    match (count, microseconds) {
        (0, _) | (_, 0) => Ok(None),
        (1..=MAX_BURST_COUNT, 1..=MAX_BURST_GAP) => Ok(Some((count, microseconds))),
        _ => {
            let reason = format!("bursts of {count} sends every {microseconds} µs");
            refuse(errno::EINVAL, reason)
        }
    }
}

/// A name as kernels have them, or nothing.
fn congestion(block: &Block) -> Result<Option<String>, Refusal> {
    let name = block.text(TEXTS, 16);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match name.as_str() {
        "" => Ok(None),
        _ if name.chars().all(is_name) => Ok(Some(name)),
        _ => refuse(errno::EINVAL, format!("no name of a congestion control: {name}")),
    }
}
