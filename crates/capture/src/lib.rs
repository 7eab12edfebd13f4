#![forbid(unsafe_code)]
//! The TCP connections of a packet capture: what their packets show.
//!
//! [`follow`] reads pcap, pcapng and snoop as they come, in constant memory, takes off the headers
//! of tunnels ([`Encapsulation`]), and gives a [`Flow`] for each connection: its handshake, the end
//! that the capture was made at, and for each direction what was [`Sent`]: round trips, bytes in
//! flight against the window, what was sent again and why, idle times, readings through time.
//! Frames may be cut (96 bytes are enough without a tunnel), of one direction only, missing, or
//! larger than the path's packets, as offloads make them.
//!
//! ```
//! use linerate_capture::{CaptureError, follow};
//!
//! let file: &[u8] = b"GIF89a: this is a picture";
//! let refused = follow(file, 10_000, |_bytes_read| true);
//! assert!(matches!(refused, Err(CaptureError::NoCapture)));
//! ```
//!
//! # At which end
//!
//! A capture at the receiver sees data when it arrives and acknowledgements when they leave. What
//! the sender knew when it sent is what its timestamps echo (RFC 7323, 3), or, without them, what
//! passed the capture a round trip to the sender before. So bytes in flight, the round trip and the
//! limits of the window are the sender's, wherever the capture was made.
//!
//! | module | what is in it |
//! |---|---|
//! | `frames`, `records` | files: their blocks, interfaces, clocks; snoop and old pcap |
//! | `segment`, `headers` | from bytes to a TCP segment; link types, tags and tunnels |
//! | `fragments` | segments in fragments of IP packets |
//! | `error` | refusals, and the kinds of packets that they name |
//! | `follow` | all connections, a bounded number |
//! | `flow` | one connection: handshake, ends |
//! | `copies` | packets that were recorded twice; the order of sending |
//! | `stream` | one direction: flight, window, time |
//! | `rtt`, `stamps` | round trips and their course; the sender's timestamps |
//! | `recovery`, `evenness` | losses; pace |
//! | `requests` | where the time of requests goes: names, handshakes, network, server, client |

mod copies;
mod error;
mod evenness;
mod flow;
mod follow;
mod fragments;
mod frames;
mod headers;
mod records;
mod recovery;
mod requests;
mod rtt;
mod segment;
mod stamps;
mod stream;

pub use error::{CaptureError, PacketKind};
pub use evenness::Evenness;
pub use flow::{Flow, Offer, Sent, Side};
pub use follow::{Capture, LeftOut, Selection, follow, follow_selected};
pub use headers::{Encapsulation, link_name};
pub use recovery::Retransmitted;
pub use requests::{
    CapturedAt, ConnectFailure, ConnectionRequests, Connects, Names, Phases, Quic, RequestProtocol,
    Requests, RequestsVerdict, SlowLookup, SlowRequest, Spent, Whose,
};
pub use rtt::Reading;
pub use stream::Counts;
