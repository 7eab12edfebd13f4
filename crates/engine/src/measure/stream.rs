//! The two ends of a TCP bulk transfer. One thread for each flow, blocking calls, nothing in the
//! loop but the call itself, the counters and the stop flag.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use linerate_core::pace::Pacer;
use linerate_core::plan::{Extent, ReceiveMethod, SendMethod, StreamTest, Test};
use linerate_core::units::BitRate;
use linerate_core::wire::Pattern;
use linerate_sys::poll::{Interest, wait_ready};
use linerate_sys::socket;
use linerate_sys::splice::{self, Discard, Sendfile, Vmsplice};
use linerate_sys::tcp_info::TcpInfo;
use linerate_sys::thread::wake_sharply;

use super::flow::Counters;
use super::pause::{Pause, receive_buffer};
use super::quickack::QuickAck;
use super::shared::Quota;
use crate::clock::now_ns;
use crate::stop::Stop;

/// What a receiver reads, or drops unread, at once, whatever the messages' size. A read of more
/// than a segment is acknowledged by itself, so that smaller ones cost both ends packets: over veth
/// 64 KiB took a fifth less CPU time for a byte than 24 KiB did.
const READ: usize = 64 << 10;
/// The same where segments are as large (loopback): what fits the first-level cache (32 to 48 KiB)
/// stays there from the copy of one read to the next. Linux 6.18 took 45 Gbit/s so, 37 by 32 KiB,
/// 31 by 64 and 28 by 128.
const READ_OF_LARGE_SEGMENTS: usize = 24 << 10;
/// Bytes of a segment that is larger than any of Ethernet's.
const LARGE_SEGMENT: u32 = 16 << 10;
/// Most that a reader of a set rate takes between two sleeps.
const PACED_READ: usize = 128 << 10;
/// How soon a sender that has no more to send sees that it is asked to stop.
const QUOTA_TICK_NS: u64 = 2_000_000;
/// Bytes that come in a pause (32 KiB in 50 µs are 5.2 Gbit/s): fewer do not make up for it.
const WORTH_A_PAUSE: u64 = 32 << 10;

/// What [`send_first`] hands over: ten segments of Ethernet's, as many as a new connection may have
/// in flight (RFC 6928).
pub(super) const FIRST: u64 = 14_480;

/// What a worker is told.
pub(crate) struct Job<'a> {
    pub(crate) test: &'a Test,
    pub(crate) stream: &'a StreamTest,
    pub(crate) counters: &'a Counters,
    pub(crate) stop: &'a Stop,
    /// Of the bytes that all flows may send.
    pub(crate) quota: Option<&'a Quota>,
}

impl Job<'_> {
    fn may_send(&self, bytes: u64) -> bool {
        self.quota.is_none_or(|quota| quota.take(bytes))
    }
}

/// How the bytes of a message reach the kernel.
trait Source {
    /// Hands over bytes from stream position `position` on, at most `length`.
    fn send(&mut self, socket: &TcpStream, position: u64, length: usize) -> io::Result<usize>;
}

/// How the bytes leave the kernel.
trait Sink {
    /// Takes bytes from stream position `position` on, at most `length`; 0 at the end of the
    /// stream.
    fn receive(&mut self, socket: &TcpStream, position: u64, length: usize) -> io::Result<usize>;

    /// Bytes that were not as sent, where that is looked at.
    fn corrupted(&self) -> u64 {
        0
    }
}

struct Copy(Arc<Vec<u8>>);

impl Source for Copy {
    #[inline]
    fn send(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        socket::send(socket, &self.0[..length])
    }
}

/// So many messages of the same bytes, in one call.
struct Batch<'a> {
    messages: &'a [IoSlice<'a>],
}

impl Source for Batch<'_> {
    #[inline]
    fn send(&mut self, mut socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        let message = &self.messages[0];
        // The rest of a message that the kernel took a part of goes first.
        match (length / message.len(), length % message.len()) {
            (whole, 0) => socket.write_vectored(&self.messages[..whole]),
            (_, rest) => socket.write(&message[..rest]),
        }
    }
}

struct PatternCopy {
    pattern: Pattern,
    buffer: Vec<u8>,
}

impl Source for PatternCopy {
    fn send(&mut self, mut socket: &TcpStream, position: u64, length: usize) -> io::Result<usize> {
        self.pattern.fill(position, &mut self.buffer[..length]);
        socket.write(&self.buffer[..length])
    }
}

