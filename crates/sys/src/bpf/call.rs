//! The system call bpf(2) and its argument, `union bpf_attr`.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::bytes::u32_at;

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
