//! The acceptor: takes every connection and reads its hello; never waits for one of them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::foreign::Tool;
use linerate_core::foreign::iperf3::{ACCESS_DENIED, COOKIE_BYTES, Cookie};
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::{GREETING_TIMEOUT, refusal_frame};
use linerate_core::wire::{HELLO_BYTES, Hello, HelloKind, WireError, is_hello_start};
use linerate_sys::poll::Poller;
use linerate_sys::proc::privilege::descriptor_limit;

use super::budget::{Budget, Cost, Occupancy, PATIENCE};
use super::clients::{Clients, LogLimit};
use super::crr_listener::{KEPT_TICK, Listeners};
use super::foreign::iperf3::{self, Turns};
use super::foreign::{ForeignClient, Ports};
use super::registry::{Registry, SessionName, UdpChallenges};
use super::session::{self, Context};
use super::{Endpoint, STOPPING, ServeEvent};
use crate::measure::flow::FlowSocket;
use crate::stop::Stop;

/// How long a refused client has to read the reason.
const LINGER: Duration = Duration::from_secs(1);
/// How often an endpoint that serves one client looks whether that client has gone.
const ONE_OFF_TICK: Duration = Duration::from_millis(50);

/// A connection whose hello is not complete, or which was refused and may still read the reason.
struct Pending {
    stream: TcpStream,
    peer: SocketAddr,
    hello: Vec<u8>,
    refused: bool,
}

/// What a pending connection has turned out to be.
enum Greeting {
    Gone,
    Hello(Result<Hello, WireError>),
    /// The connection of an iperf3 client.
    Cookie(Cookie),
}

pub(super) struct Acceptor {
    waiting: Waiting<Pending>,
    challenges: UdpChallenges,
    context: Arc<Context>,
    log_limit: LogLimit,
    ports: Ports,
    stop: Stop,
}

