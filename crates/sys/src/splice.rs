//! Bulk TCP without copying: sending from pages that never change, receiving without looking.
//!
//! What is sent is a block of `message` bytes of noise, over and over: byte k of a stream is byte
//! `k % message` of the block, whatever signals and partial calls came between. The noise does not
//! compress. Like every write to a socket, these raise SIGPIPE when the peer is gone, unless the
//! process ignores it, as Rust's runtime does.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, vmsplice,
};

/// The way to send without copying that the host allows; see [`fastest`].
#[derive(Debug)]
pub enum ZeroCopy {
    /// vmsplice and splice.
    Vmsplice(Vmsplice),
    /// sendfile.
    Sendfile(Sendfile),
}

impl ZeroCopy {
    /// Sends `length` bytes; see [`Vmsplice::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, stream: &TcpStream, length: usize) -> io::Result<usize> {
        match self {
            Self::Vmsplice(sender) => sender.send(stream, length),
            Self::Sendfile(sender) => sender.send(stream, length),
        }
    }
}

/// The way that was faster where it was measured, and the other one where the host refuses the
/// first (seccomp, no descriptors). Nothing is sent.
///
/// To this same host sendfile: over loopback 27 to 30 Gbit/s against 26 for vmsplice, 40 against 34
/// where the receiver does not copy ([`Discard`]), messages of 128 KiB, Linux 6.18. Over a device
/// (veth) vmsplice: 22 against 16 to 19. For messages below 64 KiB setting up the pipe costs more
/// than the copy it saves, and sendfile is taken everywhere. Neither is always better than a plain
/// write: over veth, with a receiver that does not copy, write was as fast.
///
/// # Errors
/// Both are refused; the error is that of the second.
pub fn fastest(stream: &TcpStream, message: usize) -> io::Result<ZeroCopy> {
    let vmsplice = || Vmsplice::probe(stream, message).map(ZeroCopy::Vmsplice);
    let sendfile = || Sendfile::probe(stream, message).map(ZeroCopy::Sendfile);
    if message >= VMSPLICE_FROM && !is_this_host(stream)? {
        vmsplice().or_else(|_| sendfile())
    } else {
        sendfile().or_else(|_| vmsplice())
    }
}

/// Packets to an address of this host's own go by loopback, whatever the address.
fn is_this_host(stream: &TcpStream) -> io::Result<bool> {
    let peer = stream.peer_addr()?.ip();
    Ok(peer.is_loopback() || peer == stream.local_addr()?.ip())
}

/// Sends by mapping its pages into a pipe and moving them from there to the socket.
#[derive(Debug)]
pub struct Vmsplice {
    block: NoiseBlock,
    pipe: Pipe,
    /// Where in the block the pipe is filled from next.
    position: usize,
    /// Bytes in the pipe that the socket has not taken yet.
    queued: usize,
}

impl Vmsplice {
    /// A sender of blocks of `message` bytes (0 counts as 1).
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub fn new(message: usize) -> io::Result<Self> {
        let message = message.max(1);
        Ok(Self {
            block: NoiseBlock::of_noise(message)?,
            pipe: Pipe::with_room_for(message)?,
            position: 0,
            queued: 0,
        })
    }

    /// Hands `length` bytes to the socket and answers how many it took: fewer only if a signal or
    /// an error came between, and then the next call goes on at the very next byte.
    ///
    /// # Errors
    /// The socket took nothing: `Interrupted` by a signal, `WouldBlock` after its send timeout, or
    /// it failed.
    pub fn send(&mut self, stream: &TcpStream, length: usize) -> io::Result<usize> {
        send_all(length, |rest| {
            if self.queued == 0 {
                self.fill(rest)?;
            }
            let moved = pass_on(self.pipe.reader.as_fd(), stream.as_fd(), rest.min(self.queued))?;
            self.queued -= moved;
            Ok(moved)
        })
    }

