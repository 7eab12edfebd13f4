//! The file system for pinned objects (bpffs).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::BpfError;

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
