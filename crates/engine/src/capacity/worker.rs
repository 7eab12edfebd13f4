//! A worker process: what it does from its first order to the end of its channel.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use linerate_core::record::CpuSeconds;
use linerate_sys::poll::wait_readable;
use linerate_sys::proc::limits::{raise_descriptor_limit, set_descriptor_limit};
use linerate_sys::proc::memory::ProcessMemory;
use linerate_sys::process::die_first_without_memory;
use linerate_sys::thread::CpuUsage;

use super::answer::Answerer;
use super::connect::Connections;
use super::driver::{Driver, Pool};
use super::knock::Sockets;
use super::message::{Channel, Connect, Order, Report, Terms, Word};
use super::serve::Holder;

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
    let ended = first_order(&mut channel).and_then(|order| run(order, channel));
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

fn first_order(channel: &mut Channel) -> io::Result<Order> {
    loop {
        match channel.receive()? {
            None => _ = wait_readable(channel, LOOK_EVERY)?,
            Some(order) => return Ok(order),
        }
    }
}

fn run(order: Order, mut channel: Channel) -> io::Result<()> {
    let made = match &order {
        Order::Listen(listen) | Order::Answer(listen) => limit(&listen.terms),
        Order::Connect(connect) | Order::Knock(connect) => limit(&connect.terms),
        _ => Err("the first order is none".to_owned()),
    };
    if let Err(message) = made {
        return channel.send(&Word::Failed { message });
    }
    match order {
        Order::Listen(listen) => match Holder::new(&listen) {
            Ok((holder, ports)) => {
                ready(&mut channel, ports)?;
                holder.run(channel)
            }
            Err(message) => channel.send(&Word::Failed { message }),
        },
        Order::Answer(listen) => match Answerer::new(&listen) {
            Ok((answerer, ports)) => {
                ready(&mut channel, ports)?;
                answerer.run(channel)
            }
            Err(message) => channel.send(&Word::Failed { message }),
        },
        Order::Connect(connect) => drive(Connections::new(&connect), &connect, channel),
        Order::Knock(connect) => drive(Sockets::new(&connect), &connect, channel),
        _ => Ok(()),
    }
}

fn drive(pool: Result<impl Pool, String>, order: &Connect, mut channel: Channel) -> io::Result<()> {
    match pool {
        Ok(pool) => {
            ready(&mut channel, Vec::new())?;
            Driver::new(pool, channel, order.seed)?.run()
        }
        Err(message) => channel.send(&Word::Failed { message }),
    }
}

fn ready(channel: &mut Channel, ports: Vec<u16>) -> io::Result<()> {
    channel.send(&Word::Ready {
        ports,
        memory: own_memory(),
    })
}

/// As many descriptors as the host allows, or as few as it was told.
fn limit(terms: &Terms) -> Result<(), String> {
    let limit = match terms.descriptors {
        Some(descriptors) => set_descriptor_limit(descriptors),
        None => raise_descriptor_limit(),
    };
    limit.map(drop).map_err(|error| crate::words::chain(&error))
}

/// What this process has spent, and the memory that it has, for its report.
pub(super) fn send_report(channel: &mut Channel, mut report: Report) -> io::Result<()> {
    let usage = CpuUsage::of_process();
    report.cpu = CpuSeconds {
        user: usage.user.as_secs_f64(),
        system: usage.system.as_secs_f64(),
    };
    report.memory = own_memory();
    channel.send(&Word::Report(Box::new(report)))
}

fn own_memory() -> Option<u64> {
    // A share of what is shared would change with the number of workers.
    ProcessMemory::read().ok().map(|memory| memory.anonymous)
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
