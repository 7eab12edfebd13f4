//! Networks, and the addresses that links get unless the file gives them others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::topology::Prefix;

/// Most links: there are as many /24 networks in 198.18.0.0/15.
pub(super) const MAX_LINKS: usize = 512;

/// The two ends' addresses, of IPv4 and then of IPv6, in the network of that number, which is below
/// [`MAX_LINKS`].
pub(super) fn block(number: usize) -> [[Prefix; 2]; 2] {
    debug_assert!(number < MAX_LINKS);
    let [high, low] = (number as u16).to_be_bytes();
    let v4 = |host| Prefix { address: Ipv4Addr::new(198, 18 + high, low, host).into(), length: 24 };
    let v6 = |host| Prefix {
        address: Ipv6Addr::new(0x2001, 2, 0, number as u16, 0, 0, 0, host).into(),
        length: 64,
    };
    [[v4(1), v4(2)], [v6(1), v6(2)]]
}

impl Prefix {
    /// The network: the address with all bits behind the prefix cleared.
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length));
                Ipv4Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length));
                Ipv6Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
            }
        };
        Self { address, ..self }
    }

    /// Whether the network has that address.
    pub fn contains(self, address: IpAddr) -> bool {
        let length = self.length;
        self.address.is_ipv4() == address.is_ipv4()
            && self.network() == Self { address, length }.network()
    }

    /// Whether the two networks have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.network().address) || other.contains(self.network().address)
    }

    /// The prefix of one address.
    pub(crate) fn of_host(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// The prefix of all addresses of a family.
    pub(super) fn default_of(is_ipv4: bool) -> Self {
        let address =
            if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        Self { address, length: 0 }
    }
}

impl FromStr for Prefix {
    type Err = &'static str;

    /// `192.0.2.0/24`, or an address alone.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const HINT: &str =
            "write a network such as 192.0.2.0/24 (up to /32, IPv6 /128), or an address";
        let Some((address, length)) = text.split_once('/') else {
            return text.parse().map(Self::of_host).map_err(|_| HINT);
        };
        let address: IpAddr = address.parse().map_err(|_| HINT)?;
        let length: u8 = length.parse().map_err(|_| HINT)?;
        let is_one = length <= Self::of_host(address).length;
        is_one.then_some(Self { address, length }).ok_or(HINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(address: &str, length: u8) -> Prefix {
        Prefix { address: address.parse().unwrap(), length }
    }

    #[test]
    fn a_links_number_is_in_its_addresses() {
        assert_eq!(block(0)[0][0], prefix("198.18.0.1", 24));
        assert_eq!(block(255)[0][1], prefix("198.18.255.2", 24));
        assert_eq!(block(256)[0][0], prefix("198.19.0.1", 24));
        assert_eq!(block(511)[1][1], prefix("2001:2:0:1ff::2", 64));
    }

    #[test]
    fn a_network_contains_its_own_addresses_and_no_others() {
        assert_eq!(prefix("198.18.5.7", 24).network(), prefix("198.18.5.0", 24));
        assert_eq!(prefix("198.18.5.7", 0).network(), prefix("0.0.0.0", 0));
        assert_eq!(prefix("198.18.5.7", 32).network(), prefix("198.18.5.7", 32));
        assert_eq!(prefix("2001:2::7", 0).network(), prefix("::", 0));
        assert!(prefix("198.18.5.6", 31).contains("198.18.5.7".parse().unwrap()));
        assert!(!prefix("198.18.5.6", 31).contains("198.18.5.8".parse().unwrap()));
        assert!(!prefix("0.0.0.0", 0).contains("::".parse().unwrap()));
        assert!(prefix("198.18.0.0", 15).overlaps(prefix("198.19.3.0", 24)));
        assert!(!prefix("198.18.2.0", 24).overlaps(prefix("198.18.3.0", 24)));
    }
}
