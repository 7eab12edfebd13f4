//! A message that is being sent: a header and filler, as much at a time as the kernel takes.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::sync::LazyLock;

use linerate_core::capacity::wire::{HEADER_BYTES, Header};

use crate::retry::is_transient;

/// The rest of a message that is to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outgoing {
    header: [u8; HEADER_BYTES],
    length: u32,
    left: u32,
}

impl Outgoing {
    /// A message of `length` bytes, its header included.
    pub(super) fn new(header: Header, length: u32) -> Self {
        let length = length.max(HEADER_BYTES as u32);
        Self { header: header.encode(), length, left: length }
    }

    /// A header that was sent in another way.
    pub(super) fn sent(header: Header) -> Self {
        Self { left: 0, ..Self::new(header, 0) }
    }

    /// The header of the last message.
    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        self.header
    }

    pub(super) fn is_sent(&self) -> bool {
        self.left == 0
    }

    /// Sends `first` and as much of the message behind it as the kernel takes; false if it takes
    /// nothing now. `first` begins a connection: a kernel that takes a part takes all of it.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn push_after(&mut self, first: &[u8], mut stream: &TcpStream) -> io::Result<bool> {
        let (header, filler) = self.remaining();
        let parts = [IoSlice::new(first), IoSlice::new(header), IoSlice::new(filler)];
        match stream.write_vectored(&parts) {
            Ok(n) if n < first.len() => Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                self.left -= (n - first.len()) as u32;
                Ok(true)
            }
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The rest of the header, and as much filler as one call sends.
    fn remaining(&self) -> (&[u8], &'static [u8]) {
        if self.is_sent() {
            return (&[], &[]);
        }
        let done = (self.length - self.left) as usize;
        let header = self.header.get(done..).unwrap_or_default();
        let filler = (self.left as usize - header.len()).min(FILLER.len());
        (header, &FILLER[..filler])
    }

    /// Sends as much as the kernel takes now.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn push(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.left > 0 {
            let (header, filler) = self.remaining();
            let result = match filler.len() {
                0 => stream.write(header),
                _ => stream.write_vectored(&[IoSlice::new(header), IoSlice::new(filler)]),
            };
            match result {
                // The kernel takes no more than was left.
                Ok(n) => self.left -= n as u32,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

// Made at run time, so that it is no part of the program's file.
static FILLER: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; 64 << 10]);

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::capacity::wire::Kind;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn a_long_message_is_sent_completely_in_pieces() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        let header = Header { kind: Kind::Request, number: 7 };
        const LENGTH: u32 = 16 << 20;
        let mut message = Outgoing::new(header, LENGTH);
        message.push(&sender).unwrap();
        assert!(!message.is_sent(), "no buffer takes so much at once");
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; LENGTH as usize];
            receiver.read_exact(&mut bytes).unwrap();
            bytes
        });
        while !message.is_sent() {
            message.push(&sender).unwrap();
        }
        let bytes = reader.join().unwrap();
        assert_eq!(bytes[..8], header.encode());
        assert!(bytes[8..].iter().all(|byte| *byte == 0));
    }
}
