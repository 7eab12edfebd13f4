//! What is in force, and what it counted.

use linerate_core::units::BitRate;
use linerate_qos::document::{AdapterReport, ClassReport, QosState};
use linerate_qos::interpret::CounterReport;
use linerate_qos::packet::LinkType;
use linerate_sys::netlink::{Direction, HtbClass, HtbStatistics, Netlink};
use linerate_sys::proc::cgroup::group_id;

use super::change::{COUNTERS, DIRECTIONS};
use super::counters::Readings;
use super::error::QosError;
use super::hook::Via;
use super::port::Port;
use super::prepare::{CGROUP, filter_name, policy_name};
use super::queue;
use super::site::QosSite;
use super::state::{InterfaceState, Mode};

/// Report of one interface.
pub(super) fn report(
    site: &mut QosSite,
    port: &Port,
    state: &InterfaceState,
) -> Result<AdapterReport, QosError> {
    let fault = fault(site, port, state)?;
    let condition = match (state.mode, &fault) {
        (_, Some(_)) => QosState::Failed,
        (Mode::Enabled, None) => QosState::Filtering,
        (Mode::PassingThrough, None) => QosState::PassingThrough,
        (Mode::Disabled | Mode::Removed, None) => QosState::Disabled,
    };
    let addresses = site.netlink.addresses()?;
    let own = addresses.iter().filter(|address| address.link == port.index());
    let hooks = site.hooks(port);
    let mut report = AdapterReport {
        name: port.name().to_owned(),
        index: port.index(),
        addresses: own.map(|address| address.prefix.to_string()).collect(),
        kind: match port.link_type()? {
            LinkType::Ethernet => "ethernet".to_owned(),
            LinkType::RawIp => "raw_ip".to_owned(),
        },
        speed_bps: port.speed().map(|BitRate(speed)| speed),
        rate_bps: state.rate_bps,
        state: condition,
        fault,
        attached: state.egress.program.map(|_| match hooks.via() {
            Via::Tcx => "tcx".to_owned(),
            Via::Clsact => "clsact".to_owned(),
        }),
        ingress: state.ingress.program.is_some(),
        gso_max_size_bytes: state.offload.map(|offload| offload.set),
        policies: state.policies.clone(),
        default_class: None,
    };
    add_counters(site, port, state, &mut report)?;
    add_classes(site, port, state, &mut report)?;
    Ok(report)
}

/// Difference from what was applied, in words.
pub(super) fn fault(
    site: &mut QosSite,
    port: &Port,
    state: &InterfaceState,
) -> Result<Option<String>, QosError> {
    if let Some(why) = &state.lost {
        return Ok(Some(format!(
            "{why}: what is in force is not known any more; apply it again, or remove it"
        )));
    }
    let mut fault = queue::fault(&mut site.netlink, port, state)?;
    if state.mode == Mode::Enabled {
        fault = made_anew(&mut site.netlink, state).or(fault);
    }
    for direction in DIRECTIONS {
        fault = program_fault(site, port, state, direction)?.or(fault);
    }
    Ok(fault.map(|fault| format!("{fault}; apply it again")))
}

fn program_fault(
    site: &mut QosSite,
    port: &Port,
    state: &InterfaceState,
    direction: Direction,
) -> Result<Option<String>, QosError> {
    let hooks = site.hooks(port);
    let wanted = state.hooked(direction).program;
    let running = hooks.in_force(&mut site.netlink, port, direction)?;
    if wanted != running {
        let fault = match running {
            None => "its program is not there any more: somebody took it away",
            Some(_) => "another program stands in its place",
        };
        return Ok(Some(fault.to_owned()));
    }
    let Some(_) = wanted else { return Ok(None) };
    let others = hooks.others(&mut site.netlink, port, direction)?;
    let ahead = others.into_iter().find(|(_, is_ahead)| *is_ahead);
    let said = |ahead| format!("{ahead} stands before its program and may hide packets from it");
    Ok(ahead.map(|(ahead, _)| said(ahead)))
}

/// A control group or an interface that has gone and come back is not the one that the program
/// compares with. Of one that is gone there are no packets.
fn made_anew(netlink: &mut Netlink, state: &InterfaceState) -> Option<String> {
    let mut bound = state.bound.iter();
    let (name, _) = bound.find(|(name, number)| {
        let now = match name.split_once(' ') {
            Some((CGROUP, path)) => group_id(path).ok(),
            Some((_, name)) => netlink.link(name).ok().map(|link| link.index.into()),
            None => None,
        };
        now.is_some_and(|now| now != **number)
    })?;
    Some(format!("{name} was made anew, and its filters do not know the new one"))
}

fn add_counters(
    site: &QosSite,
    port: &Port,
    state: &InterfaceState,
    report: &mut AdapterReport,
) -> Result<(), QosError> {
    let hooks = site.hooks(port);
    for direction in DIRECTIONS {
        let hooked = state.hooked(direction);
        let Some(pin) = hooked.maps.get(COUNTERS) else {
            continue;
        };
        let Some(map) = hooks.map(pin)? else {
            report.state = QosState::Failed;
            let fault =
                "its counters are not there any more: somebody took them away; apply it again";
            report.fault.get_or_insert_with(|| fault.to_owned());
            continue;
        };
        let readings = Readings::new(map);
        let counted = |name: String| -> Result<CounterReport, QosError> {
            let slot = state.slots.get(&name).copied();
            readings.named(hooked, &name, slot)
        };
        let put = |egress: &mut CounterReport, ingress: &mut Option<CounterReport>, value| {
            match direction {
                Direction::Egress => *egress = value,
                Direction::Ingress => *ingress = Some(value),
            }
        };
        for policy in &mut report.policies {
            let value = counted(policy_name(&policy.name))?;
            put(&mut policy.egress, &mut policy.ingress, value);
            for filter in &mut policy.filters {
                let value = counted(filter_name(&filter.name))?;
                put(&mut filter.egress, &mut filter.ingress, value);
            }
        }
    }
    Ok(())
}

fn add_classes(
    site: &mut QosSite,
    port: &Port,
    state: &InterfaceState,
    report: &mut AdapterReport,
) -> Result<(), QosError> {
    if state.classes.is_empty() {
        return Ok(());
    }
    let there = site.netlink.htb_classes(port.index(), linerate_qos::classes::MAJOR)?;
    let queues = queue::leaves(&mut site.netlink, port)?;
    let class = |id: u32| {
        let found = there.iter().find(|(class, _)| class.id == id);
        found.map(|(class, statistics)| ClassReport {
            queue: queues.get(&id).cloned(),
            ..class_report(class, statistics)
        })
    };
    for policy in &mut report.policies {
        policy.class = state.class_of.get(&policy.name).copied().and_then(class);
    }
    report.default_class = state.default_class.and_then(class);
    Ok(())
}

fn class_report(class: &HtbClass, statistics: &HtbStatistics) -> ClassReport {
    ClassReport {
        id: queue::written(class.id),
        queue: None,
        rate_bps: class.rate.saturating_mul(8),
        ceil_bps: class.ceil.saturating_mul(8),
        priority: class.priority,
        bytes: statistics.bytes,
        packets: statistics.packets.into(),
        drops: statistics.drops.into(),
        overlimits: statistics.overlimits.into(),
        backlog_bytes: statistics.backlog_bytes.into(),
        lends: statistics.lends.into(),
        borrows: statistics.borrows.into(),
    }
}
