//! The ring buffer of an event, and the records in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::message::{u32_at, u64_at};
use crate::splice::Mapping;

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

// The records that the kernel writes: `perf_event_type` of include/uapi/linux/perf_event.h.

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// This many records were lost because the ring buffer was full.
    Lost(u64),
    /// The kernel takes fewer samples from here on, because sampling took too long.
    Throttle,
    /// The kernel takes the requested number of samples again.
    Unthrottle,
    /// A record of another type.
    Other(u32),
}

/// The code that a CPU was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Process id in the PID namespace of the process that opened the event; 0 for the idle task.
    pub process: u32,
    /// Thread id.
    pub thread: u32,
    /// Number of the CPU.
    pub cpu: u32,
    /// Words of eight bytes: addresses and context markers.
    words: &'a [u8],
}

/// A call chain: addresses, from the innermost function to the outermost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Chain {
    /// In the kernel.
    pub kernel: Vec<u64>,
    /// In user mode.
    pub user: Vec<u64>,
}

impl Sample<'_> {
    /// The call chain, split at its context markers. The parts of virtual machines are left out.
    pub fn chain(&self) -> Chain {
        let mut chain = Chain::default();
        self.chain_into(&mut chain);
        chain
    }

    /// As [`Sample::chain`], into an existing buffer.
    pub fn chain_into(&self, chain: &mut Chain) {
        chain.kernel.clear();
        chain.user.clear();
        let mut part = None;
        for word in self.words.chunks_exact(8) {
            let address = u64_at(word, 0).expect("each piece has eight bytes");
            match address {
                CONTEXT_KERNEL => part = Some(&mut chain.kernel),
                CONTEXT_USER => part = Some(&mut chain.user),
                // PERF_CONTEXT_MAX: the kernel's marks are its last 4095 addresses, which hold no
                // code.
                FIRST_MARK.. => part = None,
                _ => part.iter_mut().for_each(|part| part.push(address)),
            }
        }
    }
}

/// `PERF_CONTEXT_KERNEL`, `PERF_CONTEXT_USER` and `PERF_CONTEXT_MAX`.
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;
const FIRST_MARK: u64 = -4095_i64 as u64;

/// The records in bytes from [`Sampler::drain`](super::Sampler::drain), up to the first that is
/// incomplete or has an impossible length.
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { bytes }
}

/// See [`records`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
}

/// `PERF_RECORD_LOST`, `_THROTTLE`, `_UNTHROTTLE`, `_SAMPLE`, `_LOST_SAMPLES`.
const LOST: u32 = 2;
const THROTTLE: u32 = 5;
const UNTHROTTLE: u32 = 6;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
/// Type, miscellaneous bits, length.
pub(super) const HEADER: usize = 8;

/// Length of the first record in these bytes; `None` if it is impossible.
pub(super) fn length(header: &[u8]) -> Option<usize> {
    let length = header.get(6..8)?;
    let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
    (length >= HEADER).then_some(length)
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let whole = length(self.bytes).filter(|length| *length <= self.bytes.len());
        let Some(length) = whole else {
            self.bytes = &[];
            return None;
        };
        let (record, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        let kind = u32_at(record, 0)?;
        Some(parse(kind, &record[HEADER..]).unwrap_or(Record::Other(kind)))
    }
}

