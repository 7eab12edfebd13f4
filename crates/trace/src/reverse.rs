//! The trace of the way back that a client may request from an endpoint.
//!
//! A request contains no address: an endpoint traces only to the source of its client's control
//! connection, which TCP's handshake has verified. So an endpoint is no reflector; hops, probes,
//! size, rate and time are limited.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::config::{ConfigError, TraceConfig, check_ranges};
use super::probe::ProbeKind;
use linerate_units::{Dscp, Nanos};

/// Maximum TTL of a request.
pub const MAX_REVERSE_HOPS: u8 = 64;
/// Maximum number of probes for each hop.
pub const MAX_REVERSE_PROBES: u8 = 10;
/// Maximum length of a probe, bytes from the IP header: what Ethernet carries.
pub const MAX_REVERSE_SIZE: u16 = 1_500;
/// Maximum time of a trace, if the endpoint's owner allows it.
pub const LONGEST_REVERSE: Nanos = Nanos::from_millis(10_000);

/// A request to trace the way to the client that sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// UDP or ICMP.
    pub kind: ProbeKind,
    /// The highest TTL, 1 to [`MAX_REVERSE_HOPS`].
    pub hops: u8,
    /// Probes of each hop, 1 to [`MAX_REVERSE_PROBES`].
    pub probes: u8,
    /// Length of each probe from the IP header on, bytes; at most [`MAX_REVERSE_SIZE`].
    pub size_bytes: u16,
    /// DSCP of the probes.
    pub dscp: Dscp,
}

impl TraceRequest {
    /// The request for the way back of `config`, within the limits of endpoints. A client has no
    /// TCP port that answers, so that UDP replaces TCP.
    pub fn back_of(config: &TraceConfig) -> Self {
        let usual = TraceConfig::new(config.target);
        let (kind, size_bytes) = match config.kind {
            ProbeKind::Tcp => (ProbeKind::Udp, usual.size),
            kind => (kind, config.size.min(MAX_REVERSE_SIZE)),
        };
        Self {
            kind,
            hops: config.hops.min(MAX_REVERSE_HOPS),
            probes: config.probes.min(MAX_REVERSE_PROBES),
            size_bytes,
            dscp: config.dscp,
        }
    }

    /// The trace that an endpoint makes for the request, to the client's own address; slower than
    /// usual if the owner's `rate_bps` requires it.
    ///
    /// # Errors
    /// Something is out of the range that endpoints allow.
    pub fn config(
        &self,
        client: IpAddr,
        rate_bps: Option<u64>,
    ) -> Result<TraceConfig, ConfigError> {
        let tcp = u64::from(self.kind == ProbeKind::Tcp);
        let (hops, probes) = (MAX_REVERSE_HOPS.into(), MAX_REVERSE_PROBES.into());
        let size = MAX_REVERSE_SIZE.into();
        check_ranges(&[
            ("the highest TTL", self.hops.into(), 1, hops),
            ("the number of probes", self.probes.into(), 1, probes),
            ("the size", self.size_bytes.into(), 1, size),
            // SYN segments to another host's ports would be a port scan.
            ("the kind of the probes, TCP being 2", tcp + 1, 1, 1),
        ])?;
        let usual = TraceConfig::new(client);
        let bits = u64::from(self.size_bytes) * 8;
        let allowed = rate_bps.map_or(u64::MAX, |rate| (rate / bits).max(1));
        let config = TraceConfig {
            kind: self.kind,
            hops: self.hops,
            probes: self.probes,
            size: self.size_bytes,
            dscp: self.dscp,
            rate_per_s: u32::try_from(allowed)
                .map_or(usual.rate_per_s, |rate| rate.min(usual.rate_per_s)),
            ..usual
        };
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> TraceRequest {
        TraceRequest::back_of(&TraceConfig::new(IpAddr::from([198, 18, 0, 1])))
    }

    #[test]
    fn what_is_asked_is_within_what_endpoints_allow() {
        for kind in [ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp] {
            for target in ["198.18.0.1", "2001:2::1"] {
                let target: IpAddr = target.parse().unwrap();
                let config =
                    TraceConfig { hops: 255, probes: 100, size: 9_000, ..TraceConfig::new(target) };
                let request = TraceRequest::back_of(&config.with_kind(kind));
                let made = request.config(target, None).unwrap();
                assert_eq!((made.target, made.hops, made.probes), (target, 64, 10));
                assert_ne!(made.kind, ProbeKind::Tcp);
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let client = IpAddr::from([198, 18, 0, 1]);
        let cases = [
            (TraceRequest { hops: 65, ..request() }, "the highest TTL is 65, allowed are 1 to 64"),
            (TraceRequest { probes: 11, ..request() }, "probes is 11"),
            (TraceRequest { size_bytes: 1_501, ..request() }, "the size is 1501"),
            (TraceRequest { size_bytes: 20, ..request() }, "the size is 20"),
            (TraceRequest { kind: ProbeKind::Tcp, ..request() }, "TCP"),
        ];
        for (request, words) in cases {
            let error = request.config(client, None).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_owners_rate_holds_for_probes_too() {
        let client = IpAddr::from([198, 18, 0, 1]);
        let rate = |rate| request().config(client, Some(rate)).unwrap().rate_per_s;
        // 60 bytes are 480 bits.
        assert_eq!(rate(48_000), 100);
        assert_eq!(rate(1), 1);
        assert_eq!(rate(u64::MAX), TraceConfig::new(client).rate_per_s);
    }

    proptest! {
        #[test]
        fn no_request_becomes_more_than_the_bounds(
            kind in prop::sample::select(vec![ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp]),
            hops: u8, probes: u8, size_bytes: u16, rate in prop::option::of(any::<u64>()),
                is_v6: bool,
        ) {
            let request = TraceRequest { kind, hops, probes, size_bytes, ..request() };
            let client: IpAddr = if is_v6 { [1u16; 8].into() } else { [198, 18, 0, 1].into() };
            if let Ok(config) = request.config(client, rate) {
                prop_assert_eq!(config.target, client);
                prop_assert!(config.hops <= MAX_REVERSE_HOPS
                    && config.probes <= MAX_REVERSE_PROBES);
                prop_assert!(config.size <= MAX_REVERSE_SIZE && config.kind != ProbeKind::Tcp);
                let bits = u64::from(config.rate_per_s) * u64::from(config.size) * 8;
                let is_within = rate.is_none_or(|rate| config.rate_per_s == 1 || bits <= rate);
                prop_assert!(is_within);
            }
        }
    }
}
