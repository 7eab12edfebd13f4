//! What TCP remembers of hosts it talked to, and starts the next connection with.

use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Nla, parse_ip, parse_u32};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::NetlinkError;
use super::exchange::Exchange;
use super::generic::{GenericMessage, attributes, family_number, value_of};

/// The TCP metrics cache of one network namespace.
#[derive(Debug)]
pub struct TcpMetrics {
    exchange: Exchange,
    family: u16,
}

/// What is remembered of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpMetricsEntry {
    /// The remote host.
    pub address: IpAddr,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: Option<u32>,
    /// Variation of the round-trip time in microseconds.
    pub rtt_variation_us: Option<u32>,
    /// Slow-start threshold in segments: the next connection leaves slow start there.
    pub slow_start_threshold: Option<u32>,
    /// Congestion window in segments.
    pub congestion_window: Option<u32>,
    /// Reordering distance in segments.
    pub reordering: Option<u32>,
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

    /// All entries.
    ///
    /// # Errors
    /// [`NetlinkError`] if the table cannot be read.
    pub fn entries(&mut self) -> Result<Vec<TcpMetricsEntry>, NetlinkError> {
        let query = self.message(TCP_METRICS_CMD_GET);
        let answer = self.exchange.dump("list the TCP metrics", query)?;
        Ok(answer
            .iter()
            .filter_map(|message| parse(&message.attributes))
            .collect())
    }

    /// Forgets everything, so that the next connection starts without prejudice.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`.
    pub fn flush(&mut self) -> Result<(), NetlinkError> {
        let message = self.message(TCP_METRICS_CMD_DEL);
        self.exchange
            .request("flush the TCP metrics", message, 0)
            .map(drop)
    }

    /// Forgets one host; that it is not remembered is no error.
    ///
    /// # Errors
    /// Refused with `EPERM` without `CAP_NET_ADMIN`.
    pub fn forget(&mut self, address: IpAddr) -> Result<(), NetlinkError> {
        let mut message = self.message(TCP_METRICS_CMD_DEL);
        message.attributes.push(match address {
            IpAddr::V4(v4) => DefaultNla::new(ATTR_ADDR_IPV4, v4.octets().to_vec()),
            IpAddr::V6(v6) => DefaultNla::new(ATTR_ADDR_IPV6, v6.octets().to_vec()),
        });
        match self
            .exchange
            .request("forget a host's TCP metrics", message, 0)
        {
            Err(error) if error.errno() == Some(libc::ESRCH) => Ok(()),
            other => other.map(drop),
        }
    }

    fn message(&self, command: u8) -> GenericMessage {
        GenericMessage {
            family: self.family,
            command,
            version: 1,
            attributes: Vec::new(),
        }
    }
}

fn parse(message: &[DefaultNla]) -> Option<TcpMetricsEntry> {
    let address = [ATTR_ADDR_IPV4, ATTR_ADDR_IPV6]
        .iter()
        .find_map(|kind| value(message, *kind))?;
    let values = value(message, ATTR_VALS)
        .and_then(|bytes| attributes(&bytes).ok())
        .unwrap_or_default();
    let number = |kind| value(&values, kind).and_then(|bytes| parse_u32(&bytes).ok());
    Some(TcpMetricsEntry {
        address: parse_ip(&address).ok()?,
        rtt_us: number(VALUE_RTT_US),
        rtt_variation_us: number(VALUE_RTTVAR_US),
        slow_start_threshold: number(VALUE_SSTHRESH),
        congestion_window: number(VALUE_CWND),
        reordering: number(VALUE_REORDERING),
    })
}

fn value(attributes: &[DefaultNla], kind: u16) -> Option<Vec<u8>> {
    attributes
        .iter()
        .find(|attribute| attribute.kind() == kind)
        .map(value_of)
}

// include/uapi/linux/tcp_metrics.h; a value's attribute is its `TCP_METRIC_*` number plus one.
const TCP_METRICS_CMD_GET: u8 = 1;
const TCP_METRICS_CMD_DEL: u8 = 2;
const ATTR_ADDR_IPV4: u16 = 1;
const ATTR_ADDR_IPV6: u16 = 2;
const ATTR_VALS: u16 = 6;
const VALUE_SSTHRESH: u16 = 3;
const VALUE_CWND: u16 = 4;
const VALUE_REORDERING: u16 = 5;
const VALUE_RTT_US: u16 = 6;
const VALUE_RTTVAR_US: u16 = 7;