impl Acceptor {
    pub(super) fn new(
        endpoint: Endpoint,
        log: Box<dyn Fn(ServeEvent) + Send + Sync>,
        stop: Stop,
    ) -> io::Result<Self> {
        let (registry, turns) = (Registry::default(), Turns::default());
        let log_limit = LogLimit::default();
        // Who wants to see the progress wants to see everything but refusals.
        let is_limited = endpoint.options.live.is_none();
        let listeners = Arc::new(Listeners::new(endpoint.listeners)?);
        let mut waiting = Waiting::new(Arc::clone(&listeners), &stop)?;
        let mut challenges = UdpChallenges::new(registry.clone(), turns.clone());
        for datagrams in endpoint.datagrams {
            datagrams.set_nonblocking(true)?;
            challenges.add(waiting.watch(&datagrams)?, datagrams);
        }
        Ok(Self {
            waiting,
            challenges,
            context: Arc::new(Context {
                listeners,
                registry,
                turns,
                occupancy: Occupancy::new(PATIENCE),
                budget: Budget::new(
                    Cost::of_host(endpoint.options.max_memory, endpoint.options.limits.connections),
                    endpoint.options.admission.clone(),
                ),
                clients: Clients::new(endpoint.options.limits),
                options: endpoint.options,
                parting: AtomicU32::new(0),
                served: AtomicU32::new(0),
                log: {
                    let log_limit = log_limit.clone();
                    let is_refusal = |e: &ServeEvent| matches!(e, ServeEvent::Refused { .. });
                    Box::new(move |event| {
                        if !(is_limited || is_refusal(&event)) || log_limit.admits(&event) {
                            log(event);
                        }
                    })
                },
                stop: stop.clone(),
            }),
            log_limit,
            ports: endpoint.ports,
            stop,
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        // Their threads end with the stop flag; nothing waits for them.
        std::mem::take(&mut self.ports).start(&self.context)?;
        while !self.stop.is_requested() && !self.is_over() {
            for number in self.waiting.wait(self.patience())? {
                self.look_at(number);
            }
            for stream in self.context.listeners.strangers() {
                if let Ok(peer) = stream.peer_addr() {
                    self.admit(stream, peer);
                }
            }
            let left_out = self.log_limit.sum_up(Instant::now());
            left_out.into_iter().for_each(|event| (self.context.log)(event));
        }
        self.finish();
        Ok(())
    }

    /// An idle endpoint wakes up once a minute.
    fn patience(&self) -> Duration {
        if self.context.options.one_off { ONE_OFF_TICK } else { self.log_limit.patience() }
    }

    fn is_over(&self) -> bool {
        self.context.options.one_off
            && self.context.served.load(Ordering::Acquire) > 0
            && self.context.is_deserted()
    }

    /// Gives the sessions, which see the stop flag themselves, time to end.
    fn finish(self) {
        self.stop.request();
        let deadline = Instant::now() + STOPPING;
        while !self.context.is_deserted() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn look_at(&mut self, number: u64) {
        for (stream, peer) in self.waiting.accept(number) {
            self.admit(stream, peer);
        }
        self.challenges.answer(number);
        if let Some((pending, look)) = self.waiting.take(number, Pending::look) {
            self.hand_on(pending, look);
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut pending =
            Pending { stream, peer, hello: Vec::with_capacity(HELLO_BYTES), refused: false };
        // Mostly the hello has arrived already, because the listener defers.
        match pending.look() {
            Some(look) => self.hand_on(pending, look),
            None => self.waiting.keep(pending, GREETING_TIMEOUT),
        }
    }

    fn hand_on(&mut self, pending: Pending, look: Greeting) {
        match look {
            Greeting::Gone => {}
            Greeting::Hello(hello) => self.greet(pending, hello),
            Greeting::Cookie(cookie) => self.call(pending, cookie),
        }
    }

    fn greet(&mut self, pending: Pending, hello: Result<Hello, WireError>) {
        match hello.map(|hello| hello.kind) {
            Ok(HelloKind::Control { sealed }) => self.start_session(pending, sealed),
            Ok(HelloKind::Data { token, flow }) => {
                let Pending { stream, peer, .. } = pending;
                if stream.set_nonblocking(false).is_ok() {
                    let (name, socket) = (SessionName::Token(token), FlowSocket::Tcp(stream));
                    (self.context.registry).deliver(name, peer.ip(), Some(flow), socket);
                }
            }
            Err(error) => {
                let reason = match error {
                    WireError::Version(_) => RefusalReason::Version,
                    _ => RefusalReason::Protocol,
                };
                self.refuse(pending, reason, error.to_string());
            }
        }
    }

    /// Handles the connection of an iperf3 client: a data connection of an open test, or the
    /// control connection of a new one.
    fn call(&mut self, pending: Pending, cookie: Cookie) {
        let Pending { stream, peer, .. } = pending;
        let (registry, name) = (&self.context.registry, SessionName::Cookie(cookie));
        if registry.has(name) {
            if registry.expects(name, None, peer.ip()) && stream.set_nonblocking(false).is_ok() {
                return registry.deliver(name, peer.ip(), None, FlowSocket::Tcp(stream));
            }
            let reason = "an iperf3 test has no place for this connection";
            self.context.log_refusal(peer, reason.to_owned());
            return self.say_last(stream, peer, &[ACCESS_DENIED]);
        }
        let proves = self.context.options.iperf3.is_some() || self.context.options.key.is_some();
        let newcomer = proves.then_some(&stream);
        let Some(client) = ForeignClient::admit(&self.context, Tool::Iperf3, peer, newcomer) else {
            return self.say_last(stream, peer, &[ACCESS_DENIED]);
        };
        (self.context).spawn("iperf3", peer, move || iperf3::run(client, stream, cookie));
    }

    fn start_session(&mut self, pending: Pending, sealed: bool) {
        let peer = pending.peer;
        let newcomer = self.context.options.key.as_ref().map(|_| &pending.stream);
        let admitted = self.context.clients.admit(peer.ip(), None, newcomer).and_then(|presence| {
            let thread = self.context.take_thread(peer.ip());
            Ok((presence, thread.map_err(|refusal| refusal.message)?))
        });
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(message) => return self.refuse(pending, RefusalReason::Busy, message),
        };
        let context = Arc::clone(&self.context);
        (self.context).spawn("session", peer, move || {
            session::run(&context, admitted, pending.stream, peer, sealed);
        });
    }

    /// Refuses a connection, logs that, and leaves the client a moment to read the reason.
    fn refuse(&mut self, pending: Pending, reason: RefusalReason, message: String) {
        let bytes = refusal_frame(Refusal { reason, message: message.clone() });
        self.context.log_refusal(pending.peer, message);
        self.say_last(pending.stream, pending.peer, &bytes);
    }

    /// Sends a peer its last bytes, and leaves it a moment to read them.
    fn say_last(&mut self, mut stream: TcpStream, peer: SocketAddr, bytes: &[u8]) {
        // A few hundred bytes fit the buffer of any new socket; if not, the peer is not worth it.
        if stream.write_all(bytes).is_err() || stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let pending = Pending { stream, peer, hello: Vec::new(), refused: true };
        self.waiting.keep(pending, LINGER);
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Pending {
    /// `None` if more bytes are needed.
    fn look(&mut self) -> Option<Greeting> {
        if self.refused {
            return self.drain();
        }
        loop {
            // Bytes that follow a cookie belong to the test: they are not read here.
            let max = match self.hello.len() {
                0..COOKIE_BYTES => COOKIE_BYTES,
                _ => HELLO_BYTES,
            };
            let mut bytes = [0; HELLO_BYTES];
            match self.stream.read(&mut bytes[..max - self.hello.len()]) {
                Ok(0) => return Some(Greeting::Gone),
                Ok(n) => self.hello.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Greeting::Gone),
            }
            if !is_hello_start(self.hello[0]) {
                if !Cookie::can_begin(&self.hello) {
                    return Some(Greeting::Hello(Err(WireError::NotLinerate)));
                }
                if let Some(cookie) = self.hello.first_chunk() {
                    return Some(Greeting::Cookie(Cookie(*cookie)));
                }
            } else if let Some(hello) = self.hello.first_chunk() {
                return Some(Greeting::Hello(Hello::decode(hello)));
            }
        }
    }

    /// Reads to the end: closing with unread bytes would reset the connection, and the refusal
    /// would be lost.
    fn drain(&mut self) -> Option<Greeting> {
        let mut bytes = [0; 4096];
        // Within bounds: a peer that goes on sending is cut off.
        for _ in 0..16 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Some(Greeting::Gone),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Greeting::Gone),
            }
        }
        Some(Greeting::Gone)
    }
}

// The listening sockets, and the accepted connections that have not sent their hello yet. Each of
// those has a deadline; their number is limited, and they have no threads.

/// Most connections that wait, and for how many descriptors of this process there may be one; one
/// more closes the oldest.
const MAX_WAITING: u64 = 1024;
const DESCRIPTORS: u64 = 32;
/// Most connections that are accepted at once, before other sockets have their turn.
const BURST: usize = 64;
/// Numbers that no socket has: the stop's bell, the crr listener's bell, and the crr listener.
const STOP: u64 = u64::MAX;
const BELL: u64 = STOP - 1;
const DOOR: u64 = STOP - 2;

/// The watched sockets, each with a number; listeners have the numbers from 0 on.
pub(super) struct Waiting<C> {
    listeners: Arc<Listeners>,
    /// Set while a test has the crr listener: how many connections its flows had accepted at the
    /// last look.
    away: Option<u64>,
    poller: Poller,
    next: u64,
    max_waiting: usize,
    /// Connections with their deadlines, the oldest first.
    connections: BTreeMap<u64, (Instant, C)>,
}

impl<C: AsFd> Waiting<C> {
    /// A request to `stop` ends a wait.
    ///
    /// # Errors
    /// No descriptors.
    pub(super) fn new(listeners: Arc<Listeners>, stop: &Stop) -> io::Result<Self> {
        let mut waiting = Self {
            listeners: Arc::clone(&listeners),
            away: None,
            poller: Poller::new()?,
            next: 0,
            max_waiting: MAX_WAITING.min(descriptor_limit().soft / DESCRIPTORS) as usize,
            connections: BTreeMap::new(),
        };
        waiting.poller.add(stop.bell()?, STOP)?;
        waiting.poller.add(listeners.bell(), BELL)?;
        for listener in &listeners.sockets {
            listener.set_nonblocking(true)?;
            waiting.watch(listener)?;
        }
        Ok(waiting)
    }

