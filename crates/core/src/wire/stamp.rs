//! STAMP (RFC 8762) without authentication: the test packets of a session-sender and of a
//! session-reflector, with the session identifier of RFC 8972. TWAMP's light mode (RFC 5357,
//! appendix I) has the same fields in the same places, and padding in place of zeros.

/// UDP port of a session-reflector.
pub const STAMP_PORT: u16 = 862;
/// Length of a test packet without padding, bytes: the same in both directions.
pub const STAMP_BYTES: usize = 44;
/// Offset at which an answer repeats the sequence number of the request.
pub const STAMP_ANSWERED_AT: usize = 24;
/// Length of the meaningful part of an answer, bytes; TWAMP's has no more.
const ANSWER_BYTES: usize = 41;
/// Bytes of a request of TWAMP's light mode without padding.
const REQUEST_BYTES: usize = 14;

/// The meaningful fields of a session-sender's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampRequest {
    /// Its number, from 0.
    pub sequence: u32,
    /// Time of sending by the sender's clock, ns since 1970.
    pub sent_ns: u64,
    /// Identifier of the session (RFC 8972).
    pub session: u16,
}

/// The answer of a session-reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampAnswer {
    /// The reflector's own count, or the request's number if it keeps none (stateless).
    pub sequence: u32,
    /// Time of sending by the reflector's clock, ns since 1970 or since that clock's own epoch.
    pub sent_ns: u64,
    /// Time of the request's arrival, by the same clock.
    pub received_ns: u64,
    /// The number of the request.
    pub request_sequence: u32,
    /// Time of the request's sending, by the sender's clock.
    pub request_sent_ns: u64,
    /// Hop limit of the arriving request.
    pub request_ttl: u8,
}

/// The arrival of a request at a reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampArrival {
    /// Its time, ns since 1970.
    pub received_ns: u64,
    /// Its hop limit; 255 if the kernel does not report it.
    pub ttl: u8,
}

impl StampRequest {
    /// Writes the packet to the front of `packet`, which must hold [`STAMP_BYTES`]; the rest
    /// stays unchanged.
    pub fn write(&self, packet: &mut [u8]) {
        packet[..STAMP_BYTES].fill(0);
        packet[..4].copy_from_slice(&self.sequence.to_be_bytes());
        packet[4..12].copy_from_slice(&ntp(self.sent_ns));
        packet[12..14].copy_from_slice(&ERROR_ESTIMATE);
        packet[14..16].copy_from_slice(&self.session.to_be_bytes());
    }

    /// Reads a request; `None` if it is too short even for TWAMP's light mode.
    pub fn read(packet: &[u8]) -> Option<Self> {
        (packet.len() >= REQUEST_BYTES).then_some(())?;
        Some(Self {
            sequence: word(packet, 0)?,
            sent_ns: time(packet, 4, estimate(packet, 12)?)?,
            session: estimate(packet, 14).unwrap_or(0),
        })
    }
}

impl StampAnswer {
    /// Reads an answer; `None` if it is too short for one.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let own = estimate(packet, 12)?;
        Some(Self {
            sequence: word(packet, 0)?,
            sent_ns: time(packet, 4, own)?,
            received_ns: time(packet, 16, own)?,
            request_sequence: word(packet, STAMP_ANSWERED_AT)?,
            request_sent_ns: time(packet, 28, estimate(packet, 36)?)?,
            request_ttl: *packet.get(ANSWER_BYTES - 1)?,
        })
    }
}

/// Turns a request into its answer in place, with the same length and padding (RFC 8762, 4.6).
/// Without a `count` the reflector is stateless and repeats the request's number. Returns false and
/// changes nothing if the request is shorter than an answer, because no answer is longer than its
/// request, or if it is an answer itself.
pub fn reflect(packet: &mut [u8], arrival: StampArrival, count: Option<u32>, sent_ns: u64) -> bool {
    if packet.len() < ANSWER_BYTES || is_answer(packet) {
        return false;
    }
    packet.copy_within(0..14, STAMP_ANSWERED_AT);
    if let Some(count) = count {
        packet[..4].copy_from_slice(&count.to_be_bytes());
    }
    packet[4..12].copy_from_slice(&ntp(sent_ns));
    packet[12..14].copy_from_slice(&ERROR_ESTIMATE);
    // The session's identifier stays at 14.
    packet[16..24].copy_from_slice(&ntp(arrival.received_ns));
    packet[38..40].fill(0);
    packet[40] = arrival.ttl;
    let rest = packet.len().min(STAMP_BYTES);
    packet[ANSWER_BYTES..rest].fill(0);
    true
}

