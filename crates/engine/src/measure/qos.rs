//! What the DiffServ policy of this host does to what leaves by the path's device while a test runs: its classes and its
//! counters, read at the beginning and at the end of the measured time.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use linerate_core::record::{QosClass, QosEvidence, QosPolicy};
use linerate_core::units::BitRate;
use linerate_qos::document::{AdapterReport, CounterReport};
use linerate_qos::policy::{MeterKind, NoNames, PolicyFile};
use linerate_sys::netlink::{HtbClass, HtbStatistics, Netlink};

use super::shared::Shared;
use crate::qos;

/// Classes and policies that a record keeps.
const MOST: usize = 16;

/// The device of the path, if it has classes or a policy.
pub(crate) struct QosMeter {
    netlink: Netlink,
    index: u32,
    name: String,
    /// Of the HTB at its root.
    major: Option<u16>,
    has_policy: bool,
    /// Rates above which meters drop, by their policies' names.
    drops_above_bps: BTreeMap<String, f64>,
    begin: Reading,
}

#[derive(Default)]
struct Reading {
    classes: Vec<(HtbClass, HtbStatistics)>,
    adapter: Option<AdapterReport>,
}

impl QosMeter {
    /// Of the device by which the peer of these flows is reached; `None` if nothing there is worth reading.
    pub(crate) fn towards_peer_of(shared: &Shared) -> Option<Self> {
        let mut sockets = shared.flows.iter().filter_map(|flow| flow.socket.as_ref());
        let peer: SocketAddr = sockets.find_map(|socket| socket.addresses().1)?;
        Self::towards(peer.ip().to_canonical())
    }

    fn towards(peer: IpAddr) -> Option<Self> {
        let mut netlink = Netlink::open().ok()?;
        let index = netlink.route_to(peer).ok()?.link?;
        let link = netlink.link_by_index(index).ok()?;
        // Most hosts have neither; they are not to pay for it.
        let has_htb = link.qdisc.as_deref() == Some("htb");
        let has_policy = qos::is_known(&link);
        if !has_htb && !has_policy {
            return None;
        }
        let roots = netlink.qdiscs(&link.name).ok()?;
        let htb = roots.iter().find(|qdisc| qdisc.root && qdisc.kind == "htb");
        let standing = has_policy
            .then(|| qos::standing(&link.name).ok().flatten())
            .flatten();
        Some(Self {
            major: htb.map(|qdisc| qdisc.handle.0),
            netlink,
            index,
            name: link.name,
            has_policy,
            drops_above_bps: standing.map_or_else(BTreeMap::new, |standing| meters(&standing.text)),
            begin: Reading::default(),
        })
    }

    /// The measured time begins. Called again, it begins anew.
    pub(crate) fn begin(&mut self) {
        self.begin = self.read();
    }

    /// The measured time ends: what was done in it.
    pub(crate) fn end(&mut self) -> QosEvidence {
        let end = self.read();
        evidence(&self.name, &self.begin, &end, &self.drops_above_bps)
    }

    fn read(&mut self) -> Reading {
        let classes = self
            .major
            .and_then(|major| self.netlink.htb_classes(self.index, major).ok());
        let document = self.has_policy.then(|| qos::status(Some(&self.name)).ok());
        Reading {
            classes: classes.unwrap_or_default(),
            adapter: document
                .flatten()
                .and_then(|document| document.adapters.into_iter().next()),
        }
    }
}

/// What passes a meter that drops, in the long run: the committed rate of one bucket, the peak rate of two.
fn meters(text: &str) -> BTreeMap<String, f64> {
    let Ok(file) = PolicyFile::from_toml(text, &mut NoNames) else {
        return BTreeMap::new();
    };
    let of_policies = file.policies.into_iter().filter_map(|policy| {
        let meter = policy.meter.filter(|meter| meter.drop_red)?;
        let BitRate(rate) = match meter.kind {
            MeterKind::SingleRate { committed, .. } => committed,
            MeterKind::TwoRate { peak, .. } => peak,
        };
        Some((policy.name, rate as f64))
    });
    of_policies.collect()
}

fn evidence(
    device: &str,
    begin: &Reading,
    end: &Reading,
    drops_above_bps: &BTreeMap<String, f64>,
) -> QosEvidence {
    let root = end.classes.iter().find(|(class, _)| class.parent.is_none());
    let leaves = end
        .classes
        .iter()
        .filter(|(class, _)| !has_children(end, class));
    let mut classes: Vec<QosClass> = leaves
        .map(|(class, now)| passed(class, now, &at(begin, class), end))
        .filter(|class| class.packets > 0 || class.dropped > 0)
        .collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.bytes));
    classes.truncate(MOST);
    let mut policies: Vec<QosPolicy> = counters(end)
        .into_iter()
        .map(|(name, now)| {
            let then = counters(begin).remove(&name).unwrap_or_default();
            let limit = drops_above_bps.get(&name).copied();
            counted(name, &now, &then, limit)
        })
        .filter(|policy| policy.packets > 0)
        .collect();
    policies.sort_by_key(|policy| std::cmp::Reverse(policy.bytes));
    policies.truncate(MOST);
    QosEvidence {
        device: device.to_owned(),
        link_bps: root.map(|(class, _)| bits(class.rate)),
        link_bytes: root.map(|(class, now)| now.bytes.saturating_sub(at(begin, class).bytes)),
        classes,
        policies,
    }
}

