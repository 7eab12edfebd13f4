//! Reads and writes the text of an endpoint.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use super::{TextError, shortened};

/// The port of `linerate serve`, and iperf3's.
pub const DEFAULT_PORT: u16 = 5201;

/// `host[:port]`, `[v6]:port` or a bare IPv6 address; the name is not resolved here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointName {
    /// A host name or an address without brackets; IPv6 addresses may carry `%zone`.
    pub host: String,
    /// The port named, if one was.
    pub port: Option<u16>,
}

impl FromStr for EndpointName {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let fail = |why: &str| TextError::new(text, why);
        if let Some(problem) = no_host(text) {
            return Err(TextError::new(text, problem));
        }
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| fail("the bracket is not closed: write [v6]:port"))?;
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(fail("after the bracket comes :port")),
            }
        } else if is_ipv6(text) {
            (text, None)
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        if host.is_empty() {
            return Err(fail("the host is missing"));
        }
        // RFC 1035 names have at most 255 octets; anything with blanks or controls is a slip.
        if host.len() > 255 || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(fail("it must be host, host:port or [v6]:port"));
        }
        if host.starts_with('-') {
            return Err(fail("a host name does not begin with a dash"));
        }
        let port = match port {
            None => None,
            Some(port) => match port.parse::<u16>() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err(fail("its port must be 1 to 65535")),
            },
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Why a text is no host but something that looks like one: a URL, or a network.
fn no_host(text: &str) -> Option<String> {
    let (scheme, rest) = match text.split_once("://") {
        Some((_, rest)) => (true, rest),
        None => (false, text),
    };
    let (host, after) = rest.split_once('/').unwrap_or((rest, ""));
    let host = shortened(host);
    if scheme {
        return Some(format!("it is a URL: give the host alone, {host}"));
    }
    let is_prefix = !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit());
    if is_prefix {
        Some(format!("it is a network: give one host, such as {host}"))
    } else {
        let has_slash = rest.contains('/');
        has_slash.then(|| format!("a host has no slash: give the host alone, {host}"))
    }
}

fn is_ipv6(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.host.contains(':')) {
            (None, _) => f.write_str(&self.host),
            (Some(port), true) => write!(f, "[{}]:{port}", self.host),
            (Some(port), false) => write!(f, "{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_endpoint_is_understood() {
        for (text, host, port) in [
            ("pit", "pit", None),
            ("pit:5000", "pit", Some(5000)),
            ("198.18.0.1:80", "198.18.0.1", Some(80)),
            ("2001:2::1", "2001:2::1", None),
            ("[2001:2::1]:80", "2001:2::1", Some(80)),
            ("[fe80::1%eth0]:80", "fe80::1%eth0", Some(80)),
        ] {
            let endpoint: EndpointName = text.parse().unwrap();
            assert_eq!((endpoint.host.as_str(), endpoint.port), (host, port));
            assert_eq!(endpoint.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for text in [
            "",
            ":80",
            "pit:0",
            "pit:65536",
            "[::1",
            "[::1]80",
            "a b",
            "-t",
            "http://pit/",
            "198.18.0.0/15",
            "pit:80/24",
        ] {
            assert!(text.parse::<EndpointName>().is_err(), "{text}");
        }
    }
}
