//! Where the headers of a frame begin, and what they contain. Frames may be invalid.

use crate::policy::Family;
use crate::policy::words::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

use super::{Fragment, LinkType, Metadata};

/// The link layer of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkLayer {
    /// Tag control information of the outermost VLAN tag.
    pub(crate) tci: Option<u16>,
    /// Whether that tag is in the bytes (at 12), not in the metadata.
    pub(crate) tag_in_bytes: bool,
    /// EtherType behind the tags.
    pub(crate) ethertype: Option<u16>,
    /// Where the network layer begins.
    pub(crate) network: usize,
}

/// The network layer of a packet of IPv4 or IPv6, whose fixed header is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NetworkLayer {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    /// The octet of DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: Option<u32>,
    /// Bytes of the packet as the header says.
    pub(crate) length: u32,
    /// The upper-layer protocol; `None` behind too many or cut-off extension headers.
    pub(crate) protocol: Option<u8>,
    /// Offset of the transport header; `None` without one, as in later fragments.
    pub(crate) transport: Option<usize>,
    pub(crate) fragment: Option<Fragment>,
}

impl LinkLayer {
    pub(crate) fn new(frame: &[u8], link: LinkType, metadata: &Metadata) -> Self {
        match link {
            LinkType::RawIp => Self {
                tci: None,
                tag_in_bytes: false,
                ethertype: Some(metadata.protocol),
                network: 0,
            },
            LinkType::Ethernet => Self::ethernet(frame, metadata.vlan_tci),
        }
    }

    fn ethernet(frame: &[u8], outer: Option<u16>) -> Self {
        let mut layer = Self {
            tci: outer,
            tag_in_bytes: false,
            ethertype: be16(frame, ETHERTYPE_AT),
            network: ETHERTYPE_AT + 2,
        };
        for _ in 0..MAX_TAGS {
            let Some(VLAN | SERVICE_VLAN) = layer.ethertype else {
                break;
            };
            let (Some(tci), Some(next)) =
                (be16(frame, layer.network), be16(frame, layer.network + 2))
            else {
                break;
            };
            if layer.tci.is_none() {
                layer.tci = Some(tci);
                layer.tag_in_bytes = true;
            }
            layer.ethertype = Some(next);
            layer.network += 4;
        }
        layer
    }

    pub(crate) fn family(&self) -> Family {
        match self.ethertype {
            Some(ETHERTYPE_IPV4) => Family::V4,
            Some(ETHERTYPE_IPV6) => Family::V6,
            _ => Family::Other,
        }
    }
}

impl NetworkLayer {
    /// `None` for other families, for a version that is not the EtherType's, and if the fixed
    /// header is cut off.
    pub(crate) fn new(frame: &[u8], at: usize, family: Family) -> Option<Self> {
        match family {
            Family::V4 => Self::v4(frame, at),
            Family::V6 => Self::v6(frame, at),
            Family::Other => None,
        }
    }

    /// RFC 791, 3.1.
    fn v4(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 20)?;
        let words = usize::from(header[0] & 0x0f);
        if header[0] >> 4 != 4 || words < 5 {
            return None;
        }
        let flags = u16::from_be_bytes([header[6], header[7]]);
        let (more, offset) = (flags & 0x2000 != 0, flags & 0x1fff);
        let fragment = (more || offset != 0).then(|| Fragment {
            id: u32::from(u16::from_be_bytes([header[4], header[5]])),
            protocol: header[9],
            first: offset == 0,
        });
        Some(Self {
            source: number(&header[12..16]),
            destination: number(&header[16..20]),
            traffic_class: header[1],
            flow_label: None,
            length: u32::from(u16::from_be_bytes([header[2], header[3]])),
            protocol: Some(header[9]),
            transport: (offset == 0).then_some(at + words * 4),
            fragment,
        })
    }

    /// RFC 8200, 3.
    fn v6(frame: &[u8], at: usize) -> Option<Self> {
        let header = frame.get(at..at + 40)?;
        let first = number(&header[..4]) as u32;
        if first >> 28 != 6 {
            return None;
        }
        let (protocol, transport, fragment) = behind_extensions(frame, at + 40, header[6]);
        Some(Self {
            source: number(&header[8..24]),
            destination: number(&header[24..40]),
            traffic_class: (first >> 20) as u8,
            flow_label: Some(first & 0xf_ffff),
            length: 40 + u32::from(u16::from_be_bytes([header[4], header[5]])),
            protocol,
            transport,
            fragment,
        })
    }
}

/// The upper protocol, where its header begins, and the fragment, behind IPv6 extension headers.
/// Walks the chain from the header with number `next` at `at` (RFC 8200, 4). A header counts if
/// its first eight bytes are there.
fn behind_extensions(
    frame: &[u8],
    mut at: usize,
    mut next: u8,
) -> (Option<u8>, Option<usize>, Option<Fragment>) {
    let mut fragment = None;
    for _ in 0..MAX_EXTENSIONS {
        if !EXTENSIONS.contains(&next) {
            break;
        }
        let Some(header) = frame.get(at..at + 8) else {
            break;
        };
        let bytes = match next {
            FRAGMENT => 8,
            // RFC 4302, 2.2: in units of four bytes, less two.
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if next == FRAGMENT {
            fragment = ipv6_fragment(header);
        }
        next = header[0];
        at += bytes;
        if fragment.is_some_and(|part: Fragment| !part.first) {
            break;
        }
    }
    let protocol = (!EXTENSIONS.contains(&next)).then_some(next);
    let later = fragment.is_some_and(|part| !part.first);
    (protocol, (protocol.is_some() && !later).then_some(at), fragment)
}

/// RFC 8200, 4.5; `None` for a whole packet with a fragment header (RFC 6946).
fn ipv6_fragment(header: &[u8]) -> Option<Fragment> {
    let offset_and_more = u16::from_be_bytes([header[2], header[3]]);
    let (offset, more) = (offset_and_more >> 3, offset_and_more & 1 != 0);
    (more || offset != 0).then(|| Fragment {
        id: number(&header[4..8]) as u32,
        // The number differs between a packet's fragments in principle: RFC 8200 puts it not into
        // the key.
        protocol: 0,
        first: offset == 0,
    })
}

/// Reads big-endian bytes, at most 16.
pub(super) fn number(bytes: &[u8]) -> u128 {
    let bytes = bytes.iter();
    bytes.fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

pub(super) fn be16(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

pub(crate) const ETHERTYPE_AT: usize = 12;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

/// Maximum number of tags in the bytes; a third one is the EtherType.
const MAX_TAGS: usize = 2;

/// Maximum number of IPv6 extension headers that are walked; anything behind them is not seen.
const MAX_EXTENSIONS: usize = 8;

const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Extension headers: hop-by-hop, routing, fragment, authentication, destination options, mobility,
/// HIP, shim6. ESP (50) ends the walk.
pub(crate) const EXTENSIONS: [u8; 8] = [0, 43, FRAGMENT, AUTHENTICATION, 60, 135, 139, 140];
