//! Directories of this user alone, in which processes leave what later ones are to find.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Makes the directory if need be, and makes sure that it is this user's and closed to others.
///
/// # Errors
/// In words: it cannot be made, or is another's or open to others.
pub(crate) fn make(path: &Path, user: u32) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let hint = "set XDG_RUNTIME_DIR to a directory of this user's";
            return Err(format!("cannot make it: {error}; {hint}"));
        }
        _ => {}
    }
    is_own(path, user)
}

/// Whether the directory is this user's and closed to others.
///
/// # Errors
/// In words: it is not, or is not there.
pub(crate) fn is_own(path: &Path, user: u32) -> Result<(), String> {
    // Not through a link: in /tmp anybody may have put one there.
    let metadata = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 {
        let hint = "it is to be this user's own directory with mode 0700; remove or mend it";
        return Err(hint.to_owned());
    }
    Ok(())
}
