//! Reads IP headers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Address family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl From<IpAddr> for Family {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// The part of an address that identifies a host: of IPv6 the /64, all of which a host may use
/// (RFC 4291, 2.5.4).
pub fn one_host(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// The ECN codepoint of an IP packet (RFC 3168, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// Not ECN-capable: congestion is told by dropping.
    #[default]
    NotEct,
    /// ECN-capable, codepoint 10.
    Ect0,
    /// ECN-capable, codepoint 01.
    Ect1,
    /// Congestion was experienced before this link.
    Ce,
}

impl Ecn {
    /// Whether congestion may be told by a mark instead of a drop.
    pub fn is_capable(self) -> bool {
        self != Self::NotEct
    }
}
