//! What programs take by themselves, by the kernel's own test runs.

use linerate_core::plan::Protocol;
use linerate_core::stats::{MedianInterval, median_interval};
use linerate_core::units::Family;
use linerate_qos::cost::{Cell, DirectCost};
use linerate_qos::explain::Packet;
use linerate_qos::packet::LinkType;
use linerate_qos::policy::PolicyFile;
use linerate_qos::program::{Target, compile};
use linerate_qos::rules::{Bindings, RuleSet};
use linerate_sys::bpf::{Context, Program, TestRun};

use super::error::CostError;
use super::{CostOptions, policy_of};
use crate::qos::{QosError, SystemNames, trial};

/// Samples of each program, and runs of each sample: some milliseconds.
const SAMPLES: usize = 11;
const REPEATS: u32 = 100_000;
/// What programs return for packets that go on.
const TCX_NEXT: i32 = -1;

/// The policy of a text.
pub(super) fn read(text: &str) -> Result<PolicyFile, CostError> {
    PolicyFile::from_toml(text, &mut SystemNames::default())
        .map_err(|error| CostError::Policy(error.into()))
}

/// Each kind of packet of the plan on the policy that it meets, and on a program without rules.
pub(super) fn measure(options: &CostOptions) -> Result<Vec<DirectCost>, CostError> {
    let mut costs: Vec<DirectCost> = Vec::new();
    for cell in &options.plan.cells {
        let kind = (cell.test, cell.family, cell.protocol);
        let is_known = |cost: &DirectCost| (cost.test, cost.family, cost.protocol) == kind;
        if !costs.iter().any(is_known) {
            costs.push(of_cell(options, cell)?);
        }
    }
    Ok(costs)
}

fn of_cell(options: &CostOptions, cell: &Cell) -> Result<DirectCost, CostError> {
    let file = read(&policy_of(options, cell))?;
    let rules = rules_of(&file)?;
    let without = RuleSet {
        v4: Vec::new(),
        v6: Vec::new(),
        other: Vec::new(),
        ..rules.clone()
    };
    let (policy, instructions) = loaded(&rules)?;
    let (passthrough, _) = loaded(&without)?;
    let frame = frame(cell.family, cell.protocol);
    let mut samples = [Vec::new(), Vec::new()];
    // In turn, so that a clock that changes its pace does so for both.
    for _ in 0..SAMPLES {
        for (program, samples) in [&passthrough, &policy].into_iter().zip(&mut samples) {
            samples.push(nanoseconds(program, &frame)?);
        }
    }
    let [passthrough_ns, policy_ns] = samples.map(|samples| median_interval(&samples));
    let whole = |figure: Result<MedianInterval, _>| figure.map_err(CostError::Statistics);
    Ok(DirectCost {
        test: cell.test,
        family: cell.family,
        protocol: cell.protocol,
        passthrough_ns: whole(passthrough_ns)?,
        policy_ns: whole(policy_ns)?,
        instructions,
    })
}

fn rules_of(file: &PolicyFile) -> Result<RuleSet, QosError> {
    let adapter = file.adapters.first().ok_or_else(|| QosError::Which {
        why: "the policy's file has no adapter".to_owned(),
    })?;
    Ok(RuleSet::new(file, adapter, &Bindings::stand_in(file))?)
}

/// The program as the kernel has taken it, and how many instructions it has.
fn loaded(rules: &RuleSet) -> Result<(Program, usize), QosError> {
    let of_filters = rules.filters.iter().map(|(_, slot)| slot.0);
    let of_actions = rules.actions.iter().map(|action| action.slot.0);
    let target = Target {
        link: LinkType::Ethernet,
        slots: of_filters.chain(of_actions).max().unwrap_or(0) + 1,
        verdict: TCX_NEXT,
        ingress: false,
    };
    let instructions = compile(rules, &target)?.instructions.len();
    Ok((
        trial(rules, target.link, target.slots)?.program,
        instructions,
    ))
}

fn nanoseconds(program: &Program, frame: &[u8]) -> Result<f64, QosError> {
    let result = program.test_run(&TestRun {
        frame,
        context: Context::default(),
        repeat: REPEATS,
    })?;
    Ok(result.duration.as_nanos() as f64)
}

/// A packet as the tests send them: from one address of a lab to another, to a port that no policy
/// here names.
fn frame(family: Family, protocol: Protocol) -> Vec<u8> {
    let protocol = match protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp | Protocol::Mptcp => "tcp",
    };
    let flow = match family {
        Family::Ipv4 => "198.18.0.1:40000 > 198.18.0.2:5201",
        Family::Ipv6 => "[2001:2::1]:40000 > [2001:2::2]:5201",
    };
    let packet = format!("{protocol} {flow}").parse::<Packet>();
    packet.expect("they are packets").frame().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_packet_has_a_frame() {
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Mptcp] {
            let transport = if protocol == Protocol::Udp { 8 } else { 20 };
            assert_eq!(frame(Family::Ipv4, protocol).len(), 34 + transport);
            assert_eq!(frame(Family::Ipv6, protocol).len(), 54 + transport);
        }
    }
}
