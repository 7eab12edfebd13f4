//! The compiler from rules to eBPF: a linear chain for few rules, bit vectors in tables for many.
//!
//! ```text
//! frame ─▶ network ─▶ chain or tables ─▶ action ─▶ meter, counters, DSCP, VLAN tag, class
//! ```
//!
//! The code is specific to its rules: a field that no rule tests is not read, and a family without
//! rules continues at once. The same rules give the same program.

mod action;
mod assembler;
mod chain;
mod frame;
mod generator;
mod meter;
mod network;
mod tables;

use generator::Generator;
use tables::Tables;

use crate::packet::LinkType;
use crate::policy::Family;
use crate::rules::{MAX_RULES, RuleError, RuleSet};

/// The program for one adapter.
///
/// # Errors
/// [`RuleError`], if the rules are more than a program can hold, or ask for what the link does
/// not have.
pub fn compile(rules: &RuleSet, target: &Target) -> Result<Program, RuleError> {
    generate(rules, target, false)
}

/// The same program for tests: it also reports in `cb` what it did (the number of the rule from 1,
/// and for the VLAN tag beside the bytes whether there is one, its TCI, and its EtherType in
/// network order), and takes the time of its meters from there (nanoseconds, the lower half in
/// `cb[3]`).
///
/// # Errors
/// As for [`compile`].
pub fn compile_observed(rules: &RuleSet, target: &Target) -> Result<Program, RuleError> {
    generate(rules, target, true)
}

fn generate(rules: &RuleSet, target: &Target, observed: bool) -> Result<Program, RuleError> {
    for family in Family::ALL {
        let rules = rules.family(family).len();
        if rules > MAX_RULES {
            let most = MAX_RULES;
            return Err(RuleError::TooManyRules { rules, most });
        }
    }
    let with_tag = (rules.actions.iter()).find(|action| action.vlan_priority.is_some());
    if let (LinkType::RawIp, Some(action)) = (target.link, with_tag) {
        let policy = action.policy.clone();
        return Err(RuleError::NoVlan { policy });
    }
    let tables = Tables::new(rules)?;
    Ok(Generator::new(rules, target, tables, observed).program())
}

// The target and the output.

/// Where the program will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Beginning of the interface's frames.
    pub link: LinkType,
    /// Number of slots in the counters' map; more than every slot of the rules.
    pub slots: u32,
    /// Return value for packets that continue: −1, which is `TCX_NEXT` at TCX and `TC_ACT_UNSPEC`
    /// at clsact.
    pub verdict: i32,
    /// Whether packets arrive there; then a checksum computed by the device must follow changes.
    pub ingress: bool,
}

/// A program with its maps, not yet loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The instructions in the kernel's format (`struct bpf_insn`, native byte order).
    pub instructions: Vec<[u8; 8]>,
    /// Its maps, to be created or found before it is loaded.
    pub maps: Vec<MapSpec>,
    /// Which instructions load a map's address.
    pub references: Vec<Reference>,
}

/// A map of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapSpec {
    /// Its name, at most 15 bytes.
    pub name: &'static str,
    /// Its kind.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Number of entries.
    pub entries: u32,
    /// Whether it is kept when the program is replaced.
    pub lifetime: Lifetime,
    /// Its first values without gaps (arrays only); the rest is zero.
    pub content: Vec<u8>,
}

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// An array shared by all CPUs.
    Array,
    /// An array for each CPU.
    PerCpuArray,
    /// A hash that evicts the least recently used entry.
    LruHash,
}

/// How long a map lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as its program: tables of rules.
    Program,
    /// Across replacements of the program: counters, meters, fragments. It is found by its name;
    /// its key and value sizes never change.
    Adapter,
}

/// An instruction (the first of a pair) that loads a map or an address inside the value of a map
/// with one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// Which instruction.
    pub instruction: usize,
    /// Which map of [`Program::maps`].
    pub map: usize,
    /// `BPF_PSEUDO_MAP_VALUE` with this offset, instead of the map itself.
    pub value_offset: Option<u32>,
}

impl Program {
    /// The instructions with the maps' descriptors filled in, as bpf(2) takes them. `descriptors`
    /// are those of [`Program::maps`], in order.
    ///
    /// # Panics
    /// If there are fewer descriptors than maps.
    pub fn linked(&self, descriptors: &[i32]) -> Vec<[u8; 8]> {
        let mut instructions = self.instructions.clone();
        for reference in &self.references {
            let descriptor = descriptors[reference.map].to_ne_bytes();
            instructions[reference.instruction][4..].copy_from_slice(&descriptor);
        }
        instructions
    }
}
