//! Pins: names of objects in a bpffs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::BpfError;
use super::call::{Attributes, BpfCommand, bpf, open};

pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<(), BpfError> {
    let pin = || {
        let name = text(path)?;
        let mut attributes =
            Attributes::new().input(0, name.as_bytes_with_nul()).u32(8, object.as_raw_fd() as u32);
        // SAFETY: the path ends with NUL.
        unsafe { bpf(BpfCommand::ObjPin, &mut attributes) }.map(drop)
    };
    pin().map_err(BpfError::new("pin", path.display()))
}

pub(super) fn open_pinned(path: &Path) -> Result<OwnedFd, BpfError> {
    let open = || {
        let name = text(path)?;
        let mut attributes = Attributes::new().input(0, name.as_bytes_with_nul());
        // SAFETY: the path ends with NUL.
        unsafe { open(BpfCommand::ObjGet, &mut attributes) }
    };
    open().map_err(BpfError::new("open pinned", path.display()))
}

/// Removes a pin, if it exists. The object ends with its last descriptor or pin.
///
/// # Errors
/// What the file system refuses.
pub fn unpin(path: &Path) -> Result<(), BpfError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(BpfError::new("unpin", path.display())(error))
        }
        _ => Ok(()),
    }
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}
