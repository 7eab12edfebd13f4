//! Names of numbers in packets, one table per kind, used to read and write files and in all output;
//! and the resolution of other names.

use std::net::IpAddr;

/// Names of numbers. A number can have several names; the first is used for output.
#[derive(Debug)]
pub(crate) struct Words(&'static [(&'static str, u32)]);

impl Words {
    /// The number of a name, in either case.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let mut entries = self.entries();
        let found = entries.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, number)| number)
    }

    /// The name of a number.
    pub(crate) fn name(&self, number: impl Into<u32>) -> Option<&'static str> {
        let number = number.into();
        let found = self.entries().find(|(_, known)| *known == number);
        found.map(|(name, _)| name)
    }

    /// The name of a number, or its digits.
    pub(crate) fn written(&self, number: impl Into<u32>) -> String {
        let number = number.into();
        let name = self.name(number);
        name.map_or_else(|| number.to_string(), str::to_owned)
    }

    /// All names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// Names and numbers.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.0.iter().copied()
    }
}

/// IP protocols by the names of IANA's registry, in lower case as in `/etc/protocols`.
pub(crate) const PROTOCOLS: Words = Words(&[
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("hip", 139),
    ("shim6", 140),
]);

/// The protocols whose header begins with a source and a destination port (RFC 9293, 768, 3828,
/// 9260, 4340).
pub(crate) const PROTOCOLS_WITH_PORTS: [u8; 5] = [TCP, UDP, DCCP, SCTP, UDP_LITE];

/// ICMP's protocol number.
pub(crate) const ICMP: u8 = 1;
/// TCP's.
pub(crate) const TCP: u8 = 6;
/// UDP's.
pub(crate) const UDP: u8 = 17;
/// DCCP's.
pub(crate) const DCCP: u8 = 33;
/// ICMPv6's.
pub(crate) const ICMPV6: u8 = 58;
/// SCTP's.
pub(crate) const SCTP: u8 = 132;
/// UDP-Lite's.
pub(crate) const UDP_LITE: u8 = 136;

/// TCP's flags as bits of their octet (RFC 9293, 3168), the lowest first.
pub(crate) const TCP_FLAGS: Words = Words(&[
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("cwr", 0x80),
]);

/// EtherTypes. Those of VLAN tags are missing, since they precede the EtherType that filters test.
pub(crate) const ETHERTYPES: Words = Words(&[
    ("ipv4", 0x0800),
    ("ip", 0x0800),
    ("arp", 0x0806),
    ("wake-on-lan", 0x0842),
    ("rarp", 0x8035),
    ("appletalk", 0x809b),
    ("ipx", 0x8137),
    ("ipv6", 0x86dd),
    ("flow-control", 0x8808),
    ("lacp", 0x8809),
    ("mpls", 0x8847),
    ("mpls-multicast", 0x8848),
    ("pppoe-discovery", 0x8863),
    ("pppoe", 0x8864),
    ("eapol", 0x888e),
    ("profinet", 0x8892),
    ("aoe", 0x88a2),
    ("ethercat", 0x88a4),
    ("goose", 0x88b8),
    ("lldp", 0x88cc),
    ("macsec", 0x88e5),
    ("ptp", 0x88f7),
    ("cfm", 0x8902),
    ("fcoe", 0x8906),
    ("roce", 0x8915),
]);

/// The EtherType of IPv4.
pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;

/// ICMP types (RFC 792, 1256).
pub(crate) const ICMP_TYPES: Words = Words(&[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
    ("extended-echo-request", 42),
    ("extended-echo-reply", 43),
]);

/// ICMPv6 types (RFC 4443, 4861, 2710, 3810).
pub(crate) const ICMPV6_TYPES: Words = Words(&[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("listener-query", 130),
    ("listener-report", 131),
    ("listener-done", 132),
    ("router-solicitation", 133),
    ("router-advertisement", 134),
    ("neighbour-solicitation", 135),
    ("neighbor-solicitation", 135),
    ("neighbour-advertisement", 136),
    ("neighbor-advertisement", 136),
    ("redirect", 137),
    ("listener-report-v2", 143),
    ("extended-echo-request", 160),
    ("extended-echo-reply", 161),
]);

/// The ECN field (RFC 3168).
pub(crate) const ECN: Words = Words(&[("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)]);

/// Network layers.
pub(crate) const FAMILIES: [(&str, super::Family); 3] =
    [("ipv4", super::Family::V4), ("ipv6", super::Family::V6), ("other", super::Family::Other)];

// Resolution of the names of hosts, services and users.

/// Resolves the names of a file. An error is the reason, as the end of a sentence.
pub trait Names {
    /// The addresses of a host.
    ///
    /// # Errors
    /// It has none, or nobody could be asked.
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String>;

    /// The ports of a service with one of these protocols, named as in `/etc/services`: `tcp`,
    /// `udp`, ….
    ///
    /// # Errors
    /// There is no such service, or nobody could be asked.
    fn ports(&mut self, service: &str, protocols: &[&str]) -> Result<Vec<u16>, String>;

    /// The number of a user.
    ///
    /// # Errors
    /// There is no such user, or nobody could be asked.
    fn uid(&mut self, user: &str) -> Result<u32, String>;
}

/// Resolves nothing: for files with numbers only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn addresses(&mut self, _: &str) -> Result<Vec<IpAddr>, String> {
        Err(not_asked())
    }

    fn ports(&mut self, _: &str, _: &[&str]) -> Result<Vec<u16>, String> {
        Err(not_asked())
    }

    fn uid(&mut self, _: &str) -> Result<u32, String> {
        Err(not_asked())
    }
}

fn not_asked() -> String {
    "names are not looked up here".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_a_number_is_written_with_its_first() {
        let tables = [PROTOCOLS, TCP_FLAGS, ETHERTYPES, ICMP_TYPES, ICMPV6_TYPES, ECN];
        for table in &tables {
            for (name, number) in table.entries() {
                assert_eq!(table.number(&name.to_uppercase()), Some(number), "{name}");
                let written = table.name(number).unwrap();
                assert_eq!(table.number(written), Some(number), "{name}");
            }
            let mut names: Vec<_> = table.names().collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
        assert_eq!(PROTOCOLS.written(58_u8), "icmpv6");
        assert_eq!(PROTOCOLS.written(200_u8), "200");
    }
}
