//! Programs on the packets of an interface, by TCX (Linux 6.6).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::call::{Attributes, Command, bpf, open};
use super::info::LinkInfo;
use super::{BpfError, Program, pin};

/// Which packets of an interface (`enum bpf_attach_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Attach {
    /// Those that come in, before the protocols see them.
    TcxIngress = 46,
    /// Those that go out, before the queueing discipline.
    TcxEgress = 47,
}

/// A program at an interface. It runs as long as a descriptor or a pin of the link lives, and ends
/// with the interface.
#[derive(Debug)]
pub struct TcxLink {
    fd: OwnedFd,
}

impl TcxLink {
    /// Runs `program` on packets of the interface with that index in the caller's network
    /// namespace, before the programs that are there: one that ends the chain would hide it. It
    /// must have been loaded for this place.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface, `EINVAL` if the kernel has no TCX or the program is
    /// for another place,
    /// `EPERM` without `CAP_NET_ADMIN`, `ERANGE` if 64 programs are there.
    pub fn attach(program: &Program, interface: u32, place: Attach) -> Result<Self, BpfError> {
        let mut attributes = Attributes::new()
            .u32(0, program.as_fd().as_raw_fd() as u32)
            .u32(4, interface)
            .u32(8, place as u32)
            .u32(12, BEFORE);
        let object = format!("program {} to interface {interface}", program.name());
        // SAFETY: there are no buffers in it.
        let fd = unsafe { open(Command::LinkCreate, &mut attributes) }
            .map_err(BpfError::new("attach", object))?;
        Ok(Self { fd })
    }

    /// The link that was pinned at `path`.
    ///
    /// # Errors
    /// `ENOENT` if there is none; `EINVAL` if it is something else.
    pub fn from_pin(path: &Path) -> Result<Self, BpfError> {
        let link = Self {
            fd: pin::open_pinned(path)?,
        };
        link.info()?;
        Ok(link)
    }

    /// Puts `new` in the place of the program that runs: each packet meets the one or the other.
    /// With `old`, only if that is the one that runs.
    ///
    /// # Errors
    /// `EPERM` if another than `old` runs, `ENOLINK` if the interface is gone.
    pub fn replace(&self, new: &Program, old: Option<&Program>) -> Result<(), BpfError> {
        let mut attributes = Attributes::new()
            .u32(0, self.fd.as_raw_fd() as u32)
            .u32(4, new.as_fd().as_raw_fd() as u32);
        if let Some(old) = old {
            attributes = attributes
                .u32(8, REPLACE)
                .u32(12, old.as_fd().as_raw_fd() as u32);
        }
        // SAFETY: there are no buffers in it.
        unsafe { bpf(Command::LinkUpdate, &mut attributes) }
            .map(drop)
            .map_err(BpfError::new("replace the running program by", new.name()))
    }

    /// Ends it now, whoever else holds it; the pin is left.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn detach(&self) -> Result<(), BpfError> {
        let mut attributes = Attributes::new().u32(0, self.fd.as_raw_fd() as u32);
        // SAFETY: there are no buffers in it.
        unsafe { bpf(Command::LinkDetach, &mut attributes) }
            .map(drop)
            .map_err(BpfError::new("detach", "a link of TCX"))
    }

    /// Gives it a name in a bpffs, by which it lives on.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `ENOENT` if the directory does not exist.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        pin::pin(self.fd.as_fd(), path)
    }

    /// Its number, program and interface.
    ///
    /// # Errors
    /// `EINVAL` if it is no link of TCX.
    pub fn info(&self) -> Result<LinkInfo, BpfError> {
        LinkInfo::of(self.fd.as_fd())
    }
}

impl AsFd for TcxLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The ids of the programs at an interface of the caller's network namespace, in the order in which
/// they run.
///
/// # Errors
/// `ENODEV` if there is no such interface, `EINVAL` if the kernel has no TCX, `EPERM` without the
/// privileges.
pub fn query(interface: u32, place: Attach) -> Result<Vec<u32>, BpfError> {
    let mut programs = [0_u8; 4 * MAX_PROGRAMS];
    let mut attributes = Attributes::new()
        .u32(0, interface)
        .u32(4, place as u32)
        .output(16, &mut programs)
        .u32(24, MAX_PROGRAMS as u32);
    // SAFETY: the buffer has room for the number of programs that stands beside it.
    unsafe { bpf(Command::ProgQuery, &mut attributes) }.map_err(BpfError::new(
        "list the programs of",
        format!("interface {interface}"),
    ))?;
    let count = attributes.read_u32(24) as usize;
    let ids = programs.as_chunks().0.iter().take(count);
    Ok(ids.map(|id| u32::from_ne_bytes(*id)).collect())
}

/// `BPF_F_BEFORE`; of no other program: of all.
const BEFORE: u32 = 8;
/// `BPF_F_REPLACE`.
const REPLACE: u32 = 4;
/// `BPF_MPROG_MAX`.
const MAX_PROGRAMS: usize = 64;