impl Source for Vmsplice {
    #[inline]
    fn send(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        Vmsplice::send(self, socket, length)
    }
}

impl Source for Sendfile {
    #[inline]
    fn send(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        Sendfile::send(self, socket, length)
    }
}

struct ReadInto(Vec<u8>);

impl Sink for ReadInto {
    #[inline]
    fn receive(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        let length = length.min(self.0.len());
        socket::receive(socket, &mut self.0[..length])
    }
}

struct Verify {
    pattern: Pattern,
    buffer: Vec<u8>,
    corrupted: u64,
}

impl Sink for Verify {
    fn receive(
        &mut self,
        mut socket: &TcpStream,
        position: u64,
        length: usize,
    ) -> io::Result<usize> {
        let length = length.min(self.buffer.len());
        let n = socket.read(&mut self.buffer[..length])?;
        self.corrupted += self.pattern.differences(position, &self.buffer[..n]);
        Ok(n)
    }

    fn corrupted(&self) -> u64 {
        self.corrupted
    }
}

impl Sink for Discard {
    #[inline]
    fn receive(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        Discard::receive(self, socket, length)
    }
}

/// Bytes to send before the end, `None` without end.
fn amount(test: &Test, message: u64) -> Option<u64> {
    match test.extent {
        Extent::Time(_) => None,
        Extent::Bytes(bytes) => Some(bytes.0),
        Extent::Count(count) => Some(count.saturating_mul(message)),
    }
}

