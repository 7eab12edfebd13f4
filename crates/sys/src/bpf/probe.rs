//! What this kernel supports and this process is allowed to do.

use super::{Attach, BpfError, LoadRequest, Program, ProgramKind, query};

/// The support for eBPF programs on packets.
#[derive(Debug)]
pub struct Support {
    /// Whether programs on packets can be loaded, or the error: `EPERM` without the privileges,
    /// `ENOSYS` without bpf(2).
    pub programs: Result<(), BpfError>,
    /// Whether interfaces run programs by TCX (Linux 6.6); `None` if that could not be found out.
    pub tcx: Option<bool>,
}

impl Support {
    /// Whether a program can be loaded, and attached by TCX.
    pub fn is_whole(&self) -> bool {
        self.programs.is_ok() && self.tcx == Some(true)
    }
}

/// Finds out by loading a program that does nothing and by listing the programs of the loopback
/// interface. Nothing is changed.
pub fn probe() -> Support {
    // r0 = 0; exit
    let instructions = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let programs = Program::load(&LoadRequest {
        instructions: &instructions,
        name: "probe",
        kind: ProgramKind::SchedCls { attach: None },
        license: "GPL",
    });
    Support { programs: programs.map(drop), tcx: tcx() }
}

/// Index of the loopback interface, which is the first of each network namespace.
fn tcx() -> Option<bool> {
    match query(1, Attach::TcxEgress) {
        Ok(_) => Some(true),
        // A kernel without TCX does not know this attach type.
        Err(error) if error.errno() == Some(libc::EINVAL) => Some(false),
        Err(_) => None,
    }
}
