//! The bytes of a packet that is given as text.

use std::net::{IpAddr, Ipv6Addr};

use crate::policy::words::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

use super::packet::{Flow, FragmentPart, Packet, Tag, Upper, What};

impl Packet {
    /// The packet as an Ethernet frame, as far as rules look at it: headers without payload,
    /// checksums zero.
    pub fn frame(&self) -> Vec<u8> {
        let (tag, ethertype, body) = match &self.what {
            What::Frame(bytes) => return bytes.clone(),
            What::Other { ethertype, tag } => (tag, *ethertype, Vec::new()),
            What::Ip { flow, tag } => (tag, flow.ethertype(), flow.bytes()),
        };
        let mut frame = self.destination_mac.octets().to_vec();
        frame.extend(self.source_mac.octets());
        if let Some(Tag { id, priority }) = tag {
            frame.extend([0x81, 0x00]);
            frame.extend((u16::from(*priority) << 13 | id).to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(body);
        frame
    }

    /// Length of the frame on the wire, bytes.
    pub(super) fn wire_length(&self) -> u32 {
        let described = self.frame().len() as u32;
        match &self.what {
            What::Ip { flow, .. } => described - flow.bytes().len() as u32 + flow.length(),
            _ => described,
        }
    }
}

impl Flow {
    /// Length of the IP packet in its header, bytes.
    pub fn length(&self) -> u32 {
        self.length.unwrap_or(self.least_length())
    }

    /// Minimum length: that of its headers, bytes.
    pub(super) fn least_length(&self) -> u32 {
        (self.network_bytes() + self.transport().len()) as u32
    }

    /// Maximum length that the header of its family can express, bytes.
    pub(super) fn most_length(&self) -> u32 {
        if self.is_v4() { 65_535 } else { 40 + 65_535 }
    }

    fn ethertype(&self) -> u16 {
        match self.is_v4() {
            true => ETHERTYPE_IPV4,
            false => ETHERTYPE_IPV6,
        }
    }

    fn is_v4(&self) -> bool {
        self.source.is_ipv4() && self.destination.is_ipv4()
    }

    fn network_bytes(&self) -> usize {
        match (self.is_v4(), self.fragment) {
            (true, _) => 20,
            (false, FragmentPart::Whole) => 40,
            (false, _) => 48,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let class = self.dscp.octet() | self.ecn;
        let mut bytes = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.v4(class, source.octets(), destination.octets())
            }
            (source, destination) => {
                let [source, destination] = [source, destination].map(as_v6);
                self.v6(class, source.octets(), destination.octets())
            }
        };
        bytes.extend(self.transport());
        bytes
    }

    fn v4(&self, class: u8, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let fragment: u16 = match self.fragment {
            FragmentPart::Whole => 0,
            FragmentPart::First => 0x2000,
            FragmentPart::Later => LATER_OFFSET,
        };
        let mut header = vec![0x45, class];
        header.extend((self.length() as u16).to_be_bytes());
        header.extend([0, 1]);
        header.extend(fragment.to_be_bytes());
        header.extend([64, self.protocol, 0, 0]);
        header.extend(source);
        header.extend(destination);
        header
    }

    fn v6(&self, class: u8, source: [u8; 16], destination: [u8; 16]) -> Vec<u8> {
        let next = match self.fragment {
            FragmentPart::Whole => self.protocol,
            _ => FRAGMENT_HEADER,
        };
        let word = 6 << 28 | u32::from(class) << 20 | self.flow_label;
        let mut header = word.to_be_bytes().to_vec();
        header.extend((self.length().saturating_sub(40) as u16).to_be_bytes());
        header.extend([next, 64]);
        header.extend(source);
        header.extend(destination);
        let fragment: u16 = match self.fragment {
            FragmentPart::Whole => return header,
            FragmentPart::First => 1,
            FragmentPart::Later => LATER_OFFSET << 3,
        };
        header.extend([self.protocol, 0]);
        header.extend(fragment.to_be_bytes());
        header.extend([0, 0, 0, 1]);
        header
    }

    fn transport(&self) -> Vec<u8> {
        let (source, destination) = match self.upper {
            Upper::Nothing => return Vec::new(),
            Upper::Icmp { kind, code } => return vec![kind, code, 0, 0, 0, 0, 0, 0],
            Upper::Tcp { ports, .. } => ports,
            Upper::Ports(source, destination) => (source, destination),
        };
        let mut bytes = source.to_be_bytes().to_vec();
        bytes.extend(destination.to_be_bytes());
        bytes.extend([0; 4]);
        if let Upper::Tcp { flags, .. } = self.upper {
            bytes.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        }
        bytes
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Offset of a later fragment of a 1500-byte packet, in units of eight bytes.
const LATER_OFFSET: u16 = 185;

const FRAGMENT_HEADER: u8 = 44;