/// Whether a packet is the answer of a reflector: two reflectors that answered each other would
/// never end. Where an answer has the time of its request's arrival, just before that of its own
/// sending and by the same clock, a request of STAMP has zeros (RFC 8762, 4.2.1). One of TWAMP's
/// light mode has padding, which is taken for such a time once in thirty million packets if it is
/// random.
fn is_answer(packet: &[u8]) -> bool {
    let [sent, received, fraction] = [4, 16, 20].map(|at| word(packet, at).unwrap_or(0));
    let apart = sent.wrapping_sub(received) as i32;
    (received, fraction) != (0, 0) && apart.unsigned_abs() <= LONGEST_TURN_S
}

/// Longest time between an answer's two timestamps, s. They differ by 37 s if the network device
/// keeps TAI and the host UTC.
const LONGEST_TURN_S: u32 = 64;

/// No external source is known (S = 0), NTP's format (Z = 0), and an error of 2⁻³² · 2³² · 1 s: a
/// multiplier of 0 would mean that the packet is corrupt (RFC 4656, 4.1.2).
const ERROR_ESTIMATE: [u8; 2] = [32, 1];
/// Z of an error estimate: times are in PTP's truncated format.
const PTP: u16 = 1 << 14;
/// From 1900 to 1970, s.
const ERA: u64 = 2_208_988_800;
const SECOND_NS: u64 = 1_000_000_000;

/// Seconds since 1900, which overflow in 2036, and a fraction (RFC 5905, 6).
fn ntp(unix_ns: u64) -> [u8; 8] {
    let seconds = (unix_ns / SECOND_NS).wrapping_add(ERA) as u32;
    // Rounded up, so that reading it gives the same nanosecond.
    let fraction = ((unix_ns % SECOND_NS) << 32).div_ceil(SECOND_NS) as u32;
    (u64::from(seconds) << 32 | u64::from(fraction)).to_be_bytes()
}

/// The time at `at`, ns since 1970: of NTP's format within 68 years of 2036, of PTP's as its
/// seconds say.
fn time(packet: &[u8], at: usize, estimate: u16) -> Option<u64> {
    let (seconds, rest) = (word(packet, at)?, word(packet, at + 4)?);
    if estimate & PTP != 0 {
        return Some(u64::from(seconds) * SECOND_NS + u64::from(rest));
    }
    // Before 1970 there is no time to tell.
    let era = u64::from(seconds < 1 << 31) << 32;
    let seconds = (era + u64::from(seconds)).saturating_sub(ERA);
    Some(seconds * SECOND_NS + ((u64::from(rest) * SECOND_NS) >> 32))
}

