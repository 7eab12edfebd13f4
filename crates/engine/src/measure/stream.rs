//! The two ends of a TCP bulk transfer. One thread for each flow, blocking calls, nothing in the
//! loop but the call itself, the counters and the stop flag.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use linerate_core::pace::Pacer;
use linerate_core::plan::{Extent, ReceiveMethod, Role, SendMethod, StreamTest, Test};
use linerate_core::wire::Pattern;
use linerate_sys::poll::{Interest, wait_ready};
use linerate_sys::socket;
use linerate_sys::splice::{self, Discard, Sendfile, Vmsplice};
use linerate_sys::tcp_info::TcpInfo;
use linerate_sys::thread::{cpu_time, wake_sharply};

use super::flow::{Counters, FlowState, Quota, Shared};
use super::options::QuickAck;
use super::page_aligned::PageAligned;
use super::pause::{Pause, receive_buffer};
use crate::clock::now_ns;
use crate::shares::lock;
use crate::stop::Stop;

/// Bytes that a receiver reads, or discards, in one call, whatever the size of the messages. The
/// kernel acknowledges a read of more than a segment at once, so that small reads cost both ends
/// packets. Over veth 128 KiB passed 5 % more than 64 KiB with four flows, 16 % more with zero-copy
/// sends and as much with one flow of copies; 256 KiB passed less.
const READ: usize = 128 << 10;
/// The same where segments are as large (loopback). What fits the first-level cache (32 to 48 KiB)
/// stays in it from the copy of one read to the next: Linux 6.18 reached 45 Gbit/s with 24 KiB, 37
/// with 32, 31 with 64 and 28 with 128.
const READ_OF_LARGE_SEGMENTS: usize = 24 << 10;
/// A segment of this many bytes is larger than any that Ethernet carries.
const LARGE_SEGMENT: u32 = 16 << 10;
/// Most bytes that a receiver with a set read rate takes between two sleeps.
const PACED_READ: usize = 128 << 10;
/// A sender that has used up its quota looks at the stop flag this often.
const QUOTA_TICK_NS: u64 = 2_000_000;
/// Fewer bytes during a pause (32 KiB in 50 µs are 5.2 Gbit/s) do not make up for its cost.
const WORTH_A_PAUSE: u64 = 32 << 10;

/// Bytes that [`send_first`] sends: ten Ethernet segments, the initial congestion window of a
/// connection (RFC 6928).
pub(super) const FIRST: u64 = 14_480;

/// What the worker of one flow needs.
struct Job<'a> {
    test: &'a Test,
    stream: &'a StreamTest,
    counters: &'a Counters,
    stop: &'a Stop,
    /// Limits the bytes that all flows together send.
    quota: Option<&'a Quota>,
}

impl Job<'_> {
    fn may_send(&self, bytes: u64) -> bool {
        self.quota.is_none_or(|quota| quota.take(bytes))
    }

    /// Sleeps until `due_ns` and counts the time as the application's own; false if asked to stop.
    fn wait_until(&self, due_ns: u64) -> bool {
        let slept = |ns| self.counters.add_paced_ns(ns);
        self.stop.sleep_until(due_ns, Duration::ZERO, slept)
    }
}

/// How the bytes of a message reach the kernel.
trait ByteSource {
    /// Hands over at most `length` bytes, the first of them at stream position `position`.
    fn send(&mut self, socket: &TcpStream, position: u64, length: usize) -> io::Result<usize>;
}

/// How the bytes leave the kernel.
trait Sink {
    /// Takes at most `length` bytes, the first of them at stream position `position`; 0 at the end
    /// of the stream.
    fn receive(&mut self, socket: &TcpStream, position: u64, length: usize) -> io::Result<usize>;

    /// Bytes that differed from those sent, where they are compared.
    fn corrupted(&self) -> u64 {
        0
    }
}

struct Copy(Arc<PageAligned>);

impl ByteSource for Copy {
    #[inline]
    fn send(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        socket::send(socket, &self.0[..length])
    }
}

/// Sends several messages of the same bytes in one call.
struct Batch<'a> {
    messages: &'a [IoSlice<'a>],
}

