//! From a compiled program to one that the kernel has taken.

use std::os::fd::{AsFd, AsRawFd};

use linerate_qos::program::{self, Lifetime, MapSpec};
use linerate_sys::bpf::{BpfError, LoadRequest, Map, MapKind, MapRequest, Program, ProgramKind};

/// A program that the kernel has taken, and its maps that are to outlive it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) program: Program,
    /// The maps with [`Lifetime::Adapter`], each with whether it was made for this program.
    pub(crate) maps: Vec<(String, Map, bool)>,
}

/// Makes the maps, or takes those that `kept` finds, and loads the program.
///
/// # Errors
/// What the kernel refuses; [`BpfError::verifier_log`] has the verifier's words.
pub(crate) fn load(
    compiled: &program::Program,
    kind: ProgramKind,
    mut kept: impl FnMut(&MapSpec) -> Option<Map>,
) -> Result<Loaded, BpfError> {
    let mut maps = Vec::with_capacity(compiled.maps.len());
    for spec in &compiled.maps {
        let old = match spec.lifetime {
            Lifetime::Adapter => kept(spec).filter(|map| fits(map, spec)),
            Lifetime::Program => None,
        };
        let is_new = old.is_none();
        let map = match old {
            Some(map) => map,
            None => make(spec)?,
        };
        maps.push((spec, map, is_new));
    }
    let mut instructions = compiled.instructions.clone();
    for reference in &compiled.references {
        let descriptor = maps[reference.map].1.as_fd().as_raw_fd();
        let first = &mut instructions[reference.instruction];
        let pseudo = match reference.value_offset {
            Some(_) => BPF_PSEUDO_MAP_VALUE,
            None => BPF_PSEUDO_MAP_FD,
        };
        first[1] = with_source(first[1], pseudo);
        first[4..].copy_from_slice(&descriptor.to_ne_bytes());
        let offset = reference.value_offset.unwrap_or(0);
        instructions[reference.instruction + 1][4..].copy_from_slice(&offset.to_ne_bytes());
    }
    let program = Program::load(&LoadRequest {
        instructions: &instructions,
        name: "linerate_qos",
        kind,
        license: "Dual MIT/GPL",
    })?;
    let lasting = maps
        .into_iter()
        .filter(|(spec, ..)| spec.lifetime == Lifetime::Adapter)
        .map(|(spec, map, is_new)| (spec.name.to_owned(), map, is_new))
        .collect();
    Ok(Loaded {
        program,
        maps: lasting,
    })
}

fn make(spec: &MapSpec) -> Result<Map, BpfError> {
    let map = Map::create(&MapRequest {
        name: spec.name,
        kind: kind_of(spec.kind),
        key_bytes: spec.key_bytes,
        value_bytes: spec.value_bytes,
        entries: spec.entries,
    })?;
    if !spec.content.is_empty() {
        map.fill(&spec.content)?;
    }
    Ok(map)
}

fn fits(map: &Map, spec: &MapSpec) -> bool {
    let info = map.info();
    info.kind == kind_of(spec.kind) as u32
        && info.key_bytes == spec.key_bytes
        && info.value_bytes == spec.value_bytes
        && info.entries == spec.entries
}

fn kind_of(kind: program::MapKind) -> MapKind {
    match kind {
        program::MapKind::Array => MapKind::Array,
        program::MapKind::PerCpuArray => MapKind::PerCpuArray,
        program::MapKind::LruHash => MapKind::LruHash,
    }
}

/// The registers of an instruction share a byte: destination and source, as C lays out bit fields.
fn with_source(registers: u8, source: u8) -> u8 {
    match cfg!(target_endian = "little") {
        true => registers & 0x0f | source << 4,
        false => registers & 0xf0 | source,
    }
}

const BPF_PSEUDO_MAP_FD: u8 = 1;
const BPF_PSEUDO_MAP_VALUE: u8 = 2;