/// `None` if the body is too short for its type.
fn parse(kind: u32, body: &[u8]) -> Option<Record<'_>> {
    Some(match kind {
        SAMPLE => {
            let count = usize::try_from(u64_at(body, 16)?).ok()?;
            let end = count.checked_mul(8)?.checked_add(24)?;
            Record::Sample(Sample {
                process: u32_at(body, 0)?,
                thread: u32_at(body, 4)?,
                cpu: u32_at(body, 8)?,
                words: body.get(24..end)?,
            })
        }
        // The id of the event comes first.
        LOST => Record::Lost(u64_at(body, 8)?),
        LOST_SAMPLES => Record::Lost(u64_at(body, 0)?),
        THROTTLE => Record::Throttle,
        UNTHROTTLE => Record::Unthrottle,
        other => Record::Other(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(HEADER + body.len()).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(length.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    /// The kernel's order (`perf_output_sample` of kernel/events/core.c) is thread,
    /// CPU, chain.
    fn sample(process: u32, thread: u32, cpu: u32, chain: &[u64]) -> Vec<u8> {
        let mut body = Vec::new();
        for word in [process, thread, cpu, 0] {
            body.extend(word.to_ne_bytes());
        }
        body.extend((chain.len() as u64).to_ne_bytes());
        chain.iter().for_each(|word| body.extend(word.to_ne_bytes()));
        record(SAMPLE, &body)
    }

    #[test]
    fn the_order_of_a_sample_is_thread_cpu_chain() {
        let bytes = sample(7, 8, 3, &[CONTEXT_KERNEL, 0xffff_ffff_8100_0001, CONTEXT_USER, 0x4000]);
        let all: Vec<Record> = records(&bytes).collect();
        let [Record::Sample(sample)] = all[..] else { panic!("{all:?}") };
        assert_eq!((sample.process, sample.thread, sample.cpu), (7, 8, 3));
        let chain = sample.chain();
        assert_eq!(chain.kernel, [0xffff_ffff_8100_0001]);
        assert_eq!(chain.user, [0x4000]);
    }

    #[test]
    fn a_guests_part_of_a_chain_is_left_out() {
        // PERF_CONTEXT_GUEST_KERNEL is -2176.
        let bytes =
            sample(1, 1, 0, &[0x99, CONTEXT_USER, 0x1, -2176_i64 as u64, 0x2, CONTEXT_KERNEL, 0x3]);
        let Some(Record::Sample(sample)) = records(&bytes).next() else {
            panic!("a sample was written")
        };
        assert_eq!(sample.chain(), Chain { kernel: vec![3], user: vec![1] });
    }

    #[test]
    fn losses_and_throttling_are_told() {
        let mut body = 5_u64.to_ne_bytes().to_vec();
        body.extend(42_u64.to_ne_bytes());
        let mut bytes = record(LOST, &body);
        bytes.extend(record(LOST_SAMPLES, &3_u64.to_ne_bytes()));
        bytes.extend(record(THROTTLE, &[0; 24]));
        bytes.extend(record(UNTHROTTLE, &[0; 24]));
        bytes.extend(record(1, &[0; 8]));
        let all: Vec<Record> = records(&bytes).collect();
        assert_eq!(
            all,
            [
                Record::Lost(42),
                Record::Lost(3),
                Record::Throttle,
                Record::Unthrottle,
                Record::Other(1)
            ]
        );
    }

    /// xorshift64*, so that the crate needs no generator for its tests.
    fn noise(state: &mut u64) -> u64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    #[test]
    fn any_bytes_are_read_to_an_end_and_give_no_more_than_they_hold() {
        let mut state = 0x1234_5678_9abc_def1;
        for _ in 0..20_000 {
            let length = noise(&mut state) as usize % 300;
            let mut bytes: Vec<u8> = (0..length).map(|_| noise(&mut state) as u8).collect();
            if noise(&mut state).is_multiple_of(2) && length >= 8 {
                bytes[..4].copy_from_slice(&SAMPLE.to_ne_bytes());
                bytes[6..8].copy_from_slice(&(length as u16).to_ne_bytes());
            }
            let mut words = 0;
            for record in records(&bytes) {
                if let Record::Sample(sample) = record {
                    let chain = sample.chain();
                    words += chain.kernel.len() + chain.user.len();
                }
            }
            assert!(words <= length / 8);
        }
    }

    #[test]
    fn records_cut_anywhere_give_the_whole_ones_before() {
        let mut bytes = sample(1, 2, 3, &[CONTEXT_USER, 1, 2]);
        let first = bytes.len();
        bytes.extend(sample(4, 5, 6, &[CONTEXT_USER, 3]));
        for end in 0..bytes.len() {
            let whole = usize::from(end >= first);
            assert_eq!(records(&bytes[..end]).count(), whole, "{end}");
        }
        assert_eq!(records(&bytes).count(), 2);
    }
}
