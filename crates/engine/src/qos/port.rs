//! An interface as its policy needs to know it.

use std::collections::BTreeMap;

use linerate_core::units::BitRate;
use linerate_qos::packet::LinkType;
use linerate_qos::policy::PolicyFile;
use linerate_sys::errno::ENODEV;
use linerate_sys::ethtool::Ethtool;
use linerate_sys::netlink::{Link, Netlink};
use linerate_sys::netns::Namespace;
use linerate_sys::socket::namespace_cookie;

use super::error::QosError;

/// One interface of the calling thread's network namespace.
#[derive(Debug, Clone)]
pub(super) struct Port {
    pub(super) link: Link,
    /// Tells it from those of other namespaces: no other has the same as long as the host runs.
    pub(super) key: String,
}

impl Port {
    /// By its name.
    pub(super) fn find(netlink: &mut Netlink, name: &str) -> Result<Self, QosError> {
        match netlink.link(name) {
            Ok(link) => Self::new(link),
            Err(error) if error.errno() == Some(ENODEV) => {
                Err(QosError::Unknown { what: format!("interface {name}"), why: others(netlink) })
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn new(link: Link) -> Result<Self, QosError> {
        let key = format!("{}-{}", namespace()?, link.index);
        Ok(Self { link, key })
    }

    pub(super) fn name(&self) -> &str {
        &self.link.name
    }

    pub(super) fn index(&self) -> u32 {
        self.link.index
    }

    /// Kind of its frames' beginning.
    pub(super) fn link_type(&self) -> Result<LinkType, QosError> {
        match self.link.hardware {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => Ok(LinkType::Ethernet),
            ARPHRD_PPP | ARPHRD_RAWIP | ARPHRD_TUNNEL | ARPHRD_TUNNEL6 | ARPHRD_SIT
            | ARPHRD_NONE => Ok(LinkType::RawIp),
            hardware => Err(QosError::Hardware { interface: self.name().to_owned(), hardware }),
        }
    }

    /// The rate that the driver reports. Virtual devices report a nominal figure, which is ignored.
    pub(super) fn speed(&self) -> Option<BitRate> {
        if self.link.kind.is_some() {
            return None;
        }
        let mbit = Ethtool::open(self.name()).ok()?.speed_mbit().ok()??;
        Some(BitRate(u64::from(mbit) * 1_000_000))
    }
}

/// What drivers tell of the adapters of a file that name no `rate`, as far as they are here.
pub fn speeds(file: &PolicyFile) -> BTreeMap<String, BitRate> {
    let Ok(mut netlink) = Netlink::open() else {
        return BTreeMap::new();
    };
    let without = file.adapters.iter().filter(|one| one.rate.is_none());
    without
        .filter_map(|adapter| {
            let port = Port::find(&mut netlink, &adapter.name).ok()?;
            Some((adapter.name.clone(), port.speed()?))
        })
        .collect()
}

/// The number of the calling thread's network namespace.
pub(super) fn namespace() -> Result<u64, QosError> {
    match namespace_cookie() {
        Some(cookie) => Ok(cookie),
        None => Namespace::current()
            .and_then(|namespace| namespace.inode())
            .map_err(|error| QosError::kernel("tell which network namespace this is", error)),
    }
}

/// The existing names, for users who mistyped one.
fn others(netlink: &mut Netlink) -> String {
    let links = netlink.links().unwrap_or_default();
    let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
    match names.len() {
        0..=8 => format!("there is no such interface; there are {}", names.join(", ")),
        _ => "there is no such interface".to_owned(),
    }
}

// include/uapi/linux/if_arp.h
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_PPP: u16 = 512;
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_TUNNEL: u16 = 768;
const ARPHRD_TUNNEL6: u16 = 769;
const ARPHRD_LOOPBACK: u16 = 772;
const ARPHRD_SIT: u16 = 776;
const ARPHRD_NONE: u16 = 65_534;
