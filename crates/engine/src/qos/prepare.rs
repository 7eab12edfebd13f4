//! Prepares a policy for an interface: its slots, classes, rules and loaded program.

use std::collections::{BTreeMap, BTreeSet};

use linerate_core::units::BitRate;
use linerate_qos::classes::{ClassPlan, OTHER_NUMBER};
use linerate_qos::document::describe;
use linerate_qos::packet::LinkType;
use linerate_qos::policy::{Adapter, Filter, PolicyFile};
use linerate_qos::program::{self, Target, compile};
use linerate_qos::rules::{Bindings, Cgroup, RuleSet, Slot};
use linerate_sys::bpf::{BpfError, Map};
use linerate_sys::netlink::{Direction, Netlink};
use linerate_sys::proc::cgroup::group_id;

use super::change::{COUNTERS, DIRECTIONS, QosChange, hooked};
use super::error::QosError;
use super::hook::{Loaded, load};
use super::port::Port;
use super::queue;
use super::state::{Hooked, InterfaceState, Mode, QosSite};
use super::status::Readings;

/// Policy and options that are wanted of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedPolicy<'a> {
    /// The file as it was given, and read; none to pass everything through.
    pub(super) policy: Option<(&'a str, &'a PolicyFile, &'a Adapter)>,
    pub(super) forced: bool,
    /// The policy is also for packets that come in, whatever the file says.
    pub(super) with_ingress: bool,
}

/// Compiles and loads; nothing on the interface is changed.
pub(super) fn prepare(
    site: &mut QosSite,
    port: Port,
    old: Option<InterfaceState>,
    wanted: WantedPolicy<'_>,
) -> Result<QosChange, QosError> {
    let mut next = begin(&port, old.as_ref(), wanted);
    let names = wanted.policy.map_or(Vec::new(), |(_, file, _)| names(file));
    let fresh = match wanted.policy {
        Some(_) => assign(&mut next.slots, &names),
        None => BTreeSet::new(),
    };
    let mut bindings = Bindings::default();
    if let Some((_, file, adapter)) = wanted.policy {
        bindings = bind(&mut site.netlink, file, &next.slots)?;
        next.bound = bound(&bindings);
        plan(&port, file, adapter, &mut bindings, &mut next, old.as_ref())?;
    }
    let mut change = QosChange { port, old, next, loaded: Vec::new(), notes: Vec::new() };
    let interface = change.port.name();
    if let Some(why) = change.old.as_ref().and_then(|old| old.lost.as_ref()) {
        let note = format!("{interface}: {why}: the counters begin again at 0");
        change.notes.push(note);
    }
    for direction in DIRECTIONS {
        let is_wanted = direction == Direction::Egress
            || wanted.with_ingress
            || wanted.policy.is_some_and(|(_, _, adapter)| adapter.ingress);
        let rules = match wanted.policy {
            Some((_, file, adapter)) => {
                RuleSet::new(file, adapter, &of_direction(&bindings, direction))?
            }
            None => RuleSet::pass_through(),
        };
        if is_wanted {
            attach(site, &mut change, direction, &rules, &fresh)?;
        } else {
            detach(site, &mut change, direction, &fresh)?;
        }
    }
    Ok(change)
}

/// What stays as it was, and what is asked for.
fn begin(port: &Port, old: Option<&InterfaceState>, wanted: WantedPolicy<'_>) -> InterfaceState {
    let old = old.cloned();
    let kept = |hooked: fn(&InterfaceState) -> &Hooked| {
        let mut hooked = old.as_ref().map(hooked).cloned().unwrap_or_default();
        hooked.program = None;
        hooked
    };
    let (egress, ingress) = (kept(|state| &state.egress), kept(|state| &state.ingress));
    let mut next = InterfaceState {
        interface: port.name().to_owned(),
        index: port.index(),
        mode: Mode::PassingThrough,
        adapter: port.name().to_owned(),
        forced: wanted.forced,
        with_ingress: wanted.with_ingress,
        egress,
        ingress,
        ..InterfaceState::default()
    };
    if let Some(old) = old {
        (next.text, next.adapter) = (old.text, old.adapter);
        (next.policies, next.slots) = (old.policies, old.slots);
    }
    if let Some((text, _, adapter)) = wanted.policy {
        next.mode = Mode::Enabled;
        next.text = text.to_owned();
        next.adapter = adapter.name.clone();
    }
    next
}

