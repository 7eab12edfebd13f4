//! Takes every connection and reads its hello; never waits for one of them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::foreign::Tool;
use linerate_core::foreign::iperf3::{ACCESS_DENIED, COOKIE_BYTES, Cookie};
use linerate_core::session::message::{Refusal, RefusalReason};
use linerate_core::session::{GREETING_TIMEOUT, refusal_frame};
use linerate_core::wire::{HELLO_BYTES, Hello, HelloError, HelloKind, is_hello_start};
use linerate_sys::poll::Poller;

use super::budget::{Budget, Cost};
use super::clients::Clients;
use super::foreign::iperf3::{self, Caller, Calls};
use super::foreign::{Guest, Ports};
use super::knock::Knocks;
use super::log::Repeats;
use super::occupancy::{Occupancy, PATIENCE};
use super::registry::Registry;
use super::session::{self, Context};
use super::{Endpoint, STOPPING, ServeEvent};
use crate::capacity::Shares;
use crate::measure::flow::{Flow, FlowSocket};
use crate::stop::Stop;

/// Connections that have not said yet what they are; beyond that the oldest goes.
const MAX_PENDING: usize = 1024;
/// How long a refused client gets to read why.
const LINGER: Duration = Duration::from_secs(1);
/// Longest wait without looking at the stop flag.
const TICK: Duration = Duration::from_millis(50);

/// A connection of which the hello is not complete, or which was refused and may still read.
struct Pending {
    stream: TcpStream,
    peer: SocketAddr,
    deadline: Instant,
    hello: Vec<u8>,
    refused: bool,
}

/// What to do with a pending connection after a look at it.
enum Look {
    Wait,
    Gone,
    Hello(Result<Hello, HelloError>),
    /// Of a client of iperf3's.
    Cookie(Cookie),
}

pub(super) struct Door {
    listeners: Vec<TcpListener>,
    knocks: Knocks,
    poller: Poller,
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
    context: Arc<Context>,
    repeats: Repeats,
    ports: Ports,
    one_off: bool,
    stop: Stop,
}

