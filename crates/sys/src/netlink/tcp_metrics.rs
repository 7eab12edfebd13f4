//! The TCP metrics cache: what TCP learnt about hosts, and starts their next connections with.

use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Nla, parse_ip};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::NetlinkError;
use super::exchange::Exchange;
use super::generic::{GenericMessage, family_number, value_of};

/// The TCP metrics cache of one network namespace.
#[derive(Debug)]
pub struct TcpMetrics {
    exchange: Exchange,
    family: u16,
}

impl TcpMetrics {
    /// Opens the cache of the calling thread's network namespace.
    ///
    /// # Errors
    /// Refused with `ENOENT` if the kernel has no such interface.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut exchange = Exchange::open(NETLINK_GENERIC)?;
        let family = family_number(&mut exchange, "tcp_metrics")?;
        Ok(Self { exchange, family })
    }

    /// The hosts in the cache.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn hosts(&mut self) -> Result<Vec<IpAddr>, NetlinkError> {
        let query = self.message(TCP_METRICS_CMD_GET);
        let answer = self.exchange.dump("list the TCP metrics", query)?;
        let attributes = answer.iter().flat_map(|message| &message.attributes);
        let addresses = attributes
            .filter(|attribute| [ATTR_ADDR_IPV4, ATTR_ADDR_IPV6].contains(&attribute.kind()));
        let hosts = addresses.filter_map(|address| parse_ip(&value_of(address)).ok());
        Ok(hosts.collect())
    }

    /// Empties the cache, so that the next connections start with defaults.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`.
    pub fn flush(&mut self) -> Result<(), NetlinkError> {
        let message = self.message(TCP_METRICS_CMD_DEL);
        self.exchange.request("flush the TCP metrics", message, 0).map(drop)
    }

    /// Removes one host; it is no error if it is not in the cache.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`.
    pub fn forget(&mut self, address: IpAddr) -> Result<(), NetlinkError> {
        let mut message = self.message(TCP_METRICS_CMD_DEL);
        message.attributes.push(match address {
            IpAddr::V4(v4) => DefaultNla::new(ATTR_ADDR_IPV4, v4.octets().to_vec()),
            IpAddr::V6(v6) => DefaultNla::new(ATTR_ADDR_IPV6, v6.octets().to_vec()),
        });
        match self.exchange.request("forget a host's TCP metrics", message, 0) {
            Err(error) if error.errno() == Some(libc::ESRCH) => Ok(()),
            other => other.map(drop),
        }
    }

    fn message(&self, command: u8) -> GenericMessage {
        GenericMessage { family: self.family, command, version: 1, attributes: Vec::new() }
    }
}

// include/uapi/linux/tcp_metrics.h
const TCP_METRICS_CMD_GET: u8 = 1;
const TCP_METRICS_CMD_DEL: u8 = 2;
const ATTR_ADDR_IPV4: u16 = 1;
const ATTR_ADDR_IPV6: u16 = 2;
