//! Run time of a policy's program for each packet, by `BPF_PROG_TEST_RUN`.

use linerate_core::treatment::QosPolicy;
use linerate_qos::explain::Packet;
use linerate_qos::packet::LinkType;
use linerate_qos::policy::PolicyFile;
use linerate_qos::rules::{Bindings, RuleSet};
use linerate_sys::bpf::{Context, TestRun};

use super::error::QosError;
use super::names::SystemNames;
use super::prepare::trial;

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