    /// Watches one more socket, under the next number.
    ///
    /// # Errors
    /// The kernel's limit is reached.
    pub(super) fn watch(&mut self, socket: &impl AsFd) -> io::Result<u64> {
        self.poller.add(socket, self.next)?;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Waits up to `longest` for sockets that are ready; the result has their numbers. Connections
    /// that are overdue are closed.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub(super) fn wait(&mut self, longest: Duration) -> io::Result<Vec<u64>> {
        let now = Instant::now();
        self.connections.retain(|_, (until, _)| *until > now);
        let tick = self.tick(now, longest);
        let mut ready: Vec<u64> = self.poller.wait(tick)?.collect();
        if ready.contains(&BELL) {
            self.listeners.bell().read_exact(&mut [0])?;
        }
        ready.extend(self.looks_in().then_some(DOOR));
        Ok(ready)
    }

    fn tick(&self, now: Instant, longest: Duration) -> Duration {
        if self.away.is_some() {
            return KEPT_TICK;
        }
        let deadlines = self.connections.values().map(|(until, _)| *until);
        let left = deadlines.min().map(|first| first - now);
        left.map_or(longest, |left| left.min(longest))
    }

    /// Whether the acceptor must look at the crr listener: all flows are busy, and slow.
    fn looks_in(&mut self) -> bool {
        let taken = self.listeners.taken();
        let kept = self.listeners.crr_listener().map(|_| taken);
        let before = std::mem::replace(&mut self.away, kept);
        let slow = before.is_some_and(|before| taken - before < BURST as u64);
        self.away.is_some() && slow && !self.listeners.is_awaited()
    }

