//! The classes of an interface with their queues, the cap on its offloaded frames, and somebody
//! else's discipline that is replaced and given back.

use std::collections::BTreeMap;

use linerate_qos::classes::{ClassPlan, MAJOR, largest_offload};
use linerate_sys::errno::ENOENT;
use linerate_sys::netlink::{HtbClass, LinkChange, Netlink, TrafficClass};

use super::error::QosError;
use super::port::Port;
use super::state::{InterfaceState, OffloadCap, Replaced};

/// The classes of a plan, as HTB wants them.
pub(super) fn classes(plan: &ClassPlan, port: &Port) -> Vec<HtbClass> {
    let frame = port.link.mtu.saturating_add(FRAME_HEADERS);
    let longest = largest_offload(plan.rate, port.link.mtu).unwrap_or(MAX_FRAME);
    // Borrowing goes round by quanta; a frame that is longer than one gets more than its share.
    let quantum = longest.max(10 * frame).clamp(1000, 200_000);
    let classes = plan.classes.iter().map(|class| {
        let (rate, ceil) = (class.rate.bytes_per_second(), class.ceil.bytes_per_second());
        HtbClass {
            id: class.id,
            parent: class.parent,
            rate,
            ceil,
            burst: burst(rate, frame),
            ceil_burst: burst(ceil, frame),
            quantum,
            priority: class.priority,
        }
    });
    classes.collect()
}

/// The burst of a class, in bytes: two frames, or what its rate gives in two milliseconds. With a
/// smaller burst a class falls behind its rate whenever the kernel's timer is late; with a larger
/// one other classes wait longer.
fn burst(rate: u64, frame: u32) -> u32 {
    u32::try_from(rate / 500).unwrap_or(u32::MAX).max(2 * frame)
}

/// The cap that the plan asks for, if the device sends longer frames; `before` is the one in force.
pub(super) fn offload(
    plan: &ClassPlan,
    port: &Port,
    before: Option<OffloadCap>,
) -> Option<OffloadCap> {
    let was = before.map(|before| before.was).or(port.link.gso_max_size)?;
    let was_ipv4 = match before {
        Some(before) => before.was_ipv4,
        None => port.link.gso_ipv4_max_size,
    };
    let set = largest_offload(plan.rate, port.link.mtu).filter(|bytes| *bytes < was)?;
    Some(OffloadCap { set, was, was_ipv4 })
}

/// The root queueing discipline, if somebody has put another there, in words. The kernel's own have
/// no number, and one of our kind is only `ours` where something of ours is known.
pub(super) fn foreign_root(
    netlink: &mut Netlink,
    port: &Port,
    ours: bool,
) -> Result<Option<String>, QosError> {
    let qdiscs = netlink.qdiscs(port.name())?;
    let root = qdiscs.iter().find(|qdisc| qdisc.root);
    let foreign =
        root.filter(|qdisc| qdisc.handle.0 != 0 && !(ours && is_ours(&qdisc.kind, qdisc.handle.0)));
    Ok(foreign.map(|qdisc| {
        let kind = &qdisc.kind;
        format!("the queueing discipline {kind} {:x}:", qdisc.handle.0)
    }))
}

/// Makes the classes of a state, or changes those that are there; others stay. Nothing is sent to a
/// new class before a program says so.
pub(super) fn add(
    netlink: &mut Netlink,
    port: &Port,
    state: &InterfaceState,
) -> Result<(), QosError> {
    if state.classes.is_empty() {
        return Ok(());
    }
    if !has_ours(netlink, port)? {
        let default = state.default_class.unwrap_or_default() as u16;
        let made = netlink.replace_root_by_htb(port.index(), MAJOR, default);
        made.map_err(|error| match error.errno() {
            Some(ENOENT) => QosError::Unsupported {
                what: "reserve and limit rates (CONFIG_NET_SCH_HTB)",
                source: error.into(),
            },
            _ => error.into(),
        })?;
    }
    let there = netlink.htb_classes(port.index(), MAJOR)?;
    let is_there = |id: u32| there.iter().any(|(class, _)| class.id == id);
    // The root's comes first, or the others would be made beside it.
    for class in &state.classes {
        netlink.put_htb_class(port.index(), class, !is_there(class.id))?;
    }
    let mut is_fair = true;
    for class in state.leaves() {
        is_fair = is_fair && put_fair_queue(netlink, port, class.id)?;
        if !is_fair {
            let limit = fifo_bytes(class).to_ne_bytes();
            netlink.put_qdisc(port.index(), Some(class.id), (FIFO, 0, &limit))?;
        }
    }
    Ok(())
}

