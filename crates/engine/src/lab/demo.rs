//! The demonstration path of `check` without HOST: 100 Mbit/s, 40 ms, and a fault that the check
//! has to find.

use linerate_core::ceilings::Cause;
use linerate_core::lab::Topology;
use linerate_core::link::PathSpec;
use linerate_core::plan::Direction;
use linerate_core::record::{Check, HiddenFault};
use linerate_core::units::Family;

use super::LabOptions;
use super::error::LabError;
use super::path::LabPath;

/// The link spec that all demonstration paths share.
const PATH: &str = "rate=100mbit,rtt=40ms";

/// A fault that can be hidden in the path.
struct DemoFault {
    /// The verdict that finds it.
    cause: Cause,
    /// The direction in which it limits the throughput.
    direction: Direction,
    /// Keys of the path's spec.
    spec: &'static str,
    /// Settings of the hosts: host, key, value.
    settings: &'static [(&'static str, &'static str, &'static str)],
    /// The fault in words.
    words: &'static str,
}

/// Classic faults: a window that suits a LAN, a buffer that suits a LAN, a noisy line, a provider's
/// policer.
const FAULTS: [DemoFault; 4] = [
    DemoFault {
        cause: Cause::ReceiveWindow,
        direction: Direction::Up,
        spec: "",
        settings: &[("server", "net.ipv4.tcp_rmem", "4096 65536 131072")],
        words: "net.ipv4.tcp_rmem of the server ends at 128 KiB",
    },
    DemoFault {
        cause: Cause::SendBuffer,
        direction: Direction::Down,
        spec: "",
        settings: &[("server", "net.ipv4.tcp_wmem", "4096 16384 131072")],
        words: "net.ipv4.tcp_wmem of the server ends at 128 KiB",
    },
    DemoFault {
        cause: Cause::Congestion,
        direction: Direction::Up,
        spec: ",up.loss=0.2%",
        // BBR ignores such loss, and a namespace may only choose CUBIC where the host uses it.
        settings: &[("client", "net.ipv4.tcp_congestion_control", "reno")],
        words: "the line to the server loses one packet in 500",
    },
    DemoFault {
        cause: Cause::Policer,
        direction: Direction::Down,
        spec: ",down.policer=30mbit,down.burst=64KiB",
        settings: &[],
        words: "a policer lets no more than 30 Mbit/s through from the server",
    },
];

/// A path with a hidden fault.
#[derive(Debug)]
pub struct Demo {
    path: LabPath,
    fault: usize,
}

impl Demo {
    /// Makes the path; `seed` chooses the fault.
    ///
    /// # Errors
    /// [`LabError`]; nothing is left behind then.
    pub fn build(seed: u64, family: Option<Family>) -> Result<Self, LabError> {
        // Neighbouring seeds give different faults, and every seed gives one.
        let chosen = (seed % FAULTS.len() as u64) as usize;
        let fault = &FAULTS[chosen];
        let spec: PathSpec =
            format!("{PATH}{}", fault.spec).parse().expect("the specs of this table are tested");
        let options = LabOptions { seed, ..LabOptions::default() };
        let path = LabPath::new(topology(&spec, fault), &spec, family, &options)?;
        Ok(Self { path, fault: chosen })
    }

    /// The path.
    pub fn path(&self) -> &LabPath {
        &self.path
    }

    /// Writes into a check which fault was there and whether its verdict names it.
    pub fn reveal(&self, check: &mut Check) {
        let fault = &FAULTS[self.fault];
        let record = match fault.direction {
            Direction::Down => &check.down,
            Direction::Up | Direction::Both => &check.up,
        };
        let verdict = record.as_ref().and_then(|record| record.verdict());
        check.hidden_fault = Some(HiddenFault {
            direction: fault.direction,
            cause: fault.cause,
            description: fault.words.to_owned(),
            found: verdict.is_some_and(|verdict| verdict.cause == fault.cause),
        });
    }
}

fn topology(spec: &PathSpec, fault: &DemoFault) -> Topology {
    let mut topology = Topology::of_path(spec);
    for node in &mut topology.nodes {
        let own = fault
            .settings
            .iter()
            .filter(|(host, ..)| *host == node.name)
            .map(|(_, key, value)| ((*key).to_owned(), (*value).to_owned()));
        node.sysctls.extend(own);
    }
    topology
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_makes_a_path_and_every_seed_a_fault() {
        for fault in &FAULTS {
            let spec: PathSpec = format!("{PATH}{}", fault.spec).parse().unwrap();
            let topology = topology(&spec, fault);
            for (host, key, value) in fault.settings {
                assert_eq!(topology.node(host).unwrap().sysctls[*key], *value);
            }
        }
    }
}