    /// Puts at most `length` bytes into the empty pipe: to the block's end, or as many as the pipe
    /// holds.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        let rest = &self.block.bytes()[self.position..];
        let put = put(self.pipe.writer.as_fd(), &rest[..length.min(rest.len())])?;
        self.queued = put;
        self.position = (self.position + put) % self.block.bytes().len();
        Ok(())
    }

    fn probe(stream: &TcpStream, message: usize) -> io::Result<Self> {
        let mut sender = Self::new(message)?;
        sender.fill(1)?;
        // A seccomp filter refuses an empty splice like any other; the kernel itself does nothing
        // for it.
        pass_on(sender.pipe.reader.as_fd(), stream.as_fd(), 0)?;
        Ok(sender)
    }
}

/// Sends from the page cache of a file in memory.
#[derive(Debug)]
pub struct Sendfile {
    block: File,
    length: usize,
    position: usize,
}

impl Sendfile {
    /// A sender of blocks of `message` bytes (0 counts as 1).
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub fn new(message: usize) -> io::Result<Self> {
        let length = message.max(1);
        let mut block = File::from(memfd_create("linerate", MemfdFlags::CLOEXEC)?);
        block.write_all(&noise().take(length).collect::<Vec<u8>>())?;
        Ok(Self { block, length, position: 0 })
    }

    /// Hands `length` bytes to the socket; see [`Vmsplice::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, stream: &TcpStream, length: usize) -> io::Result<usize> {
        send_all(length, |rest| {
            let rest = rest.min(self.length - self.position);
            let mut from = self.position as u64;
            let sent = sendfile(stream, &self.block, Some(&mut from), rest)?;
            self.position = (self.position + sent) % self.length;
            Ok(sent)
        })
    }

    fn probe(stream: &TcpStream, message: usize) -> io::Result<Self> {
        let sender = Self::new(message)?;
        sendfile(stream, &sender.block, Some(&mut 0), 0)?;
        Ok(sender)
    }
}

/// Receives by telling TCP to throw the bytes away (MSG_TRUNC, tcp(7)): nothing is copied out of
/// the kernel.
#[derive(Debug, Default)]
pub struct Discard;

impl Discard {
    /// A receiver.
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Takes up to `length` bytes off the stream and answers how many; 0 is its end.
    ///
    /// # Errors
    /// `Interrupted` by a signal, `WouldBlock` after the receive timeout, or the connection failed.
    pub fn receive(&mut self, stream: &TcpStream, length: usize) -> io::Result<usize> {
        // SAFETY: with MSG_TRUNC a stream socket writes nothing; if it did, the null address would
        // be an EFAULT.
        let received =
            unsafe { libc::recv(stream.as_raw_fd(), ptr::null_mut(), length, libc::MSG_TRUNC) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}

/// On loopback (Linux 6.18, a busy machine) sendfile needed less CPU time at 4 KiB and vmsplice at
/// 1 MiB; from 16 to 128 KiB they could not be told apart.
const VMSPLICE_FROM: usize = 64 * 1024;

/// Messages of 1 MiB took a sixth less CPU time through a pipe of this length than through 64 or
/// 128 KiB; 1 MiB was no better than this beyond the noise (loopback, Linux 6.18).
const PIPE_BYTES: usize = 256 * 1024;

/// Calls `send` with what is left of `length` until nothing is. An error counts only if nothing was
/// sent before it.
fn send_all(length: usize, mut send: impl FnMut(usize) -> io::Result<usize>) -> io::Result<usize> {
    let mut sent = 0;
    while sent < length {
        match send(length - sent) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => sent += bytes,
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}

/// Bytes without a pattern that a compressing link could use (xorshift64, Marsaglia 2003).
fn noise() -> impl Iterator<Item = u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
}

/// Noise that nobody writes any more. Pages of its own, not the allocator's: unmapped pages that a
/// socket still holds keep their content, while freed memory would be written again and the peer
/// would see it.
#[derive(Debug)]
struct NoiseBlock(Mapping);

impl NoiseBlock {
    fn of_noise(length: usize) -> io::Result<Self> {
        let mapping = Mapping::private(length)?;
        // SAFETY: the mapping has `length` bytes, all zero, and nobody else knows of it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.start(), length) };
        for (byte, noise) in bytes.iter_mut().zip(noise()) {
            *byte = noise;
        }
        Ok(Self(mapping))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has `length` initialised bytes, and none is written while `self`
        // lives.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.length()) }
    }
}

#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    /// A pipe that holds a message, or as much of it as is of use and allowed.
    fn with_room_for(message: usize) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Refused (EPERM) when the user has too many pages in pipes (pipe(7)): a short pipe is
        // slower, not wrong.
        let _ = fcntl_setpipe_size(&writer, message.min(PIPE_BYTES).min(pipe_limit()));
        Ok(Self { reader, writer })
    }
}

