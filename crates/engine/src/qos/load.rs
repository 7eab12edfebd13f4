//! Loads compiled programs into the kernel.

use std::os::fd::{AsFd, AsRawFd};

use linerate_qos::program::{self, Lifetime, MapSpec};
use linerate_sys::bpf::{BpfError, LoadRequest, Map, MapKind, MapRequest, Program, ProgramKind};

/// A loaded program, and those of its maps that are kept for the next one.
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
    let descriptors: Vec<_> = (maps.iter()).map(|(_, map, _)| map.as_fd().as_raw_fd()).collect();
    let instructions = compiled.linked(&descriptors);
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
    Ok(Loaded { program, maps: lasting })
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
