//! Which errors of a system call mean only that the call is to be made again.

use std::io::{self, ErrorKind};

/// Whether the socket was not ready, or a signal interrupted the call.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The same for a datagram socket, where the kernel also reports the ICMP errors that earlier
/// datagrams have caused: they say nothing about this call.
pub(crate) fn is_transient_for_datagrams(error: &io::Error) -> bool {
    let kind = error.kind();
    is_transient(error) || matches!(kind, ErrorKind::TimedOut | ErrorKind::ConnectionRefused)
}