fn has_children(reading: &Reading, class: &HtbClass) -> bool {
    let mut others = reading.classes.iter();
    others.any(|(other, _)| other.parent == Some(class.id))
}

/// What a class had done before; one that was made since had done nothing.
fn at(begin: &Reading, class: &HtbClass) -> HtbStatistics {
    let mut earlier = begin.classes.iter();
    let found = earlier.find(|(other, _)| other.id == class.id);
    found.map_or_else(HtbStatistics::default, |(_, then)| then.clone())
}

/// What each policy has counted of packets that leave.
fn counters(reading: &Reading) -> BTreeMap<String, CounterReport> {
    let policies = reading.adapter.iter().flat_map(|adapter| &adapter.policies);
    policies
        .map(|policy| (policy.name.clone(), policy.egress.clone()))
        .collect()
}

fn passed(class: &HtbClass, now: &HtbStatistics, then: &HtbStatistics, end: &Reading) -> QosClass {
    // The kernel's own counts of 32 bits go round.
    let grown = |now: u32, then: u32| u64::from(now.wrapping_sub(then));
    let name = format!("{:x}:{:x}", class.id >> 16, class.id & 0xffff);
    let mut policies = end.adapter.iter().flat_map(|adapter| &adapter.policies);
    let policy = policies.find(|policy| policy.class.as_ref().is_some_and(|own| own.id == name));
    QosClass {
        policy: policy.map(|policy| policy.name.clone()),
        class: name,
        rate_bps: bits(class.rate),
        ceil_bps: bits(class.ceil),
        bytes: now.bytes.saturating_sub(then.bytes),
        packets: grown(now.packets, then.packets),
        dropped: grown(now.drops, then.drops),
        overlimits: grown(now.overlimits, then.overlimits),
        lended: grown(now.lends, then.lends),
        borrowed: grown(now.borrows, then.borrows),
        backlog_bytes: now.backlog_bytes.into(),
    }
}

fn counted(
    policy: String,
    now: &CounterReport,
    then: &CounterReport,
    drops_above_bps: Option<f64>,
) -> QosPolicy {
    QosPolicy {
        policy,
        packets: now.packets.saturating_sub(then.packets),
        bytes: now.bytes.saturating_sub(then.bytes),
        dropped_packets: now.dropped_packets.saturating_sub(then.dropped_packets),
        dropped_bytes: now.dropped_bytes.saturating_sub(then.dropped_bytes),
        drops_above_bps,
    }
}

fn bits(bytes_per_s: u64) -> f64 {
    bytes_per_s as f64 * 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(minor: u32, parent: Option<u32>) -> HtbClass {
        HtbClass {
            id: 0x1_0000 | minor,
            parent: parent.map(|parent| 0x1_0000 | parent),
            rate: 1_000_000,
            ceil: 2_000_000,
            burst: 0,
            ceil_burst: 0,
            quantum: 0,
            priority: 0,
        }
    }

    fn reading(bytes: u64, packets: u32) -> Reading {
        let did = HtbStatistics {
            bytes,
            packets,
            ..HtbStatistics::default()
        };
        Reading {
            classes: vec![
                (class(1, None), did.clone()),
                (class(0x10, Some(1)), did),
                (class(0x11, Some(1)), HtbStatistics::default()),
            ],
            adapter: None,
        }
    }

    #[test]
    fn evidence_is_what_grew_in_the_classes_that_carry_packets() {
        // The kernel's packets go round at 2³².
        let (begin, end) = (reading(5_000, u32::MAX - 1), reading(45_000, 38));
        let found = evidence("wa", &begin, &end, &BTreeMap::new());
        assert_eq!(found.link_bps, Some(8e6));
        assert_eq!(found.link_bytes, Some(40_000));
        let [class] = found.classes.as_slice() else {
            panic!("{:?}", found.classes);
        };
        assert_eq!(
            (class.class.as_str(), class.bytes, class.packets),
            ("1:10", 40_000, 40)
        );
    }

    #[test]
    fn meters_that_only_mark_drop_nothing() {
        let text = r#"
[filter.a]
protocol = "udp"
policy = "marks"
[filter.b]
protocol = "tcp"
policy = "drops"
[policy.marks]
meter = { kind = "srtcm", committed = "10mbit", committed_burst = "64KiB", excess_burst = "64KiB", red = 8 }
[policy.drops]
meter = { kind = "trtcm", committed = "10mbit", committed_burst = "64KiB", peak = "20mbit", peak_burst = "64KiB", drop_red = true }
[adapter.wa]
policies = ["marks", "drops"]
"#;
        assert_eq!(meters(text), BTreeMap::from([("drops".to_owned(), 20e6)]));
    }
}
