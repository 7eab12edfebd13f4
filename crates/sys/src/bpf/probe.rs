//! What this kernel has, and this process may.

use super::{Attach, BpfError, LoadRequest, Program, ProgramKind, query};

/// What there is.
#[derive(Debug)]
pub struct Support {
    /// Programs on packets can be loaded; the error if not: `EPERM` without the privileges,
    /// `ENOSYS` without bpf(2).
    pub programs: Result<(), BpfError>,
    /// Interfaces run them by TCX (Linux 6.6); `None` where that could not be told.
    pub tcx: Option<bool>,
}

impl Support {
    /// Whether a program can be loaded, and attached by TCX.
    pub fn is_whole(&self) -> bool {
        self.programs.is_ok() && self.tcx == Some(true)
    }
}

/// Looks by loading a program that does nothing and by asking what runs at the loopback interface;
/// changes nothing.
pub fn probe() -> Support {
    // r0 = 0; exit
    let instructions = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let programs = Program::load(&LoadRequest {
        instructions: &instructions,
        name: "probe",
        kind: ProgramKind::SchedCls { attach: None },
        license: "GPL",
    });
    Support {
        programs: programs.map(drop),
        tcx: tcx(),
    }
}

/// The loopback interface is the first of each namespace.
fn tcx() -> Option<bool> {
    match query(1, Attach::TcxEgress) {
        Ok(_) => Some(true),
        // A kernel without TCX does not know the place.
        Err(error) if error.errno() == Some(libc::EINVAL) => Some(false),
        Err(_) => None,
    }
}
