//! Maps: the memory of programs, and the tables that they look up.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::call::{Attributes, BpfCommand, bpf, object_name, open};
use super::info::MapInfo;
use super::{BpfError, call};
use crate::proc::cpu;

/// The properties of a map to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapRequest<'a> {
    /// Name shown to people; cut off after 15 bytes.
    pub name: &'a str,
    /// Its kind.
    pub kind: MapKind,
    /// Bytes of a key; arrays have 4.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Maximum number of entries.
    pub entries: u32,
}

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// Array whose values all CPUs share.
    Array = 2,
    /// Array with a value for each CPU.
    PerCpuArray = 6,
    /// Hash table that drops the least recently used entry when it is full.
    LruHash = 9,
}

/// A map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    info: MapInfo,
}

impl Map {
    /// Creates a map; all values are zero.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `E2BIG` or `ENOMEM` if it is too large.
    pub fn create(request: &MapRequest<'_>) -> Result<Self, BpfError> {
        let mut attributes = Attributes::new()
            .u32(0, request.kind as u32)
            .u32(4, request.key_bytes)
            .u32(8, request.value_bytes)
            .u32(12, request.entries)
            .bytes(28, &object_name(request.name));
        // SAFETY: this command takes no buffers.
        let fd = unsafe { open(BpfCommand::MapCreate, &mut attributes) }
            .map_err(BpfError::new("create map", request.name))?;
        Self::from_fd(fd)
    }

    /// The map that was pinned at `path`.
    ///
    /// # Errors
    /// `ENOENT` if there is none; `EINVAL` if another object is pinned there.
    pub fn from_pin(path: &Path) -> Result<Self, BpfError> {
        let fd = call::open_pinned(path)?;
        Self::from_fd(fd)
    }

    fn from_fd(fd: OwnedFd) -> Result<Self, BpfError> {
        let info = MapInfo::of(fd.as_fd())?;
        Ok(Self { fd, info })
    }

    /// Id, kind and sizes of the map.
    pub fn info(&self) -> &MapInfo {
        &self.info
    }

    /// Pins it in a bpffs under `path`; it then outlives this process.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `ENOENT` if the directory does not exist.
    pub fn pin(&self, path: &Path) -> Result<(), BpfError> {
        call::pin(self.fd.as_fd(), path)
    }

    /// The value of a key; `None` if it has none. A per-CPU map gives the values of all possible
    /// CPUs in order, each padded to a multiple of eight bytes.
    ///
    /// # Errors
    /// The key has the wrong length, or the kernel refuses the call.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, BpfError> {
        let error = |source| BpfError::new("read map", &self.info.name)(source);
        self.check_length(key.len(), self.info.key_bytes as usize).map_err(error)?;
        let mut value = vec![0; self.value_length().map_err(error)?];
        let mut attributes = self.attributes().input(8, key).output(16, &mut value);
        // SAFETY: key and value are as long as this map's are, for all CPUs where it has a value
        // for each.
        match unsafe { bpf(BpfCommand::MapLookup, &mut attributes) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(source) => Err(error(source)),
        }
    }

    /// Sets the value of a key; the form of the value is that of [`Map::lookup`].
    ///
    /// # Errors
    /// The key or value has the wrong length; `E2BIG` for an index beyond the array.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), BpfError> {
        self.try_update(key, value).map_err(BpfError::new("write map", &self.info.name))
    }

    fn try_update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check_length(key.len(), self.info.key_bytes as usize)?;
        self.check_length(value.len(), self.value_length()?)?;
        let mut attributes = self.attributes().input(8, key).input(16, value);
        // SAFETY: key and value are as long as this map's are, for all CPUs where it has a value
        // for each.
        unsafe { bpf(BpfCommand::MapUpdate, &mut attributes) }.map(drop)
    }

    /// Overwrites the first values of an array that all CPUs share. `content` is a whole number of
    /// values without gaps; the other values stay. A large table is best stored as one value: it is
    /// copied at once, and the program reads it without a lookup.
    ///
    /// # Errors
    /// `EINVAL` if the content is not a whole number of values, or for another kind of map; `E2BIG`
    /// if the content exceeds the map.
    pub fn fill(&self, content: &[u8]) -> Result<(), BpfError> {
        let error = |source| BpfError::new("fill map", &self.info.name)(source);
        let length = self.info.value_bytes as usize;
        if self.info.kind != MapKind::Array as u32 || !content.len().is_multiple_of(length) {
            return Err(error(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        for (key, value) in (0u32..).zip(content.chunks(length)) {
            self.try_update(&key.to_ne_bytes(), value).map_err(error)?;
        }
        Ok(())
    }

    fn attributes<'a>(&self) -> Attributes<'a> {
        Attributes::new().u32(0, self.fd.as_raw_fd() as u32)
    }

    fn check_length(&self, length: usize, expected: usize) -> io::Result<()> {
        if length == expected {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }

    fn value_length(&self) -> io::Result<usize> {
        let length = self.info.value_bytes as usize;
        if self.info.kind != MapKind::PerCpuArray as u32 {
            return Ok(length);
        }
        Ok(length.next_multiple_of(8) * possible_cpus()?)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Upper bound of the number of values that a key of a per-CPU map has. Buffers are sized by it, so
/// gaps between the numbers of possible CPUs count too.
pub(super) fn possible_cpus() -> io::Result<usize> {
    let cpus = cpu::possible().map_err(io::Error::other)?;
    Ok(cpus.last().map_or(1, |last| *last as usize + 1))
}