impl ByteSource for Batch<'_> {
    #[inline]
    fn send(&mut self, mut socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        let message = &self.messages[0];
        // If the kernel took only a part of a message, the rest of that message goes first.
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

impl ByteSource for PatternCopy {
    fn send(&mut self, mut socket: &TcpStream, position: u64, length: usize) -> io::Result<usize> {
        self.pattern.fill(position, &mut self.buffer[..length]);
        socket.write(&self.buffer[..length])
    }
}

impl ByteSource for Vmsplice {
    #[inline]
    fn send(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        Vmsplice::send(self, socket, length)
    }
}

impl ByteSource for Sendfile {
    #[inline]
    fn send(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        Sendfile::send(self, socket, length)
    }
}

struct ReadInto(PageAligned);

impl Sink for ReadInto {
    #[inline]
    fn receive(&mut self, socket: &TcpStream, _: u64, length: usize) -> io::Result<usize> {
        let length = length.min(self.0.len());
        socket::receive(socket, &mut self.0[..length])
    }
}

struct Verify {
    pattern: Pattern,
    buffer: PageAligned,
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

/// Bytes to send; `None` if the test ends by time.
fn amount(test: &Test, message: u64) -> Option<u64> {
    match test.extent {
        Extent::Time(_) => None,
        Extent::Bytes(bytes) => Some(bytes.0),
        Extent::Count(count) => Some(count.saturating_mul(message)),
    }
}

/// Sends or receives the stream of a flow to its end; the result is the method used, as the record
/// names it.
pub(crate) fn run(
    shared: &Shared,
    flow: &FlowState,
    stream: &StreamTest,
    socket: &TcpStream,
) -> io::Result<&'static str> {
    let job = Job {
        test: &shared.test,
        stream,
        counters: &flow.counters,
        stop: &shared.stop,
        quota: shared.quota.as_ref(),
    };
    if flow.sends { send(&job, socket) } else { receive(&job, socket) }
}

/// Sends until the amount is sent, the peer is gone or the stop flag is set; then ends the stream.
fn send(job: &Job<'_>, socket: &TcpStream) -> io::Result<&'static str> {
    let message = job.stream.message_bytes as usize;
    let seed = job.test.seed;
    let (result, method) = match (job.stream.verify, job.stream.send) {
        (true, _) => {
            let mut source = PatternCopy { pattern: Pattern::new(seed), buffer: vec![0; message] };
            (send_from(job, socket, &mut source), "write")
        }
        (false, SendMethod::Copy) => match job.stream.batch {
            None => (send_from(job, socket, &mut Copy(payload(message))), "write"),
            Some(batch) => {
                let payload = payload(message);
                let messages = vec![IoSlice::new(&payload[..message]); batch as usize];
                let mut source = Batch { messages: &messages };
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
        // The peer is to end the test before the stream ends: iperf3 3.12 counts the end of a
        // stream as many empty blocks.
        while job.wait_until(now_ns() + QUOTA_TICK_NS) {}
    }
    // The receiver reads to the end of the stream. If the connection is gone, this fails.
    let _ = socket.shutdown(Shutdown::Write);
    result.map(|()| method)
}

/// At least `message` bytes, which all senders of this process share, so that many flows with large
/// messages hold them in memory only once.
fn payload(message: usize) -> Arc<PageAligned> {
    static SHARED: Mutex<Weak<PageAligned>> = Mutex::new(Weak::new());
    let mut shared = lock(&SHARED);
    let enough = shared.upgrade().filter(|bytes| bytes.len() >= message);
    enough.unwrap_or_else(|| {
        // Powers of two: however sizes grow, what is held is less than four times the largest.
        let bytes = Arc::new(PageAligned::filled_with(0x5a, message.next_power_of_two()));
        *shared = Arc::downgrade(&bytes);
        bytes
    })
}

fn send_from<S: ByteSource>(job: &Job<'_>, socket: &TcpStream, source: &mut S) -> io::Result<()> {
    let mut work = OwnWork::of(job, Role::Sender);
    let result = match job.stream.write_rate_bps {
        None => send_all(job, socket, source, |bytes| {
            work.on(bytes, job.stop);
            !job.stop.is_requested()
        }),
        Some(rate) => {
            let mut pacer = Pacer::new(rate, now_ns());
            send_all(job, socket, source, move |bytes| {
                work.on(bytes, job.stop);
                let is_due = job.wait_until(pacer.due_ns());
                pacer.sent(bytes, now_ns());
                is_due
            })
        }
    };
    job.counters.set_done(now_ns());
    ended(result, job.stop)
}

/// Sends the first bytes of a flow that begins together with others; its worker continues from
/// there. A flow with a rate, an amount or a pattern is left to its worker entirely.
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
    // A small send buffer takes what fits. An error is met again by the worker, which reports it.
    let _ = socket.set_nonblocking(true);
    let length = FIRST.min(stream.message_bytes) as usize;
    let sent = socket.write(&first[..length]).unwrap_or(0);
    let _ = socket.set_nonblocking(false);
    counters.set(sent as u64, 0);
}

/// Sends message after message; `before` each call is asked, with the call's bytes, whether to go
/// on.
#[inline]
fn send_all<S: ByteSource>(
    job: &Job<'_>,
    socket: &TcpStream,
    source: &mut S,
    mut before: impl FnMut(u64) -> bool,
) -> io::Result<()> {
    let message = job.stream.message_bytes;
    let amount = amount(job.test, message).unwrap_or(u64::MAX);
    let call = message * u64::from(job.stream.batch.unwrap_or(1));
    let (mut bytes, mut messages) = (job.counters.bytes(), 0);
    while bytes < amount {
        // Of the first message `send_first` may have sent a part.
        let begun = if messages == 0 { bytes } else { 0 };
        let whole = (call - begun).min(amount - bytes);
        if !before(whole) || !job.may_send(call) {
            break;
        }
        bytes += send_message(job.stop, socket, source, bytes, whole as usize)?;
        messages += whole.div_ceil(message);
        job.counters.set(bytes, messages);
    }
    Ok(())
}

/// Sends one message, in as many calls as the kernel needs. If the peer goes away in the middle,
/// the part that was sent is counted, and the next call reports the error.
#[inline]
fn send_message<S: ByteSource>(
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

/// Receives to the end of the stream, or until the stop flag is set.
fn receive(job: &Job<'_>, socket: &TcpStream) -> io::Result<&'static str> {
    let size = match job.stream.read_rate_bps {
        None => usual_read(socket),
        Some(_) => PACED_READ,
    };
    match (job.stream.verify, job.stream.receive) {
        (true, _) => {
            let mut sink = Verify {
                pattern: Pattern::new(job.test.seed),
                buffer: PageAligned::filled_with(0, size),
                corrupted: 0,
            };
            receive_into(job, socket, &mut sink, size).map(|()| "read")
        }
        (false, ReceiveMethod::Read) => {
            let mut sink = ReadInto(PageAligned::filled_with(0, size));
            receive_into(job, socket, &mut sink, size).map(|()| "read")
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
    let mut work = OwnWork::of(job, Role::Receiver);
    let result = match job.stream.read_rate_bps {
        None => {
            // With the default timer slack pauses would be twice as long.
            wake_sharply();
            let mut pause = Pause::new(WORTH_A_PAUSE, now_ns());
            receive_all(job, socket, sink, size, |n| {
                pause.add(n as u64, n as u64);
                // A read that filled the buffer has left bytes behind.
                let due =
                    if n < size { pause.due(now_ns(), || receive_buffer(socket)) } else { None };
                due.into_iter().for_each(thread::sleep);
                work.on(n as u64, job.stop);
                true
            })
        }
        Some(rate) => {
            let mut pacer = Pacer::new(rate, now_ns());
            // Each read takes the bytes of a hundredth of a second.
            let piece = (rate.bytes_per_second() / 100).clamp(1, size as u64) as usize;
            receive_all(job, socket, sink, piece, move |n| {
                work.on(n as u64, job.stop);
                pacer.sent(n as u64, now_ns());
                job.wait_until(pacer.due_ns())
            })
        }
    };
    job.counters.set_done(now_ns());
    ended(result, job.stop)
}

/// An application's own work on its bytes: it takes so much CPU time of the flow's thread.
struct OwnWork {
    ns_per_kib: u64,
    /// CPU time that the bytes so far have yet to take, ns; less than none after a clock that was
    /// read late.
    owed_ns: i64,
}

impl OwnWork {
    fn of(job: &Job<'_>, role: Role) -> Self {
        Self { ns_per_kib: job.stream.work_ns_per_kib(role).into(), owed_ns: 0 }
    }

    /// Works on these bytes, or on none if asked to stop.
    #[inline]
    fn on(&mut self, bytes: u64, stop: &Stop) {
        if self.ns_per_kib > 0 {
            self.owed_ns += (bytes * self.ns_per_kib / 1024) as i64;
            self.spend(stop);
        }
    }

    fn spend(&mut self, stop: &Stop) {
        let began = cpu_time();
        while self.owed_ns > 0 && !stop.is_requested() {
            let spent = cpu_time().saturating_sub(began).as_nanos() as i64;
            if spent >= self.owed_ns {
                self.owed_ns -= spent;
            }
        }
    }
}

/// Bytes to read in one call.
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

/// Waits for the first byte, and records when it came.
fn await_first(job: &Job<'_>, socket: &TcpStream) {
    const TICK: Duration = Duration::from_millis(500);
    while !job.stop.is_requested() {
        match wait_ready(socket, Interest::Readable, TICK) {
            Ok(false) => {}
            Ok(true) => return job.counters.set_begun(now_ns()),
            // The read that follows fails with the same error.
            Err(_) => return,
        }
    }
}

/// Whether the call is to be repeated: after a signal, or after the timeout of a socket that no
/// other thread can shut down.
fn is_passing(error: &io::Error, stop: &Stop) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        io::ErrorKind::WouldBlock => !stop.is_requested(),
        _ => false,
    }
}

/// An error after the stop flag was set is no failure: it is how a blocked call ends.
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
    fn a_batch_of_which_the_socket_takes_a_part_arrives_whole() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let bytes: Vec<u8> = (0..100_003_u32).map(|n| n as u8).collect();
        let messages = [IoSlice::new(&bytes); 100];
        let reader = thread::spawn(move || {
            let mut taken = Vec::new();
            other.read_to_end(&mut taken).map(|_| taken)
        });
        // A non-blocking socket takes a part of it.
        socket.set_nonblocking(true).unwrap();
        let mut batch = Batch { messages: &messages };
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
