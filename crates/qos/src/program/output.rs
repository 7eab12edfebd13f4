//! The compiler's target and output.

use crate::packet::LinkType;

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
