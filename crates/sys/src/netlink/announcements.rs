//! Notifications that the devices or the traffic control of a network namespace changed.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::{Socket, protocols};

use super::NetlinkError;
use super::exchange::listener;

/// A socket that becomes readable when a device, a queueing discipline, a class or a filter of one
/// network namespace is added, changed or deleted, and stays readable until it is drained.
#[derive(Debug)]
pub struct Announcements(Socket);

impl Announcements {
    /// Subscribes to the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn open() -> Result<Self, NetlinkError> {
        listener(protocols::NETLINK_ROUTE, &[LINK, TC], None).map(Self)
    }

    /// Discards the notifications that have arrived.
    pub fn drain(&self) {
        let mut start = Vec::with_capacity(16);
        loop {
            start.clear();
            match self.0.recv(&mut start, 0) {
                // Notifications were lost because the receive buffer was full.
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
