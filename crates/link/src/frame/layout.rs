//! Where the headers of an IP packet in an Ethernet frame are.

use std::net::{IpAddr, SocketAddr};

use super::{ETHERNET, TCP, UDP, read_u16};
use linerate_units::Ecn;
use linerate_units::Family;

/// Work on a frame left to a device, as in virtio-net's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Whether the transport checksum holds only the sum of the pseudo header.
    pub needs_checksum: bool,
    /// How the frame is to be cut.
    pub gso: Gso,
    /// TCP: only the first segment carries ECN's CWR bit.
    pub ecn: bool,
    /// Length of all headers as stated by the kernel, bytes; it may be wrong.
    pub header_bytes: u16,
    /// Payload of each segment, bytes.
    pub gso_bytes: u16,
    /// Start of the bytes that the checksum covers.
    pub checksum_start: u16,
    /// Position of the checksum, counted from there.
    pub checksum_offset: u16,
}

/// How a frame is to be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gso {
    /// Not at all.
    #[default]
    None,
    /// Into TCP segments over IPv4.
    Tcp4,
    /// Into TCP segments over IPv6.
    Tcp6,
    /// Into UDP datagrams.
    Udp,
}

/// Where the headers of an IP packet in an Ethernet frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The IP version.
    pub family: Family,
    /// Start of the IP header.
    pub ip: usize,
    /// Start of the header of `protocol`, which may lie past the end of a short packet; `None` in a
    /// fragment and after truncated IPv6 headers.
    pub transport: Option<usize>,
    /// The transport's protocol, or that of the first unknown IPv6 header, as an IANA number.
    pub protocol: u8,
    /// The ECN codepoint.
    pub ecn: Ecn,
    /// Length including the IP header, bytes, without the padding of a short frame.
    pub ip_bytes: u32,
}

/// The layout of an IP packet; `None` for anything else.
pub fn layout(frame: &[u8]) -> Option<Layout> {
    match (read_u16(frame, 12)?, frame.get(ETHERNET)? >> 4) {
        (0x0800, 4) => ipv4(frame),
        (0x86dd, 6) => ipv6(frame),
        _ => None,
    }
}

fn ipv4(frame: &[u8]) -> Option<Layout> {
    let ip = frame.get(ETHERNET..)?;
    let header = usize::from(ip[0] & 15) * 4;
    let total = length(read_u16(ip, 2)?, ip.len());
    if header < 20 || ip.len() < header || total < header {
        return None;
    }
    let is_fragment = read_u16(ip, 6)? & 0x3fff != 0;
    Some(Layout {
        family: Family::Ipv4,
        ip: ETHERNET,
        transport: (!is_fragment).then_some(ETHERNET + header),
        protocol: ip[9],
        ecn: ecn(ip[1]),
        ip_bytes: u32::try_from(total.min(ip.len())).ok()?,
    })
}

fn ipv6(frame: &[u8]) -> Option<Layout> {
    let ip = frame.get(ETHERNET..)?;
    if ip.len() < 40 {
        return None;
    }
    let payload = length(read_u16(ip, 4)?, ip.len() - 40);
    let (protocol, transport) = walk(ip);
    Some(Layout {
        family: Family::Ipv6,
        ip: ETHERNET,
        transport: transport.map(|at| ETHERNET + at),
        protocol,
        ecn: ecn(ip[1] >> 4),
        ip_bytes: u32::try_from((40 + payload).min(ip.len())).ok()?,
    })
}

/// The length in a field. Frames of segmentation offload that are too long for the field have zero
/// there (the kernel's "BIG TCP"); then the actual length counts.
fn length(field: u16, there: usize) -> usize {
    match usize::from(field) {
        0 if there > usize::from(u16::MAX) => there,
        length => length,
    }
}

/// Skips hop-by-hop (0), routing (43) and destination options (60); a fragment header (44) ends the
/// walk.
fn walk(ip: &[u8]) -> (u8, Option<usize>) {
    let (mut next, mut at) = (ip[6], 40);
    while matches!(next, 0 | 43 | 60) {
        let Some(header) = ip.get(at..at + 2) else {
            return (next, None);
        };
        next = header[0];
        at += 8 * (usize::from(header[1]) + 1);
    }
    let is_known = next != 44 && at <= ip.len();
    (next, is_known.then_some(at))
}

fn ecn(bits: u8) -> Ecn {
    match bits & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    }
}

impl Layout {
    /// Source and destination of a TCP or UDP packet; `None` for other transports and headers that
    /// do not fit.
    pub fn ends(&self, frame: &[u8]) -> Option<[SocketAddr; 2]> {
        self.payload_start(frame)?;
        let (transport, ip) = (self.transport?, frame.get(self.ip..)?);
        let address = |end: usize| -> Option<IpAddr> {
            Some(match self.family {
                Family::Ipv4 => (*ip.get(12 + 4 * end..)?.first_chunk::<4>()?).into(),
                Family::Ipv6 => (*ip.get(8 + 16 * end..)?.first_chunk::<16>()?).into(),
            })
        };
        let end = |end| Some((address(end)?, read_u16(frame, transport + 2 * end)?).into());
        Some([end(0)?, end(1)?])
    }

    /// The payload of a TCP or UDP packet; `None` as for [`Self::ends`].
    pub fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.payload_start(frame)?..self.end())
    }

    /// Start of the TCP or UDP payload; `None` for other transports and headers that do not fit.
    pub(super) fn payload_start(&self, frame: &[u8]) -> Option<usize> {
        let transport = self.transport?;
        let header = match self.protocol {
            TCP => usize::from(*frame.get(transport + 12)? >> 4) * 4,
            UDP => 8,
            _ => return None,
        };
        let least = if self.protocol == TCP { 20 } else { 8 };
        (header >= least && transport + header <= self.end()).then_some(transport + header)
    }

    /// End of the packet.
    pub(super) fn end(&self) -> usize {
        self.ip + self.ip_bytes as usize
    }
}