/// The longest pipe that an unprivileged process may have, in bytes.
fn pipe_limit() -> usize {
    std::fs::read_to_string("/proc/sys/fs/pipe-max-size")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(64 * 1024)
}

fn put(pipe: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the kernel reads the bytes only: they go into a pipe. It holds the pages themselves,
    // whatever becomes of the mapping.
    let put = unsafe { vmsplice(pipe, &[IoSliceRaw::from_slice(bytes)], SpliceFlags::empty()) };
    Ok(put?)
}

fn pass_on(pipe: BorrowedFd<'_>, socket: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    Ok(splice(pipe, None, socket, None, length, SpliceFlags::MOVE)?)
}

// Memory from the kernel: of its own pages, or shared with it through a descriptor.

/// Readable and writable memory that is unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to this value until it is dropped, and to no thread. Who reads or
// writes it through the pointer says why that is sound.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// That many bytes of zeros.
    pub(crate) fn private(length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE) };
        Self::new(start?.cast(), length)
    }

    /// The first bytes of what is behind a descriptor.
    pub(crate) fn shared(descriptor: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { mmap(ptr::null_mut(), length, access, flags, descriptor, 0) };
        Self::new(start?.cast(), length)
    }

    fn new(start: *mut u8, length: usize) -> io::Result<Self> {
        let start = NonNull::new(start).expect("no mapping is made at address 0");
        Ok(Self { start, length })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no borrow of it outlives the value. An error is
        // only one of a wrong address or length.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Shutdown, TcpListener};
    use std::thread;
    use std::time::Duration;

    use linerate_testkit::{Need, skip};

    use super::*;

    type SendFn = Box<dyn FnMut(&TcpStream, usize) -> io::Result<usize> + Send>;

    fn senders(message: usize) -> [SendFn; 2] {
        let mut vmsplice = Vmsplice::new(message).unwrap();
        let mut sendfile = Sendfile::new(message).unwrap();
        [
            Box::new(move |stream, length| vmsplice.send(stream, length)),
            Box::new(move |stream, length| sendfile.send(stream, length)),
        ]
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// A pair whose receiver has room for little, so that sends are partial.
    fn narrow_pair() -> (TcpStream, TcpStream) {
        let (client, server) = pair();
        socket2::SockRef::from(&server).set_recv_buffer_size(64 * 1024).unwrap();
        socket2::SockRef::from(&client).set_send_buffer_size(32 * 1024).unwrap();
        (client, server)
    }

    fn assert_is_noise(received: &[u8], message: usize) {
        let block: Vec<u8> = noise().take(message).collect();
        for (index, chunk) in received.chunks(message).enumerate() {
            assert!(chunk == &block[..chunk.len()], "message {index} is altered");
        }
    }

    #[test]
    fn receiver_gets_every_byte_unaltered() {
        for message in [1, 100, 4096, 131_072, 1 << 20] {
            for mut send in senders(message) {
                let (client, mut server) = pair();
                let reader = thread::spawn(move || {
                    let mut received = Vec::new();
                    server.read_to_end(&mut received).unwrap();
                    received
                });
                for _ in 0..5 {
                    assert_eq!(send(&client, message).unwrap(), message);
                }
                // The sender is gone before the reader is done: its pages must not be.
                drop((send, client));
                let received = reader.join().unwrap();
                assert_eq!(received.len(), 5 * message);
                assert_is_noise(&received, message);
            }
        }
    }

    #[test]
    fn partial_sends_lose_and_repeat_nothing() {
        for message in [100, 4096, 131_072, 1 << 20] {
            for mut send in senders(message) {
                let (client, mut server) = narrow_pair();
                client.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
                let reader = thread::spawn(move || {
                    let mut received = Vec::new();
                    let mut buffer = [0; 20_000];
                    loop {
                        thread::sleep(Duration::from_micros(300));
                        match server.read(&mut buffer).unwrap() {
                            0 => return received,
                            bytes => received.extend_from_slice(&buffer[..bytes]),
                        }
                    }
                });
                let mut sent = 0;
                while sent < 3_000_000 {
                    match send(&client, message) {
                        Ok(bytes) => sent += bytes,
                        // The second where the process was stopped for a while.
                        Err(error) => assert!(matches!(
                            error.kind(),
                            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                        )),
                    }
                }
                drop(client);
                let received = reader.join().unwrap();
                assert_eq!(received.len(), sent);
                assert_is_noise(&received, message);
            }
        }
    }

    #[test]
    fn discard_counts_every_byte() {
        let (mut client, server) = pair();
        let writer = thread::spawn(move || client.write_all(&vec![7; 3_000_001]).unwrap());
        let mut discard = Discard::new();
        let mut total = 0;
        loop {
            match discard.receive(&server, 65_536).unwrap() {
                0 => break,
                bytes => total += bytes,
            }
        }
        writer.join().unwrap();
        assert_eq!(total, 3_000_001);
    }

    #[test]
    fn shutdown_ends_a_blocked_send() {
        for mut send in senders(131_072) {
            let (client, server) = narrow_pair();
            let handle = client.try_clone().unwrap();
            let sender = thread::spawn(move || {
                loop {
                    if let Err(error) = send(&client, 131_072) {
                        return error;
                    }
                }
            });
            // Nobody reads: long before this the sender is blocked; if it is not, the outcome is
            // the same.
            thread::sleep(Duration::from_millis(50));
            handle.shutdown(Shutdown::Both).unwrap();
            assert_eq!(sender.join().unwrap().kind(), io::ErrorKind::BrokenPipe);
            drop(server);
        }
    }

    fn sends(client: &TcpStream, server: &mut TcpStream, message: usize) -> ZeroCopy {
        let mut sender = fastest(client, message).unwrap();
        assert_eq!(sender.send(client, message).unwrap(), message);
        let mut received = vec![0; message];
        server.read_exact(&mut received).unwrap();
        assert_is_noise(&received, message);
        sender
    }

    #[test]
    fn fastest_is_sendfile_to_this_host() {
        let (client, mut server) = pair();
        for message in [100, VMSPLICE_FROM] {
            let sender = sends(&client, &mut server, message);
            assert!(matches!(sender, ZeroCopy::Sendfile(_)), "{message}");
        }
    }

    #[test]
    fn fastest_over_a_device_is_vmsplice_for_large_messages() {
        let hosts = match crate::netns::Pair::create() {
            Ok(hosts) => hosts,
            Err(error) => {
                skip(Need::Lab, format_args!("no network namespaces here: {error}"));
                return;
            }
        };
        let listen = || TcpListener::bind((hosts.b.ipv4, 0)).unwrap();
        let listener = hosts.b.namespace.run(listen).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let client = hosts.a.namespace.run(connect).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let small = sends(&client, &mut server, 100);
        assert!(matches!(small, ZeroCopy::Sendfile(_)));
        let large = sends(&client, &mut server, VMSPLICE_FROM);
        assert!(matches!(large, ZeroCopy::Vmsplice(_)));
    }
}
