//! Waiting for many sockets at once, and for one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Waits for many sockets (epoll). Each has a number of the caller's, and is told again and again
/// while it is ready, or, if added by [`Poller::add_edge`], once each time that it becomes so.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes a flag and answers a new descriptor or −1.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: the descriptor is new and nobody else's.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; 256],
        })
    }

    /// Watches `socket` under `number`. Dropping the socket ends it.
    ///
    /// # Errors
    /// The socket is watched already, or the kernel's limit is reached.
    pub fn add(&self, socket: &impl AsFd, number: u64) -> io::Result<()> {
        self.watch(socket, number, libc::EPOLLIN | libc::EPOLLRDHUP)
    }

    /// Watches `socket` under `number` until it becomes writable or fails: the end of a connection
    /// attempt.
    ///
    /// # Errors
    /// The socket is watched already, or the kernel's limit is reached.
    pub fn add_writable(&self, socket: &impl AsFd, number: u64) -> io::Result<()> {
        self.watch(socket, number, libc::EPOLLOUT)
    }

    /// Watches `socket` under `number` and tells once when it becomes ready for what `interest`
    /// names: whoever is told reads until there is nothing more. Adding one that is ready tells it.
    ///
    /// # Errors
    /// As [`Poller::add`]; `ENOSPC`: `fs.epoll.max_user_watches`.
    pub fn add_edge(&self, socket: &impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        const READABLE: libc::c_int = libc::EPOLLIN | libc::EPOLLRDHUP;
        let events = match interest {
            Interest::Readable => READABLE,
            Interest::Writable => libc::EPOLLOUT,
            Interest::Either => READABLE | libc::EPOLLOUT,
        };
        self.watch(socket, number, events | libc::EPOLLET)
    }

    fn watch(&self, socket: &impl AsFd, number: u64, events: libc::c_int) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: number,
        };
        self.control(libc::EPOLL_CTL_ADD, socket, &mut event)
    }

    /// Watches `socket` no longer.
    ///
    /// # Errors
    /// It was not watched.
    pub fn remove(&self, socket: &impl AsFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        self.control(libc::EPOLL_CTL_DEL, socket, &mut event)
    }

    fn control(
        &self,
        operation: libc::c_int,
        socket: &impl AsFd,
        event: &mut libc::epoll_event,
    ) -> io::Result<()> {
        // SAFETY: both descriptors are open for the call, and the event is only read.
        let result = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                operation,
                socket.as_fd().as_raw_fd(),
                event,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The numbers of the sockets that have something, at most 256; none after `timeout` or a
    /// signal.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<impl Iterator<Item = u64> + '_> {
        let n = self.collect(timeout)?;
        Ok(self.events[..n].iter().map(|event| event.u64))
    }

    /// The first sockets that have something, at most as many as there is room for, with what it
    /// is; none after
    /// `timeout` or a signal. The caller's own room, so that it may change what is watched while it
    /// looks at them.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub fn wait_into(&mut self, timeout: Duration, found: &mut Vec<Ready>) -> io::Result<()> {
        let n = self.collect(timeout)?;
        found.clear();
        found.extend(self.events[..n].iter().map(Ready::from));
        Ok(())
    }

    fn collect(&mut self, timeout: Duration) -> io::Result<usize> {
        // SAFETY: the kernel writes at most as many events as the vector holds.
        let n = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                milliseconds(timeout),
            )
        };
        match usize::try_from(n) {
            Ok(n) => Ok(n),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error),
            },
        }
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

impl From<&libc::epoll_event> for Ready {
    fn from(event: &libc::epoll_event) -> Self {
        const ENDED: libc::c_int = libc::EPOLLHUP | libc::EPOLLERR;
        let (events, number) = (event.events, event.u64);
        let has = |of: libc::c_int| events & of as u32 != 0;
        Self {
            number,
            readable: has(libc::EPOLLIN | libc::EPOLLRDHUP | ENDED),
            writable: has(libc::EPOLLOUT | ENDED),
            ended: has(libc::EPOLLRDHUP | ENDED),
        }
    }
}

/// Readable while one of its sockets is: with [`wait_readable`] it waits to the nanosecond.
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
    const READABLE: libc::c_short = libc::POLLIN | libc::POLLRDHUP;
    let mut poll = libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events: match interest {
            Interest::Readable => READABLE,
            Interest::Writable => libc::POLLOUT,
            Interest::Either => READABLE | libc::POLLOUT,
        },
        revents: 0,
    };
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        // Less than a second: 30 bits.
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    };
    // SAFETY: one live pollfd, as the count says; the timeout is only read; no signal mask is
    // given.
    let n = unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) };
    if n >= 0 {
        return Ok(n > 0);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        error => Err(error),
    }
}

/// Rounded up: a wait that ends early would only be made again.
fn milliseconds(timeout: Duration) -> libc::c_int {
    let ms = timeout.as_nanos().div_ceil(1_000_000);
    libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_number_of_the_socket_that_has_something_is_told() {
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&quiet, 1).unwrap();
        poller.add(&busy, 2).unwrap();
        assert_eq!(poller.wait(Duration::ZERO).unwrap().count(), 0);
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();
        let numbers: Vec<u64> = poller.wait(Duration::from_secs(5)).unwrap().collect();
        assert_eq!(numbers, [2]);
        assert!(wait_readable(&busy, Duration::ZERO).unwrap());
        assert!(wait_readable(&poller, Duration::ZERO).unwrap());
        poller.remove(&busy).unwrap();
        assert_eq!(poller.wait(Duration::ZERO).unwrap().count(), 0);
        assert!(!wait_readable(&quiet, Duration::ZERO).unwrap());
    }

    #[test]
    fn an_edge_is_told_once() {
        let quiet = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add_edge(&quiet, 1, Interest::Readable).unwrap();
        poller.add_edge(&busy, 2, Interest::Either).unwrap();
        let mut found = Vec::new();
        poller.wait_into(Duration::ZERO, &mut found).unwrap();
        let writable = Ready {
            number: 2,
            readable: false,
            writable: true,
            ended: false,
        };
        assert_eq!(found, [writable]);
        poller.wait_into(Duration::ZERO, &mut found).unwrap();
        assert_eq!(found, []);
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();
        poller
            .wait_into(Duration::from_secs(5), &mut found)
            .unwrap();
        assert!(found[0].readable && found.len() == 1);
        poller.wait_into(Duration::ZERO, &mut found).unwrap();
        assert_eq!(found, []);
    }

    #[test]
    fn only_what_is_waited_for_ends_a_wait() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let ready = |interest| wait_ready(&socket, interest, Duration::from_micros(100)).unwrap();
        assert!(!ready(Interest::Readable));
        assert!(ready(Interest::Writable) && ready(Interest::Either));
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert!(ready(Interest::Readable));
    }
}
