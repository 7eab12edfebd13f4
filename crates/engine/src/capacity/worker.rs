//! A worker process: its work from the first message on its channel to the channel's end, and the
//! UDP sockets of an endpoint's worker.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use linerate_core::capacity::wire::{DATAGRAM_BYTES, Datagram};
use linerate_core::record::CpuSeconds;
use linerate_core::wire::Token;
use linerate_sys::poll::{Poller, Ready, wait_readable};
use linerate_sys::proc::machine::ProcessMemory;
use linerate_sys::proc::privilege::{raise_descriptor_limit, set_descriptor_limit};
use linerate_sys::process::die_first_without_memory;
use linerate_sys::socket::{set_receive_buffer, udp_socket};
use linerate_sys::thread::CpuUsage;

use super::accept::Acceptor;
use super::driver::Driver;
use super::message::{Channel, Listen, Order, Report, Status, Terms, WorkerMessage, WorkerRole};
use super::socket::{Tcp, Udp};
use crate::clock::now_ns;

/// Name of the hidden command that calls [`run_capacity_worker`]: workers are this program, started
/// again.
pub const CAPACITY_WORKER: &str = "capacity-worker";

/// Holds connections for the process at the other end of standard input, which must be a socket,
/// until that is closed.
///
/// # Errors
/// Standard input is no such socket; epoll fails.
pub fn run_capacity_worker() -> io::Result<()> {
    // If the connections take all memory, the kernel kills this process before the one that has
    // started it, which can then still report. If this fails, the run is the same.
    let _ = die_first_without_memory();
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut channel = Channel::new(stream)?;
    let ended = role(&mut channel).and_then(|role| work(role, channel));
    match ended {
        // The order to close everything, which the end of the process does.
        Err(error) if is_end(&error) => Ok(()),
        other => other,
    }
}

/// Whether the error means that the other end is closed.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset)
}

fn role(channel: &mut Channel) -> io::Result<WorkerRole> {
    loop {
        match channel.receive()? {
            None => _ = wait_readable(channel, LOOK_EVERY)?,
            Some(role) => return Ok(role),
        }
    }
}

fn work(role: WorkerRole, mut channel: Channel) -> io::Result<()> {
    match limit(role.terms()).and_then(|()| prepare(role)) {
        Ok((work, ports)) => {
            channel.send(&WorkerMessage::Ready { ports })?;
            work(Parent::new(channel))
        }
        Err(message) => channel.send(&WorkerMessage::Failed { message }),
    }
}

/// The work of a worker until its channel ends.
type Work = Box<dyn FnOnce(Parent) -> io::Result<()>>;

/// The work of a role, and the ports at which the worker listens.
fn prepare(role: WorkerRole) -> Result<(Work, Vec<u16>), String> {
    Ok(match role {
        WorkerRole::AcceptTcp(order) => {
            let (acceptor, ports) = Acceptor::new(&order)?;
            (Box::new(|parent| serve(acceptor, parent)), ports)
        }
        WorkerRole::AnswerUdp(order) => {
            let (answerer, ports) = Answerer::new(&order)?;
            (Box::new(|parent| serve(answerer, parent)), ports)
        }
        WorkerRole::OpenTcp(order) => {
            let driver = Driver::<Tcp>::new(&order)?;
            (Box::new(|parent| serve(driver, parent)), Vec::new())
        }
        WorkerRole::OpenUdp(order) => {
            let driver = Driver::<Udp>::new(&order)?;
            (Box::new(|parent| serve(driver, parent)), Vec::new())
        }
    })
}

/// Sets the limit on descriptors: as many as the host allows, or as few as the role says.
fn limit(terms: &Terms) -> Result<(), String> {
    let limit = match terms.descriptors {
        Some(descriptors) => set_descriptor_limit(descriptors),
        None => raise_descriptor_limit(),
    };
    let failed = |error| format!("cannot set the limit on open descriptors: {error}");
    limit.map(drop).map_err(failed)
}

