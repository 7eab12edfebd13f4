//! UDP: the challenge that precedes a flow, and the header of its datagrams.

use super::Token;

/// Bytes of [`DatagramHeader`]; the smallest payload of a UDP stream.
pub const DATAGRAM_HEADER: usize = 16;
/// Bytes of [`Handshake`], of every kind: an answer is never longer than what it answers.
pub const HANDSHAKE_BYTES: usize = 48;

const HANDSHAKE_MAGIC: [u8; 8] = *b"\xd1lr-udp\x01";

/// The part of a run that a datagram belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The warm-up, which is not counted.
    WarmUp,
    /// The measured time; its sequence numbers begin at 0.
    Measured,
}

/// The first 16 bytes of each datagram of a UDP stream, big-endian: phase in the top bit and 63
/// bits of sequence number, then the sender's monotonic clock in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The part of the run.
    pub phase: Phase,
    /// Sequence number within the phase, from 0.
    pub sequence: u64,
    /// Time by the sender's clock, ns; only differences have a meaning.
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

    /// Reads the header; `None` if the datagram is too short.
    #[inline]
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (first, rest) = datagram.split_first_chunk::<8>()?;
        let second = rest.first_chunk::<8>()?;
        let word = u64::from_be_bytes(*first);
        Some(Self {
            phase: if word & MEASURED == 0 { Phase::WarmUp } else { Phase::Measured },
            sequence: word & !MEASURED,
            sent_ns: u64::from_be_bytes(*second),
        })
    }
}

/// A step of the challenge, with its byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStep {
    /// The client asks for a flow.
    Ask = 1,
    /// The endpoint sends a cookie, to see whether the client receives at its address.
    Challenge,
    /// The client returns the cookie.
    Answer,
    /// The endpoint gives the client the flow.
    Welcome,
}

/// The four datagrams by which a client proves its address before any datagram goes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The step.
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
        bytes[8] = self.kind as u8;
        bytes[12..16].copy_from_slice(&self.flow.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.token.0);
        bytes[32..40].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// Reads a handshake; `None` for any other datagram, also one of another length.
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
        fn a_handshake_survives_the_wire(token: [u8; 16], flow: u32, cookie: u64) {
            for kind in [HandshakeStep::Ask, HandshakeStep::Challenge, HandshakeStep::Answer,
                HandshakeStep::Welcome] {
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
