//! UDP: the challenge before a flow, and the header of its datagrams.

use super::Token;

/// Bytes of [`DatagramHeader`]; the smallest payload of a UDP stream.
pub const DATAGRAM_HEADER: usize = 16;
/// Bytes of [`Handshake`], of every kind: an answer is never longer than what it answers.
pub const HANDSHAKE_BYTES: usize = 48;

const HANDSHAKE_MAGIC: [u8; 8] = *b"\xd1lr-udp\x01";

/// Which part of a run a datagram belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not counted.
    WarmUp,
    /// Counted; its sequence numbers begin at 0.
    Measured,
}

/// The first 16 bytes of each datagram of a UDP stream, big-endian: phase in the top bit and 63
/// bits of sequence number, then the sender's monotonic clock in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Which part of the run.
    pub phase: Phase,
    /// Sequence number within the phase, from 0.
    pub sequence: u64,
    /// Sender's clock, ns; only differences have a meaning.
    pub sent_ns: u64,
}

const MEASURED: u64 = 1 << 63;

impl DatagramHeader {
    /// Writes the header to the front of `datagram`, which must hold it.
    #[inline]
    pub fn write(&self, datagram: &mut [u8]) {
        let phase = match self.phase {
            Phase::WarmUp => 0,
            Phase::Measured => MEASURED,
        };
        datagram[..8].copy_from_slice(&(phase | self.sequence & !MEASURED).to_be_bytes());
        datagram[8..DATAGRAM_HEADER].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads the header, `None` if the datagram is too short.
    #[inline]
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (first, rest) = datagram.split_first_chunk::<8>()?;
        let second = rest.first_chunk::<8>()?;
        let word = u64::from_be_bytes(*first);
        Some(Self {
            phase: if word & MEASURED == 0 {
                Phase::WarmUp
            } else {
                Phase::Measured
            },
            sequence: word & !MEASURED,
            sent_ns: u64::from_be_bytes(*second),
        })
    }
}

/// Which step of the challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Client: I want this flow.
    Ask,
    /// Endpoint: prove that you can read at this address.
    Challenge,
    /// Client: here is your cookie.
    Answer,
    /// Endpoint: the flow is yours.
    Welcome,
}

/// The four datagrams by which a client proves its address before any datagram goes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Which step.
    pub kind: HandshakeStep,
    /// The session.
    pub token: Token,
    /// The flow.
    pub flow: u32,
    /// The endpoint's cookie; zero in [`HandshakeStep::Ask`].
    pub cookie: u64,
}

impl Handshake {
    /// Layout, big-endian: magic 8, kind 1, zero 3, flow 4, token 16, cookie 8, zero to 48.
    pub fn encode(&self) -> [u8; HANDSHAKE_BYTES] {
        let mut bytes = [0; HANDSHAKE_BYTES];
        bytes[..8].copy_from_slice(&HANDSHAKE_MAGIC);
        bytes[8] = match self.kind {
            HandshakeStep::Ask => 1,
            HandshakeStep::Challenge => 2,
            HandshakeStep::Answer => 3,
            HandshakeStep::Welcome => 4,
        };
        bytes[12..16].copy_from_slice(&self.flow.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.token.0);
        bytes[32..40].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// Reads a handshake, `None` if it is none. Only the exact length counts.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HANDSHAKE_BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != HANDSHAKE_MAGIC {
            return None;
        }
        let kind = match bytes[8] {
            1 => HandshakeStep::Ask,
            2 => HandshakeStep::Challenge,
            3 => HandshakeStep::Answer,
            4 => HandshakeStep::Welcome,
            _ => return None,
        };
        let (_, rest) = bytes.split_at(12);
        let (flow, rest) = rest.split_first_chunk::<4>()?;
        let (token, rest) = rest.split_first_chunk::<16>()?;
        let cookie = rest.first_chunk::<8>()?;
        Some(Self {
            kind,
            token: Token(*token),
            flow: u32::from_be_bytes(*flow),
            cookie: u64::from_be_bytes(*cookie),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_survives_the_wire(measured: bool, sequence in 0u64..1 << 63, sent_ns: u64) {
            let phase = if measured { Phase::Measured } else { Phase::WarmUp };
            let header = DatagramHeader { phase, sequence, sent_ns };
            let mut datagram = [0; 20];
            header.write(&mut datagram);
            prop_assert_eq!(DatagramHeader::read(&datagram), Some(header));
        }

        #[test]
        fn a_knock_survives_the_wire(token: [u8; 16], flow: u32, cookie: u64) {
            for kind in [HandshakeStep::Ask, HandshakeStep::Challenge, HandshakeStep::Answer, HandshakeStep::Welcome] {
                let handshake = Handshake { kind, token: Token(token), flow, cookie };
                prop_assert_eq!(Handshake::decode(&handshake.encode()), Some(handshake));
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Handshake::decode(&bytes);
            let _ = DatagramHeader::read(&bytes);
        }
    }
}
