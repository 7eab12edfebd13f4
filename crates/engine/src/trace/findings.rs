//! What a trace finds besides the hops: the path MTU, all equal-cost paths, the rates of links.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_core::trace::delay::{LinkRate, SizedSamples, link_rates};
use linerate_core::trace::{
    MtuConfig, MtuOutcome, MultipathConfig, PathFinder, PathMtu, PathsDocument, ProbeKind,
    TraceConfig, TraceOutcome, least_size,
};
use linerate_core::units::Nanos;
use linerate_sys::netlink::Netlink;

use super::error::TraceError;
use super::{RoundContext, TraceOptions, pause_until};
use crate::clock::now_ns;
use crate::path;

/// Routers of Linux grant one answer a second to a peer once a burst is used up.
const BETWEEN_SIZES: Duration = Duration::from_millis(1_050);
/// A target that has answered all TTLs beyond it has no more than one answer a second left.
const BEFORE_MTU: Duration = Duration::from_secs(3);
/// Sizes for the rates of links; each is a round of its own.
const SIZES: u16 = 20;
/// A long probe must not wait for the one before it: 20 ms are 1500 bytes at 600 kbit/s.
const RATE_FOR_SIZES: u32 = 50;
/// What routers quote at most (RFC 1812, section 4.3.2.3; RFC 4443, section 2.4): answers to longer
/// probes have one length.
const QUOTED_V4: u16 = 600;
const QUOTED_V6: u16 = 1_300;
/// Taken where the interface's MTU cannot be read.
const ETHERNET_MTU: u16 = 1_500;

impl RoundContext<'_> {
    /// By echo requests first, whose replies hosts do not limit as they do errors
    /// (`icmp_ratemask`); if that finds nothing, by probes as the trace had them, once the target
    /// will answer some more.
    pub(super) fn mtu(
        &mut self,
        options: &TraceOptions,
        outcome: &TraceOutcome,
    ) -> Result<Option<MtuOutcome>, TraceError> {
        let own = options.config.kind;
        let by_echo = match self.mtu_by(ProbeKind::Icmp, options, outcome) {
            Err(TraceError::NoSocket { .. }) => None,
            other => other?,
        };
        let is_found = by_echo.as_ref().is_some_and(|found| found.mtu_bytes.is_some());
        // A SYN cannot be long.
        if is_found || own != ProbeKind::Udp {
            return Ok(by_echo);
        }
        pause_until(now_ns() + crate::clock::nanos(BEFORE_MTU), self.stop);
        self.mtu_by(own, options, outcome)
    }

    fn mtu_by(
        &mut self,
        kind: ProbeKind,
        options: &TraceOptions,
        outcome: &TraceOutcome,
    ) -> Result<Option<MtuOutcome>, TraceError> {
        let most = self.device_mtu().unwrap_or(ETHERNET_MTU);
        let trace = TraceConfig { kind, ..options.config.clone() };
        let Some(config) = MtuConfig::after(&trace, outcome, most) else {
            return Ok(None);
        };
        let mut search = PathMtu::new(config, Nanos(now_ns()), options.seed.wrapping_add(1))?;
        let mut way = self.way.clone();
        if way.kind != kind {
            way.kind = kind;
            way.local_port = None;
        }
        let own = std::mem::replace(&mut self.way, way);
        let result = self.drive(&mut search);
        self.way = own;
        result?;
        Ok(Some(search.finish()))
    }

    pub(super) fn paths(
        &mut self,
        options: &TraceOptions,
        confidence: f64,
    ) -> Result<PathsDocument, TraceError> {
        let config = MultipathConfig { confidence, ..MultipathConfig::new(options.config.clone()) };
        let seed = options.seed.wrapping_add(2);
        let mut finder = PathFinder::new(config, Nanos(now_ns()), seed)?;
        self.drive(&mut finder)?;
        Ok(finder.finish())
    }

    /// Rounds of probes of many sizes, slow enough for routers that limit their answers.
    pub(super) fn rates(
        &mut self,
        options: &TraceOptions,
        outcome: &TraceOutcome,
    ) -> Result<Vec<LinkRate>, TraceError> {
        let Some(last) = outcome.hops.last() else {
            return Ok(Vec::new());
        };
        let mut samples: BTreeMap<u8, Vec<(u16, f64)>> = BTreeMap::new();
        for (number, size) in self.sizes(options).into_iter().enumerate() {
            let next = now_ns() + crate::clock::nanos(BETWEEN_SIZES);
            let config = TraceConfig {
                size,
                probes: 1,
                hops: last.ttl,
                retries: 0,
                rate_per_s: RATE_FOR_SIZES,
                ..options.config.clone()
            };
            let seed = options.seed.wrapping_add(3 + number as u64);
            let round = self.round(&config, seed)?;
            for hop in &round.hops {
                let rtts = hop.rtts_us().into_iter().map(|rtt| (size, rtt));
                samples.entry(hop.ttl).or_default().extend(rtts);
            }
            pause_until(next, self.stop);
        }
        let hops: Vec<_> =
            samples.into_iter().map(|(ttl, samples)| SizedSamples { ttl, samples }).collect();
        Ok(link_rates(&hops))
    }

    /// From what no router quotes whole up to what the interface carries, the largest and the
    /// smallest in turn, so that a drift of the delay is no growth with the size.
    fn sizes(&self, options: &TraceOptions) -> Vec<u16> {
        let target = options.config.target;
        let quoted = if target.is_ipv4() { QUOTED_V4 } else { QUOTED_V6 };
        let most = self.device_mtu().unwrap_or(ETHERNET_MTU);
        let least = quoted.max(least_size(options.config.kind, target));
        if options.config.kind == ProbeKind::Tcp || most <= least {
            return Vec::new();
        }
        let size = |step: u16| {
            least
                + u16::try_from(u32::from(most - least) * u32::from(step) / u32::from(SIZES - 1))
                    .unwrap_or(0)
        };
        (0..SIZES / 2).flat_map(|step| [size(step), size(SIZES - 1 - step)]).collect()
    }

    /// MTU of the interface to the target, as far as a packet of IP can be long.
    fn device_mtu(&self) -> Option<u16> {
        let mut netlink = Netlink::open().ok()?;
        let asked = self.way.device.as_deref();
        let link = path::device_to(&mut netlink, self.way.target, asked)?;
        Some(u16::try_from(link.mtu).unwrap_or(u16::MAX))
    }
}
