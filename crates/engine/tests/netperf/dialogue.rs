//! A netperf client: what stock ones sent, and answers read by their offsets, so that no code of
//! the endpoint's is trusted.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;

use linerate_testkit::{PATIENCE, uninterrupted};

/// Bytes of a message of netperf 2.6 and later.
pub(crate) const BLOCK: usize = 656;
/// Words of an OMNI answer.
pub(crate) const PORT: usize = 11;

/// What netperf 2.7.1 sent for a test; each file is one request.
pub(crate) fn request(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/netperf/requests").join(name);
    let bytes = fs::read(&path).expect("the request is there");
    assert_eq!(bytes.len(), BLOCK);
    bytes
}

/// The request with another length: seconds, or less than nothing for so many bytes or
/// transactions.
pub(crate) fn lasting(name: &str, length: i32) -> Vec<u8> {
    let mut asked = request(name);
    // Classic messages have it elsewhere.
    let index = if name == "tcp_cc" { 11 } else { 14 };
    set_word(&mut asked, index, length.cast_unsigned());
    asked
}

/// Overwrites a word of a request's payload.
pub(crate) fn set_word(request: &mut [u8], index: usize, word: u32) {
    request[8 + 4 * index..12 + 4 * index].copy_from_slice(&word.to_be_bytes());
}

/// An answer.
pub(crate) struct Answer(Vec<u8>);

impl Answer {
    pub(crate) fn raw(&self, offset: usize) -> u32 {
        u32::from_be_bytes(*self.0[offset..].first_chunk().expect("four bytes"))
    }

    pub(crate) fn errno(&self) -> u32 {
        self.raw(4)
    }

    pub(crate) fn word(&self, index: usize) -> u32 {
        self.raw(8 + 4 * index)
    }

    pub(crate) fn wide(&self, index: usize) -> u64 {
        u64::from(self.word(index)) << 32 | u64::from(self.word(index + 1))
    }

    pub(crate) fn float(&self, index: usize) -> f32 {
        f32::from_bits(self.word(index))
    }
}

/// A control connection.
pub(crate) struct Control(TcpStream);

impl Control {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self(tcp(address))
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the endpoint listens");
    }

    pub(crate) fn hear(&mut self) -> Answer {
        self.hear_bytes(BLOCK)
    }

    pub(crate) fn hear_bytes(&mut self, bytes: usize) -> Answer {
        let mut answer = vec![0; bytes];
        self.0.read_exact(&mut answer).expect("a whole answer");
        Answer(answer)
    }

    /// Asks for a test; answers the address for its data, whose port is word `port` of the answer.
    pub(crate) fn open(&mut self, request: &[u8], port: usize) -> SocketAddr {
        self.say(request);
        let ready = self.hear();
        assert_eq!(ready.errno(), 0);
        let mut data = self.0.peer_addr().expect("it is connected");
        data.set_port(u16::try_from(ready.word(port)).expect("a port"));
        data
    }

    /// Whether the endpoint has closed it.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(uninterrupted(|| self.0.read(&mut [0; 1])), Ok(0) | Err(_))
    }
}

pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

pub(crate) fn udp(peer: SocketAddr) -> UdpSocket {
    let any: SocketAddr = if peer.is_ipv6() {
        "[::1]:0".parse().expect("an address")
    } else {
        "127.0.0.1:0".parse().expect("an address")
    };
    let socket = UdpSocket::bind(any).expect("a free port");
    socket.connect(peer).expect("loopback is there");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Sends so many bytes, ends the stream, and waits for its other end.
pub(crate) fn send_stream(data: SocketAddr, bytes: usize) {
    let mut stream = tcp(data);
    let piece = vec![7; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        left -= stream.write(&piece[..left.min(piece.len())]).expect("the endpoint reads");
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
    let _ = uninterrupted(|| stream.read(&mut [0; 1]));
}

/// Reads to the end.
pub(crate) fn read_stream(data: SocketAddr) -> u64 {
    let mut stream = tcp(data);
    let mut piece = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        match uninterrupted(|| stream.read(&mut piece)).expect("a stream with an end") {
            0 => return bytes,
            n => bytes += n as u64,
        }
    }
}

/// A request of one byte and its answer.
pub(crate) fn exchange(stream: &mut TcpStream) {
    stream.write_all(&[1]).expect("the endpoint reads");
    stream.read_exact(&mut [0; 1]).expect("an answer");
}
