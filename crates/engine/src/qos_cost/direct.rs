//! What programs take by themselves, by the kernel's own test runs.

use linerate_core::plan::Protocol;
use linerate_core::stats::{MedianInterval, median_interval};
use linerate_core::units::Family;
use linerate_qos::cost::{Cell, DirectCost};
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
/// Payload of the packet; no rule of these policies looks at it.
const PAYLOAD: usize = 64;

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
    let (number, transport) = match protocol {
        Protocol::Udp => (17, udp()),
        Protocol::Tcp | Protocol::Mptcp => (6, tcp()),
    };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match family {
        Family::Ipv4 => {
            frame.extend([0x08, 0x00]);
            frame.extend(ipv4(number, transport.len()));
        }
        Family::Ipv6 => {
            frame.extend([0x86, 0xdd]);
            frame.extend(ipv6(number, transport.len()));
        }
    }
    frame.extend(transport);
    frame
}

fn ipv4(protocol: u8, payload: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
    header.extend([198, 18, 0, 1, 198, 18, 0, 2]);
    // RFC 1071: the one's complement of the one's complement sum.
    let sum: u32 = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    header
}

fn ipv6(next: u8, payload: usize) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload as u16).to_be_bytes());
    header.extend([next, 64]);
    for host in [1, 2] {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&[0x20, 0x01, 0x00, 0x02]);
        address[15] = host;
        header.extend(address);
    }
    header
}

fn tcp() -> Vec<u8> {
    // Ports 40,000 and 5,201; ACK and PSH; the checksum is nobody's here.
    let mut header = vec![
        0x9c, 0x40, 0x14, 0x51, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0x20, 0,
    ];
    header.extend([0; 4 + PAYLOAD]);
    header
}

fn udp() -> Vec<u8> {
    let mut header = vec![0x9c, 0x40, 0x14, 0x51];
    header.extend((8 + PAYLOAD as u16).to_be_bytes());
    header.extend([0; 2 + PAYLOAD]);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packets_are_whole_and_their_header_is_right() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let v4 = frame(Family::Ipv4, protocol);
            assert_eq!(
                usize::from(u16::from_be_bytes([v4[16], v4[17]])),
                v4.len() - 14
            );
            let sum: u32 = v4[14..34]
                .chunks_exact(2)
                .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            let v6 = frame(Family::Ipv6, protocol);
            assert_eq!(
                usize::from(u16::from_be_bytes([v6[18], v6[19]])),
                v6.len() - 54
            );
        }
    }
}
