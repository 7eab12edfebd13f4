//! The classes of an interface, and the cap on its offloaded frames.

use linerate_qos::classes::{ClassPlan, MAJOR, largest_offload};
use linerate_sys::errno::ENOENT;
use linerate_sys::netlink::{HtbClass, LinkChange, Netlink};

use super::error::QosError;
use super::port::Port;
use super::state::{Offload, State, StoredClass};

/// The classes of a plan, as HTB wants them.
pub(super) fn classes(plan: &ClassPlan, port: &Port) -> Vec<StoredClass> {
    let frame = port.link.mtu.saturating_add(FRAME_HEADERS);
    let longest = largest_offload(plan.rate, port.link.mtu).unwrap_or(MAX_FRAME);
    // Borrowing goes round by quanta; a frame that is longer than one gets more than its share.
    let quantum = longest.max(10 * frame).clamp(1000, 200_000);
    let classes = plan.classes.iter().map(|class| {
        let (rate, ceil) = (class.rate.bytes_per_second(), class.ceil.bytes_per_second());
        StoredClass {
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

/// What is sent at once after a pause: two frames, or what the rate gives in two milliseconds. With
/// less a class falls behind its rate each time the kernel's timer is late; with more, others wait
/// longer.
fn burst(rate: u64, frame: u32) -> u32 {
    u32::try_from(rate / 500).unwrap_or(u32::MAX).max(2 * frame)
}

/// The cap that the plan asks for, if the device sends longer frames; `before` is the one in force.
pub(super) fn offload(plan: &ClassPlan, port: &Port, before: Option<Offload>) -> Option<Offload> {
    let was = before.map(|before| before.was).or(port.link.gso_max_size)?;
    let was_ipv4 = match before {
        Some(before) => before.was_ipv4,
        None => port.link.gso_ipv4_max_size,
    };
    let set = largest_offload(plan.rate, port.link.mtu).filter(|bytes| *bytes < was)?;
    Some(Offload { set, was, was_ipv4 })
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
pub(super) fn add(netlink: &mut Netlink, port: &Port, state: &State) -> Result<(), QosError> {
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
        let class = HtbClass::from(*class);
        netlink.put_htb_class(port.index(), &class, !is_there(class.id))?;
    }
    Ok(())
}

/// Makes room where somebody else's HTB has our number, which the kernel would not replace by ours.
pub(super) fn clear(netlink: &mut Netlink, port: &Port) -> Result<(), QosError> {
    if has_ours(netlink, port)? {
        Ok(netlink.delete_root(port.index(), MAJOR)?)
    } else {
        Ok(())
    }
}

/// The classes that there are.
pub(super) fn found(netlink: &mut Netlink, port: &Port) -> Result<Vec<StoredClass>, QosError> {
    let classes = netlink.htb_classes(port.index(), MAJOR)?;
    Ok(classes.iter().map(|(class, _)| class.into()).collect())
}

/// Deletes the classes that the state does not have, and all of it if it has none.
pub(super) fn trim(
    netlink: &mut Netlink,
    port: &Port,
    state: Option<&State>,
) -> Result<(), QosError> {
    if !has_ours(netlink, port)? {
        return Ok(());
    }
    let wanted = state.map_or(&[][..], |state| &state.classes);
    if wanted.is_empty() {
        return Ok(netlink.delete_root(port.index(), MAJOR)?);
    }
    for (class, _) in netlink.htb_classes(port.index(), MAJOR)? {
        if wanted.iter().all(|wanted| wanted.id != class.id) {
            netlink.delete_class(port.index(), class.id)?;
        }
    }
    Ok(())
}

/// Caps offloaded frames as the state says, or puts back what `other` had found, where the value is
/// still ours.
pub(super) fn cap(
    netlink: &mut Netlink,
    port: &Port,
    wanted: Option<Offload>,
    other: Option<Offload>,
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
    Ok(qdiscs
        .iter()
        .any(|qdisc| qdisc.root && is_ours(&qdisc.kind, qdisc.handle.0)))
}

fn is_ours(kind: &str, major: u16) -> bool {
    kind == "htb" && major == MAJOR
}

/// Ethernet and a VLAN tag.
const FRAME_HEADERS: u32 = 18;
/// Of offloaded ones.
const MAX_FRAME: u32 = 65_536;
