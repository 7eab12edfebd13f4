//! Builds the bytes of probes.

use super::least_size;
use super::{FIRST_CHECKSUM, ICMPV6, IDENTITY, MAX_FLOWS, ProbeCodec, SYN, TCP, UDP};
use crate::probe::{Probe, ProbeId, ProbeKind};
use linerate_units::Family;
use linerate_units::checksum::{fold, sum};

impl ProbeCodec {
    /// Header and payload of a probe after the IP header, with the complete checksum.
    pub fn transport(&self, probe: &Probe) -> Vec<u8> {
        match self.kind {
            ProbeKind::Udp => self.udp(probe),
            ProbeKind::Icmp => self.icmp(probe),
            ProbeKind::Tcp => self.tcp(probe),
        }
    }

    /// What a datagram socket sends: the payload of UDP, the whole message of ICMP (whose checksum
    /// and identifier the kernel writes), nothing for TCP.
    pub fn datagram(&self, probe: &Probe) -> Vec<u8> {
        match self.kind {
            ProbeKind::Udp => self.udp(probe).split_off(8),
            ProbeKind::Icmp => self.icmp(probe),
            ProbeKind::Tcp => Vec::new(),
        }
    }

    fn udp(&self, probe: &Probe) -> Vec<u8> {
        let mut bytes = self.empty(probe, 8);
        let length = bytes.len();
        let (source, target) = self.ports(probe.flow).unwrap_or_default();
        write(&mut bytes, 0, source);
        write(&mut bytes, 2, target);
        write(&mut bytes, 4, u16::try_from(length).unwrap_or(u16::MAX));
        write(&mut bytes, 6, self.keyed(probe.id.0));
        self.write_identity(&mut bytes, 8, probe.id);
        let total = self.pseudo_header(UDP, length) + sum(&bytes);
        write(&mut bytes, 8 + 4, !fold(total));
        bytes
    }

    fn icmp(&self, probe: &Probe) -> Vec<u8> {
        let mut bytes = self.empty(probe, 8);
        bytes[0] = self.echo_request();
        write(&mut bytes, 2, FIRST_CHECKSUM + probe.flow % MAX_FLOWS);
        write(&mut bytes, 4, self.source_port);
        write(&mut bytes, 6, probe.id.0);
        self.write_identity(&mut bytes, 8, probe.id);
        let pseudo = match self.family() {
            Family::Ipv4 => 0,
            Family::Ipv6 => self.pseudo_header(ICMPV6, bytes.len()),
        };
        let total = pseudo + sum(&bytes);
        write(&mut bytes, 8 + 4, !fold(total));
        bytes
    }

    fn tcp(&self, probe: &Probe) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        let (source, target) = self.ports(probe.flow).unwrap_or_default();
        write(&mut bytes, 0, source);
        write(&mut bytes, 2, target);
        write(&mut bytes, 4, self.session);
        write(&mut bytes, 6, probe.id.0);
        // Five words of header; the usual initial window of kernels.
        bytes[12] = 5 << 4;
        bytes[13] = SYN;
        write(&mut bytes, 14, 64_240);
        let total = self.pseudo_header(TCP, bytes.len()) + sum(&bytes);
        write(&mut bytes, 16, !fold(total));
        bytes
    }

    /// Zeros for a header of `header` bytes and the rest of the probe's size, enough for its
    /// identity.
    fn empty(&self, probe: &Probe, header: usize) -> Vec<u8> {
        let least = least_size(self.kind, self.target);
        let ip = usize::from(least) - header - IDENTITY;
        vec![0; usize::from(probe.size.max(least)) - ip]
    }

    fn write_identity(&self, bytes: &mut [u8], at: usize, id: ProbeId) {
        write(bytes, at, self.session);
        write(bytes, at + 2, id.0);
    }
}

fn write(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