/// Everything of a file that counts, filters first.
fn names(file: &PolicyFile) -> Vec<String> {
    let filters = file.filters.iter().map(|filter| filter_name(&filter.name));
    let policies = file.policies.iter().map(|policy| policy_name(&policy.name));
    filters.chain(policies).collect()
}

pub(super) fn filter_name(name: &str) -> String {
    format!("filter {name}")
}

pub(super) fn policy_name(name: &str) -> String {
    format!("policy {name}")
}

/// Gives each name a slot. Known names keep theirs, and new names get slots that nobody had before
/// this change, because the old program goes on counting until the swap. Answers the new names.
fn assign(slots: &mut BTreeMap<String, u32>, names: &[String]) -> BTreeSet<String> {
    let used: BTreeSet<u32> = slots.values().copied().collect();
    let mut free = (0..).filter(|slot| !used.contains(slot));
    let mut fresh = BTreeSet::new();
    let assigned = names.iter().map(|name| {
        let slot = slots.get(name).copied().unwrap_or_else(|| {
            fresh.insert(name.clone());
            free.next().expect("there are more numbers than names")
        });
        (name.clone(), slot)
    });
    let assigned: BTreeMap<_, _> = assigned.collect();
    *slots = assigned;
    fresh
}

/// The kernel's numbers of what the file names.
fn bind(
    netlink: &mut Netlink,
    file: &PolicyFile,
    slots: &BTreeMap<String, u32>,
) -> Result<Bindings, QosError> {
    let slot = |name: String| Slot(slots[&name]);
    let mut bindings = Bindings {
        filter_slots: (file.filters.iter()).map(|filter| slot(filter_name(&filter.name))).collect(),
        policy_slots: (file.policies.iter())
            .map(|policy| slot(policy_name(&policy.name)))
            .collect(),
        ..Bindings::default()
    };
    for filter in &file.filters {
        bind_filter(netlink, filter, &mut bindings).map_err(|error| match error {
            QosError::Unknown { what, why } => {
                QosError::Unknown { what: format!("line {}: {what}", filter.place.line), why }
            }
            error => error,
        })?;
    }
    Ok(bindings)
}

/// Binds one filter.
pub(super) fn bind_filter(
    netlink: &mut Netlink,
    filter: &Filter,
    bindings: &mut Bindings,
) -> Result<(), QosError> {
    let unknown = |what: String, why: String| QosError::Unknown {
        what: format!("filter `{}`: {what}", filter.name),
        why,
    };
    for path in &filter.conditions.cgroup {
        let id = group_id(&path.0)
            .map_err(|error| unknown(format!("{CGROUP} {}", path.0), error.to_string()))?;
        let level = u8::try_from(path.level()).unwrap_or(u8::MAX);
        bindings.cgroups.insert(path.clone(), Cgroup { id, level });
    }
    for interface in &filter.conditions.incoming {
        let link = netlink.link(&interface.0).map_err(|_| {
            let what = format!("interface {}", interface.0);
            unknown(what, "there is no such interface".to_owned())
        })?;
        bindings.interfaces.insert(interface.clone(), link.index);
    }
    Ok(())
}

/// Whether the program of a file, and its classes if it has any, could be made on an interface;
/// whether it has any.
pub(super) fn check(file: &PolicyFile, adapter: &Adapter, port: &Port) -> Result<bool, QosError> {
    let bindings = Bindings::stand_in(file);
    let classes = ClassPlan::new(file, adapter, &bindings.policy_slots, port.speed())?;
    let rules = RuleSet::new(file, adapter, &bindings)?;
    let slots = bindings.policy_slots.last().map_or(1, |slot| slot.0 + 1);
    compiled(&rules, port.link_type()?, slots, Direction::Egress)?;
    Ok(classes.is_some())
}

/// Bound values by name, to be compared with later.
fn bound(bindings: &Bindings) -> BTreeMap<String, u64> {
    let mut bound = BTreeMap::new();
    for (path, group) in &bindings.cgroups {
        bound.insert(format!("{CGROUP} {}", path.0), group.id);
    }
    for (name, index) in &bindings.interfaces {
        bound.insert(format!("interface {}", name.0), (*index).into());
    }
    bound
}

pub(super) const CGROUP: &str = "control group";

