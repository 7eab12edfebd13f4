//! Interarrival jitter, incrementally.

/// The interarrival jitter of RFC 3550, section 6.4.1: J += (|D| − J) / 16, where D is the change
/// of the transit time from one packet to the next in the order of arrival.
///
/// The clocks of sender and receiver need not agree: only the difference of two transit times
/// counts.
#[derive(Debug, Clone, Default)]
pub struct Jitter {
    last_transit_ns: Option<i64>,
    jitter_ns: Option<f64>,
}

impl Jitter {
    /// Takes a packet's sending time by the sender's clock and its arrival by the receiver's, both
    /// in ns.
    pub fn on_packet(&mut self, sent_ns: u64, arrived_ns: u64) {
        // Two's complement: the clocks may have any offset, and may wrap.
        let transit_ns = arrived_ns.wrapping_sub(sent_ns) as i64;
        if let Some(last) = self.last_transit_ns.replace(transit_ns) {
            let difference_ns = transit_ns.wrapping_sub(last).unsigned_abs() as f64;
            let jitter_ns = self.jitter_ns.get_or_insert(0.0);
            *jitter_ns += (difference_ns - *jitter_ns) / 16.0;
        }
    }

    /// The jitter so far in ns; `None` before the second packet.
    pub fn ns(&self) -> Option<f64> {
        self.jitter_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn follows_the_recurrence_of_the_rfc() {
        let mut jitter = Jitter::default();
        for (sent, arrived) in [(0, 100), (1_000, 1_116), (2_000, 2_084)] {
            jitter.on_packet(sent, arrived);
        }
        // |D| is 16, then 32: 16/16 = 1, then 1 + (32 − 1)/16.
        assert_eq!(jitter.ns(), Some(1.0 + 31.0 / 16.0));
    }

    #[test]
    fn converges_to_the_change_of_an_alternating_delay() {
        let mut jitter = Jitter::default();
        for packet in 0..1_000_u64 {
            jitter.on_packet(packet * 1_000, packet * 1_000 + 200 * (packet % 2));
        }
        assert!((jitter.ns().unwrap() - 200.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn clock_offset_does_not_count(
            transits in prop::collection::vec(0_u64..1_000_000, 2..50), offset: u64,
        ) {
            let (mut here, mut there) = (Jitter::default(), Jitter::default());
            for (packet, transit) in transits.into_iter().enumerate() {
                let sent = packet as u64 * 1_000;
                here.on_packet(sent, sent + transit);
                there.on_packet(sent.wrapping_add(offset), sent + transit);
            }
            prop_assert_eq!(here.ns(), there.ns());
        }
    }
}
