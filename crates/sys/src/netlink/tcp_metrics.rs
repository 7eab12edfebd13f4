//! The TCP metrics cache: what TCP learnt about hosts, and starts their next connections with. It
//! is read by generic netlink, whose messages are here too.

use std::net::IpAddr;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable, Nla, NlasIterator, Parseable, parse_ip, parse_u16,
};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::NetlinkError;
use super::exchange::Exchange;

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

// Generic netlink: messages of families whose number the kernel assigns at run time.

/// A generic netlink message with its attributes undecoded.
#[derive(Debug, Clone)]
pub(super) struct GenericMessage {
    pub(super) family: u16,
    pub(super) command: u8,
    pub(super) version: u8,
    pub(super) attributes: Vec<DefaultNla>,
}

/// Asks for the number of the family called `name`; refused with `ENOENT` if the kernel lacks it.
pub(super) fn family_number(exchange: &mut Exchange, name: &str) -> Result<u16, NetlinkError> {
    let mut value = name.as_bytes().to_vec();
    value.push(0);
    let query = GenericMessage {
        family: GENL_ID_CTRL,
        command: CTRL_CMD_GETFAMILY,
        version: 1,
        attributes: vec![DefaultNla::new(CTRL_ATTR_FAMILY_NAME, value)],
    };
    let operation = format!("find the generic netlink family {name}");
    let answer = exchange.request(&operation, query, 0)?;
    let number = answer
        .iter()
        .flat_map(|message| &message.attributes)
        .filter(|attribute| attribute.kind() == CTRL_ATTR_FAMILY_ID);
    number
        .filter_map(|attribute| parse_u16(&value_of(attribute)).ok())
        .next()
        .ok_or_else(|| NetlinkError::malformed(&operation, "no family number in the answer"))
}

/// The payload of an attribute.
pub(super) fn value_of(attribute: &DefaultNla) -> Vec<u8> {
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    value
}

impl NetlinkSerializable for GenericMessage {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        GENERIC_HEADER_LENGTH + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..GENERIC_HEADER_LENGTH].copy_from_slice(&[self.command, self.version, 0, 0]);
        self.attributes.as_slice().emit(&mut buffer[GENERIC_HEADER_LENGTH..]);
    }
}

impl NetlinkDeserializable for GenericMessage {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let [command, version, _, _, rest @ ..] = payload else {
            return Err(DecodeError::from("generic netlink header cut short"));
        };
        Ok(Self {
            family: header.message_type,
            command: *command,
            version: *version,
            attributes: NlasIterator::new(rest)
                .map(|attribute| DefaultNla::parse(&attribute?))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl From<GenericMessage> for NetlinkPayload<GenericMessage> {
    fn from(message: GenericMessage) -> Self {
        Self::InnerMessage(message)
    }
}

// include/uapi/linux/genetlink.h
const GENERIC_HEADER_LENGTH: usize = 4;
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
