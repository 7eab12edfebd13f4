//! The formulas behind the ceilings: plain numbers in, bits per second out.
//!
//! Rates are of payload, in bits per second; times in seconds, sizes in bytes, `p` the probability
//! of a loss event for each segment (0–1). Arguments must be positive; a zero gives an infinity or
//! NaN, which callers drop.

use crate::units::Family;

/// Segments of a connection's first flight (RFC 6928).
pub(crate) const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;
/// Bytes that Ethernet adds to each IP packet on the wire: header 14, check 4, preamble 8, gap 12.
pub const ETHERNET_BYTES: f64 = 38.0;
/// Ethernet's header alone: what emulated links, qdiscs and packet trains count beside the IP
/// packet.
pub(crate) const ETHERNET_HEADER_BYTES: f64 = 14.0;
/// TCP header without options, bytes (RFC 9293).
pub(crate) const TCP_HEADER_BYTES: f64 = 20.0;
/// TCP's timestamp option with its padding, bytes (RFC 7323, appendix A).
pub const TIMESTAMP_BYTES: f64 = 12.0;
/// UDP header, bytes (RFC 768).
pub(crate) const UDP_HEADER_BYTES: f64 = 8.0;

/// IP header without options or extensions, bytes (RFC 791, RFC 8200).
pub(crate) fn ip_header_bytes(family: Family) -> f64 {
    match family {
        Family::Ipv4 => 20.0,
        Family::Ipv6 => 40.0,
    }
}

/// A window over a round trip.
pub fn window_bps(window_bytes: f64, rtt_s: f64) -> f64 {
    window_bytes * 8.0 / rtt_s
}

/// Reno's rate: √1.5 · MSS ÷ (RTT · √p) (Mathis, Semke, Mahdavi, Ott 1997, one ACK for each
/// segment).
///
/// The constant √0.75 for delayed ACKs does not fit Linux, which counts the bytes acknowledged (RFC
/// 3465).
pub fn reno_bps(mss_bytes: f64, rtt_s: f64, p: f64) -> f64 {
    1.5_f64.sqrt() * mss_bytes * 8.0 / (rtt_s * p.sqrt())
}

/// CUBIC's rate outside its Reno-friendly region: a mean window of 1.054 · (RTT ÷ p)^¾ segments
/// (RFC 9438, section 5.1, with C = 0.4 and β = 0.7).
pub(crate) fn cubic_bps(mss_bytes: f64, rtt_s: f64, p: f64) -> f64 {
    window_bps(1.054 * (rtt_s / p).powf(0.75) * mss_bytes, rtt_s)
}

/// Reno with retransmission timeouts: the full model of Padhye, Firoiu, Towsley, Kurose 1998
/// (equation 30 without the receiver's window), one ACK for each segment (b = 1). `rto_s` is the
/// first timeout.
pub(crate) fn pftk_bps(mss_bytes: f64, rtt_s: f64, p: f64, rto_s: f64) -> f64 {
    let recovery = rtt_s * (2.0 * p / 3.0).sqrt();
    let timeouts = rto_s * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
    mss_bytes * 8.0 / (recovery + timeouts)
}

/// Bytes of an IP packet in ATM cells: 53 · ⌈(IP + 8 + encapsulation) ÷ 48⌉ (AAL5 with its trailer
/// of 8;
/// `encapsulation_bytes` is 8 for LLC/SNAP, RFC 2684).
pub fn aal5_bytes(ip_bytes: f64, encapsulation_bytes: f64) -> f64 {
    53.0 * ((ip_bytes + 8.0 + encapsulation_bytes) / 48.0).ceil()
}

/// CPU-bound rate: 10⁶ · 1024 ÷ service demand bytes a second for each core (netperf's service
/// demand).
pub(crate) fn service_demand_bps(us_per_kib: f64, cores: f64) -> f64 {
    cores * 8.0 * 1024.0 * 1e6 / us_per_kib
}

