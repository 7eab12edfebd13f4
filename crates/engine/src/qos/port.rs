//! What a policy needs to know of this host: an interface, the names in a file, and which Ethernet
//! addresses no packet of an interface can have.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, ToSocketAddrs};

use linerate_core::units::BitRate;
use linerate_qos::document::WarningReport;
use linerate_qos::packet::LinkType;
use linerate_qos::policy::{Adapter, Mac, Names, PolicyFile, Range};
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

// The names in a policy file.

/// The names that this host knows: hosts by its resolver, services by `/etc/services`, users by
/// `/etc/passwd`. Each is asked for once, so that a file is resolved alike throughout.
#[derive(Debug, Default)]
pub struct SystemNames {
    hosts: BTreeMap<String, Vec<IpAddr>>,
    services: Option<String>,
    users: Option<String>,
}

impl Names for SystemNames {
    fn addresses(&mut self, host: &str) -> Result<Vec<IpAddr>, String> {
        if let Some(addresses) = self.hosts.get(host) {
            return Ok(addresses.clone());
        }
        if self.hosts.len() >= MAX_HOSTS {
            let why = format!("a file may name at most {MAX_HOSTS} hosts");
            return Err(why);
        }
        let found = (host, 0).to_socket_addrs().map_err(|error| error.to_string())?;
        let addresses: Vec<_> = found.map(|address| address.ip()).collect();
        self.hosts.insert(host.to_owned(), addresses.clone());
        Ok(addresses)
    }

    fn ports(&mut self, service: &str, protocols: &[&str]) -> Result<Vec<u16>, String> {
        let ports = ports(table(&mut self.services, SERVICES)?, service, protocols);
        if ports.is_empty() {
            let protocols = protocols.join(", ");
            Err(format!("{SERVICES} has no such service with {protocols}"))
        } else {
            Ok(ports)
        }
    }

    fn uid(&mut self, user: &str) -> Result<u32, String> {
        let uid = uid(table(&mut self.users, USERS)?, user);
        uid.ok_or_else(|| format!("{USERS} has no such user; a number needs none"))
    }
}

/// The text of a table, read once.
fn table<'a>(text: &'a mut Option<String>, path: &str) -> Result<&'a str, String> {
    match text {
        Some(text) => Ok(text),
        none => {
            let read = read(path).map_err(|error| format!("{path}: {error}"))?;
            Ok(none.insert(read))
        }
    }
}

/// Names are ASCII; comments can be anything.
fn read(path: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The ports of a service by its name or by another one of it, services(5).
fn ports(text: &str, service: &str, protocols: &[&str]) -> Vec<u16> {
    let entries = text.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let name = words.next()?;
        let (port, protocol) = words.next()?.split_once('/')?;
        let is_it = name == service || words.any(|alias| alias == service);
        (is_it && protocols.contains(&protocol)).then(|| port.parse().ok())?
    });
    entries.collect()
}

/// The number of a user, passwd(5).
fn uid(text: &str, user: &str) -> Option<u32> {
    let mut users = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name, fields.nth(1)?))
    });
    let (_, number) = users.find(|(name, _)| *name == user)?;
    number.parse().ok()
}

const SERVICES: &str = "/etc/services";
const USERS: &str = "/etc/passwd";
/// Many times what such a file has.
const MAX_BYTES: u64 = 16 << 20;
const MAX_HOSTS: usize = 1024;

// Filters whose Ethernet addresses no packet of an interface can have.

/// What is said of filters that take no packet on this interface for the addresses that they ask
/// for.
pub(super) fn unmet(
    file: &PolicyFile,
    adapter: &Adapter,
    port: &Port,
    with_ingress: bool,
) -> Vec<WarningReport> {
    let name = port.name();
    let own = port.link.mac.map(Mac::from);
    let is_alone = !adapter.ingress && !with_ingress && port.link.controller.is_none();
    let why = |source: &[Range<Mac>], destination: &[Range<Mac>]| {
        let asked = !source.is_empty() || !destination.is_empty();
        let holds = |ranges: &[Range<Mac>], mac: Option<Mac>| {
            ranges.is_empty() || mac.is_none_or(|mac| ranges.iter().any(|one| one.contains(mac)))
        };
        let zero = Some(Mac::default());
        if asked && !matches!(port.link_type(), Ok(LinkType::Ethernet)) {
            Some(format!("packets of {name} have no Ethernet header"))
        } else if port.link.loopback && !(holds(source, zero) && holds(destination, zero)) {
            Some(format!("both addresses are 00:00:00:00:00:00 on {name}"))
        } else if is_alone && !port.link.loopback && !holds(source, own) {
            let own = own.unwrap_or_default();
            Some(format!(
                "what leaves by {name} has its address {own} as the source, unless a program makes \
                 its own frames; `ingress = true` is for packets that come in"
            ))
        } else {
            None
        }
    };
    let filters = (file.filters.iter()).filter(|one| adapter.policies.contains(&one.policy));
    filters
        .filter_map(|filter| {
            let asked = &filter.conditions;
            let why = why(&asked.source_mac, &asked.destination_mac)?;
            Some(WarningReport {
                line: filter.place.line,
                column: filter.place.column,
                text: format!("filter `{}` takes no packet: {why}", filter.name),
                refused: false,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Services\n\
        http            80/tcp          www www-http    # WorldWideWeb\n\
        https\t443/tcp\nhttps\t443/udp\n\
        domain 53/udp\ndomain 53/tcp\n\
        broken 99999/tcp\nbroken tcp\n#http 81/tcp\nnothing\n";

    #[test]
    fn a_service_is_found_by_each_of_its_names_and_protocols() {
        assert_eq!(ports(TABLE, "http", &["tcp", "udp"]), [80]);
        assert_eq!(ports(TABLE, "www-http", &["tcp"]), [80]);
        assert_eq!(ports(TABLE, "https", &["udp", "tcp"]), [443, 443]);
        assert_eq!(ports(TABLE, "http", &["udp"]), [0; 0]);
        assert_eq!(ports(TABLE, "broken", &["tcp"]), [0; 0]);
        assert_eq!(ports(TABLE, "WorldWideWeb", &["tcp"]), [0; 0]);
    }

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let table = "root:x:0:0:root:/root:/bin/sh\n\nalice:x:1001:1001::/home/alice:/bin/sh\nbob\ncarol:x:many:1\n";
        assert_eq!(uid(table, "root"), Some(0));
        assert_eq!(uid(table, "alice"), Some(1001));
        assert_eq!(uid(table, "ali"), None);
        assert_eq!(uid(table, "bob"), None);
        assert_eq!(uid(table, "carol"), None);
    }

    #[test]
    fn an_address_may_stand_for_a_hosts_name() {
        let mut names = SystemNames::default();
        let addresses = names.addresses("127.0.0.1").unwrap();
        assert_eq!(addresses, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(names.addresses("127.0.0.1").unwrap(), addresses);
    }
}
