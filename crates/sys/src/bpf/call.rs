//! The system call bpf(2) and its argument `union bpf_attr`, its errors, and the file system of
//! pinned objects.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use crate::CallError;
use crate::message::u32_at;

/// A `union bpf_attr`, filled by offset; all other bytes are zero. It borrows the buffers whose
/// addresses it holds.
#[repr(C, align(8))]
pub(super) struct Attributes<'a> {
    bytes: [u8; LARGEST],
    buffers: PhantomData<&'a mut [u8]>,
}

/// The commands of bpf(2) that are used (`enum bpf_cmd`), each with the number of bytes of the
/// union that it takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum BpfCommand {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    ProgLoad = 5,
    ObjPin = 6,
    ObjGet = 7,
    ProgTestRun = 10,
    ObjInfo = 15,
    ProgQuery = 16,
    LinkCreate = 28,
    LinkUpdate = 29,
    LinkDetach = 34,
}

impl BpfCommand {
    fn size(self) -> usize {
        match self {
            Self::MapCreate => 72,
            Self::MapLookup | Self::MapUpdate => 32,
            Self::ProgLoad => 148,
            Self::ObjPin | Self::ObjGet | Self::ObjInfo | Self::LinkUpdate => 16,
            Self::ProgTestRun => 80,
            Self::LinkDetach => 4,
            Self::ProgQuery | Self::LinkCreate => 64,
        }
    }
}

impl<'a> Attributes<'a> {
    pub(super) fn new() -> Self {
        Self { bytes: [0; LARGEST], buffers: PhantomData }
    }

    pub(super) fn u32(mut self, offset: usize, value: u32) -> Self {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, offset: usize, value: u64) -> Self {
        self.bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// The address of a buffer that the kernel reads.
    pub(super) fn input(self, offset: usize, buffer: &'a [u8]) -> Self {
        self.u64(offset, buffer.as_ptr() as u64)
    }

    /// The address of a buffer that the kernel writes.
    pub(super) fn output(self, offset: usize, buffer: &'a mut [u8]) -> Self {
        self.u64(offset, buffer.as_mut_ptr() as u64)
    }

    pub(super) fn bytes(mut self, offset: usize, value: &[u8]) -> Self {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
        self
    }

    pub(super) fn read_u32(&self, offset: usize) -> u32 {
        u32_at(&self.bytes, offset).expect("the field is within the union")
    }
}

/// bpf(2).
///
/// # Safety
/// Each buffer that was put in must be as long as the command takes it to be: by a length that
/// stands in the union too, or by the sizes of the map's keys and values.
pub(super) unsafe fn bpf(
    command: BpfCommand,
    attributes: &mut Attributes<'_>,
) -> io::Result<libc::c_int> {
    // SAFETY: the union is at least as long as said and lives through the call; its buffers are
    // borrowed by it, and their lengths are the caller's promise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            attributes.bytes.as_mut_ptr(),
            command.size(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as libc::c_int)
}

/// bpf(2) with a command that makes a descriptor.
///
/// # Safety
/// As for [`bpf`], and the command must be one of those.
pub(super) unsafe fn open(
    command: BpfCommand,
    attributes: &mut Attributes<'_>,
) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attributes)? };
    // SAFETY: the kernel has just made the descriptor (close-on-exec, as all of bpf(2)), and it is
    // nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// At most 15 bytes of letters, digits, `_` and `.`, as the kernel takes names of objects.
pub(super) fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let allowed = |b: u8| {
        if b.is_ascii_alphanumeric() || b == b'.' { b } else { b'_' }
    };
    for (byte, letter) in bytes[..15].iter_mut().zip(name.bytes()) {
        *byte = allowed(letter);
    }
    bytes
}

const LARGEST: usize = 160;

// Errors of bpf(2).

