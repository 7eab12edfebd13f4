//! The names in a policy file as this host resolves them: hosts by its resolver, services by
//! `/etc/services`, users by
//! `/etc/passwd`. Each is asked for once, so that a file is resolved alike throughout.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, ToSocketAddrs};

use linerate_qos::policy::Names;

/// The names that this host knows.
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
