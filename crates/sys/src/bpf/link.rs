//! Programs that run on the packets of an interface by TCX (Linux 6.6).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::call::{Attributes, BpfCommand, bpf, open};
use super::info::LinkInfo;
use super::{BpfError, Program, call};

/// The packets of an interface that a program sees (`enum bpf_attach_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Attach {
    /// Received packets, before the protocols see them.
    TcxIngress = 46,
    /// Packets to be sent, before the queueing discipline.
    TcxEgress = 47,
}

/// The attachment of a program to an interface. The program runs as long as the interface exists
/// and a descriptor or a pin of the link does.
#[derive(Debug)]
pub struct TcxLink {
    fd: OwnedFd,
}

impl TcxLink {
    /// Attaches `program` to the interface with that index in the caller's network namespace. It
    /// runs before the programs already attached, because one of those may end the chain. The
    /// program must have been loaded for this direction.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface, `EINVAL` if the kernel has no TCX or the program was
    /// loaded for the other direction, `EPERM` without `CAP_NET_ADMIN`, `ERANGE` if 64 programs are
    /// attached.
    pub fn attach(program: &Program, interface: u32, place: Attach) -> Result<Self, BpfError> {
        let mut attributes = Attributes::new()
            .u32(0, program.as_fd().as_raw_fd() as u32)
            .u32(4, interface)
            .u32(8, place as u32)
            .u32(12, BEFORE);
        let object = format!("program {} to interface {interface}", program.name());
        // SAFETY: this command takes no buffers.
        let fd = unsafe { open(BpfCommand::LinkCreate, &mut attributes) }
            .map_err(BpfError::new("attach", object))?;
        Ok(Self { fd })
    }

    /// The link that was pinned at `path`.
    ///
    /// # Errors
    /// `ENOENT` if there is none; `EINVAL` if it is something else.
    pub fn from_pin(path: &Path) -> Result<Self, BpfError> {
        let link = Self { fd: call::open_pinned(path)? };
        link.info()?;
        Ok(link)
    }

    /// Replaces the attached program by `new` atomically: each packet meets one of the two. If
    /// `old` is given, only if that is the attached program.
    ///
    /// # Errors
    /// `EPERM` if a program other than `old` is attached, `ENOLINK` if the interface is gone.
    pub fn replace(&self, new: &Program, old: Option<&Program>) -> Result<(), BpfError> {
        let mut attributes = Attributes::new()
            .u32(0, self.fd.as_raw_fd() as u32)
            .u32(4, new.as_fd().as_raw_fd() as u32);
        if let Some(old) = old {
            attributes = attributes.u32(8, REPLACE).u32(12, old.as_fd().as_raw_fd() as u32);
        }
        // SAFETY: this command takes no buffers.
        unsafe { bpf(BpfCommand::LinkUpdate, &mut attributes) }
            .map(drop)
            .map_err(BpfError::new("replace the running program by", new.name()))
    }

    /// Detaches the program at once, even if other processes hold the link; the pin stays.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn detach(&self) -> Result<(), BpfError> {
        let mut attributes = Attributes::new().u32(0, self.fd.as_raw_fd() as u32);
        // SAFETY: this command takes no buffers.
        unsafe { bpf(BpfCommand::LinkDetach, &mut attributes) }
            .map(drop)
            .map_err(BpfError::new("detach", "a link of TCX"))
    }

    /// Pins it in a bpffs under `path`; it then outlives this process.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `ENOENT` if the directory does not exist.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        call::pin(self.fd.as_fd(), path)
    }

    /// The program and interface of the link.
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

/// The ids of the programs attached to an interface of the caller's network namespace, in the order
/// in which they run.
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
    unsafe { bpf(BpfCommand::ProgQuery, &mut attributes) }
        .map_err(BpfError::new("list the programs of", format!("interface {interface}")))?;
    let count = attributes.read_u32(24) as usize;
    let ids = programs.as_chunks().0.iter().take(count);
    Ok(ids.map(|id| u32::from_ne_bytes(*id)).collect())
}

/// `BPF_F_BEFORE`; because no other program is named, this means before all of them.
const BEFORE: u32 = 8;
/// `BPF_F_REPLACE`.
const REPLACE: u32 = 4;
/// `BPF_MPROG_MAX`.
const MAX_PROGRAMS: usize = 64;