/// Gives a class the queue that keeps its delay short; `false` if the kernel has none.
fn put_fair_queue(netlink: &mut Netlink, port: &Port, class: u32) -> Result<bool, QosError> {
    match netlink.put_qdisc(port.index(), Some(class), (FAIR, 0, &[])) {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == Some(ENOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What a class's first-in-first-out queue holds: a tenth of a second of its rate or of a quarter
/// of its ceiling, and never less than some frames. The kernel's own holds 1,000 packets, which is
/// longer than a second at 10 Mbit/s.
fn fifo_bytes(class: &HtbClass) -> u32 {
    let bytes = class.rate.max(class.ceil / 4) / 10;
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(2 * class.quantum, MAX_FIFO)
}

/// The kinds of the queues of classes, by the classes' ids.
pub(super) fn leaves(
    netlink: &mut Netlink,
    port: &Port,
) -> Result<BTreeMap<u32, String>, QosError> {
    let qdiscs = netlink.qdiscs(port.name())?.into_iter();
    let below = qdiscs.filter(|qdisc| qdisc.parent >> 16 == u32::from(MAJOR));
    Ok(below.map(|qdisc| (qdisc.parent, qdisc.kind)).collect())
}

/// What of the classes is not as it was made, in words.
pub(super) fn fault(
    netlink: &mut Netlink,
    port: &Port,
    state: &InterfaceState,
) -> Result<Option<String>, QosError> {
    if state.classes.is_empty() {
        return Ok(None);
    }
    let there = netlink.htb_classes(port.index(), MAJOR)?;
    let queues = leaves(netlink, port)?;
    for class in &state.classes {
        let Some((found, _)) = there.iter().find(|(found, _)| found.id == class.id) else {
            let fault = "its classes are not there any more: somebody removed them";
            return Ok(Some(fault.to_owned()));
        };
        let id = written(class.id);
        let is_leaf = state.leaves().any(|leaf| leaf.id == class.id);
        if !is_as_made(class, found, is_leaf) {
            return Ok(Some(format!("somebody changed its class {id}")));
        }
        let queue = queues.get(&class.id).map(String::as_str);
        if is_leaf && !matches!(queue, Some(FAIR | FIFO)) {
            return Ok(Some(format!("somebody changed the queue of its class {id}")));
        }
    }
    let now = netlink.link_by_index(port.index())?.gso_max_size;
    let set = state.offload.map(|cap| cap.set);
    Ok(set
        .zip(now)
        .filter(|(set, now)| now > set)
        .map(|(set, now)| format!("somebody raised its gso_max_size from {set} to {now}")))
}

/// Whether a class is as it was made. Bursts come back rounded, and only a leaf keeps a quantum and
/// a priority.
fn is_as_made(class: &HtbClass, found: &HtbClass, is_leaf: bool) -> bool {
    let near = |one: u32, other: u32| one.abs_diff(other) <= 64 + other / 8;
    let is_turn = (found.quantum, found.priority) == (class.quantum, class.priority);
    (found.parent, found.rate, found.ceil) == (class.parent, class.rate, class.ceil)
        && near(found.burst, class.burst)
        && near(found.ceil_burst, class.ceil_burst)
        && (is_turn || !is_leaf)
}

/// As `tc` writes it.
pub(super) fn written(id: u32) -> String {
    format!("{:x}:{:x}", id >> 16, id & 0xffff)
}

/// The disciplines and classes of the interface, each behind what it is below of.
pub(super) fn tree(netlink: &mut Netlink, port: &Port) -> Result<Vec<Replaced>, QosError> {
    let qdiscs = netlink.qdiscs(port.name())?.into_iter();
    let ours = qdiscs.filter(|qdisc| qdisc.handle.0 != 0 && qdisc.parent != INGRESS);
    let mut rest: Vec<_> = ours
        .map(|qdisc| Replaced {
            is_class: false,
            class: TrafficClass {
                kind: qdisc.kind,
                id: u32::from(qdisc.handle.0) << 16,
                parent: qdisc.parent,
                options: qdisc.options,
            },
        })
        .collect();
    // Those without options the kernel makes with their discipline.
    let mut classes = netlink.traffic_classes(port.index())?;
    classes.retain(|class| !class.options.is_empty());
    rest.extend(classes.into_iter().map(|class| Replaced { is_class: true, class }));
    let mut tree: Vec<Replaced> = Vec::new();
    loop {
        let is_next = |one: &Replaced| {
            let above = if one.is_class && one.class.parent == ROOT {
                one.class.id & 0xffff_0000
            } else {
                one.class.parent
            };
            (above == ROOT) || tree.iter().any(|known| known.class.id == above)
        };
        let (next, later): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_next);
        if next.is_empty() {
            return Ok(tree);
        }
        tree.extend(next);
        rest = later;
    }
}

/// Whether the interface has these disciplines and classes, whatever they count.
pub(super) fn has(
    netlink: &mut Netlink,
    port: &Port,
    replaced: &[Replaced],
) -> Result<bool, QosError> {
    let there = tree(netlink, port)?;
    let is_there = |one: &Replaced| {
        let key = |one: &Replaced| (one.class.kind.clone(), one.class.id, one.class.parent);
        there.iter().any(|other| key(other) == key(one))
    };
    Ok(replaced.iter().all(is_there))
}

/// Puts somebody's disciplines in the place of ours. What the kernel does not take back is missing
/// then, which [`tree`] shows.
fn give_back(netlink: &mut Netlink, port: &Port, replaced: &[Replaced]) -> Result<(), QosError> {
    let put = |netlink: &mut Netlink, one: &Replaced| {
        let class = &one.class;
        if one.is_class {
            return netlink.put_traffic_class(port.index(), class);
        }
        let above = (class.parent != ROOT).then_some(class.parent);
        let discipline = (class.kind.as_str(), (class.id >> 16) as u16, &*class.options);
        netlink.put_qdisc(port.index(), above, discipline)
    };
    let Some((root, below)) = replaced.split_first() else {
        return Ok(netlink.delete_root(port.index(), MAJOR)?);
    };
    // In one step where the kernel takes it; ours may have its number.
    if put(netlink, root).is_err() || has_ours(netlink, port)? {
        netlink.delete_root(port.index(), MAJOR)?;
        let _ = put(netlink, root);
    }
    for one in below {
        let _ = put(netlink, one);
    }
    Ok(())
}

/// Makes room where somebody else's HTB has our number, which the kernel would not replace by ours.
pub(super) fn clear(netlink: &mut Netlink, port: &Port) -> Result<(), QosError> {
    if has_ours(netlink, port)? { Ok(netlink.delete_root(port.index(), MAJOR)?) } else { Ok(()) }
}

/// The classes that there are.
pub(super) fn found(netlink: &mut Netlink, port: &Port) -> Result<Vec<HtbClass>, QosError> {
    let classes = netlink.htb_classes(port.index(), MAJOR)?;
    Ok(classes.iter().map(|(class, _)| *class).collect())
}

/// Deletes the classes that the state does not have. If it has none, all of it goes, and what it
/// had replaced is put back.
pub(super) fn trim(
    netlink: &mut Netlink,
    port: &Port,
    state: Option<&InterfaceState>,
    replaced: &[Replaced],
) -> Result<(), QosError> {
    if !has_ours(netlink, port)? {
        return Ok(());
    }
    let wanted = state.map_or(&[][..], |state| &state.classes);
    if wanted.is_empty() {
        return give_back(netlink, port, replaced);
    }
    let mut others: Vec<_> = netlink.htb_classes(port.index(), MAJOR)?;
    others.retain(|(class, _)| wanted.iter().all(|wanted| wanted.id != class.id));
    // Those inside others first.
    while !others.is_empty() {
        let parents: Vec<_> = others.iter().map(|(class, _)| class.parent).collect();
        let (later, now): (Vec<_>, Vec<_>) =
            (others.into_iter()).partition(|(class, _)| parents.contains(&Some(class.id)));
        for (class, _) in now {
            netlink.delete_class(port.index(), class.id)?;
        }
        others = later;
    }
    Ok(())
}

/// Caps offloaded frames as the state says, or puts back what `other` had found, where the value is
/// still ours.
pub(super) fn cap(
    netlink: &mut Netlink,
    port: &Port,
    wanted: Option<OffloadCap>,
    other: Option<OffloadCap>,
) -> Result<(), QosError> {
    let now = netlink.link_by_index(port.index())?;
    match (wanted, other) {
        (Some(wanted), _) if now.gso_max_size != Some(wanted.set) => {
            Ok(netlink.change_link(port.name(), &LinkChange::GsoMaxSize(wanted.set))?)
        }
        (None, Some(other)) if now.gso_max_size == Some(other.set) => {
            netlink.change_link(port.name(), &LinkChange::GsoMaxSize(other.was))?;
            match other.was_ipv4 {
                Some(bytes) => {
                    Ok(netlink.change_link(port.name(), &LinkChange::GsoIpv4MaxSize(bytes))?)
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

pub(super) fn has_ours(netlink: &mut Netlink, port: &Port) -> Result<bool, QosError> {
    let qdiscs = netlink.qdiscs(port.name())?;
    Ok(qdiscs.iter().any(|qdisc| qdisc.root && is_ours(&qdisc.kind, qdisc.handle.0)))
}

fn is_ours(kind: &str, major: u16) -> bool {
    kind == "htb" && major == MAJOR
}

/// The queue of a class, and where the kernel has none such.
const FAIR: &str = "fq_codel";
pub(super) const FIFO: &str = "bfifo";
/// Bytes of the latter.
const MAX_FIFO: u32 = 16 << 20;
/// `TC_H_ROOT`, and `TC_H_INGRESS`, which is clsact's, too.
const ROOT: u32 = u32::MAX;
const INGRESS: u32 = 0xffff_fff1;
/// Ethernet and a VLAN tag.
const FRAME_HEADERS: u32 = 18;
/// Largest frame with segmentation offload, bytes.
const MAX_FRAME: u32 = 65_536;
