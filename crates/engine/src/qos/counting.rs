//! Counters of an interface's policies that are held open, to be read many times.

use linerate_core::units::BitRate;
use linerate_qos::interpret::CounterReport;
use linerate_qos::policy::{MeterKind, PolicyFile};

use super::change::{COUNTERS, settle};
use super::counters::Readings;
use super::error::QosError;
use super::names::SystemNames;
use super::on_site;
use super::port::Port;
use super::prepare::policy_name;
use super::state::Mode;

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
