//! Programs: code that the verifier has accepted.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::call::{Attributes, BpfCommand, object_name, open};
use super::link::Attach;
use super::{BpfError, info, pin};

/// The code of a program, and how to load it.
#[derive(Debug, Clone, Copy)]
pub struct LoadRequest<'a> {
    /// The instructions (`struct bpf_insn`), which contain the descriptors of maps.
    pub instructions: &'a [[u8; 8]],
    /// Name shown to people; cut off after 15 bytes.
    pub name: &'a str,
    /// The kind of place at which it runs.
    pub kind: ProgramKind,
    /// Licence, on which the allowed helper functions depend: `GPL`, `Dual MIT/GPL`.
    pub license: &'a str,
}

/// The kind of place at which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// On packets of an interface: by TCX, or, without a direction, as a filter of clsact.
    SchedCls {
        /// The direction for TCX.
        attach: Option<Attach>,
    },
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: String,
}

impl Program {
    /// Loads the program.
    ///
    /// # Errors
    /// [`BpfError::Verifier`] with the verifier's log; [`BpfError::Call`], with `EPERM` if
    /// privileges are missing.
    pub fn load(request: &LoadRequest<'_>) -> Result<Self, BpfError> {
        // Loading is several times faster without a log. After a refusal it is repeated with one.
        let source = match load(request, &mut []) {
            Ok(fd) => {
                return Ok(Self { fd, name: request.name.to_owned() });
            }
            Err(source) => source,
        };
        if source.raw_os_error() == Some(libc::EPERM) {
            return Err(BpfError::new("load program", request.name)(source));
        }
        let mut log = vec![0; LOG_LENGTH];
        let again = load(request, &mut log);
        if let Ok(fd) = again {
            // The first attempt failed for a passing reason, such as a lack of memory.
            let name = request.name.to_owned();
            return Ok(Self { fd, name });
        }
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        Err(BpfError::Verifier {
            name: request.name.to_owned(),
            log: String::from_utf8_lossy(&log[..end]).into_owned(),
            source,
        })
    }

    /// The program that was pinned at `path`.
    ///
    /// # Errors
    /// `ENOENT` if there is none.
    pub fn from_pin(path: &Path) -> Result<Self, BpfError> {
        Ok(Self { fd: pin::open_pinned(path)?, name: path.display().to_string() })
    }

    /// Pins it in a bpffs under `path`; it then outlives this process.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `ENOENT` if the directory does not exist.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        pin::pin(self.fd.as_fd(), path)
    }

    /// The kernel's id of the program; [`query`](super::query) lists those of an interface.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn id(&self) -> Result<u32, BpfError> {
        info::program_id(self.fd.as_fd())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `BPF_PROG_LOAD`; with a log if the buffer is not empty.
fn load(request: &LoadRequest<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let license = CString::new(request.license)?;
    let ProgramKind::SchedCls { attach } = request.kind;
    let mut attributes = Attributes::new()
        .u32(0, SCHED_CLS)
        .u32(4, request.instructions.len() as u32)
        .input(8, request.instructions.as_flattened())
        .input(16, license.as_bytes_with_nul())
        .bytes(48, &object_name(request.name))
        .u32(68, attach.map_or(0, |attach| attach as u32));
    if !log.is_empty() {
        attributes = attributes.u32(24, LOG_LEVEL).u32(28, log.len() as u32).output(32, log);
    }
    let mut attempts = 0;
    loop {
        // SAFETY: the number of instructions and the length of the log stand beside them; the
        // licence ends with NUL.
        match unsafe { open(BpfCommand::ProgLoad, &mut attributes) } {
            // A signal ends the verifier's work (`do_check` of kernel/bpf/verifier.c). It has been
            // taken since.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && attempts < ATTEMPTS => {
                attempts += 1;
            }
            result => return result,
        }
    }
}

/// As many as libbpf's (`PROG_LOAD_ATTEMPTS`).
const ATTEMPTS: u32 = 5;
/// `BPF_PROG_TYPE_SCHED_CLS`.
const SCHED_CLS: u32 = 3;
/// Log level 1: only the path that failed.
const LOG_LEVEL: u32 = 1;
/// Bytes for the log. Since Linux 6.4 the kernel keeps the end of a longer one.
const LOG_LENGTH: usize = 64 * 1024;
