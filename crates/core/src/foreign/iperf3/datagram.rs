//! UDP: the greeting of a flow, and the header of its datagrams.

/// Bytes of a [`Greeting`].
const GREETING_BYTES: usize = 4;

/// The first datagram of a UDP flow; the server's answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// The bytes `39 38 37 36`.
    Usual,
    /// 123456789 in the byte order of an old client.
    Legacy,
}

const HELLO: [u8; GREETING_BYTES] = *b"9876";
const ANSWER: [u8; GREETING_BYTES] = *b"6789";

impl Greeting {
    /// Reads a client's greeting; `None` for any other datagram.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; GREETING_BYTES] = bytes.try_into().ok()?;
        let legacy = 123_456_789u32;
        match bytes {
            HELLO => Some(Self::Usual),
            _ if bytes == legacy.to_le_bytes() || bytes == legacy.to_be_bytes() => {
                Some(Self::Legacy)
            }
            _ => None,
        }
    }

    /// The greeting that linerate's client sends.
    pub fn hello() -> [u8; GREETING_BYTES] {
        HELLO
    }

    /// The server's answer. A client that expects another one goes on all the same.
    pub fn answer(self) -> [u8; GREETING_BYTES] {
        match self {
            Self::Usual => ANSWER,
            Self::Legacy => 987_654_321u32.to_le_bytes(),
        }
    }

    /// Whether a datagram is a server's answer.
    pub fn is_answer(bytes: &[u8]) -> bool {
        let legacy = 987_654_321u32;
        bytes == ANSWER || bytes == legacy.to_le_bytes() || bytes == legacy.to_be_bytes()
    }
}

/// The header of a data datagram, big-endian: seconds 4, microseconds 4, sequence 4 or 8, from 1
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// 32-bit sequence numbers.
    Narrow,
    /// 64-bit ones.
    Wide,
}

impl Layout {
    /// Bytes of the header.
    pub fn bytes(self) -> usize {
        match self {
            Self::Narrow => 12,
            Self::Wide => 16,
        }
    }

    /// Writes the header to the front of a datagram, which must hold it. The time is of the
    /// sender's clock, ns.
    pub fn write(self, datagram: &mut [u8], sequence: u64, sent_ns: u64) {
        let seconds = (sent_ns / 1_000_000_000) as u32;
        let microseconds = (sent_ns % 1_000_000_000 / 1000) as u32;
        datagram[..4].copy_from_slice(&seconds.to_be_bytes());
        datagram[4..8].copy_from_slice(&microseconds.to_be_bytes());
        match self {
            Self::Narrow => datagram[8..12].copy_from_slice(&(sequence as u32).to_be_bytes()),
            Self::Wide => datagram[8..16].copy_from_slice(&sequence.to_be_bytes()),
        }
    }

    /// Reads the sequence number and the time, ns; `None` if the datagram is too short. `highest`
    /// is the highest number so far, from which numbers of 32 bits are continued.
    pub fn read(self, datagram: &[u8], highest: u64) -> Option<(u64, u64)> {
        let word = |at: usize| -> Option<u32> {
            let bytes = datagram.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let sent_ns = u64::from(word(0)?) * 1_000_000_000 + u64::from(word(4)?) * 1000;
        let sequence = match self {
            Self::Narrow => continued(word(8)?, highest),
            Self::Wide => u64::from(word(8)?) << 32 | u64::from(word(12)?),
        };
        Some((sequence, sent_ns))
    }
}

/// The number nearest to `highest` whose low 32 bits are `low`.
fn continued(low: u32, highest: u64) -> u64 {
    let ahead = low.wrapping_sub(highest as u32);
    if ahead < 1 << 31 {
        highest.saturating_add(u64::from(ahead))
    } else {
        highest.saturating_sub(u64::from(ahead.wrapping_neg()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_reads_as_it_was_written(
            sequence in 0u64.., sent_us in 0u64..4_000_000_000_000_000,
        ) {
            let mut datagram = [0; 16];
            Layout::Wide.write(&mut datagram, sequence, sent_us * 1000);
            prop_assert_eq!(Layout::Wide.read(&datagram, 0), Some((sequence, sent_us * 1000)));
        }

        #[test]
        fn numbers_of_32_bits_go_on_beyond_their_end(
            highest in 0u64..1 << 40, step in -1000i64..1000,
        ) {
            let sequence = highest.saturating_add_signed(step);
            let mut datagram = [0; 12];
            Layout::Narrow.write(&mut datagram, sequence, 0);
            prop_assert_eq!(Layout::Narrow.read(&datagram, highest), Some((sequence, 0)));
        }
    }

    #[test]
    fn greetings_of_old_and_new_clients_are_told_from_other_datagrams() {
        assert_eq!(Greeting::decode(b"9876"), Some(Greeting::Usual));
        assert_eq!(Greeting::decode(&[0x15, 0xcd, 0x5b, 0x07]), Some(Greeting::Legacy));
        for other in [&b"6789"[..], b"", b"987", b"98765"] {
            assert_eq!(Greeting::decode(other), None);
        }
        for greeting in [Greeting::Usual, Greeting::Legacy] {
            assert!(Greeting::is_answer(&greeting.answer()));
        }
    }

    #[test]
    fn a_datagram_that_is_too_short_has_no_header() {
        assert_eq!(Layout::Narrow.read(&[0; 11], 0), None);
        assert_eq!(Layout::Wide.read(&[0; 15], 0), None);
    }
}
