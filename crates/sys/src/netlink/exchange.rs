//! One netlink socket: requests out, whole answers in.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_ALIGNTO, NLMSG_DONE,
    NLMSG_ERROR, NetlinkBuffer, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable, parse_string,
};
use netlink_sys::{Socket, SocketAddr};
use socket2::SockRef;

use super::NetlinkError;
use crate::message::u16_at;

/// A bound netlink socket and the sequence number of its last request.
#[derive(Debug)]
pub(super) struct Exchange {
    socket: Socket,
    sequence: u32,
}

impl Exchange {
    /// Opens a socket of `protocol` (a `NETLINK_*` number) in the calling thread's network
    /// namespace.
    pub(super) fn open(protocol: isize) -> Result<Self, NetlinkError> {
        Self::bound_socket(protocol)
            .map(|socket| Self { socket, sequence: 0 })
            .map_err(|source| NetlinkError::Open { source })
    }

    fn bound_socket(protocol: isize) -> io::Result<Socket> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_ext_ack(true)?;
        // Without it an error echoes the whole request, and the explanation follows at a varying
        // offset.
        socket.set_cap_ack(true)?;
        SockRef::from(&socket).set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(socket)
    }

    /// Sends one request and returns the messages that precede its acknowledgement.
    pub(super) fn request<M>(
        &mut self,
        operation: &str,
        message: M,
        flags: u16,
    ) -> Result<Vec<M>, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<M>>,
    {
        self.attempt(operation, message, flags | NLM_F_ACK).map(|answer| answer.messages)
    }

    /// Reads a table, again if it changed while the kernel was listing it.
    pub(super) fn dump<M>(&mut self, operation: &str, message: M) -> Result<Vec<M>, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<M>> + Clone,
    {
        for _ in 0..DUMP_ATTEMPTS {
            let answer = self.attempt(operation, message.clone(), NLM_F_DUMP)?;
            if !answer.interrupted {
                return Ok(answer.messages);
            }
        }
        Err(NetlinkError::Unsettled { operation: operation.to_owned() })
    }

    /// Reads a table and passes the payload of each message to the caller undecoded, for tables
    /// with many thousands of entries. `buffer` needs the capacity of the largest datagram.
    pub(super) fn dump_bytes(
        &mut self,
        operation: &str,
        kind: u16,
        body: &[u8],
        buffer: &mut Vec<u8>,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), NetlinkError> {
        let transport =
            |source| NetlinkError::Transport { operation: operation.to_owned(), source };
        self.send_bytes(kind, body).map_err(transport)?;
        loop {
            buffer.clear();
            retry_interrupted(|| self.socket.recv(buffer, 0)).map_err(transport)?;
            let frames = frames(buffer).filter(|frame| frame.sequence_number() == self.sequence);
            for frame in frames {
                let payload = frame.payload();
                if !matches!(frame.message_type(), NLMSG_DONE | NLMSG_ERROR) {
                    visit(payload);
                    continue;
                }
                let (code, rest) = payload.split_first_chunk().unwrap_or((&[0; 4], &[]));
                let is_done = frame.message_type() == NLMSG_DONE;
                let attributes = if is_done { 0 } else { NETLINK_HEADER_LENGTH };
                let attributes = rest.get(attributes..).unwrap_or_default();
                acknowledged(i32::from_ne_bytes(*code), attributes)
                    .map_err(|failure| failure.of(operation))?;
                return Ok(());
            }
        }
    }

    fn send_bytes(&mut self, kind: u16, body: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = (NETLINK_HEADER_LENGTH + body.len()) as u32;
        let mut packet = length.to_ne_bytes().to_vec();
        packet.extend(kind.to_ne_bytes());
        packet.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        packet.extend(self.sequence.to_ne_bytes());
        packet.extend([0; 4]);
        packet.extend(body);
        retry_interrupted(|| self.socket.send(&packet, 0)).map(drop)
    }

    fn attempt<M>(
        &mut self,
        operation: &str,
        message: M,
        flags: u16,
    ) -> Result<PartialAnswer<M>, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<M>>,
    {
        let transport =
            |source| NetlinkError::Transport { operation: operation.to_owned(), source };
        self.send(message, flags).map_err(transport)?;
        let mut answer = PartialAnswer { messages: Vec::new(), interrupted: false };
        loop {
            let datagram = self.receive().map_err(transport)?;
            let end =
                answer.absorb(&datagram, self.sequence).map_err(|failure| failure.of(operation))?;
            if end {
                return Ok(answer);
            }
        }
    }

    fn send<M>(&mut self, message: M, flags: u16) -> io::Result<()>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<M>>,
    {
        self.sequence = self.sequence.wrapping_add(1);
        let mut packet = NetlinkMessage::from(message);
        packet.header.flags = NLM_F_REQUEST | flags;
        packet.header.sequence_number = self.sequence;
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        // A netlink socket takes a message whole or not at all.
        retry_interrupted(|| self.socket.send(&bytes, 0)).map(drop)
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        retry_interrupted(|| self.socket.recv_from_full()).map(|(datagram, _)| datagram)
    }
}

