//! A ring of slots shared with the kernel, which fills them in turn: `TPACKET_V2` of
//! Documentation/networking/packet_mmap.rst.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::call;
use super::header::{self, VirtioHeader};
use crate::mapping::Mapping;

/// How large a ring is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// A multiple of 16, less than a block.
    pub(super) slot_bytes: usize,
    /// Pieces of [`BLOCK_BYTES`], each of whole slots.
    pub(super) blocks: usize,
}

impl Size {
    /// Bytes of the longest frame for which there is room in a slot.
    pub(super) fn longest_frame(self) -> u32 {
        (self.slot_bytes - FRAME_OFFSET) as u32
    }

    /// The longest ring takes the others' overlong frames too, so that they are seen and counted.
    pub(super) fn filter_limit(self) -> u32 {
        if self.slot_bytes > usize::from(u16::MAX) { u32::MAX } else { self.longest_frame() }
    }

    /// The sizes, or as much less of each as keeps all of them within so many bytes; a block of
    /// each stays.
    pub(super) fn shrunk<const N: usize>(sizes: [Self; N], bytes: usize) -> [Self; N] {
        let all: usize = sizes.iter().map(|size| size.bytes()).sum();
        sizes.map(|size| {
            let share = size.blocks as u128 * bytes.min(all) as u128 / all as u128;
            Self { blocks: (share as usize).max(1), ..size }
        })
    }

    fn slots_per_block(self) -> usize {
        BLOCK_BYTES / self.slot_bytes
    }

    fn bytes(self) -> usize {
        self.blocks * BLOCK_BYTES
    }
}

/// A packet socket and its ring. The current slot is the next that the kernel fills, or has filled.
#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    memory: Mapping,
    size: Size,
    block: usize,
    slot_in_block: usize,
}

/// What stands in a filled slot.
#[derive(Debug)]
pub(super) struct RingSlot {
    /// `None` for a kind of frame that is not known.
    pub(super) header: Option<VirtioHeader>,
    /// Nanoseconds since 1970 by the system's clock.
    pub(super) realtime_ns: u64,
    /// VLAN tag that the kernel took out of the bytes (tci).
    pub(super) vlan_tci: Option<u16>,
    offset: usize,
    length: usize,
}

impl Ring {
    /// Makes the ring of a socket that has its options, but is not started.
    pub(super) fn map(socket: OwnedFd, size: Size) -> io::Result<Self> {
        let slots = size.slots_per_block() * size.blocks;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: size.blocks as u32,
            tp_frame_size: size.slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        call::set_receive_ring(&socket, &request)?;
        let memory = Mapping::shared(socket.as_fd(), size.bytes())?;
        Ok(Self { socket, memory, size, block: 0, slot_in_block: 0 })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// When the frame in the current slot came, in nanoseconds of the system's clock; none if there
    /// is no frame.
    pub(super) fn peek(&self) -> Option<u64> {
        self.filled().then(|| self.read_header().1)
    }

    /// What stands in the current slot; none if there is no frame, or not all of it.
    pub(super) fn slot(&self) -> Option<RingSlot> {
        if !self.filled() {
            return None;
        }
        let (raw, realtime_ns) = self.read_header();
        let (offset, length) = (usize::from(raw.tp_mac), raw.tp_snaplen as usize);
        let whole = raw.tp_snaplen == raw.tp_len
            && offset >= header::BYTES
            && offset + length <= self.size.slot_bytes;
        if !whole {
            return None;
        }
        // SAFETY: the bytes before the frame are inside of the slot, which the kernel has handed
        // over.
        let virtio = unsafe {
            let begin = self.current().add(offset - header::BYTES);
            begin.cast::<[u8; header::BYTES]>().read_unaligned()
        };
        Some(RingSlot {
            header: VirtioHeader::decode(virtio),
            realtime_ns,
            vlan_tci: (raw.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then_some(raw.tp_vlan_tci),
            offset,
            length,
        })
    }

    /// The bytes of the frame in the current slot, as [`Self::slot`] describes it.
    pub(super) fn frame(&self, slot: &RingSlot) -> &[u8] {
        // SAFETY: `slot` was checked to lie within the current slot; the kernel leaves it alone
        // until it is released, for which the ring must be borrowed mutably.
        unsafe { std::slice::from_raw_parts(self.current().add(slot.offset), slot.length) }
    }

    /// Gives the current slot back to the kernel and goes on to the next.
    pub(super) fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.slot_in_block += 1;
        if self.slot_in_block == self.size.slots_per_block() {
            self.slot_in_block = 0;
            self.block = (self.block + 1) % self.size.blocks;
        }
    }

    fn filled(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn read_header(&self) -> (libc::tpacket2_hdr, u64) {
        // SAFETY: each slot begins with the header, aligned to 16 bytes, and is filled.
        let raw = unsafe { self.current().cast::<libc::tpacket2_hdr>().read() };
        let realtime_ns = u64::from(raw.tp_sec) * 1_000_000_000 + u64::from(raw.tp_nsec);
        (raw, realtime_ns)
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the status is the first, aligned word of a slot; kernel and process access it
        // atomically.
        unsafe { AtomicU32::from_ptr(self.current().cast()) }
    }

    fn current(&self) -> *mut u8 {
        let offset = self.block * BLOCK_BYTES + self.slot_in_block * self.size.slot_bytes;
        // SAFETY: block and slot are kept below their numbers, so that the offset is inside of the
        // mapping.
        unsafe { self.memory.start().add(offset) }
    }
}

/// What the kernel allocates in one piece, if it can.
const BLOCK_BYTES: usize = 1 << 20;

/// Where the Ethernet header begins in a slot (`tpacket_rcv` of net/packet/af_packet.c): after the
/// slot's header and address with at least 16 bytes for the Ethernet header, rounded up, and the
/// virtio header. The IP header is there, and the Ethernet header 14 bytes before it.
const FRAME_OFFSET: usize =
    (libc::TPACKET2_HDRLEN + 16).next_multiple_of(libc::TPACKET_ALIGNMENT) + header::BYTES - 14;

#[cfg(test)]
mod tests {
    use super::super::SIZES;

    #[test]
    fn shrunk_sizes_keep_within_their_bytes_and_a_block_each() {
        let blocks = |bytes| super::Size::shrunk(SIZES, bytes).map(|size| size.blocks);
        assert_eq!(blocks(usize::MAX), [16, 7, 18]);
        assert_eq!(blocks(41 << 20), [16, 7, 18]);
        assert_eq!(blocks(20 << 20), [7, 3, 8]);
        assert_eq!(blocks(0), [1, 1, 1]);
    }

    #[test]
    fn sizes_hold_what_the_documentation_says() {
        let numbers =
            SIZES.map(|size| (size.slots_per_block() * size.blocks, size.longest_frame()));
        assert_eq!(numbers, [(8192, 1972), (448, 16_308), (270, 65_556)]);
        assert!(SIZES.iter().map(|size| size.bytes()).sum::<usize>() <= 41 << 20);
        assert!(SIZES.iter().all(|size| size.slot_bytes % libc::TPACKET_ALIGNMENT == 0));
    }
}
