//! Opening a file that somebody may have put a link in the place of.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file by its last name and never through a symbolic link of that name.
///
/// # Errors
/// `ELOOP` if it is a link; those of open(2).
pub fn open_no_follow(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(libc::O_NOFOLLOW).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let path = std::env::temp_dir().join(format!("linerate-sys-link-{}", std::process::id()));
        std::os::unix::fs::symlink("/proc/self/status", &path).unwrap();
        let error = open_no_follow(&path, OpenOptions::new().read(true)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        let real = Path::new("/proc/self/status");
        assert!(open_no_follow(real, OpenOptions::new().read(true)).is_ok());
    }
}