/// A non-blocking socket that receives what the kernel sends to these multicast groups.
pub(super) fn listener(
    protocol: isize,
    groups: &[u32],
    buffer: Option<usize>,
) -> Result<Socket, NetlinkError> {
    let open = || -> io::Result<Socket> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        socket.set_non_blocking(true)?;
        if let Some(bytes) = buffer {
            SockRef::from(&socket).set_recv_buffer_size(bytes)?;
        }
        Ok(socket)
    };
    open().map_err(|source| NetlinkError::Open { source })
}

/// What has arrived of an answer so far.
struct PartialAnswer<M> {
    messages: Vec<M>,
    /// The table changed while it was dumped; entries may be missing or doubled.
    interrupted: bool,
}

impl<M: NetlinkDeserializable> PartialAnswer<M> {
    /// Takes in the messages of one datagram; true when the answer is complete.
    fn absorb(&mut self, datagram: &[u8], sequence: u32) -> Result<bool, ExchangeFailure> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let frame = NetlinkBuffer::new_checked(rest)?;
            let length = frame.length() as usize;
            // A late answer to an earlier request that timed out is not ours.
            if frame.sequence_number() == sequence && self.absorb_message(&rest[..length])? {
                return Ok(true);
            }
            rest =
                rest.get(length.next_multiple_of(usize::from(NLMSG_ALIGNTO))..).unwrap_or_default();
        }
        Ok(false)
    }

    fn absorb_message(&mut self, bytes: &[u8]) -> Result<bool, ExchangeFailure> {
        let (header, payload) = NetlinkMessage::<M>::deserialize(bytes)?.into_parts();
        self.interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
        match payload {
            NetlinkPayload::InnerMessage(message) => {
                self.messages.push(message);
                Ok(false)
            }
            NetlinkPayload::Error(error) => acknowledged(
                error.raw_code(),
                error.header.get(NETLINK_HEADER_LENGTH..).unwrap_or_default(),
            ),
            NetlinkPayload::Done(done) => acknowledged(done.code, &done.extended_ack),
            _ => Ok(false),
        }
    }
}

/// The payload of a message.
pub(super) fn payloads(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    frames(datagram).map(|frame| frame.payload())
}

/// The messages of a datagram, up to the first that is malformed.
fn frames(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let frame = NetlinkBuffer::new_checked(rest).ok()?;
        let length = frame.length() as usize;
        rest = rest.get(length.next_multiple_of(usize::from(NLMSG_ALIGNTO))..).unwrap_or_default();
        Some(frame)
    })
}

/// True for success; `code` is zero or a negated errno.
fn acknowledged(code: i32, attributes: &[u8]) -> Result<bool, ExchangeFailure> {
    if code == 0 {
        return Ok(true);
    }
    let source = io::Error::from_raw_os_error(code.saturating_neg());
    Err(ExchangeFailure::Refused { source, explanation: explanation(attributes) })
}