fn word(packet: &[u8], at: usize) -> Option<u32> {
    let bytes = packet.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

fn estimate(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-23, 12:00:00.25 UTC.
    const NOW: u64 = 1_795_435_200_250_000_000;
    const ARRIVAL: StampArrival = StampArrival { received_ns: NOW + 7_000, ttl: 61 };

    proptest! {
        #[test]
        fn a_packet_survives_the_wire_and_a_reflector(
            sequence: u32, session: u16, count: Option<u32>, ttl: u8, more in 0usize..100,
            times in prop::array::uniform3(0u64..4_000_000_000 * SECOND_NS),
        ) {
            let [sent_ns, received_ns, answered_ns] = times;
            let request = StampRequest { sequence, sent_ns, session };
            let mut packet = vec![0xa5; STAMP_BYTES + more];
            request.write(&mut packet);
            prop_assert_eq!(StampRequest::read(&packet), Some(request));
            let arrival = StampArrival { received_ns, ttl };
            prop_assert!(reflect(&mut packet, arrival, count, answered_ns));
            prop_assert_eq!(StampAnswer::read(&packet), Some(StampAnswer {
                sequence: count.unwrap_or(sequence),
                sent_ns: answered_ns,
                received_ns,
                request_sequence: sequence,
                request_sent_ns: sent_ns,
                request_ttl: ttl,
            }));
            prop_assert_eq!(&packet[14..16], &session.to_be_bytes());
            prop_assert!(packet[STAMP_BYTES..].iter().all(|byte| *byte == 0xa5));
        }

        #[test]
        fn an_answer_is_not_answered_whatever_its_request_was(
            bytes in prop::collection::vec(any::<u8>(), ANSWER_BYTES..80), count: Option<u32>,
            took_ns in 0..60 * SECOND_NS,
        ) {
            let mut packet = bytes;
            reflect(&mut packet, ARRIVAL, count, ARRIVAL.received_ns + took_ns);
            let answer = packet.clone();
            // The clock of the other reflector may be any.
            for later in [0, SECOND_NS, 1 << 60] {
                let arrival = StampArrival { received_ns: NOW + later, ttl: 64 };
                prop_assert!(!reflect(&mut packet, arrival, count, NOW + later));
            }
            prop_assert_eq!(packet, answer);
        }

        #[test]
        fn any_bytes_are_read_or_refused_and_no_answer_is_longer(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            prop_assert_eq!(StampRequest::read(&bytes).is_some(), bytes.len() >= REQUEST_BYTES);
            prop_assert_eq!(StampAnswer::read(&bytes).is_some(), bytes.len() >= ANSWER_BYTES);
            let mut answer = bytes.clone();
            let reflected = reflect(&mut answer, ARRIVAL, Some(3), NOW);
            prop_assert_eq!(reflected, bytes.len() >= ANSWER_BYTES && !is_answer(&bytes));
            prop_assert_eq!(answer.len(), bytes.len());
            if !reflected {
                prop_assert_eq!(answer, bytes);
            } else {
                let told = StampAnswer::read(&answer).unwrap();
                prop_assert_eq!(&answer[24..28], &bytes[..4]);
                prop_assert_eq!((told.sequence, told.received_ns), (3, ARRIVAL.received_ns));
            }
        }
    }

    #[test]
    fn fields_stand_where_rfc_8762_has_them() {
        let mut packet = [0xff; STAMP_BYTES];
        let request = StampRequest { sequence: 0x0102_0304, sent_ns: NOW, session: 0x0506 };
        request.write(&mut packet);
        // 1,795,435,200 s after 1970 are 4,004,424,000 after 1900; a quarter of 2³².
        let mut expected = vec![1, 2, 3, 4, 0xee, 0xae, 0x65, 0x40, 0x40, 0, 0, 0, 32, 1, 5, 6];
        expected[4..8].copy_from_slice(&4_004_424_000u32.to_be_bytes());
        expected.resize(STAMP_BYTES, 0);
        assert_eq!(packet, expected[..]);
        assert!(reflect(&mut packet, ARRIVAL, Some(9), NOW + 8_000));
        assert_eq!(packet[..4], [0, 0, 0, 9]);
        assert_eq!(packet[24..38], expected[..14]);
        assert_eq!(packet[38..44], [0, 0, 61, 0, 0, 0]);
    }

    /// A request of TWAMP's light mode as RFC 5357, 4.1.2 has it: number, time, error estimate,
    /// padding.
    fn light(padding: usize) -> Vec<u8> {
        let mut packet = vec![0, 0, 0, 7];
        packet.extend(4_004_424_000u32.to_be_bytes());
        packet.extend([0x40, 0, 0, 0, 0x80, 5]);
        packet.resize(REQUEST_BYTES + padding, 0x5a);
        packet
    }

    #[test]
    fn a_sender_of_twamps_light_mode_is_answered_if_it_pads_to_an_answer() {
        for padding in [0, 26] {
            let mut packet = light(padding);
            assert_eq!(StampRequest::read(&packet).unwrap().sent_ns, NOW);
            assert!(!reflect(&mut packet, ARRIVAL, None, NOW));
            assert_eq!(packet, light(padding));
        }
        // 41 bytes are the whole of TWAMP's answer (RFC 5357, 4.2.1).
        for padding in [27, 28, 30, 100] {
            let mut packet = light(padding);
            assert!(reflect(&mut packet, ARRIVAL, None, NOW + 9_000));
            let answer = StampAnswer::read(&packet).unwrap();
            assert_eq!((answer.sequence, answer.request_sequence), (7, 7));
            assert_eq!((answer.request_sent_ns, answer.request_ttl), (NOW, 61));
            assert_eq!(packet[36..38], [0x80, 5]);
            assert!(packet.iter().skip(STAMP_BYTES).all(|byte| *byte == 0x5a));
        }
    }

    #[test]
    fn times_of_ptp_and_of_the_next_era_are_read() {
        let mut packet = light(0);
        packet[4..12].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 5]);
        // Era 1 begins in February 2036.
        let era_1 = (1u64 << 32) - ERA + 2;
        assert_eq!(StampRequest::read(&packet).unwrap().sent_ns, era_1 * SECOND_NS + 1);
        packet[12] |= 0x40;
        assert_eq!(StampRequest::read(&packet).unwrap().sent_ns, 2 * SECOND_NS + 5);
    }
}