/// The work of a worker: opening connections, accepting them, or answering datagrams.
pub(super) trait Service {
    /// The poller that watches all sockets.
    fn poller(&mut self) -> &mut Poller;
    /// Handles a socket that is ready.
    fn on_ready(&mut self, ready: &Ready);
    /// Does what is due; the result is when something is due next.
    ///
    /// # Errors
    /// Epoll fails.
    fn advance(&mut self, _now: u64) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Takes an order. An endpoint's worker gets none but that to report.
    fn take(&mut self, _order: Order, _now: u64) {}
    /// Whether an order is being carried out.
    fn is_busy(&self) -> bool {
        false
    }
    /// The present state.
    fn status(&self) -> Status {
        self.report().status
    }
    /// The counts so far, without the CPU time and memory of the process.
    fn report(&self) -> Report;
}

/// Serves until the other end of the channel is closed, which is the order to close everything. One
/// thread and one epoll set do all of it.
///
/// # Errors
/// The channel or epoll fails.
fn serve(mut service: impl Service, mut parent: Parent) -> io::Result<()> {
    service.poller().add(&parent, CHANNEL)?;
    let mut found = Vec::new();
    loop {
        let now = now_ns();
        let wake = service.advance(now)?;
        if parent.is_due(now, service.is_busy()) {
            parent.tell(now, service.status())?;
        }
        wait(service.poller(), wake, &mut found)?;
        for ready in &found {
            if ready.number != CHANNEL {
                service.on_ready(ready);
                continue;
            }
            while let Some(order) = parent.receive()? {
                match order {
                    Order::Report => parent.report(service.report())?,
                    order => service.take(order, now_ns()),
                }
            }
        }
    }
}

/// Waits for events until `wake`, ns; a wait of less than epoll can do ends on time, too.
fn wait(poller: &mut Poller, wake: u64, found: &mut Vec<Ready>) -> io::Result<()> {
    let mut patience = Duration::from_nanos(wake.saturating_sub(now_ns())).min(LONGEST_WAIT);
    if patience > Duration::ZERO && patience < EPOLLS_UNIT {
        wait_readable(poller, patience)?;
        patience = Duration::ZERO;
    }
    poller.wait_into(patience, found)
}

/// The process that has started this one: its orders, and the reports to it.
struct Parent {
    channel: Channel,
    /// Memory of this process before anything was opened, bytes.
    memory_before: Option<u64>,
    orders: u64,
    /// The last status that was sent.
    sent: Status,
    next_status: u64,
}

/// The number under which the channel is watched.
const CHANNEL: u64 = u64::MAX;

impl Parent {
    fn new(channel: Channel) -> Self {
        Self {
            channel,
            memory_before: own_memory(),
            orders: 1,
            sent: Status::default(),
            next_status: 0,
        }
    }

    /// The next order, if it has arrived.
    ///
    /// # Errors
    /// The other end is closed.
    fn receive(&mut self) -> io::Result<Option<Order>> {
        let order = self.channel.receive()?;
        if order.is_some() {
            self.orders += 1;
            self.next_status = 0;
        }
        Ok(order)
    }

    /// Whether a status is due: several times a second, and at once when the worker is no longer
    /// busy.
    fn is_due(&self, now: u64, busy: bool) -> bool {
        now >= self.next_status || (self.sent.busy && !busy)
    }

    /// Sends a status, unless nothing has changed.
    ///
    /// # Errors
    /// The other end is closed.
    fn tell(&mut self, now: u64, status: Status) -> io::Result<()> {
        self.next_status = now + STATUS_EVERY;
        let status = Status { orders: self.orders, ..status };
        if status != self.sent {
            self.channel.send(&WorkerMessage::Status(status.clone()))?;
            self.sent = status;
        }
        Ok(())
    }

    /// Sends a report, to which it adds the CPU time and the memory of this process.
    ///
    /// # Errors
    /// The other end is closed.
    fn report(&mut self, mut report: Report) -> io::Result<()> {
        let usage = CpuUsage::of_process();
        report.cpu =
            CpuSeconds { user: usage.user.as_secs_f64(), system: usage.system.as_secs_f64() };
        (report.memory_before, report.memory) = (self.memory_before, own_memory());
        report.status.orders = self.orders;
        self.channel.send(&WorkerMessage::Report(Box::new(report)))
    }
}

impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn own_memory() -> Option<u64> {
    // Only anonymous memory: a share of shared pages would depend on the number of workers.
    ProcessMemory::read().ok().map(|memory| memory.anonymous)
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const STATUS_EVERY: u64 = 100_000_000;
/// The unit of epoll's timeouts.
const EPOLLS_UNIT: Duration = Duration::from_millis(1);
/// Longest wait: a status is due several times a second.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

// The endpoint's side of UDP.

/// A few sockets that answer many sockets of the client, of each of which they only keep that it
/// was there.
///
/// They are no reflectors: only the client's own address is answered, each of its ports first with
/// a cookie that it has to send back, and no answer is longer than its request.
pub(super) struct Answerer {
    poller: Poller,
    client: IpAddr,
    token: Token,
    sockets: Vec<UdpSocket>,
    /// SipHash with random keys: a cookie can be checked without having been stored.
    secret: RandomState,
    /// Which sockets of the client have sent their cookie back, one bit for each.
    seen: Vec<u64>,
    report: Report,
}

impl Answerer {
    /// Binds the sockets; the result has their ports.
    pub(super) fn new(order: &Listen) -> Result<(Self, Vec<u16>), String> {
        let poller = Poller::new().map_err(|error| format!("cannot wait: {error}"))?;
        let mut sockets = Vec::new();
        let mut ports = Vec::new();
        for index in 0..order.counts.len() {
            let bind = || {
                let socket = udp_socket(order.address, None, false)?;
                socket.set_nonblocking(true)?;
                poller.add(&socket, index as u64)?;
                let port = socket.local_addr()?.port();
                Ok((socket, port))
            };
            let (socket, port) =
                bind().map_err(|error: io::Error| format!("cannot bind: {error}"))?;
            // If the host allows less, requests are lost and sent again.
            let _ = set_receive_buffer(&socket, RECEIVE_BUFFER);
            sockets.push(socket);
            ports.push(port);
        }
        let clients = order.counts.iter().sum::<u64>();
        let answerer = Self {
            poller,
            client: order.client,
            token: order.terms.token,
            sockets,
            secret: RandomState::new(),
            seen: vec![0; clients.div_ceil(64) as usize],
            report: Report::default(),
        };
        Ok((answerer, ports))
    }

    fn answer(&mut self, index: usize) {
        // One byte more than a datagram has, so that a longer one is not taken for one.
        let mut bytes = [0; DATAGRAM_BYTES + 1];
        // Even in a flood of datagrams the other sockets have their turn.
        for _ in 0..BATCH {
            let socket = &self.sockets[index];
            let (n, peer) = match socket.recv_from(&mut bytes) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An ICMP error for an earlier answer.
                Err(_) => continue,
            };
            let asked = Datagram::decode(&bytes[..n]).filter(|asked| asked.token == self.token);
            let Some(asked) = asked.filter(|_| peer.ip().to_canonical() == self.client) else {
                continue;
            };
            let cookie = self.secret.hash_one(peer);
            if asked.cookie == cookie {
                self.see(asked.header.number >> NUMBER_SHIFT);
            }
            let answer = Datagram { cookie, ..asked };
            // If this fails, the client asks again.
            let _ = self.sockets[index].send_to(&answer.encode(), peer);
        }
    }

    fn see(&mut self, number: u64) {
        let Some(word) = self.seen.get_mut((number / 64) as usize) else {
            return;
        };
        let bit = 1 << (number % 64);
        if *word & bit == 0 {
            *word |= bit;
            let status = &mut self.report.status;
            status.opened += 1;
            (status.open, self.report.most) = (status.opened, status.opened);
        }
    }
}

impl Service for Answerer {
    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn on_ready(&mut self, ready: &Ready) {
        self.answer(ready.number as usize);
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}

const BATCH: usize = 64;
/// Receive buffer for the requests of several workers at once, bytes.
pub(super) const RECEIVE_BUFFER: u32 = 4 << 20;
/// The high bits of a message's number are the socket's number, the lower 24 count its messages.
const NUMBER_SHIFT: u32 = 24;
