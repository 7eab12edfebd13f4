//! Errors of reading a capture.

use std::io;

use thiserror::Error;

/// A capture that cannot be followed.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// Neither pcap nor pcapng.
    #[error("this is no packet capture: neither pcap nor pcapng")]
    NoCapture,
    /// Its link type is unknown.
    #[error(
        "its packets are of link type {0}; known are Ethernet (1), Linux cooked (113, 276), raw IP \
         (12, 14, 101, 228, 229) and loopback (0, 108)"
    )]
    LinkType(i32),
    /// It contains no TCP.
    #[error("no TCP segment is among its {packets} packets")]
    NoTcp {
        /// Packets read.
        packets: u64,
    },
    /// It could not be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}
