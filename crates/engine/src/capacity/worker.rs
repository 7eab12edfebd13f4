//! A worker process: what it does from the first word on its channel to the channel's end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use linerate_core::record::CpuSeconds;
use linerate_sys::poll::wait_readable;
use linerate_sys::proc::limits::{raise_descriptor_limit, set_descriptor_limit};
use linerate_sys::proc::memory::ProcessMemory;
use linerate_sys::process::die_first_without_memory;
use linerate_sys::thread::CpuUsage;

use super::accept::Acceptor;
use super::answer::Answerer;
use super::driver::Driver;
use super::message::{Channel, Connect, Order, Report, Role, Status, Terms, Word};
use super::pool::{Pool, Transport};
use super::serve::serve;
use super::tcp::Tcp;
use super::udp::Udp;

/// Name of the hidden command that [`run_capacity_worker`] is to be called by: workers are this
/// program, started again.
pub const CAPACITY_WORKER: &str = "capacity-worker";

/// Holds connections for the process at the other end of standard input, which must be a socket,
/// until that is closed.
///
/// # Errors
/// Standard input is no such socket; epoll fails.
pub fn run_capacity_worker() -> io::Result<()> {
    // What holds the connections goes first where they take all memory: who started it can then say
    // what it held. Without that the run is the same.
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

/// The other end is closed, with or without having read all that was said to it.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset)
}

fn role(channel: &mut Channel) -> io::Result<Role> {
    loop {
        match channel.receive()? {
            None => _ = wait_readable(channel, LOOK_EVERY)?,
            Some(role) => return Ok(role),
        }
    }
}

fn work(role: Role, mut channel: Channel) -> io::Result<()> {
    match limit(role.terms()).and_then(|()| prepare(role)) {
        Ok((work, ports)) => {
            channel.send(&Word::Ready { ports })?;
            work(Parent::new(channel))
        }
        Err(message) => channel.send(&Word::Failed { message }),
    }
}

/// What a worker does until its channel ends.
type Work = Box<dyn FnOnce(Parent) -> io::Result<()>>;

/// The work of that role, and the ports at which it is done.
fn prepare(role: Role) -> Result<(Work, Vec<u16>), String> {
    Ok(match role {
        Role::AcceptTcp(order) => {
            let (acceptor, ports) = Acceptor::new(&order)?;
            (Box::new(|parent| serve(acceptor, parent)), ports)
        }
        Role::AnswerUdp(order) => {
            let (answerer, ports) = Answerer::new(&order)?;
            (Box::new(|parent| serve(answerer, parent)), ports)
        }
        Role::OpenTcp(order) => (drive::<Tcp>(&order)?, Vec::new()),
        Role::OpenUdp(order) => (drive::<Udp>(&order)?, Vec::new()),
    })
}

fn drive<T: Transport + 'static>(order: &Connect) -> Result<Work, String> {
    let (pool, seed) = (Pool::<T>::new(order)?, order.seed);
    Ok(Box::new(move |parent| {
        Driver::new(pool, parent, seed)?.run()
    }))
}

/// As many descriptors as the host allows, or as few as it was told.
fn limit(terms: &Terms) -> Result<(), String> {
    let limit = match terms.descriptors {
        Some(descriptors) => set_descriptor_limit(descriptors),
        None => raise_descriptor_limit(),
    };
    let failed = |error| format!("cannot set the limit on open descriptors: {error}");
    limit.map(drop).map_err(failed)
}

/// The process that has started this one: its orders, and what it is told.
pub(super) struct Parent {
    channel: Channel,
    /// Of this process, before anything was opened, bytes.
    memory_before: Option<u64>,
    orders: u64,
    told: Status,
    next_status: u64,
}

/// Under which it is watched.
pub(super) const CHANNEL: u64 = u64::MAX;

impl Parent {
    fn new(channel: Channel) -> Self {
        Self {
            channel,
            memory_before: own_memory(),
            orders: 1,
            told: Status::default(),
            next_status: 0,
        }
    }

    /// The next order that is there.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn receive(&mut self) -> io::Result<Option<Order>> {
        let order = self.channel.receive()?;
        if order.is_some() {
            self.orders += 1;
            self.next_status = 0;
        }
        Ok(order)
    }

    /// Whether it is to be told how things stand: several times a second, and at once when what had
    /// an end is over.
    pub(super) fn is_due(&self, now: u64, busy: bool) -> bool {
        now >= self.next_status || (self.told.busy && !busy)
    }

    /// Tells how things stand, unless nothing has changed.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn tell(&mut self, now: u64, status: Status) -> io::Result<()> {
        self.next_status = now + STATUS_EVERY;
        let status = Status {
            orders: self.orders,
            ..status
        };
        if status != self.told {
            self.channel.send(&Word::Status(status.clone()))?;
            self.told = status;
        }
        Ok(())
    }

    /// Tells all, with what this process has spent and the memory that it has.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn report(&mut self, mut report: Report) -> io::Result<()> {
        let usage = CpuUsage::of_process();
        report.cpu = CpuSeconds {
            user: usage.user.as_secs_f64(),
            system: usage.system.as_secs_f64(),
        };
        (report.memory_before, report.memory) = (self.memory_before, own_memory());
        report.status.orders = self.orders;
        self.channel.send(&Word::Report(Box::new(report)))
    }
}

impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn own_memory() -> Option<u64> {
    // A share of what is shared would change with the number of workers.
    ProcessMemory::read().ok().map(|memory| memory.anonymous)
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const STATUS_EVERY: u64 = 100_000_000;