/// Classes, the cap on offloaded frames, and the policies in words.
fn plan(
    port: &Port,
    file: &PolicyFile,
    adapter: &Adapter,
    bindings: &mut Bindings,
    next: &mut InterfaceState,
    old: Option<&InterfaceState>,
) -> Result<(), QosError> {
    let plan = ClassPlan::new(file, adapter, &bindings.policy_slots, port.speed())?;
    let rate = plan.as_ref().map(|plan| plan.rate);
    next.rate_bps = rate.map(|BitRate(rate)| rate);
    next.policies = describe(file, adapter, plan.as_ref());
    next.class_of = BTreeMap::new();
    let Some(mut plan) = plan else { return Ok(()) };
    if let Some(old) = old {
        next.replaced = old.replaced.clone();
        // Each before those inside it, which follow its number.
        let ids: Vec<_> = plan.classes.iter().map(|class| Some(class.id)).collect();
        let policies: Vec<_> =
            (ids.iter()).filter_map(|id| plan.of_policy.iter().position(|of| of == id)).collect();
        for policy in policies {
            number(&mut plan, policy, &file.policies[policy].name, old);
        }
    }
    next.classes = queue::classes(&plan, port);
    next.offload = queue::offload(&plan, port, old.and_then(|old| old.offload));
    next.default_class = Some(plan.default);
    let with_class = file.policies.iter().zip(&plan.of_policy);
    next.class_of =
        with_class.filter_map(|(policy, class)| Some((policy.name.clone(), (*class)?))).collect();
    bindings.classes = plan.of_policy;
    bindings.default_class = Some(plan.default);
    Ok(())
}

/// Chooses the number of each class. Usually a class keeps its number, and with it what it has used
/// of its rate. A class that gets a much higher rate takes its other number, because HTB would hold
/// it to a debt of the old rate for seconds. So does a class that moves into another, or gets or
/// loses inner classes, because HTB moves no class.
fn number(plan: &mut ClassPlan, policy: usize, name: &str, old: &InterfaceState) {
    let (Some(id), Some(was)) = (plan.of_policy[policy], old.class_of.get(name)) else {
        return;
    };
    let Some(class) = plan.classes.iter().find(|class| class.id == id) else {
        return;
    };
    let is_leaf = plan.classes.iter().all(|of| of.parent != Some(id));
    let was_leaf = old.leaves().any(|leaf| leaf.id == *was);
    let is_anew = (old.classes.iter().find(|class| class.id == *was)).is_some_and(|old| {
        let is_much_more = class.rate.bytes_per_second() / 2 > old.rate;
        is_much_more || old.parent != class.parent || is_leaf != was_leaf
    });
    let other = if is_anew { u32::from(OTHER_NUMBER) } else { 0 };
    plan.renumber(policy, was ^ other);
}

/// Packets that come in have no class.
fn of_direction(bindings: &Bindings, direction: Direction) -> Bindings {
    let mut bindings = bindings.clone();
    if direction == Direction::Ingress {
        bindings.classes.clear();
        bindings.default_class = None;
    }
    bindings
}

/// Compiles and loads the program of one direction.
fn attach(
    site: &QosSite,
    change: &mut QosChange,
    direction: Direction,
    rules: &RuleSet,
    fresh: &BTreeSet<String>,
) -> Result<(), QosError> {
    let hooks = site.hooks(&change.port);
    let mut old = change.next.hooked(direction).clone();
    if let Some(pin) = old.maps.get(COUNTERS)
        && hooks.map(pin)?.is_none()
    {
        old.maps.remove(COUNTERS);
        old.base.clear();
        let interface = change.port.name();
        let note = format!("{interface}: its counters were removed and begin again at 0");
        change.notes.push(note);
    }
    let map = |name: &str| {
        let pin = old.maps.get(name)?;
        Map::from_pin(&hooks.pin(pin)).ok()
    };
    let counters = map(COUNTERS).map(Readings::new);
    let needed = change.next.slots.values().max().map_or(1, |slot| slot + 1);
    let had = counters.as_ref().map_or(MIN_SLOTS, Readings::slots);
    let slots = had.max(needed.next_power_of_two());
    let compiled = compiled(rules, change.port.link_type()?, slots, direction)?;
    let loaded = load(&compiled, hooks.kind(direction), |spec| map(spec.name))
        .map_err(|error| refused(site, &change.port, error))?;
    let mut hooked = hooked(&old, direction, &loaded.program, &loaded.maps)?;
    let stays = counters.filter(|counters| counters.slots() == slots);
    rebase(&mut hooked, stays.as_ref(), &change.next.slots, fresh)?;
    *change.next.hooked_mut(direction) = hooked;
    change.loaded.push((direction, loaded));
    Ok(())
}

