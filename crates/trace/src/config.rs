//! The settings of a trace, and of the trace of the way back that a client may request from an
//! endpoint.

use std::net::IpAddr;

use linerate_units::{Dscp, Ecn, Nanos};
use serde::{Deserialize, Serialize};

use super::identity::{MAX_FLOWS, least_size};
use super::probe::{Probe, ProbeId, ProbeKind};

/// First port of UDP probes, as in every traceroute; each further flow uses the next port.
pub const DEFAULT_PORT_UDP: u16 = 33_434;
/// Port of TCP probes.
pub const DEFAULT_PORT_TCP: u16 = 443;

/// The settings of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceConfig {
    /// Destination address.
    pub target: IpAddr,
    /// The protocol of the probes.
    pub kind: ProbeKind,
    /// The lowest TTL, at least 1.
    pub first: u8,
    /// The highest TTL, 1–255.
    pub hops: u8,
    /// Probes of each TTL, 1–100.
    pub probes: u8,
    /// Length of each probe from the IP header, bytes; at least [`least_size`], and exactly that
    /// for TCP, because a SYN carries no data.
    pub size: u16,
    /// The flow of all probes, below [`MAX_FLOWS`].
    pub flow: u16,
    /// DSCP of the probes.
    pub dscp: Dscp,
    /// ECN field of the probes.
    pub ecn: Ecn,
    /// Maximum wait for an answer, above zero. A trace ends after about `1 + retries` times this.
    pub timeout: Nanos,
    /// How often a hop with missing answers is probed again, 0–10.
    pub retries: u8,
    /// Maximum number of probes per second, 1–1,000,000.
    pub rate_per_s: u32,
}

/// A setting that is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("trace: {what} is {value}, allowed are {least} to {most}")]
pub struct ConfigError {
    /// Name of the setting.
    pub what: &'static str,
    /// Its value.
    pub value: u64,
    /// Minimum.
    pub least: u64,
    /// Maximum.
    pub most: u64,
}

impl TraceConfig {
    /// The defaults of a usual traceroute: UDP, TTLs 1 to 30, 3 probes each of 60 bytes (80 over
    /// IPv6).
    pub fn new(target: IpAddr) -> Self {
        Self {
            target,
            kind: ProbeKind::Udp,
            first: 1,
            hops: 30,
            probes: 3,
            size: if target.is_ipv4() { 60 } else { 80 },
            flow: 0,
            dscp: Dscp::new(0).expect("0 is a code point"),
            ecn: Ecn::NotEct,
            timeout: Nanos::from_millis(1_400),
            retries: 1,
            rate_per_s: 10_000,
        }
    }

    /// Returns the same settings with another kind of probes; TCP probes get their only size.
    pub fn with_kind(mut self, kind: ProbeKind) -> Self {
        self.kind = kind;
        if kind == ProbeKind::Tcp {
            self.size = least_size(kind, self.target);
        }
        self
    }

    /// Checks the range of every setting.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting and its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let least = u64::from(least_size(self.kind, self.target));
        let most_size = match self.kind {
            ProbeKind::Tcp => least,
            ProbeKind::Udp | ProbeKind::Icmp => u64::from(u16::MAX),
        };
        check_ranges(&[
            ("the highest TTL", self.hops.into(), 1, 255),
            ("the lowest TTL", self.first.into(), 1, self.hops.into()),
            ("the number of probes", self.probes.into(), 1, 100),
            ("the size", self.size.into(), least, most_size),
            ("the flow", self.flow.into(), 0, u64::from(MAX_FLOWS) - 1),
            ("the number of retries", self.retries.into(), 0, 10),
            ("the rate", self.rate_per_s.into(), 1, 1_000_000),
            ("the timeout in ns", self.timeout.0, 1, u64::MAX),
        ])
    }

    /// Makes a probe of this trace.
    pub(super) fn probe(&self, id: ProbeId, ttl: u8, flow: u16) -> Probe {
        Probe { id, ttl, flow, size: self.size, kind: self.kind, dscp: self.dscp, ecn: self.ecn }
    }

    /// Number of TTLs.
    pub(super) fn ttls(&self) -> u16 {
        u16::from(self.hops).saturating_sub(u16::from(self.first)) + 1
    }

    /// Time between two probes.
    pub(super) fn gap(&self) -> Nanos {
        Nanos(1_000_000_000 / u64::from(self.rate_per_s.max(1)))
    }
}

/// Refuses the first value that is out of range: its name, the value, the minimum and the maximum.
pub(super) fn check_ranges(ranges: &[(&'static str, u64, u64, u64)]) -> Result<(), ConfigError> {
    let is_out = |(_, value, least, most): &&(_, u64, u64, u64)| value < least || value > most;
    match ranges.iter().find(is_out) {
        None => Ok(()),
        Some(&(what, value, least, most)) => Err(ConfigError { what, value, least, most }),
    }
}

// The trace of the way back.

/// Maximum TTL of a request.
pub const MAX_REVERSE_HOPS: u8 = 64;
/// Maximum number of probes for each hop.
pub const MAX_REVERSE_PROBES: u8 = 10;
/// Maximum length of a probe, bytes from the IP header: what Ethernet carries.
pub const MAX_REVERSE_SIZE: u16 = 1_500;
/// Maximum time of a trace, if the endpoint's owner allows it.
pub const LONGEST_REVERSE: Nanos = Nanos::from_millis(10_000);

/// A request to trace the way to the client that sends it.
///
/// It contains no address: an endpoint traces only to the source of its client's control
/// connection, which TCP's handshake has verified. So an endpoint is no reflector; hops, probes,
/// size, rate and time are limited.
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
    use proptest::prelude::*;

    use super::*;

    fn config() -> TraceConfig {
        TraceConfig::new("192.0.2.1".parse().unwrap())
    }

    #[test]
    fn the_defaults_are_in_range_for_every_kind_and_family() {
        for target in ["192.0.2.1", "2001:db8::1"] {
            for kind in [ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp] {
                let config = TraceConfig::new(target.parse().unwrap()).with_kind(kind);
                assert_eq!(config.check(), Ok(()), "{kind:?} to {target}");
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_named_with_its_range() {
        type Change = fn(&mut TraceConfig);
        let cases: [(Change, &str); 7] = [
            (|it| it.hops = 0, "the highest TTL is 0, allowed are 1 to 255"),
            (|it| it.first = 31, "the lowest TTL is 31, allowed are 1 to 30"),
            (|it| it.first = 0, "the lowest TTL is 0, allowed are 1 to 30"),
            (|it| it.probes = 0, "the number of probes is 0, allowed are 1 to 100"),
            (|it| it.size = 33, "the size is 33, allowed are 34 to 65535"),
            (|it| it.flow = MAX_FLOWS, "the flow is 512, allowed are 0 to 511"),
            (|it| it.rate_per_s = 0, "the rate is 0, allowed are 1 to 1000000"),
        ];
        for (change, text) in cases {
            let mut config = config();
            change(&mut config);
            let error = config.check().expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
        let tcp = TraceConfig { size: 41, ..config().with_kind(ProbeKind::Tcp) };
        assert!(tcp.check().is_err(), "a SYN carries no data");
    }

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