/// An operation on an eBPF object that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel refused a call.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The verifier rejects the program.
    #[error("the kernel's verifier refuses program {name}")]
    Verifier {
        /// The program's name.
        name: String,
        /// The verifier's log, or its end if it is long.
        log: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl BpfError {
    pub(super) fn new(
        operation: &'static str,
        object: impl std::fmt::Display,
    ) -> impl FnOnce(io::Error) -> Self {
        let operation = format!("{operation} {object}");
        move |source| CallError::new(operation, source).into()
    }

    /// The kernel's error number, such as `libc::EPERM`.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call(error) => error.errno(),
            Self::Verifier { source, .. } => source.raw_os_error(),
        }
    }

    /// The verifier's log, if the verifier rejected a program.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Verifier { log, .. } => Some(log),
            Self::Call(_) => None,
        }
    }
}

// Pins: names of objects in a bpffs.

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

// The file system for pinned objects (bpffs).

/// The directory at which distributions mount a bpffs.
pub const BPFFS: &str = "/sys/fs/bpf";

/// The first bpffs of the caller's mount namespace. If there is none, one is mounted at [`BPFFS`].
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` if the kernel has no bpffs, `ENOENT` if `/sys` lacks
/// the directory.
pub fn mount() -> Result<PathBuf, BpfError> {
    let read = || fs::read_to_string(MOUNTS).map_err(BpfError::new("read", MOUNTS));
    if let Some(mounted) = find(&read()?) {
        return Ok(mounted);
    }
    // Only one process mounts at a time: a second mount would hide the first with its pins.
    let turn = File::open(BPFFS).map_err(BpfError::new("open", BPFFS))?;
    turn.lock().map_err(BpfError::new("lock", BPFFS))?;
    if let Some(mounted) = find(&read()?) {
        return Ok(mounted);
    }
    mount_at(Path::new(BPFFS))?;
    Ok(PathBuf::from(BPFFS))
}

/// Mounts a bpffs over a directory.
pub(super) fn mount_at(directory: &Path) -> Result<(), BpfError> {
    let error = BpfError::new("mount a bpffs at", directory.display().to_string());
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // The default mode is 1777 (`bpf_init_fs_context`, kernel/bpf/inode.c): any user could create
    // the directory into which root then pins.
    rustix::mount::mount("bpf", directory, "bpf", flags, c"mode=0700")
        .map_err(|errno| error(errno.into()))
}

/// The directory of a bpffs in `/proc/thread-self/mounts`: [`BPFFS`] if it is one, else the first.
fn find(table: &str) -> Option<PathBuf> {
    let mounted: Vec<&str> = table
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (directory, kind) = (words.next()?, words.next()?);
            (kind == "bpf").then_some(directory)
        })
        .collect();
    let usual = mounted.iter().find(|directory| **directory == BPFFS);
    usual.or(mounted.first()).map(PathBuf::from)
}

/// The file of the thread, which may be in another mount namespace than its process.
const MOUNTS: &str = "/proc/thread-self/mounts";

#[cfg(test)]
mod tests {
    use linerate_testkit::{Need, made_or_skip};

    use super::*;
    use crate::netns::private_mounts;

    #[test]
    fn a_mounted_bpffs_is_closed_to_other_users() {
        use std::os::unix::fs::PermissionsExt;

        let directory = std::env::temp_dir().join(format!("linerate-bpffs-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        // In mounts of this thread's own, which end with it.
        let mounted = std::thread::scope(|scope| {
            let mount = || {
                private_mounts().map_err(|error| error.to_string())?;
                mount_at(&directory).map_err(|error| error.to_string())?;
                Ok::<_, String>(fs::metadata(&directory).unwrap().permissions().mode())
            };
            scope.spawn(mount).join().unwrap()
        });
        fs::remove_dir(&directory).unwrap();
        if let Some(mode) = made_or_skip(Need::Bpf, mounted) {
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn the_usual_mount_point_is_preferred() {
        let table = "proc /proc proc rw 0 0\nbpf /run/other bpf rw 0 0\nnone /sys/fs/bpf bpf \
            rw,nosuid 0 0\n";
        assert_eq!(find(table), Some(PathBuf::from("/sys/fs/bpf")));
        assert_eq!(find("bpf /run/x bpf rw 0 0\n"), Some(PathBuf::from("/run/x")));
        assert_eq!(find("sysfs /sys sysfs rw 0 0\nbpf\n"), None);
    }
}