    /// Accepts connections at the listener of this number, if it is a listener's.
    pub(super) fn accept(&mut self, number: u64) -> Vec<(TcpStream, SocketAddr)> {
        let mut accepted = Vec::new();
        if number == DOOR {
            return self.listeners.accept_at_door(BURST);
        }
        let Some(listener) = self.listeners.sockets.get(number as usize) else {
            return accepted;
        };
        while accepted.len() < self.max_waiting.min(BURST) {
            match listener.accept() {
                Ok(connection) => accepted.push(connection),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    // Out of descriptors: the oldest connection without a hello is closed.
                    if self.connections.pop_first().is_none() {
                        thread::sleep(Duration::from_millis(10));
                    }
                    break;
                }
            }
        }
        accepted
    }

    /// Keeps a connection for `time` at most. One that cannot be watched is closed.
    pub(super) fn keep(&mut self, connection: C, time: Duration) {
        if let Ok(number) = self.watch(&connection) {
            let until = Instant::now() + time;
            self.connections.insert(number, (until, connection));
            if self.connections.len() > self.max_waiting {
                self.connections.pop_first();
            }
        }
    }

    /// Takes out the connection of this number if `look` finds something; else it stays.
    pub(super) fn take<T>(
        &mut self,
        number: u64,
        look: impl FnOnce(&mut C) -> Option<T>,
    ) -> Option<(C, T)> {
        let found = look(&mut self.connections.get_mut(&number)?.1)?;
        let (_, connection) = self.connections.remove(&number)?;
        // The next owner watches the connection itself.
        self.poller.remove(&connection).ok()?;
        Some((connection, found))
    }
}
