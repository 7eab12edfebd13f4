//! Programs in the kernel.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use linerate_qos::packet::LinkType;
use linerate_qos::program::{self, MapKind, MapSpec, Target};
use linerate_qos::rules::RuleSet;
use linerate_sys::bpf::{self, BpfError, LoadRequest, Map, MapRequest, Program, ProgramKind};

/// A loaded program, and what it took.
pub(crate) struct Loaded {
    pub(crate) program: Program,
    pub(crate) instructions: usize,
    pub(crate) compiling: Duration,
    pub(crate) loading: Duration,
    _maps: Vec<Map>,
}

/// Where the headers of [`Loaded::on_headers`] begin in their map; before them is which is next.
const HEADERS_AT: u32 = 64;
const HEADERS: usize = 4096;
const HEADER_ROOM: usize = 64;

impl Loaded {
    /// The rules' program; with headers it goes through them, one for each run.
    pub(crate) fn new(
        rules: &RuleSet,
        attach: Option<bpf::Attach>,
        headers: Option<&[[u8; 40]]>,
    ) -> anyhow::Result<Self> {
        let target = Target {
            link: LinkType::Ethernet,
            slots: (rules.filters.len() + rules.actions.len()) as u32,
            verdict: -1,
            ingress: false,
        };
        let begun = Instant::now();
        let compiled = program::compile(rules, &target)?;
        let compiling = begun.elapsed();
        let mut maps = compiled.maps.iter().map(create).collect::<Result<Vec<_>, _>>()?;
        let descriptors: Vec<i32> = maps.iter().map(|map| map.as_fd().as_raw_fd()).collect();
        let mut instructions = Vec::new();
        if let Some(headers) = headers {
            let map = headers_map(headers)?;
            instructions = next_header(map.as_fd().as_raw_fd());
            maps.push(map);
        }
        instructions.extend(compiled.linked(&descriptors));
        let program = Program::load(&LoadRequest {
            instructions: &instructions,
            name: "qos_bench",
            kind: ProgramKind::SchedCls { attach },
            license: "Dual MIT/GPL",
        })?;
        Ok(Self {
            program,
            instructions: compiled.instructions.len(),
            compiling,
            loading: begun.elapsed() - compiling,
            _maps: maps,
        })
    }
}

fn create(spec: &MapSpec) -> Result<Map, BpfError> {
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
    })?;
    if !spec.content.is_empty() {
        map.fill(&spec.content)?;
    }
    Ok(map)
}

fn headers_map(headers: &[[u8; 40]]) -> Result<Map, BpfError> {
    let mut content = vec![0; HEADERS_AT as usize + HEADERS * HEADER_ROOM];
    let places = content[HEADERS_AT as usize..].chunks_mut(HEADER_ROOM);
    for (place, header) in places.zip(headers.iter().cycle()) {
        place[..40].copy_from_slice(header);
    }
    let map = Map::create(&MapRequest {
        name: "headers",
        kind: bpf::MapKind::Array,
        key_bytes: 4,
        value_bytes: content.len() as u32,
        entries: 1,
    })?;
    map.fill(&content)?;
    Ok(map)
}

/// Instructions before a program that put the next header into the packet, so that what the
/// processor foresees is no better than with real packets.
fn next_header(map: i32) -> Vec<[u8; 8]> {
    let instruction = |code: u8, registers: u8, offset: i16, number: i32| {
        let [o, p] = offset.to_ne_bytes();
        let [a, b, c, d] = number.to_ne_bytes();
        [code, registers, o, p, a, b, c, d]
    };
    let mut code = vec![
        // r7 = data; r0 = r7 + 54; r8 = data_end; if r0 > r8 exit
        instruction(0x61, 0x17, 76, 0),
        instruction(0x61, 0x18, 80, 0),
        instruction(0xbf, 0x70, 0, 0),
        instruction(0x07, 0x00, 0, 54),
        instruction(0xbd, 0x80, 2, 0),
        instruction(0xb7, 0x00, 0, 0),
        instruction(0x95, 0x00, 0, 0),
        // r2 = the map's value; r3 = its count, which goes on
        instruction(0x18, 0x22, 0, map),
        instruction(0x00, 0x00, 0, 0),
        instruction(0x79, 0x23, 0, 0),
        instruction(0xbf, 0x34, 0, 0),
        instruction(0x07, 0x04, 0, 1),
        instruction(0x7b, 0x42, 0, 0),
        // r2 += (r3 & 4095) * 64
        instruction(0x57, 0x03, 0, HEADERS as i32 - 1),
        instruction(0x67, 0x03, 0, HEADER_ROOM.ilog2() as i32),
        instruction(0x0f, 0x32, 0, 0),
    ];
    for at in (0..40).step_by(8) {
        code.push(instruction(0x79, 0x24, HEADERS_AT as i16 + at, 0));
        code.push(instruction(0x7b, 0x47, 14 + at, 0));
    }
    code
}
