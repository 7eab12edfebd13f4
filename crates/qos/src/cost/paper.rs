//! The white paper's own arithmetic (HP-UX IPQoS Performance and Sizing White Paper, 2005).

use linerate_core::units::BitRate;

/// Send and receive buffers in the paper's runs, bytes.
pub const SOCKET_BYTES: u64 = 32_768;
/// Message sizes in the paper's runs, bytes.
pub const SIZES: [u64; 7] = [32, 64, 128, 256, 512, 1024, 2920];
/// DSCP of the paper's simple filter.
pub const DSCP: u8 = 20;
/// "The service demand numbers can be multiplied by 1.46 to get the approximate per packet
/// processing time": a segment's payload of 1460 bytes in units of 1000. (In KiB it would be 1.43.)
pub const KIB_PER_PACKET: f64 = 1.46;

/// Packet size that the paper's packet rates assume, bytes: an IPv4 header without payload. This
/// gives 62,500 packets a second for 10 Mbit/s and 625,000 for 100 Mbit/s.
const PAPER_PACKET_BYTES: f64 = 20.0;
/// The smallest frame of Ethernet on the wire: 64 bytes, preamble 8, gap 12 (IEEE 802.3).
const MIN_FRAME_BYTES: f64 = 84.0;
/// The largest frame of Ethernet on the wire: 1500 bytes of IP in 1518, preamble and gap.
const MAX_FRAME_BYTES: f64 = 1538.0;

/// Packets per second of a link as the paper counts them.
pub fn packets_per_s(link: BitRate) -> f64 {
    link.as_f64() / 8.0 / PAPER_PACKET_BYTES
}

/// The smallest and the largest frames of Ethernet per second.
pub fn frames_per_s(link: BitRate) -> [f64; 2] {
    [MIN_FRAME_BYTES, MAX_FRAME_BYTES].map(|bytes| link.as_f64() / 8.0 / bytes)
}

/// Processing time of a packet from a service demand in µs/KiB, µs.
pub fn packet_us(demand_us_per_kib: f64) -> f64 {
    demand_us_per_kib * KIB_PER_PACKET
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST_ETHERNET: BitRate = BitRate(100_000_000);

    #[test]
    fn packet_rates_are_the_papers_and_those_of_ethernet() {
        assert_eq!(packets_per_s(BitRate(10_000_000)), 62_500.0);
        assert_eq!(packets_per_s(FAST_ETHERNET), 625_000.0);
        let [smallest, largest] = frames_per_s(FAST_ETHERNET);
        assert_eq!((smallest.round(), largest.round()), (148_810.0, 8127.0));
        assert_eq!(frames_per_s(BitRate(10_000_000))[0].round(), 14_881.0);
    }

    #[test]
    fn the_papers_largest_messages_cost_six_microseconds_more_for_each_packet() {
        // 100BaseT, 2920 bytes: 13.152 against 8.811 µs/KiB.
        let added = packet_us(13.152 - 8.811);
        assert!((added - 6.338).abs() < 0.001, "{added}");
    }
}
