//! Generic netlink: messages of families whose number the kernel assigns at run time.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable, Nla, NlasIterator, Parseable, parse_u16,
};

use super::NetlinkError;
use super::exchange::Exchange;

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
