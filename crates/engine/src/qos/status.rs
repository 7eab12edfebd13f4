//! What is in force on an interface, what its filters and policies counted, and what a packet
//! costs.

use linerate_core::treatment::QosPolicy;
use linerate_core::units::BitRate;
use linerate_qos::document::{AdapterReport, ClassReport, QosState};
use linerate_qos::explain::Packet;
use linerate_qos::interpret::CounterReport;
use linerate_qos::packet::LinkType;
use linerate_qos::policy::{MeterKind, PolicyFile};
use linerate_qos::rules::{Bindings, RuleSet};
use linerate_sys::bpf::{Context, Map, TestRun};
use linerate_sys::netlink::{Direction, HtbClass, HtbStatistics, Netlink};
use linerate_sys::proc::cgroup::group_id;

use super::change::{COUNTERS, DIRECTIONS, settle};
use super::error::QosError;
use super::hook::Via;
use super::port::{Port, SystemNames};
use super::prepare::{CGROUP, filter_name, policy_name, trial};
use super::state::{Hooked, InterfaceState, Mode, QosSite};
use super::{on_site, queue};

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
            None => "its program is not there any more: somebody removed it",
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
                "its counters are not there any more: somebody removed them; apply it again";
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

// What filters and policies have counted.

/// The counters of one program.
#[derive(Debug)]
pub(super) struct Readings {
    map: Map,
}

impl Readings {
    pub(super) fn new(map: Map) -> Self {
        Self { map }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> u32 {
        self.map.info().entries
    }

    /// What a slot counted since the map was made, all CPUs together; zero beyond its end.
    pub(super) fn slot(&self, slot: u32) -> Result<[u64; 7], QosError> {
        let mut sum = [0_u64; 7];
        if slot >= self.slots() {
            return Ok(sum);
        }
        let values = self.map.lookup(&slot.to_ne_bytes())?.unwrap_or_default();
        let words = values.as_chunks::<8>().0.iter();
        for (place, word) in words.enumerate() {
            let of = &mut sum[place % 7];
            *of = of.wrapping_add(u64::from_ne_bytes(*word));
        }
        Ok(sum)
    }

    /// What a name counted since it began to.
    pub(super) fn named(
        &self,
        hooked: &Hooked,
        name: &str,
        slot: Option<u32>,
    ) -> Result<CounterReport, QosError> {
        let Some(slot) = slot else {
            return Ok(CounterReport::default());
        };
        let mut counted = self.slot(slot)?;
        if let Some(base) = hooked.base.get(name) {
            for (counted, base) in counted.iter_mut().zip(base) {
                *counted = counted.wrapping_sub(*base);
            }
        }
        Ok(counted.into())
    }
}

// Counters of an interface's policies that are held open, to be read many times.

/// The policies that are in force.
#[derive(Debug)]
pub(crate) struct Counting {
    readings: Readings,
    pub(crate) policies: Vec<Counted>,
}

/// One policy with its counters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counted {
    pub(crate) name: String,
    slot: u32,
    /// `major << 16 | minor`.
    pub(crate) class: Option<u32>,
    /// Long-run rate above which its meter drops, bits per second.
    pub(crate) drops_above_bps: Option<f64>,
}

/// The counters of an interface; none without a policy in force.
///
/// # Errors
/// [`QosError`].
pub(crate) fn counting(interface: &str) -> Result<Option<Counting>, QosError> {
    on_site(|site| {
        let port = Port::find(&mut site.netlink, interface)?;
        let state = settle(site, &port)?.filter(|state| state.mode == Mode::Enabled);
        let Some(state) = state else { return Ok(None) };
        let Some(pin) = state.egress.maps.get(COUNTERS) else {
            return Ok(None);
        };
        let Some(map) = site.hooks(&port).map(pin)? else {
            return Ok(None);
        };
        let file = PolicyFile::from_toml(&state.text, &mut SystemNames::default())?;
        let policies = file.policies.iter().filter_map(|policy| {
            let name = policy.name.clone();
            Some(Counted {
                slot: *state.slots.get(&policy_name(&name))?,
                class: state.class_of.get(&name).copied(),
                drops_above_bps: drops_above(policy),
                name,
            })
        });
        Ok(Some(Counting { policies: policies.collect(), readings: Readings::new(map) }))
    })
}

impl Counting {
    /// What each policy has counted of packets that leave since its map was made; one that cannot
    /// be read has counted nothing.
    pub(crate) fn read(&self) -> Vec<CounterReport> {
        let policies = self.policies.iter();
        let counts = policies.map(|policy| self.readings.slot(policy.slot).unwrap_or_default());
        counts.map(CounterReport::from).collect()
    }
}

/// The long-run rate of a meter that drops: the committed rate if it has only that one, else the
/// peak rate.
fn drops_above(policy: &linerate_qos::policy::Policy) -> Option<f64> {
    let meter = policy.meter.filter(|meter| meter.drop_red)?;
    let BitRate(rate) = match meter.kind {
        MeterKind::SingleRate { committed, .. } => committed,
        MeterKind::TwoRate { peak, .. } => peak,
    };
    Some(rate as f64)
}

// Run time of a policy's program for each packet, by `BPF_PROG_TEST_RUN`.

/// Runs of each sample.
const REPEATS: u32 = 20_000;
/// Samples, of which the median counts: some milliseconds in all.
const SAMPLES: usize = 11;

/// Nanoseconds that the program of a policy takes for a packet; `None` where the policy has no
/// program.
///
/// A program of its own runs on the same packet again and again, so caches and branch predictors
/// know it; the first run marks it, so changing its header is not included.
///
/// # Errors
/// The policy is wrong, or the kernel takes or runs no such program.
pub(crate) fn packet_ns(policy: &QosPolicy, packet: &Packet) -> Result<Option<f64>, QosError> {
    let rules = match policy {
        QosPolicy::Off => return Ok(None),
        QosPolicy::Passthrough => RuleSet::pass_through(),
        QosPolicy::File { text, .. } => rules(text)?,
    };
    let filters = rules.filters.iter().map(|(_, slot)| slot.0);
    let actions = rules.actions.iter().map(|action| action.slot.0);
    let slots = filters.chain(actions).max().unwrap_or(0) + 1;
    let program = trial(&rules, LinkType::Ethernet, slots)?.program;
    let sample = |_| {
        let result = program.test_run(&TestRun {
            frame: packet.frame(),
            context: Context::default(),
            repeat: REPEATS,
        })?;
        Ok(result.duration.as_nanos() as f64)
    };
    let mut samples: Vec<f64> = (0..SAMPLES).map(sample).collect::<Result<_, QosError>>()?;
    samples.sort_by(f64::total_cmp);
    Ok(Some(samples[SAMPLES / 2]))
}

/// The rules of a file for any device, or else of its first adapter.
fn rules(text: &str) -> Result<RuleSet, QosError> {
    let file = PolicyFile::from_toml(text, &mut SystemNames::default())?;
    let any = file.adapters.iter().find(|adapter| adapter.name == "*");
    let adapter = any
        .or(file.adapters.first())
        .ok_or_else(|| QosError::Which { why: "the policy's file has no adapter".to_owned() })?;
    Ok(RuleSet::new(&file, adapter, &Bindings::stand_in(&file))?)
}

#[cfg(test)]
mod tests {
    use linerate_qos::policy::NoNames;

    use super::*;

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
        let file = PolicyFile::from_toml(text, &mut NoNames).unwrap();
        let rates: Vec<_> = file.policies.iter().map(drops_above).collect();
        assert_eq!(rates, [None, Some(20e6)]);
    }
}