/// A direction without a program keeps its counts.
fn detach(
    site: &QosSite,
    change: &mut QosChange,
    direction: Direction,
    fresh: &BTreeSet<String>,
) -> Result<(), QosError> {
    let mut hooked = change.next.hooked(direction).clone();
    hooked.program = None;
    let pin = hooked.maps.get(COUNTERS);
    let map = pin.map(|pin| site.hooks(&change.port).map(pin)).transpose()?;
    let counters = map.flatten().map(Readings::new);
    rebase(&mut hooked, counters.as_ref(), &change.next.slots, fresh)?;
    *change.next.hooked_mut(direction) = hooked;
    Ok(())
}

/// Makes new names begin at zero. In maps that stay their slots hold the counts of names that are
/// gone.
fn rebase(
    hooked: &mut Hooked,
    counters: Option<&Readings>,
    slots: &BTreeMap<String, u32>,
    fresh: &BTreeSet<String>,
) -> Result<(), QosError> {
    hooked.base.retain(|name, _| slots.contains_key(name));
    for name in fresh {
        let counted = counters.map(|counters| counters.slot(slots[name])).transpose()?;
        hooked.base.insert(name.clone(), counted.unwrap_or_default());
    }
    Ok(())
}

fn compiled(
    rules: &RuleSet,
    link: LinkType,
    slots: u32,
    direction: Direction,
) -> Result<program::Program, QosError> {
    let target =
        Target { link, slots, verdict: TCX_NEXT, ingress: direction == Direction::Ingress };
    Ok(compile(rules, &target)?)
}

/// A program and its maps for an interface with frames of `link`, as it would run on packets that
/// leave, counting in slots of its own: for measuring it without attaching it.
///
/// # Errors
/// As of applying it.
pub(super) fn trial(rules: &RuleSet, link: LinkType, slots: u32) -> Result<Loaded, QosError> {
    let compiled = compiled(rules, link, slots, Direction::Egress)?;
    let kind = linerate_sys::bpf::ProgramKind::SchedCls { attach: None };
    Ok(load(&compiled, kind, |_| None)?)
}

/// The verifier's log goes into a file, its end into the message.
fn refused(site: &QosSite, port: &Port, error: BpfError) -> QosError {
    let Some(log) = error.verifier_log() else {
        return error.into();
    };
    let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let end = lines[lines.len().saturating_sub(3)..].join("; ");
    match site.directory.keep_log(port.name(), log) {
        Ok(log) => QosError::Verifier { interface: port.name().to_owned(), end, log },
        Err(error) => error.into(),
    }
}

/// Others run as well (`TCX_NEXT`); clsact calls the same number `TC_ACT_UNSPEC`.
const TCX_NEXT: i32 = -1;
/// Few policies change without a new map.
const MIN_SLOTS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_keep_their_slots_and_those_of_gone_ones_rest_for_one_change() {
        let mut slots = BTreeMap::new();
        assert_eq!(assign(&mut slots, &all(&["a", "b", "c"])).len(), 3);
        assert_eq!((slots["a"], slots["b"], slots["c"]), (0, 1, 2));
        let fresh = assign(&mut slots, &all(&["d", "c", "a"]));
        assert_eq!((slots["a"], slots["c"], slots["d"]), (0, 2, 3));
        assert_eq!(fresh.into_iter().collect::<Vec<_>>(), ["d"]);
        assign(&mut slots, &all(&["a", "c", "d", "b"]));
        assert_eq!((slots["b"], slots.len()), (1, 4));
    }

    #[test]
    fn no_two_names_ever_share_a_slot() {
        let mut slots = BTreeMap::new();
        for round in 0..200_u32 {
            let names: Vec<_> =
                (0..1 + round * 7 % 40).map(|n| format!("n{}", n * 13 % (round + 3))).collect();
            assign(&mut slots, &names);
            let distinct: BTreeSet<_> = slots.values().collect();
            assert_eq!(distinct.len(), slots.len());
        }
    }
}
