//! Two hosts joined by one link, for tests and benchmarks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use super::{Namespace, NamespaceError};
use crate::netlink::{LinkChange, Prefix, VethEnd};

/// Two network namespaces joined by a veth pair, both ends up. Dropping it removes everything that
/// no thread, process or socket uses any more.
///
/// The addresses are from the ranges for benchmarks: 198.18.0.0/15 (RFC 2544) and 2001:2::/48
/// (RFC 5180).
#[derive(Debug)]
pub struct Pair {
    /// 198.18.0.1/24 and 2001:2::1/64.
    pub a: Host,
    /// 198.18.0.2/24 and 2001:2::2/64.
    pub b: Host,
}

/// One end of a [`Pair`].
#[derive(Debug)]
pub struct Host {
    /// Namespace that the device is in.
    pub namespace: Namespace,
    /// Its IPv4 address.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address.
    pub ipv6: Ipv6Addr,
}

impl Pair {
    /// The name of the link in both namespaces.
    pub const LINK: &str = "veth0";

    /// Creates the pair with the default MTU of 1500 bytes.
    ///
    /// # Errors
    /// [`NamespaceError::Call`] with `EPERM` without `CAP_SYS_ADMIN`.
    pub fn create() -> Result<Self, NamespaceError> {
        Self::build(None)
    }

    /// Creates the pair with links of this MTU in bytes, 1280 (the least for IPv6) to 65535.
    ///
    /// # Errors
    /// As for [`Pair::create`]; [`NamespaceError::Configure`] for an MTU out of range.
    pub fn with_mtu(mtu: u32) -> Result<Self, NamespaceError> {
        Self::build(Some(mtu))
    }

    fn build(mtu: Option<u32>) -> Result<Self, NamespaceError> {
        let a = Host::create("a", 1)?;
        let b = Host::create("b", 2)?;
        let here = VethEnd { name: Self::LINK, namespace: None, mtu };
        let there = VethEnd { namespace: Some(b.namespace.as_fd()), ..here.clone() };
        a.namespace.configure(|netlink| netlink.create_veth(&here, &there))?;
        a.set_up()?;
        b.set_up()?;
        a.namespace.wait_until_up(Self::LINK)?;
        b.namespace.wait_until_up(Self::LINK)?;
        Ok(Self { a, b })
    }
}

impl Host {
    fn create(name: &str, number: u8) -> Result<Self, NamespaceError> {
        Ok(Self {
            namespace: Namespace::create(name)?,
            ipv4: Ipv4Addr::new(198, 18, 0, number),
            ipv6: Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, u16::from(number)),
        })
    }

    /// Its IPv4 and its IPv6 address.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [self.ipv4.into(), self.ipv6.into()]
    }

    fn set_up(&self) -> Result<(), NamespaceError> {
        self.namespace.configure(|netlink| {
            netlink.add_address(Pair::LINK, Prefix::new(self.ipv4, 24))?;
            netlink.add_address(Pair::LINK, Prefix::new(self.ipv6, 64))?;
            netlink.change_link(Pair::LINK, &LinkChange::Up)
        })
    }
}
