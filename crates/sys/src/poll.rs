//! Waits for many sockets at once, or for one.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

/// Waits for many sockets (epoll). The caller gives each a number. A socket is reported again and
/// again while it is ready or, if added by [`Poller::add_edge`], once each time that it becomes
/// ready.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    found: Vec<Ready>,
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, found: Vec::new() })
    }

    /// Watches `socket` under `number`. Dropping the socket ends it.
    ///
    /// # Errors
    /// The socket is watched already, or the kernel's limit is reached.
    pub fn add(&self, socket: &impl AsFd, number: u64) -> io::Result<()> {
        self.watch(socket, number, READABLE)
    }

    /// Watches `socket` under `number` until it becomes writable or fails: the end of a connection
    /// attempt.
    ///
    /// # Errors
    /// The socket is watched already, or the kernel's limit is reached.
    pub fn add_writable(&self, socket: &impl AsFd, number: u64) -> io::Result<()> {
        self.watch(socket, number, EventFlags::OUT)
    }

    /// Watches `socket` under `number` and reports it once when it becomes ready for what
    /// `interest` names. The caller then reads until there is nothing more. A socket that is ready
    /// when it is added is reported as well.
    ///
    /// # Errors
    /// As [`Poller::add`]; `ENOSPC`: `fs.epoll.max_user_watches`.
    pub fn add_edge(&self, socket: &impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Readable => READABLE,
            Interest::Writable => EventFlags::OUT,
            Interest::Either => READABLE | EventFlags::OUT,
        };
        self.watch(socket, number, events | EventFlags::ET)
    }

    fn watch(&self, socket: &impl AsFd, number: u64, events: EventFlags) -> io::Result<()> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), events)?;
        Ok(())
    }

    /// Watches `socket` no longer.
    ///
    /// # Errors
    /// It was not watched.
    pub fn remove(&self, socket: &impl AsFd) -> io::Result<()> {
        epoll::delete(&self.epoll, socket)?;
        Ok(())
    }

    /// The numbers of the sockets that are ready, at most 256; none after `timeout` or a signal.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<impl Iterator<Item = u64> + '_> {
        collect(&self.epoll, timeout, &mut self.found)?;
        Ok(self.found.iter().map(|ready| ready.number))
    }

    /// The first sockets that have something, at most as many as there is room for, with what it
    /// is; none after
    /// `timeout` or a signal. The caller's own room, so that it may change what is watched while it
    /// looks at them.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub fn wait_into(&mut self, timeout: Duration, found: &mut Vec<Ready>) -> io::Result<()> {
        collect(&self.epoll, timeout, found)
    }
}

/// A socket that has become ready, and for what. Its failure and its end make it ready for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Under which it was added.
    pub number: u64,
    /// There is something to read, if only its end.
    pub readable: bool,
    /// There is room to send, or the connection is made.
    pub writable: bool,
    /// It has failed, or the peer sends no more: what there is to read ends with that.
    pub ended: bool,
}

impl From<&Event> for Ready {
    fn from(event: &Event) -> Self {
        let ended = EventFlags::HUP | EventFlags::ERR;
        let (events, number) = (event.flags, event.data.u64());
        Self {
            number,
            readable: events.intersects(READABLE | ended),
            writable: events.intersects(EventFlags::OUT | ended),
            ended: events.intersects(EventFlags::RDHUP | ended),
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// What to wait for. Errors and the end of the connection end every wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Readable,
    /// Room for something to send.
    Writable,
    /// Whichever comes first.
    Either,
}

/// Waits until `socket` has something to read (or has ended); false after `timeout` or a signal.
///
/// # Errors
/// None that a caller can mend.
pub fn wait_readable(socket: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait_ready(socket, Interest::Readable, timeout)
}

/// Waits until a call that `interest` names would not block; false after `timeout` or a signal. The
/// timeout holds to the nanosecond, as far as the thread's timer slack allows.
///
/// # Errors
/// None that a caller can mend.
pub fn wait_ready(socket: &impl AsFd, interest: Interest, timeout: Duration) -> io::Result<bool> {
    let readable = PollFlags::IN | PollFlags::RDHUP;
    let events = match interest {
        Interest::Readable => readable,
        Interest::Writable => PollFlags::OUT,
        Interest::Either => readable | PollFlags::OUT,
    };
    let timeout = timespec(timeout);
    match poll(&mut [PollFd::new(socket, events)], Some(&timeout)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// Collects what is ready; nothing where a signal ended the wait.
fn collect(epoll: &OwnedFd, timeout: Duration, found: &mut Vec<Ready>) -> io::Result<()> {
    let mut events = [MaybeUninit::uninit(); 256];
    let timeout = timespec(timeout);
    found.clear();
    match epoll::wait(epoll, &mut events, Some(&timeout)) {
        Ok((events, _)) => found.extend(events.iter().map(Ready::from)),
        Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// epoll(7) of older kernels counts milliseconds as an `int`: twelve days are as good as for ever.
fn timespec(timeout: Duration) -> Timespec {
    let timeout = timeout.min(Duration::from_secs(1 << 20));
    Timespec::try_from(timeout).expect("twelve days fit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::eventually;
    use std::net::UdpSocket;

    /// A signal, as that by which a stopped process goes on, ends a wait.
    const SLICE: Duration = Duration::from_secs(1);

    #[test]
    fn the_number_of_the_socket_that_has_something_is_told() {
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&quiet, 1).unwrap();
        poller.add(&busy, 2).unwrap();
        assert_eq!(poller.wait(Duration::ZERO).unwrap().count(), 0);
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();
        let mut numbers = Vec::new();
        eventually("the datagram is there", || {
            numbers.extend(poller.wait(SLICE).unwrap());
            !numbers.is_empty()
        });
        assert_eq!(numbers, [2]);
        assert!(wait_readable(&busy, Duration::ZERO).unwrap());
        assert!(wait_readable(&poller, Duration::ZERO).unwrap());
        poller.remove(&busy).unwrap();
        assert_eq!(poller.wait(Duration::ZERO).unwrap().count(), 0);
        assert!(!wait_readable(&quiet, Duration::ZERO).unwrap());
    }

    #[test]
    fn an_edge_is_reported_once() {
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add_edge(&quiet, 1, Interest::Readable).unwrap();
        poller.add_edge(&busy, 2, Interest::Either).unwrap();
        let mut found = Vec::new();
        poller.wait_into(Duration::ZERO, &mut found).unwrap();
        let writable = Ready { number: 2, readable: false, writable: true, ended: false };
        assert_eq!(found, [writable]);
        poller.wait_into(Duration::ZERO, &mut found).unwrap();
        assert_eq!(found, []);
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();
        eventually("the datagram is there", || {
            poller.wait_into(SLICE, &mut found).unwrap();
            !found.is_empty()
        });
        assert!(found[0].readable && found.len() == 1);
        poller.wait_into(Duration::ZERO, &mut found).unwrap();
        assert_eq!(found, []);
    }

    #[test]
    fn a_wait_ends_only_for_the_registered_events() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let ready = |interest| wait_ready(&socket, interest, Duration::from_micros(100)).unwrap();
        assert!(!ready(Interest::Readable));
        eventually("it can be written", || ready(Interest::Writable) && ready(Interest::Either));
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        eventually("it can be read", || ready(Interest::Readable));
    }
}
