//! The memory that an event's records are written to.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// A page that says how far kernel and process are (`struct perf_event_mmap_page`), and behind it
/// the ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    page: usize,
    /// A power of two.
    bytes: usize,
    /// Only one thread reads at a time.
    reading: Mutex<()>,
}

// SAFETY: the mapping is the ring's own until it is dropped and tied to no thread; what the kernel
// writes is read only below its head, which is loaded with acquire, and only by the thread that
// holds the lock.
unsafe impl Send for Ring {}
// SAFETY: as above; all access of shared references is by atomics and under the lock.
unsafe impl Sync for Ring {}

/// Where in the page the kernel's place stands, and the reader's: `data_head` and `data_tail`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl Ring {
    /// Maps the ring of an event; at least `bytes`.
    pub(super) fn map(event: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let page = page_bytes();
        let bytes = bytes.clamp(page, LARGEST).next_power_of_two();
        // SAFETY: a new mapping at an address of the kernel's choice, of the form that
        // perf_event_open(2) demands.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page + bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            memory: NonNull::new(memory.cast()).expect("no mapping is made at address 0"),
            page,
            bytes,
            reading: Mutex::new(()),
        })
    }

    /// Appends what is new and gives its room back to the kernel.
    pub(super) fn drain(&self, out: &mut Vec<u8>) -> bool {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let head = self.place(HEAD).load(Ordering::Acquire);
        let tail = self.place(TAIL).load(Ordering::Relaxed);
        let new = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX);
        if new == 0 {
            return false;
        }
        // The kernel never overwrites what is not read; more than the ring holds would be a broken
        // page.
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
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(offset).cast()) }
    }

    /// Bytes of the ring that the kernel has written and leaves alone until the tail is moved. Only
    /// with the lock held.
    fn part(&self, from: usize, length: usize) -> &[u8] {
        assert!(from + length <= self.bytes);
        // SAFETY: the range was just checked to lie within the ring, which begins behind the first
        // page; the kernel does not write there before the tail has passed it, which the caller
        // moves after the last use.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.page + from), length) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.page + self.bytes) };
    }
}

/// Largest ring, bytes.
const LARGEST: usize = 64 << 20;

fn page_bytes() -> usize {
    // SAFETY: sysconf takes and returns plain integers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every kernel has pages")
}
