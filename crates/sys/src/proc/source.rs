//! Reading a pseudo file, and saying why one could not be read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A pseudo file that could not be read, or did not say what was expected.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// The file could not be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The file has another form than this crate knows.
    #[error("cannot understand {}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The first place that does not fit.
        source: Malformed,
    },
}

/// A text that does not have the form that its parser expects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct Malformed {
    /// What the parser looked for.
    pub expected: &'static str,
    /// What stood there, at most 80 characters of it.
    pub found: String,
}

impl Malformed {
    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        let found = found.chars().take(80).collect();
        Self { expected, found }
    }
}

/// What a probe of the host found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe<T> {
    /// The host has it: its value.
    Supported(T),
    /// The host does not have it: what is missing.
    Unsupported(String),
    /// It may or may not be there: what kept the probe from telling.
    Unknown(String),
}

impl<T> Probe<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Supported(value) => Some(value),
            Self::Unsupported(_) | Self::Unknown(_) => None,
        }
    }

    /// What follows from the value, if there is one.
    pub fn and_then<U>(self, then: impl FnOnce(T) -> Probe<U>) -> Probe<U> {
        match self {
            Self::Supported(value) => then(value),
            Self::Unsupported(why) => Probe::Unsupported(why),
            Self::Unknown(why) => Probe::Unknown(why),
        }
    }
}

/// A file that does not exist, or whose driver has no such operation, is unsupported; one that
/// exists and cannot be read (not permitted, unknown form) leaves the question open.
impl<T> From<Result<T, ProcError>> for Probe<T> {
    fn from(result: Result<T, ProcError>) -> Self {
        match result {
            Ok(value) => Self::Supported(value),
            Err(ProcError::Read { path, source }) => {
                let message = format!("cannot read {}: {source}", path.display());
                match source.raw_os_error() {
                    Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
                        Self::Unsupported(message)
                    }
                    _ => Self::Unknown(message),
                }
            }
            Err(ProcError::Malformed { path, source }) => {
                Self::Unknown(format!("cannot understand {}: {source}", path.display()))
            }
        }
    }
}

/// The path of a file of the calling thread's network namespace.
pub(crate) fn net_path(name: &str) -> PathBuf {
    Path::new("/proc/thread-self/net").join(name)
}

/// The whole file as text; bytes that are not UTF-8 (a CPU's or a device's name) are replaced.
pub(crate) fn read_text(path: impl AsRef<Path>) -> Result<String, ProcError> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| read_error(path, source))?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Reads the file and parses it.
pub(crate) fn read_and_parse<T>(
    path: impl AsRef<Path>,
    parse: impl FnOnce(&str) -> Result<T, Malformed>,
) -> Result<T, ProcError> {
    let path = path.as_ref();
    parse(&read_text(path)?).map_err(|source| malformed_error(path, source))
}

/// Parses one field; `expected` names it in the error.
pub(crate) fn field<T: FromStr>(
    text: Option<&str>,
    expected: &'static str,
) -> Result<T, Malformed> {
    let text = text.unwrap_or("");
    text.trim().parse().map_err(|_| Malformed::new(expected, text))
}

/// A file that is read many times a second: it stays open and its buffer is reused.
#[derive(Debug)]
pub(crate) struct SampledFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl SampledFile {
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self, ProcError> {
        let path = path.into();
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path, buffer: vec![0; 4096] }),
            Err(source) => Err(ProcError::Read { path, source }),
        }
    }

    /// Reads the file from its start and parses it. Allocates only when the file has outgrown the
    /// buffer.
    ///
    /// The pseudo files answer a read at any offset, but only one read is of one moment: the buffer
    /// doubles, and then stays large enough to take the file whole.
    pub(crate) fn read<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, Malformed>,
    ) -> Result<T, ProcError> {
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(length * 2, 0);
            }
            match self.file.read_at(&mut self.buffer[length..], length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(read_error(&self.path, source)),
            }
        }
        std::str::from_utf8(&self.buffer[..length])
            .map_err(|_| Malformed::new("text", "bytes that are not UTF-8"))
            .and_then(parse)
            .map_err(|source| malformed_error(&self.path, source))
    }
}

fn read_error(path: &Path, source: io::Error) -> ProcError {
    ProcError::Read { path: path.to_owned(), source }
}

fn malformed_error(path: &Path, source: Malformed) -> ProcError {
    ProcError::Malformed { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read_failure(code: i32) -> Result<(), ProcError> {
        Err(read_error(Path::new("/proc/some"), io::Error::from_raw_os_error(code)))
    }

    #[test]
    fn probe_tells_missing_from_forbidden() {
        assert!(matches!(Probe::from(read_failure(libc::ENOENT)),
                Probe::Unsupported(why) if why.contains("/proc/some")));
        assert!(matches!(Probe::from(read_failure(libc::EACCES)),
                Probe::Unknown(why) if why.contains("/proc/some")));
        assert_eq!(Probe::from(Ok(3)).value(), Some(&3));
    }

    #[test]
    fn sampled_file_grows_and_sees_changes() {
        let path =
            std::env::temp_dir().join(format!("linerate-sys-sampled-{}", std::process::id()));
        let mut writer = File::create(&path).unwrap();
        let mut sampled = SampledFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();

        assert_eq!(sampled.read(|text| Ok(text.len())).unwrap(), 0);
        writer.write_all(&[b'x'; 10_000]).unwrap();
        assert_eq!(sampled.read(|text| Ok(text.len())).unwrap(), 10_000);
        writer.write_all(b"y").unwrap();
        assert!(sampled.read(|text| Ok(text.ends_with("xy"))).unwrap());
    }

    #[test]
    fn malformed_quotes_at_most_80_characters() {
        assert_eq!(Malformed::new("a number", &"é".repeat(200)).found.chars().count(), 80);
    }
}