/// Sends until the amount is sent, the peer is gone or the stop flag is set; then ends the stream.
/// Answers the way taken, as the record names it.
pub(crate) fn send(job: &Job<'_>, socket: &TcpStream) -> io::Result<&'static str> {
    let message = job.stream.message_bytes as usize;
    let seed = job.test.seed;
    let (result, method) = match (job.stream.verify, job.stream.send) {
        (true, _) => {
            let mut source = PatternCopy {
                pattern: Pattern::new(seed),
                buffer: vec![0; message],
            };
            (send_from(job, socket, &mut source), "write")
        }
        (false, SendMethod::Copy) => match job.stream.batch {
            None => (send_from(job, socket, &mut Copy(payload(message))), "write"),
            Some(batch) => {
                let payload = payload(message);
                let messages = vec![IoSlice::new(&payload[..message]); batch as usize];
                let mut source = Batch {
                    messages: &messages,
                };
                (send_from(job, socket, &mut source), "writev")
            }
        },
        (false, SendMethod::ZeroCopy) => match splice::fastest(socket, message)? {
            splice::ZeroCopy::Vmsplice(mut source) => {
                (send_from(job, socket, &mut source), "vmsplice")
            }
            splice::ZeroCopy::Sendfile(mut source) => {
                (send_from(job, socket, &mut source), "sendfile")
            }
        },
    };
    if job.quota.is_some() && result.is_ok() {
        // Its peer ends the test and not the stream: to iperf3 3.12 an end is many empty blocks.
        while wait_until(now_ns() + QUOTA_TICK_NS, job) {}
    }
    // The receiver reads to the end of the stream; a socket that is gone has none.
    let _ = socket.shutdown(Shutdown::Write);
    result.map(|()| method)
}

/// The same bytes for all senders of this process, at least `message` of them: many flows of large
/// messages hold them once.
fn payload(message: usize) -> Arc<Vec<u8>> {
    static SHARED: Mutex<Weak<Vec<u8>>> = Mutex::new(Weak::new());
    // It is replaced whole: a panic elsewhere cannot leave it half done.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let enough = shared.upgrade().filter(|bytes| bytes.len() >= message);
    enough.unwrap_or_else(|| {
        // However the sizes grow, all that are held at once are twice the largest.
        let bytes = Arc::new(vec![0x5a; message.next_power_of_two()]);
        *shared = Arc::downgrade(&bytes);
        bytes
    })
}

fn send_from<S: Source>(job: &Job<'_>, socket: &TcpStream, source: &mut S) -> io::Result<()> {
    let counters = job.counters;
    let result = match job.stream.write_rate_bps {
        None => send_unpaced(job, socket, source),
        Some(rate) => send_paced(job, socket, source, rate),
    };
    counters.set_done(now_ns());
    ended(result, job.stop)
}

/// Hands over the first bytes of a flow that begins together with others; its worker goes on from
/// there. What has a rate, an amount or a pattern of its own is left to it.
pub(crate) fn send_first(
    test: &Test,
    stream: &StreamTest,
    counters: &Counters,
    mut socket: &TcpStream,
) {
    let is_plain = stream.write_rate_bps.is_none() && !stream.verify;
    if !is_plain || !matches!(test.extent, Extent::Time(_)) {
        return;
    }
    let first = payload(FIRST as usize);
    counters.set_begun(now_ns());
    // A small send buffer takes what it can; an error comes again where there is somebody to tell.
    let _ = socket.set_nonblocking(true);
    let length = FIRST.min(stream.message_bytes) as usize;
    let sent = socket.write(&first[..length]).unwrap_or(0);
    let _ = socket.set_nonblocking(false);
    counters.set(sent as u64, 0);
}

fn send_unpaced<S: Source>(job: &Job<'_>, socket: &TcpStream, source: &mut S) -> io::Result<()> {
    let message = job.stream.message_bytes;
    let amount = amount(job.test, message).unwrap_or(u64::MAX);
    let call = message * u64::from(job.stream.batch.unwrap_or(1));
    let (mut bytes, mut messages) = (job.counters.bytes(), 0);
    while bytes < amount && !job.stop.is_requested() && job.may_send(call) {
        // The first may have begun already.
        let begun = if messages == 0 { bytes } else { 0 };
        let whole = (call - begun).min(amount - bytes);
        bytes += send_message(job.stop, socket, source, bytes, whole as usize)?;
        messages += whole.div_ceil(message);
        job.counters.set(bytes, messages);
    }
    Ok(())
}

fn send_paced<S: Source>(
    job: &Job<'_>,
    socket: &TcpStream,
    source: &mut S,
    rate: BitRate,
) -> io::Result<()> {
    let message = job.stream.message_bytes;
    let amount = amount(job.test, message).unwrap_or(u64::MAX);
    let call = message * u64::from(job.stream.batch.unwrap_or(1));
    let mut pacer = Pacer::new(rate, now_ns());
    let (mut bytes, mut messages) = (0, 0);
    while bytes < amount && wait_until(pacer.due_ns(), job) && job.may_send(call) {
        let whole = call.min(amount - bytes);
        pacer.sent(whole, now_ns());
        bytes += send_message(job.stop, socket, source, bytes, whole as usize)?;
        messages += whole.div_ceil(message);
        job.counters.set(bytes, messages);
    }
    Ok(())
}

/// Sends one message, in as many calls as the kernel makes of it; less of it where the peer goes in
/// the middle: what it took is counted, and the next call has the error.
#[inline]
fn send_message<S: Source>(
    stop: &Stop,
    socket: &TcpStream,
    source: &mut S,
    position: u64,
    length: usize,
) -> io::Result<u64> {
    let mut sent = 0;
    while sent < length && !(sent > 0 && stop.is_requested()) {
        match source.send(socket, position + sent as u64, length - sent) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => sent += n,
            Err(error) if is_passing(&error, stop) => {}
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent as u64)
}

/// Sleeps until `due_ns`, counting the time as the application's own; false if asked to stop.
fn wait_until(due_ns: u64, job: &Job<'_>) -> bool {
    /// Longest sleep without looking at the stop flag.
    const SLICE: u64 = 50_000_000;
    loop {
        if job.stop.is_requested() {
            return false;
        }
        let now = now_ns();
        if now >= due_ns {
            return true;
        }
        thread::sleep(Duration::from_nanos((due_ns - now).min(SLICE)));
        job.counters.add_paced_ns(now_ns() - now);
    }
}

/// Receives to the end of the stream, or until the stop flag is set. Answers the way taken.
pub(crate) fn receive(job: &Job<'_>, socket: &TcpStream) -> io::Result<&'static str> {
    let size = match job.stream.read_rate_bps {
        None => usual_read(socket),
        Some(_) => PACED_READ,
    };
    match (job.stream.verify, job.stream.receive) {
        (true, _) => {
            let mut sink = Verify {
                pattern: Pattern::new(job.test.seed),
                buffer: vec![0; size],
                corrupted: 0,
            };
            receive_into(job, socket, &mut sink, size).map(|()| "read")
        }
        (false, ReceiveMethod::Read) => {
            receive_into(job, socket, &mut ReadInto(vec![0; size]), size).map(|()| "read")
        }
        (false, ReceiveMethod::Discard) => {
            receive_into(job, socket, &mut Discard::new(), READ).map(|()| "discard")
        }
    }
}

fn receive_into<S: Sink>(
    job: &Job<'_>,
    socket: &TcpStream,
    sink: &mut S,
    size: usize,
) -> io::Result<()> {
    let result = match job.stream.read_rate_bps {
        None => {
            // Else pauses are twice as long.
            wake_sharply();
            let mut pause = Pause::new(WORTH_A_PAUSE, now_ns());
            receive_all(job, socket, sink, size, |n| {
                pause.add(n as u64, n as u64);
                // A read that was filled has left something behind.
                let due = if n < size {
                    pause.due(now_ns(), || receive_buffer(socket))
                } else {
                    None
                };
                due.into_iter().for_each(thread::sleep);
                true
            })
        }
        Some(rate) => {
            let mut pacer = Pacer::new(rate, now_ns());
            // A reader that sleeps between reads of a hundredth of a second's worth.
            let piece = (rate.bytes_per_second() / 100).clamp(1, size as u64) as usize;
            receive_all(job, socket, sink, piece, move |n| {
                pacer.sent(n as u64, now_ns());
                wait_until(pacer.due_ns(), job)
            })
        }
    };
    job.counters.set_done(now_ns());
    ended(result, job.stop)
}

/// What to read at once.
fn usual_read(socket: &TcpStream) -> usize {
    match TcpInfo::read(socket) {
        Ok(info) if info.snd_mss >= LARGE_SEGMENT => READ_OF_LARGE_SEGMENTS,
        _ => READ,
    }
}

/// Reads to the end; `after` each read says whether to go on.
#[inline]
fn receive_all<S: Sink>(
    job: &Job<'_>,
    socket: &TcpStream,
    sink: &mut S,
    size: usize,
    mut after: impl FnMut(usize) -> bool,
) -> io::Result<()> {
    await_first(job, socket);
    let quickack = QuickAck::new(job.test);
    let (mut bytes, mut reads) = (0u64, 0u64);
    loop {
        quickack.renew(socket);
        match sink.receive(socket, bytes, size) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                bytes += n as u64;
                reads += 1;
                job.counters.set(bytes, reads);
                job.counters.set_corrupted(sink.corrupted());
                if !after(n) || job.stop.is_requested() {
                    return Ok(());
                }
            }
            Err(error) if is_passing(&error, job.stop) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the first byte, and notes when it came.
fn await_first(job: &Job<'_>, socket: &TcpStream) {
    const TICK: Duration = Duration::from_millis(500);
    while !job.stop.is_requested() {
        match wait_ready(socket, Interest::Readable, TICK) {
            Ok(false) => {}
            Ok(true) => return job.counters.set_begun(now_ns()),
            // The read has it, too.
            Err(_) => return,
        }
    }
}

/// Whether the call is to be made again: after a signal, or after the time limit of a socket that
/// nobody else can wake.
fn is_passing(error: &io::Error, stop: &Stop) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        io::ErrorKind::WouldBlock => !stop.is_requested(),
        _ => false,
    }
}

/// An error after the stop flag was set is how a blocked call ends, and none.
fn ended(result: io::Result<()>, stop: &Stop) -> io::Result<()> {
    match result {
        Err(_) if stop.is_requested() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_the_socket_does_not_take_whole_loses_nothing() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let bytes: Vec<u8> = (0..100_003_u32).map(|n| n as u8).collect();
        let messages = [IoSlice::new(&bytes); 100];
        let reader = thread::spawn(move || {
            let mut taken = Vec::new();
            other.read_to_end(&mut taken).map(|_| taken)
        });
        // It takes a part and says so.
        socket.set_nonblocking(true).unwrap();
        let mut batch = Batch {
            messages: &messages,
        };
        let whole = bytes.len() * messages.len();
        let sent = send_message(&Stop::new(), &socket, &mut batch, 0, whole).unwrap();
        drop(socket);
        assert_eq!(sent, whole as u64);
        assert_eq!(reader.join().unwrap().unwrap().len(), whole);
    }

    #[test]
    fn senders_hold_their_payload_once() {
        let large = payload(3 << 20);
        assert!(large.len() >= 3 << 20 && large.iter().all(|byte| *byte == 0x5a));
        assert!(Arc::ptr_eq(&large, &payload(1)));
        assert!(Arc::ptr_eq(&large, &payload(large.len())));
    }
}
