//! Why a capture cannot be followed, and what was in it.

use std::io;

use thiserror::Error;

use crate::headers::{Encapsulation, link_name, links_read};

/// A capture that cannot be followed.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// Neither pcap, pcapng nor snoop.
    #[error("this is no packet capture: neither pcap, pcapng nor snoop")]
    NoCapture,
    /// The link type of all its packets is not read.
    #[error(
        "its packets are of link type {0}{name}; those that are read: {read}",
        name = named(*.0), read = links_read()
    )]
    LinkType(i32),
    /// A snoop file whose packets are of this type, by its number there (RFC 1761).
    #[error(
        "its packets are of snoop's link type {0}; those that are read: Ethernet (0, 4), FDDI (8)"
    )]
    SnoopType(u32),
    /// It contains no TCP.
    #[error(
        "no TCP segment is among its {packets} packets{seen}{end}",
        seen = in_words(.kinds),
        end = if *.truncated { "; after them it is cut or damaged" } else { "" }
    )]
    NoTcp {
        /// Packets read.
        packets: u64,
        /// The kinds of the packets, the most frequent first.
        kinds: Vec<PacketKind>,
        /// It ends inside a packet or is damaged.
        truncated: bool,
    },
    /// It could not be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

/// Packets of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketKind {
    /// The protocol in the packets: `TCP`, `ARP`, `UDP port 53 (DNS)`.
    pub what: String,
    /// The encapsulations that it is in.
    pub inside: Encapsulation,
    /// How many.
    pub packets: u64,
}

fn named(link: i32) -> String {
    link_name(link).map_or_else(String::new, |name| format!(" ({name})"))
}

/// `: 30 UDP inside VXLAN, 2 ARP`
fn in_words(kinds: &[PacketKind]) -> String {
    let words = |PacketKind { what, inside, packets }: &PacketKind| {
        let names: Vec<&str> = inside.names().into_iter().rev().collect();
        let before = if names.is_empty() { "" } else { " inside " };
        format!("{packets} {what}{before}{}", names.join(" in "))
    };
    let (first, others) = kinds.split_at(kinds.len().min(MAX_NAMED));
    let more: u64 = others.iter().map(|kind| kind.packets).sum();
    let more = (more > 0).then(|| format!("{more} of other kinds"));
    let all: Vec<String> = first.iter().map(words).chain(more).collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join(", ")) }
}

/// Kinds of packets that a refusal names.
const MAX_NAMED: usize = 6;