/// Slow start: the window doubles in each round trip from [`INITIAL_WINDOW_SEGMENTS`] (RFC 5681,
/// 3.1) until it holds what `steady_bps` needs (infinite where that is not known).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlowStart {
    /// Round trips in slow start.
    pub rounds: f64,
    /// Time that the transfer takes, seconds, without a handshake.
    pub seconds: f64,
}

impl SlowStart {
    /// Slow start of a transfer of `bytes`.
    pub(crate) fn of(bytes: f64, mss_bytes: f64, rtt_s: f64, steady_bps: f64) -> Self {
        let first = INITIAL_WINDOW_SEGMENTS * mss_bytes;
        let rounds_to_steady = (steady_bps * rtt_s / 8.0 / first).log2().ceil().max(0.0);
        let rounds_to_end = (bytes / first + 1.0).log2().ceil();
        if rounds_to_end <= rounds_to_steady {
            return Self { rounds: rounds_to_end, seconds: rounds_to_end * rtt_s };
        }
        let rest = bytes - first * (rounds_to_steady.exp2() - 1.0);
        Self {
            rounds: rounds_to_steady,
            seconds: rounds_to_steady * rtt_s + rest * 8.0 / steady_bps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 1e-3, "{value} instead of {wanted}");
    }

    #[test]
    fn a_window_of_51200_bytes_over_29_ms_carries_14_mbit() {
        close(window_bps(51_200.0, 0.029), 14.124e6);
    }

    #[test]
    fn reno_has_the_window_of_its_sawtooth() {
        // p = 1 / (3/8 · W²) with W = 20 is 1/150; the mean window is 3/4 · W = 15 segments.
        close(reno_bps(1448.0, 0.1, 1.0 / 150.0), 15.0 * 1448.0 * 80.0);
    }

    #[test]
    fn cubic_has_the_windows_of_rfc_9438_table_2() {
        // RTT 0.1 s: p = 10⁻², 10⁻⁴, 10⁻⁶ give 6, 187, 5,926 segments (C = 0.4).
        for (p, segments) in [(1e-2, 5.927), (1e-4, 187.4), (1e-6, 5_927.0)] {
            close(cubic_bps(1000.0, 0.1, p), window_bps(segments * 1000.0, 0.1));
        }
    }

    #[test]
    fn timeouts_only_lower_the_rate_of_reno() {
        close(pftk_bps(1448.0, 0.05, 1e-6, 0.25), reno_bps(1448.0, 0.05, 1e-6));
        let p: f64 = 0.05;
        let by_hand =
            0.05 * (0.1_f64 / 3.0).sqrt() + 0.25 * 3.0 * (0.15_f64 / 8.0).sqrt() * p * 1.08;
        close(pftk_bps(1448.0, 0.05, p, 0.25), 1448.0 * 8.0 / by_hand);
    }

    #[test]
    fn cells_are_filled_up_to_48_bytes() {
        close(aal5_bytes(40.0, 0.0), 53.0);
        close(aal5_bytes(41.0, 0.0), 106.0);
        close(aal5_bytes(9_180.0, 8.0), 192.0 * 53.0);
    }

    #[test]
    fn a_service_demand_of_8_192_us_per_kib_is_a_megabit_for_each_core() {
        close(service_demand_bps(8_192.0, 2.0), 2e6);
    }

    #[test]
    fn slow_start_doubles_until_the_end_or_the_steady_rate() {
        // 10 + 20 + 40 segments in three rounds, whatever the path could do later.
        let short = SlowStart::of(70_000.0, 1000.0, 0.1, f64::INFINITY);
        assert_eq!(short, SlowStart { rounds: 3.0, seconds: 3.0 * 0.1 });
        // 80 segments each 0.1 s is 6.4 Mbit/s: 70 in slow start, 930 at that rate.
        let long = SlowStart::of(1_000_000.0, 1000.0, 0.1, 6.4e6);
        close(long.seconds, 0.3 + 930_000.0 * 8.0 / 6.4e6);
    }
}
