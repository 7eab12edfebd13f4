//! The ring buffer of an event.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::Mapping;

/// A page with the positions of kernel and process (`struct perf_event_mmap_page`), followed by the
/// ring buffer.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Mapping,
    page: usize,
    /// Bytes of the ring buffer, a power of two.
    bytes: usize,
    /// Lets only one thread read at a time.
    reading: Mutex<()>,
}

/// Offsets in the page of the kernel's position, `data_head`, and the reader's, `data_tail`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl Ring {
    /// Maps a ring buffer of at least `bytes` for an event.
    pub(super) fn map(event: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let bytes = bytes.clamp(page, LARGEST).next_power_of_two();
        Ok(Self {
            memory: Mapping::shared(event.as_fd(), page + bytes)?,
            page,
            bytes,
            reading: Mutex::new(()),
        })
    }

    /// Appends the new records to `bytes` and frees their space for the kernel.
    pub(super) fn drain(&self, out: &mut Vec<u8>) -> bool {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let head = self.place(HEAD).load(Ordering::Acquire);
        let tail = self.place(TAIL).load(Ordering::Relaxed);
        let new = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX);
        if new == 0 {
            return false;
        }
        // The kernel never overwrites unread records; a larger difference means that the page is
        // corrupt.
        let new = new.min(self.bytes);
        let from = (tail % self.bytes as u64) as usize;
        let first = new.min(self.bytes - from);
        out.extend_from_slice(self.part(from, first));
        out.extend_from_slice(self.part(0, new - first));
        self.place(TAIL).store(head, Ordering::Release);
        true
    }

    fn place(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both places are aligned words in the first page; kernel and process access them
        // atomically.
        unsafe { AtomicU64::from_ptr(self.memory.start().add(offset).cast()) }
    }

    /// A range of the ring buffer that the kernel has written and does not touch before the tail
    /// moves. The caller must hold the lock.
    fn part(&self, from: usize, length: usize) -> &[u8] {
        assert!(from + length <= self.bytes);
        // SAFETY: the range was just checked to lie within the ring, which begins behind the first
        // page; the kernel does not write there before the tail has passed it, which the caller
        // moves after the last use.
        unsafe { std::slice::from_raw_parts(self.memory.start().add(self.page + from), length) }
    }
}

/// Maximum size of the ring buffer, bytes.
const LARGEST: usize = 64 << 20;
