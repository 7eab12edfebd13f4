//! What was handed over at start: sockets of systemd (sd_listen_fds(3)) or inetd, standard output.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::socket::read_bytes;

/// The first descriptor that systemd hands over (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;

/// The listening TCP sockets that were handed over: by systemd if `LISTEN_PID` names this process,
/// else standard input. To be called once.
///
/// # Errors
/// `InvalidInput` if something that was handed over is no listening TCP socket, with what it is.
pub fn listeners() -> io::Result<Vec<TcpListener>> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let for_us = number("LISTEN_PID") == Some(std::process::id());
    match number("LISTEN_FDS") {
        Some(count) if for_us && count > 0 => {
            let last = FIRST.saturating_add_unsigned(count);
            (FIRST..last).map(listener).collect()
        }
        _ => Ok(vec![listener(io::stdin().as_raw_fd())?]),
    }
}

fn listener(fd: RawFd) -> io::Result<TcpListener> {
    // SAFETY: borrowed for this call only; an invalid number makes the kernel answer EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let accepts = option(borrowed, libc::SO_ACCEPTCONN)?;
    let kind = option(borrowed, libc::SO_TYPE)?;
    if kind != libc::SOCK_STREAM {
        return Err(invalid("the inherited socket is not TCP"));
    }
    if accepts == 0 {
        return Err(invalid(
            "the inherited socket is a connection and not a listening socket: configure inetd with \
             `wait`, or systemd with Accept=no",
        ));
    }
    // SAFETY: it was handed over to this process and nothing else in it uses it: descriptors from 3
    // on by systemd's contract, standard input since `serve` reads none.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(owned.into())
}

fn option(fd: BorrowedFd<'_>, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut bytes = [0; 4];
    read_bytes(&fd, libc::SOL_SOCKET, name, &mut bytes).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOTSOCK | libc::EBADF) => invalid(
                "no socket was inherited: start it from inetd or systemd, or without --inetd",
            ),
            _ => error,
        }
    })?;
    Ok(libc::c_int::from_ne_bytes(bytes))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Whether the process was started without a standard output (`>&-`).
///
/// Rust puts `/dev/null` in its place before `main`, and what is written there is lost without an
/// error.
pub fn stdout_was_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls each pointer of this section once, before `main` and before any other
// thread; the function keeps C's calling convention, needs no runtime and cannot panic.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: F_GETFD reads a flag of the descriptor and takes no pointer.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        STDOUT_CLOSED.store(flags < 0, Ordering::Relaxed);
    }
    look
};