/// The text of an extended acknowledgement (include/uapi/linux/netlink.h, `enum nlmsgerr_attrs`).
fn explanation(bytes: &[u8]) -> Option<String> {
    let (_, text) = attributes(bytes).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)?;
    parse_string(text).ok()
}

/// The type and value of each attribute in `bytes`, up to the first malformed one.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

/// A failure before the operation's name is attached.
enum ExchangeFailure {
    Refused { source: io::Error, explanation: Option<String> },
    Malformed(DecodeError),
}

impl ExchangeFailure {
    fn of(self, operation: &str) -> NetlinkError {
        let operation = operation.to_owned();
        match self {
            Self::Refused { source, explanation } => {
                NetlinkError::Refused { operation, explanation, source }
            }
            Self::Malformed(source) => NetlinkError::Malformed { operation, source },
        }
    }
}

impl From<DecodeError> for ExchangeFailure {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The kernel answers in microseconds; a request that waits for the RTNL lock may take seconds on a
/// busy host.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const DUMP_ATTEMPTS: usize = 8;
const NETLINK_HEADER_LENGTH: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The bits of an attribute's type that are not flags for nesting or byte order
/// (include/uapi/linux/netlink.h).
const NLA_TYPE_MASK: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;

    use super::*;

    /// An `NLMSG_ERROR` as the kernel sends it with `NETLINK_CAP_ACK` and `NETLINK_EXT_ACK`.
    fn error_datagram(sequence: u32, code: i32, text: &str) -> Vec<u8> {
        let mut body = code.to_ne_bytes().to_vec();
        body.extend([0; NETLINK_HEADER_LENGTH]);
        body.extend((5 + text.len() as u16).to_ne_bytes());
        body.extend(NLMSGERR_ATTR_MSG.to_ne_bytes());
        body.extend(text.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(4), 0);
        let mut bytes = ((NETLINK_HEADER_LENGTH + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(NLMSG_ERROR.to_ne_bytes());
        bytes.extend(0u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn absorb(datagram: &[u8], sequence: u32) -> Result<bool, NetlinkError> {
        let mut answer =
            PartialAnswer::<RouteNetlinkMessage> { messages: Vec::new(), interrupted: false };
        answer.absorb(datagram, sequence).map_err(|failure| failure.of("do it"))
    }

    #[test]
    fn refusal_carries_errno_and_explanation() {
        let error = absorb(&error_datagram(7, -libc::EINVAL, "Nexthop has invalid gateway"), 7)
            .unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert_eq!(error.to_string(), "cannot do it (Nexthop has invalid gateway)");
    }

    #[test]
    fn an_attributes_value_ends_before_the_next_attribute() {
        // Two attributes of four bytes each: `struct nlattr` has the length with its own four
        // bytes.
        let options = [8, 0, 1, 0, 10, 11, 12, 13, 8, 0, 2, 0, 20, 21, 22, 23];
        let found: Vec<(u16, &[u8])> = attributes(&options).collect();
        let expected: [(u16, &[u8]); 2] = [(1, &[10, 11, 12, 13]), (2, &[20, 21, 22, 23])];
        assert_eq!(found, expected);
    }

    #[test]
    fn zero_code_is_success() {
        assert!(absorb(&error_datagram(7, 0, ""), 7).unwrap());
    }

    #[test]
    fn answer_to_an_earlier_request_is_ignored() {
        assert!(!absorb(&error_datagram(6, -libc::EPERM, ""), 7).unwrap());
        let mut both = error_datagram(6, -libc::EPERM, "old");
        both.extend(error_datagram(7, 0, ""));
        assert!(absorb(&both, 7).unwrap());
    }

    #[test]
    fn truncated_answer_is_malformed() {
        let datagram = error_datagram(7, 0, "");
        for length in 1..datagram.len() {
            let result = absorb(&datagram[..length], 7);
            assert!(
                matches!(result, Err(NetlinkError::Malformed { .. })),
                "{length} bytes: {result:?}"
            );
        }
    }
}
