//! How a decision changes a packet: the definition of what the program writes.

use crate::packet::{ETHERTYPE_AT, LinkLayer, LinkType, Metadata, NetworkLayer};
use crate::policy::Family;

use super::Decision;

/// A packet after a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// Its bytes. A tag that got a priority is no longer among them.
    pub bytes: Vec<u8>,
    /// Tag control information of the tag that is not in the bytes.
    pub vlan_tci: Option<u16>,
}

/// Applies a decision to a packet; `None` if it is dropped.
///
/// The ECN bits stay (RFC 3168, 5), and the IPv4 checksum is updated by the difference, so that a
/// wrong one stays as wrong as it was (RFC 1624). A tag keeps its id and its drop-eligible bit; a
/// packet without a tag gets one with id 0, a priority tag (802.1Q).
pub fn rewritten(
    frame: &[u8],
    link: LinkType,
    metadata: &Metadata,
    decision: &Decision,
) -> Option<Rewritten> {
    if decision.dropped {
        return None;
    }
    let layer = LinkLayer::new(frame, link, metadata);
    let mut bytes = frame.to_vec();
    if let Some(dscp) = decision.dscp
        && NetworkLayer::new(frame, layer.network, layer.family()).is_some()
    {
        let header = &mut bytes[layer.network..];
        match layer.family() {
            Family::V4 => set_v4(header, dscp.octet()),
            _ => set_v6(header, dscp.octet()),
        }
    }
    let mut vlan_tci = metadata.vlan_tci;
    if let (Some(priority), LinkType::Ethernet) = (decision.vlan_priority, link) {
        let kept = layer.tci.unwrap_or(0) & 0x1fff;
        vlan_tci = Some(kept | u16::from(priority) << 13);
        if layer.tag_in_bytes {
            bytes.drain(ETHERTYPE_AT..ETHERTYPE_AT + 4);
        }
    }
    Some(Rewritten { bytes, vlan_tci })
}

fn set_v4(header: &mut [u8], octet: u8) {
    let old = u16::from_be_bytes([header[0], header[1]]);
    header[1] = header[1] & 3 | octet;
    let new = u16::from_be_bytes([header[0], header[1]]);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

fn set_v6(header: &mut [u8], octet: u8) {
    header[0] = header[0] & 0xf0 | octet >> 4;
    header[1] = header[1] & 0x3f | octet << 4;
}
