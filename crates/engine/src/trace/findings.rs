//! What a trace finds besides the hops: the path MTU, all equal-cost paths, the rates of links,
//! names. And what can go wrong in one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use linerate_core::trace::delay::{LinkRate, SizedSamples, link_rates};
use linerate_core::trace::{
    ConfigError, MtuConfig, MtuOutcome, MultipathConfig, PathFinder, PathMtu, PathsDocument,
    ProbeKind, TraceConfig, TraceOutcome, least_size,
};
use linerate_core::units::Nanos;
use linerate_sys::netlink::Netlink;
use linerate_sys::probe::reverse_lookup;
use thiserror::Error;

use super::{RoundContext, TraceOptions, pause_until};
use crate::category::{Categorized, Category};
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

// Errors of a trace.

/// A trace that could not be made, or not to its end.
#[derive(Debug, Error)]
pub enum TraceError {
    /// Something is out of its range, or contradicts something else.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The source address is of another family than the target.
    #[error("cannot send from {source_address} to {target}: they are of different families")]
    Families {
        /// Where from.
        source_address: IpAddr,
        /// Where to.
        target: IpAddr,
    },
    /// This host has no way to the target.
    #[error("no route to {target}{}", through(device))]
    NoRoute {
        /// Where to.
        target: IpAddr,
        /// The interface asked for.
        device: Option<String>,
        /// From the kernel.
        source: io::Error,
    },
    /// This host makes no socket that could send such probes.
    #[error("cannot send {what} probes from {address}: {needs}")]
    NoSocket {
        /// Their kind.
        what: &'static str,
        /// The address to send from.
        address: IpAddr,
        /// Privilege or kernel feature that is missing.
        needs: String,
        /// From the kernel.
        source: io::Error,
    },
    /// The interface to send through cannot be used.
    #[error("cannot send through interface {device}")]
    Device {
        /// Its name.
        device: String,
        /// From the kernel.
        source: io::Error,
    },
    /// A probe is larger than what the first link carries.
    #[error(
        "a probe of {size} bytes does not fit the interface it leaves by; give a smaller --size"
    )]
    TooLarge {
        /// Bytes from the IP header on.
        size: u16,
    },
    /// The kernel would not send or receive.
    #[error("cannot {what}")]
    Kernel {
        /// Operation that the kernel refused.
        what: String,
        /// From the kernel.
        source: io::Error,
    },
}

fn through(device: &Option<String>) -> String {
    device.as_ref().map_or_else(String::new, |device| format!(" through interface {device}"))
}

impl Categorized for TraceError {
    fn category(&self) -> Category {
        match self {
            Self::Config(_) | Self::Families { .. } | Self::TooLarge { .. } => Category::Usage,
            Self::Device { .. } => Category::Usage,
            Self::NoRoute { .. } | Self::NoSocket { .. } => Category::Missing,
            Self::Kernel { .. } => Category::Failed,
        }
    }
}

// Names of addresses, looked up in parallel while the trace goes on.

/// Lookups at once; further addresses stay without a name until one has ended.
const MAX_AT_ONCE: usize = 64;
/// A lookup is a small stack's work in the C library.
const STACK: usize = 256 << 10;

/// Lookups that run. Those that take too long are left behind: they end by themselves.
pub(super) struct HopNames {
    asked: BTreeSet<IpAddr>,
    waiting: Vec<IpAddr>,
    running: usize,
    found: BTreeMap<IpAddr, String>,
    sender: Sender<(IpAddr, Option<String>)>,
    receiver: Receiver<(IpAddr, Option<String>)>,
}

impl HopNames {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        Self {
            asked: BTreeSet::new(),
            waiting: Vec::new(),
            running: 0,
            found: BTreeMap::new(),
            sender,
            receiver,
        }
    }

    /// Begins to look up an address, unless that was done.
    pub(super) fn ask(&mut self, address: IpAddr) {
        if self.asked.insert(address) {
            self.waiting.push(address);
            self.start();
        }
    }

    fn start(&mut self) {
        while self.running < MAX_AT_ONCE {
            let Some(address) = self.waiting.pop() else {
                return;
            };
            let sender = self.sender.clone();
            let thread = thread::Builder::new().name("name".into()).stack_size(STACK);
            let spawned = thread.spawn(move || {
                // Nobody may wait for it any longer.
                let _ = sender.send((address, reverse_lookup(address).ok().flatten()));
            });
            self.running += usize::from(spawned.is_ok());
        }
    }

    /// The names found until now, or for `wait` at most until all lookups have ended.
    pub(super) fn finish(&mut self, wait: Duration) -> BTreeMap<IpAddr, String> {
        let deadline = Instant::now() + wait;
        while self.running > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((address, name)) = self.receiver.recv_timeout(left) else {
                break;
            };
            self.running -= 1;
            // A resolver that has no name may write the address.
            if let Some(name) = name.filter(|name| name.parse::<IpAddr>().is_err()) {
                self.found.insert(address, name);
            }
            self.start();
        }
        self.found.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_asked_once_and_the_end_does_not_wait_longer_than_allowed() {
        let mut names = HopNames::new();
        for _ in 0..3 {
            names.ask("127.0.0.1".parse().unwrap());
        }
        assert_eq!(names.asked.len(), 1);
        // One more, which never ends.
        names.running += 1;
        let asked: Vec<_> = names.finish(Duration::from_millis(500)).into_keys().collect();
        assert!(asked.len() <= 1, "{asked:?}");
    }
}