impl Door {
    pub(super) fn new(
        endpoint: Endpoint,
        log: Box<dyn Fn(ServeEvent) + Send + Sync>,
        stop: Stop,
    ) -> io::Result<Self> {
        let (registry, calls) = (Registry::default(), Calls::default());
        let repeats = Repeats::default();
        let poller = Poller::new()?;
        let mut next_number = 0;
        let mut watch = |socket: &dyn Fn(&Poller, u64) -> io::Result<()>| {
            next_number += 1;
            socket(&poller, next_number - 1)
        };
        for listener in &endpoint.listeners {
            listener.set_nonblocking(true)?;
            watch(&|poller, number| poller.add(listener, number))?;
        }
        for datagrams in &endpoint.datagrams {
            datagrams.set_nonblocking(true)?;
            watch(&|poller, number| poller.add(datagrams, number))?;
        }
        Ok(Self {
            listeners: endpoint.listeners,
            knocks: Knocks::new(endpoint.datagrams, registry.clone(), calls.clone()),
            poller,
            pending: BTreeMap::new(),
            next_number,
            context: Arc::new(Context {
                registry,
                calls,
                occupancy: Occupancy::new(PATIENCE),
                limits: endpoint.options.limits,
                allow_treatments: endpoint.options.allow_treatments,
                allow_profiles: endpoint.options.allow_profiles,
                key: endpoint.options.key,
                iperf3: endpoint.options.iperf3,
                shares: Shares::default(),
                budget: Budget::new(Cost::of_host(endpoint.options.max_memory)),
                clients: Clients::new(endpoint.options.limits),
                served: AtomicU32::new(0),
                log: {
                    let repeats = repeats.clone();
                    Box::new(move |event| {
                        if repeats.is_told(&event) {
                            log(event);
                        }
                    })
                },
                stop: stop.clone(),
            }),
            repeats,
            ports: endpoint.ports,
            one_off: endpoint.options.one_off,
            stop,
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        // They end with the stop flag, and hold nothing that waits for them.
        let _others = std::mem::take(&mut self.ports).start(&self.context)?;
        while !self.stop.is_requested() && !self.is_over() {
            let ready: VecDeque<u64> = self.poller.wait(TICK)?.collect();
            for number in ready {
                self.look_at(number);
            }
            self.drop_overdue();
            (self.repeats.sum_up(Instant::now())).for_each(|event| (self.context.log)(event));
        }
        self.finish();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.one_off
            && self.context.served.load(Ordering::Acquire) > 0
            && self.context.clients.is_empty()
    }

    /// Sessions see the stop flag themselves; this only gives them the time.
    fn finish(self) {
        self.stop.request();
        let deadline = Instant::now() + STOPPING;
        while !self.context.clients.is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn look_at(&mut self, number: u64) {
        let sockets = self.listeners.len() as u64;
        if number < sockets {
            self.accept(number as usize);
        } else if number < sockets + self.knocks.len() as u64 {
            self.knocks.answer((number - sockets) as usize);
        } else {
            self.look_at_pending(number);
        }
    }

    fn accept(&mut self, listener: usize) {
        // A burst is taken in one go, but not without end: the others have their turn too.
        for _ in 0..64 {
            match self.listeners[listener].accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors: the oldest that has said nothing yet makes room.
                    if self.pending.pop_first().is_none() {
                        thread::sleep(Duration::from_millis(10));
                    }
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        let mut pending = Pending {
            stream,
            peer,
            deadline: Instant::now() + GREETING_TIMEOUT,
            hello: Vec::with_capacity(HELLO_BYTES),
            refused: false,
        };
        // The hello is mostly there already: the listener defers.
        match pending.look() {
            Look::Wait => {
                if self.poller.add(&pending.stream, number).is_ok() {
                    self.keep(number, pending);
                }
            }
            Look::Gone => {}
            Look::Hello(hello) => self.greet(number, pending, hello),
            Look::Cookie(cookie) => self.call(number, pending, cookie),
        }
    }

    fn keep(&mut self, number: u64, pending: Pending) {
        self.pending.insert(number, pending);
        if self.pending.len() > MAX_PENDING {
            self.pending.pop_first();
        }
    }

    fn look_at_pending(&mut self, number: u64) {
        let Some(mut pending) = self.pending.remove(&number) else {
            return;
        };
        match pending.look() {
            Look::Wait => {
                self.pending.insert(number, pending);
            }
            Look::Gone => {}
            Look::Hello(hello) => {
                // Whoever takes it over watches it in his own way.
                if self.poller.remove(&pending.stream).is_ok() {
                    self.greet(number, pending, hello);
                }
            }
            Look::Cookie(cookie) => {
                if self.poller.remove(&pending.stream).is_ok() {
                    self.call(number, pending, cookie);
                }
            }
        }
    }

    fn greet(&mut self, number: u64, pending: Pending, hello: Result<Hello, HelloError>) {
        match hello.map(|hello| hello.kind) {
            Ok(HelloKind::Control { sealed }) => self.start_session(number, pending, sealed),
            Ok(HelloKind::Data { token, flow }) => {
                let Pending { stream, peer, .. } = pending;
                if stream.set_nonblocking(false).is_ok() {
                    let flow = Flow {
                        id: flow,
                        socket: FlowSocket::Tcp(stream),
                    };
                    self.context.registry.deliver(token, peer.ip(), flow);
                }
            }
            Err(error) => {
                let reason = match error {
                    HelloError::Version(_) => RefusalReason::Version,
                    HelloError::NotLinerate | HelloError::Kind(_) => RefusalReason::Protocol,
                };
                self.refuse(number, pending, reason, error.to_string());
            }
        }
    }

    /// A connection of a client of iperf3's: one of a test that is open, or a new one's first.
    fn call(&mut self, number: u64, pending: Pending, cookie: Cookie) {
        let Pending { stream, peer, .. } = pending;
        let stream = match self.context.calls.deliver(cookie, peer.ip(), stream) {
            Caller::Delivered => return,
            Caller::Unwanted(stream) => {
                (self.context.log)(ServeEvent::Refused {
                    peer,
                    reason: "an iperf3 test has no place for this connection".to_owned(),
                });
                return self.say_last(number, stream, peer, &[ACCESS_DENIED]);
            }
            Caller::New(stream) => stream,
        };
        let proves = self.context.iperf3.is_some() || self.context.key.is_some();
        let newcomer = proves.then_some(&stream);
        let Ok(guest) = Guest::admit(&self.context, Tool::Iperf3, peer, newcomer) else {
            return self.say_last(number, stream, peer, &[ACCESS_DENIED]);
        };
        let started = thread::Builder::new()
            .name("iperf3".into())
            .spawn(move || iperf3::run(guest, stream, cookie));
        if let Err(error) = started {
            (self.context.log)(ServeEvent::Refused {
                peer,
                reason: format!("no thread for it: {error}"),
            });
        }
    }

    fn start_session(&mut self, number: u64, pending: Pending, sealed: bool) {
        let peer = pending.peer;
        let clients = &self.context.clients;
        let admitted = match self.context.key {
            Some(_) => clients
                .meet(peer.ip(), None, &pending.stream)
                .map_err(|error| format!("the endpoint has no room: {error}")),
            None => clients.admit(peer.ip(), None),
        };
        let presence = match admitted {
            Ok(presence) => presence,
            Err(message) => return self.refuse(number, pending, RefusalReason::Busy, message),
        };
        let context = Arc::clone(&self.context);
        let started = thread::Builder::new()
            .name("session".into())
            .spawn(move || session::run(&context, presence, pending.stream, peer, sealed));
        if let Err(error) = started {
            (self.context.log)(ServeEvent::Refused {
                peer,
                reason: format!("no thread for it: {error}"),
            });
        }
    }

    /// Says no, and leaves the client a moment to read it.
    fn refuse(&mut self, number: u64, pending: Pending, reason: RefusalReason, message: String) {
        let bytes = refusal_frame(Refusal {
            reason,
            message: message.clone(),
        });
        (self.context.log)(ServeEvent::Refused {
            peer: pending.peer,
            reason: message,
        });
        self.say_last(number, pending.stream, pending.peer, &bytes);
    }

    /// Sends a peer its last bytes, and leaves it a moment to read them.
    fn say_last(&mut self, number: u64, mut stream: TcpStream, peer: SocketAddr, bytes: &[u8]) {
        // A few hundred bytes fit any fresh socket's buffer; if not, the peer is none to wait for.
        if stream.write_all(bytes).is_err() || stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        if self.poller.add(&stream, number).is_ok() {
            let pending = Pending {
                stream,
                peer,
                deadline: Instant::now() + LINGER,
                hello: Vec::new(),
                refused: true,
            };
            self.keep(number, pending);
        }
    }

    fn drop_overdue(&mut self) {
        let now = Instant::now();
        self.pending.retain(|_, pending| pending.deadline > now);
    }
}

impl Pending {
    fn look(&mut self) -> Look {
        if self.refused {
            return self.drain();
        }
        loop {
            // What follows a cookie is the test's own.
            let most = match self.hello.len() {
                0..COOKIE_BYTES => COOKIE_BYTES,
                _ => HELLO_BYTES,
            };
            let mut bytes = [0; HELLO_BYTES];
            match self.stream.read(&mut bytes[..most - self.hello.len()]) {
                Ok(0) => return Look::Gone,
                Ok(n) => self.hello.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Wait,
                Err(_) => return Look::Gone,
            }
            if !is_hello_start(self.hello[0]) {
                if !Cookie::can_begin(&self.hello) {
                    return Look::Hello(Err(HelloError::NotLinerate));
                }
                if let Some(cookie) = self.hello.first_chunk() {
                    return Look::Cookie(Cookie(*cookie));
                }
            } else if let Some(hello) = self.hello.first_chunk() {
                return Look::Hello(Hello::decode(hello));
            }
        }
    }

    /// Reads on to the end, so that closing does not reset the connection under the refusal.
    fn drain(&mut self) -> Look {
        let mut bytes = [0; 4096];
        // Not without end: whoever sends on is cut off.
        for _ in 0..16 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Look::Gone,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Wait,
                Err(_) => return Look::Gone,
            }
        }
        Look::Gone
    }
}
