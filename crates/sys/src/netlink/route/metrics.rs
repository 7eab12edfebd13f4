//! Metrics of a route: what TCP and IP assume of the path behind it.

use std::collections::BTreeMap;
use std::fmt;

use netlink_packet_core::{DefaultNla, Nla};
use netlink_packet_route::route::RouteMetric;

/// A numeric metric; the value is its number in the kernel (include/uapi/linux/rtnetlink.h,
/// `RTAX_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Metric {
    /// Bit set of the metrics that the kernel must not change by itself: with
    /// `1 << Metric::Mtu as u32` path MTU discovery leaves the MTU alone.
    Lock = 1,
    /// Path MTU in bytes.
    Mtu = 2,
    /// Largest window to advertise in bytes. Linux uses it only for the window scale of a SYN.
    Window = 3,
    /// MSS to advertise in bytes, without headers.
    AdvertisedMss = 8,
    /// Hop limit of packets sent.
    HopLimit = 10,
    /// Initial congestion window in segments.
    InitialCongestionWindow = 11,
    /// Lower limit of the retransmission timeout in milliseconds.
    MinimumRto = 13,
    /// Initial receive window in segments.
    InitialReceiveWindow = 14,
    /// 1: acknowledge every segment at once.
    QuickAck = 15,
}

/// The metrics of a route; those without a name in [`Metric`] are kept as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteMetrics {
    numbers: BTreeMap<u16, u32>,
    congestion: Option<String>,
}

impl RouteMetrics {
    /// The value of `metric`, if the route sets it.
    pub fn value(&self, metric: Metric) -> Option<u32> {
        self.numbers.get(&(metric as u16)).copied()
    }

    /// Sets `metric`, or removes it.
    pub fn set(&mut self, metric: Metric, value: Option<u32>) {
        match value {
            Some(value) => self.numbers.insert(metric as u16, value),
            None => self.numbers.remove(&(metric as u16)),
        };
    }

    /// Whether the route sets no metric.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.congestion.is_none()
    }

    /// The congestion control of connections over this route, if it sets one.
    pub fn congestion_control(&self) -> Option<&str> {
        self.congestion.as_deref()
    }

    pub(super) fn parse(attributes: &[RouteMetric]) -> Self {
        let mut metrics = Self::default();
        for attribute in attributes {
            if let RouteMetric::CcAlgo(name) = attribute {
                metrics.congestion = Some(name.clone());
            } else if attribute.value_len() == size_of::<u32>() {
                let mut bytes = [0; size_of::<u32>()];
                attribute.emit_value(&mut bytes);
                metrics.numbers.insert(attribute.kind(), u32::from_ne_bytes(bytes));
            }
        }
        metrics
    }

    pub(super) fn attributes(&self) -> Vec<RouteMetric> {
        let number = |(&kind, &value): (&u16, &u32)| {
            RouteMetric::Other(DefaultNla::new(kind, value.to_ne_bytes().to_vec()))
        };
        let congestion = self.congestion.clone().map(RouteMetric::CcAlgo);
        self.numbers.iter().map(number).chain(congestion).collect()
    }
}

impl fmt::Display for RouteMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, value) in &self.numbers {
            match NAMES.iter().find(|(metric, _)| *metric as u16 == *kind) {
                Some((_, name)) => write!(f, " {name} {value}")?,
                None => write!(f, " metric#{kind} {value}")?,
            }
        }
        match &self.congestion {
            Some(name) => write!(f, " congctl {name}"),
            None => Ok(()),
        }
    }
}

/// As `ip route` writes them.
const NAMES: [(Metric, &str); 9] = [
    (Metric::Lock, "lock"),
    (Metric::Mtu, "mtu"),
    (Metric::Window, "window"),
    (Metric::AdvertisedMss, "advmss"),
    (Metric::HopLimit, "hoplimit"),
    (Metric::InitialCongestionWindow, "initcwnd"),
    (Metric::MinimumRto, "rto_min"),
    (Metric::InitialReceiveWindow, "initrwnd"),
    (Metric::QuickAck, "quickack"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_survive_a_round_trip() {
        let mut metrics =
            RouteMetrics::parse(&[RouteMetric::CcAlgo("reno".into()), RouteMetric::Reordering(5)]);
        metrics.set(Metric::Mtu, Some(9180));
        metrics.set(Metric::AdvertisedMss, Some(536));
        assert_eq!(RouteMetrics::parse(&metrics.attributes()), metrics);
        assert_eq!(metrics.to_string(), " mtu 9180 advmss 536 metric#9 5 congctl reno");
    }

    #[test]
    fn metric_taken_away_is_absent() {
        let mut metrics = RouteMetrics::default();
        metrics.set(Metric::QuickAck, Some(1));
        metrics.set(Metric::QuickAck, None);
        assert!(metrics.is_empty());
    }
}
