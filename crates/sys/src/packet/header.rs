//! `struct virtio_net_hdr` of include/uapi/linux/virtio_net.h, in the host's byte order.

/// What one frame still needs: a checksum, and to be cut. The default is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtioHeader {
    /// The checksum field holds only the pseudo-header's sum; that of the bytes from
    /// `checksum_start` on is to be added.
    pub needs_checksum: bool,
    /// Protocol by which the frame is cut into segments.
    pub gso: GsoType,
    /// The TCP segments carry congestion window reduced (CWR), in the first one only.
    pub ecn: bool,
    /// Length in bytes of all headers, of the Ethernet header and those inside; a hint.
    pub header_bytes: u16,
    /// Payload bytes of each segment (the last may be shorter); 0 without segmentation.
    pub gso_bytes: u16,
    /// Where checksumming begins, in bytes from the begin of the frame.
    pub checksum_start: u16,
    /// Where the checksum field is, in bytes from `checksum_start`.
    pub checksum_offset: u16,
}

/// What a frame of several segments consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum GsoType {
    /// One segment: not to be cut.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of one size, over either (Linux 6.2).
    Udp,
}

impl VirtioHeader {
    /// `None` for a kind of segmentation that [`GsoType`] does not have.
    pub(super) fn decode(bytes: [u8; BYTES]) -> Option<Self> {
        let [flags, gso, a, b, c, d, e, f, g, h] = bytes;
        Some(Self {
            needs_checksum: flags & NEEDS_CHECKSUM != 0,
            gso: match gso & !ECN {
                0 => GsoType::None,
                TCP4 => GsoType::Tcp4,
                TCP6 => GsoType::Tcp6,
                UDP => GsoType::Udp,
                _ => return None,
            },
            ecn: gso & ECN != 0,
            header_bytes: u16::from_ne_bytes([a, b]),
            gso_bytes: u16::from_ne_bytes([c, d]),
            checksum_start: u16::from_ne_bytes([e, f]),
            checksum_offset: u16::from_ne_bytes([g, h]),
        })
    }

    pub(super) fn encode(&self) -> [u8; BYTES] {
        let flags = if self.needs_checksum { NEEDS_CHECKSUM } else { 0 };
        let gso = match self.gso {
            GsoType::None => 0,
            GsoType::Tcp4 => TCP4,
            GsoType::Tcp6 => TCP6,
            GsoType::Udp => UDP,
        };
        let [a, b] = self.header_bytes.to_ne_bytes();
        let [c, d] = self.gso_bytes.to_ne_bytes();
        let [e, f] = self.checksum_start.to_ne_bytes();
        let [g, h] = self.checksum_offset.to_ne_bytes();
        let gso = if self.ecn { gso | ECN } else { gso };
        [flags, gso, a, b, c, d, e, f, g, h]
    }
}

/// Without the buffer count and hashes that later versions append.
pub(super) const BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_survives_encoding() {
        for gso in [GsoType::None, GsoType::Tcp4, GsoType::Tcp6, GsoType::Udp] {
            for flag in [false, true] {
                let header = VirtioHeader {
                    needs_checksum: flag,
                    gso,
                    ecn: !flag,
                    header_bytes: 66,
                    gso_bytes: 1448,
                    checksum_start: 34,
                    checksum_offset: 16,
                };
                assert_eq!(VirtioHeader::decode(header.encode()), Some(header));
            }
        }
        assert_eq!(VirtioHeader::default().encode(), [0; BYTES]);
    }

    #[test]
    fn unknown_segmentation_is_no_header() {
        // 3 is UFO, which Linux no longer makes.
        for gso in [2, 3, 6, 0x7F] {
            assert_eq!(VirtioHeader::decode([0, gso, 0, 0, 0, 0, 0, 0, 0, 0]), None, "{gso}");
        }
    }
}
