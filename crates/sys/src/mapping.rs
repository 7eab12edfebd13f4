//! Memory from the kernel: of its own pages, or shared with it through a descriptor.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Readable and writable memory that is unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to this value until it is dropped, and to no thread. Who reads or
// writes it through the pointer says why that is sound.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// That many bytes of zeros.
    pub(crate) fn private(length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE) };
        Self::new(start?.cast(), length)
    }

    /// The first bytes of what is behind a descriptor.
    pub(crate) fn shared(descriptor: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { mmap(ptr::null_mut(), length, access, flags, descriptor, 0) };
        Self::new(start?.cast(), length)
    }

    fn new(start: *mut u8, length: usize) -> io::Result<Self> {
        let start = NonNull::new(start).expect("no mapping is made at address 0");
        Ok(Self { start, length })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no borrow of it outlives the value. An error is
        // only one of a wrong address or length.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
