//! A program in the kernel, and what it does with a packet.

use std::os::fd::{AsFd, AsRawFd};

use linerate_qos::packet::{LinkType, Metadata};
use linerate_qos::program::{self, MapKind, Target};
use linerate_qos::rules::RuleSet;
use linerate_sys::bpf::{
    self, BpfError, Context, LoadRequest, Map, MapRequest, Program, ProgramKind, TestRun,
};
use linerate_testkit::{Need, skip};

use super::listing::listing;

/// A loaded program with its maps.
pub(crate) struct Kernel {
    program: Program,
    counters: Option<Map>,
    /// The program holds them too.
    _maps: Vec<Map>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    pub(crate) rule: Option<u32>,
    pub(crate) dropped: bool,
    /// Empty if it is dropped; so are the others.
    pub(crate) frame: Vec<u8>,
    pub(crate) tci: Option<u16>,
    pub(crate) priority: u32,
}

/// `skb->priority` before the program.
pub(crate) const PRIORITY_BEFORE: u32 = 6;

/// Whether bpf(2) is; a message if not.
pub(crate) fn allowed() -> bool {
    match bpf::probe().programs {
        Ok(()) => true,
        Err(error) => {
            skip(Need::Bpf, format_args!("{error}: needs bpf(2) and CAP_BPF"));
            false
        }
    }
}

impl Kernel {
    pub(crate) fn load(rules: &RuleSet, link: LinkType, slots: u32) -> Self {
        let target = Target { link, slots, verdict: -1, ingress: false };
        let compiled = program::compile_observed(rules, &target).unwrap();
        let maps: Vec<Map> = compiled.maps.iter().map(create).collect();
        let descriptors: Vec<i32> = maps.iter().map(|map| map.as_fd().as_raw_fd()).collect();
        let program = Program::load(&LoadRequest {
            instructions: &compiled.linked(&descriptors),
            name: "qos_test",
            kind: ProgramKind::SchedCls { attach: None },
            license: "Dual MIT/GPL",
        });
        let program = program.unwrap_or_else(|error| {
            panic!("{error}: {}\n{}", listing(&compiled), error.verifier_log().unwrap_or_default())
        });
        let (mut counters, mut others) = (None, Vec::new());
        for (map, spec) in maps.into_iter().zip(&compiled.maps) {
            match spec.name {
                "counters" => counters = Some(map),
                _ => others.push(map),
            }
        }
        Self { program, counters, _maps: others }
    }

    /// Runs it; `None` where a test run does not take such a packet: shorter than its EtherType's
    /// header.
    pub(crate) fn run(&self, frame: &[u8], metadata: &Metadata, now_ns: u64) -> Option<Seen> {
        let context = Context {
            priority: PRIORITY_BEFORE,
            mark: metadata.mark,
            ingress_interface: metadata.incoming,
            wire_length: metadata.wire_length,
            gso_segments: metadata.gso_segments,
            gso_size: metadata.gso_size,
            cb: [0, 0, 0, now_ns as u32, (now_ns >> 32) as u32],
            ..Context::default()
        };
        let result = self.program.test_run(&TestRun { frame, context, repeat: 1 });
        let result = match result {
            Err(error) if is_too_short(frame, &error) => return None,
            result => result.unwrap(),
        };
        let [rule, _, tagged, tci, _] = result.context.cb;
        let rule = rule.checked_sub(1);
        if result.verdict == SHOT {
            return Some(Seen { rule, dropped: true, ..Seen::default() });
        }
        assert_eq!(result.verdict, u32::MAX, "{result:?}");
        Some(Seen {
            rule,
            dropped: false,
            frame: result.frame,
            tci: (tagged != 0).then_some(tci as u16),
            priority: result.context.priority,
        })
    }

    /// The counters of a slot, summed over the CPUs.
    pub(crate) fn counters(&self, slot: u32) -> [u64; 7] {
        let mut sums = [0; 7];
        let Some(map) = &self.counters else {
            return sums;
        };
        let values = map.lookup(&slot.to_ne_bytes()).unwrap().unwrap();
        for of_cpu in values.chunks(56) {
            for (sum, number) in sums.iter_mut().zip(of_cpu.chunks(8)) {
                *sum += u64::from_ne_bytes(number.try_into().unwrap());
            }
        }
        sums
    }
}

fn create(spec: &program::MapSpec) -> Map {
    let map = Map::create(&MapRequest {
        name: spec.name,
        kind: match spec.kind {
            MapKind::Array => bpf::MapKind::Array,
            MapKind::PerCpuArray => bpf::MapKind::PerCpuArray,
            MapKind::LruHash => bpf::MapKind::LruHash,
        },
        key_bytes: spec.key_bytes,
        value_bytes: spec.value_bytes,
        entries: spec.entries,
    });
    let map = map.unwrap();
    map.fill(&spec.content)
        .or_else(|error| if spec.content.is_empty() { Ok(()) } else { Err(error) })
        .unwrap();
    map
}

/// The kernel looks at the IP header of what it makes a packet of.
fn is_too_short(frame: &[u8], error: &BpfError) -> bool {
    let least = match frame.get(12..14) {
        None => 14,
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => return false,
    };
    frame.len() < least && error.errno() == Some(linerate_sys::errno::EINVAL)
}

/// `TC_ACT_SHOT`.
const SHOT: u32 = 2;
