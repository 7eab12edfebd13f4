//! What the kernel announces of a network namespace.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::{Socket, protocols};

use super::NetlinkError;
use super::exchange::listener;

/// Readable once a device, a queueing discipline, a class or a filter was made, changed or taken
/// away in the network namespace of its opening, until it is drained.
#[derive(Debug)]
pub struct Announcements(Socket);

impl Announcements {
    /// Listens from now on, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn open() -> Result<Self, NetlinkError> {
        listener(protocols::NETLINK_ROUTE, &[LINK, TC], None).map(Self)
    }

    /// Forgets what was announced.
    pub fn drain(&self) {
        let mut start = Vec::with_capacity(16);
        loop {
            start.clear();
            match self.0.recv(&mut start, 0) {
                // More was announced than there is room for.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl AsFd for Announcements {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `RTNLGRP_LINK` and `RTNLGRP_TC` (linux/rtnetlink.h).
const LINK: u32 = 1;
const TC: u32 = 4;
