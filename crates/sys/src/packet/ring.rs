//! What a packet socket is made of: a ring of slots shared with the kernel, which fills them in
//! turn (`TPACKET_V2` of Documentation/networking/packet_mmap.rst), the system calls of packet(7),
//! the header before each frame, and many frames sent in one call.

use std::ffi::CString;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use socket2::{Domain, SockFilter, SockRef, Socket, Type};

use super::Outgoing;
use crate::socket::{read_bytes, set};
use crate::splice::Mapping;

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
        set_receive_ring(&socket, &request)?;
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
            && offset >= HEADER_BYTES
            && offset + length <= self.size.slot_bytes;
        if !whole {
            return None;
        }
        // SAFETY: the bytes before the frame are inside of the slot, which the kernel has handed
        // over.
        let virtio = unsafe {
            let begin = self.current().add(offset - HEADER_BYTES);
            begin.cast::<[u8; HEADER_BYTES]>().read_unaligned()
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
    (libc::TPACKET2_HDRLEN + 16).next_multiple_of(libc::TPACKET_ALIGNMENT) + HEADER_BYTES - 14;

// The system calls of packet sockets, packet(7).

/// A socket that receives nothing until [`start`].
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = Type::RAW.nonblocking().cloexec();
    Ok(Socket::new_raw(Domain::PACKET, kind, None)?.into())
}

/// Sets all options but the ring. The kernel takes that with headers only in this order.
pub(super) fn prepare(socket: &OwnedFd) -> io::Result<()> {
    for option in [libc::PACKET_VNET_HDR, libc::PACKET_IGNORE_OUTGOING, libc::PACKET_QDISC_BYPASS] {
        set(socket, libc::SOL_PACKET, option, &1)?;
    }
    set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_VERSION)?;
    // Frames on their way to the receiver's queue. Without privilege the second is what can be had.
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER))
}

/// Lets through frames that are longer than `above` bytes and not longer than `limit`.
pub(super) fn filter_by_length(socket: &OwnedFd, above: u32, limit: u32) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| SockFilter::new(code as u16, jt, jf, k);
    let jump_if_greater = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    SockRef::from(socket).attach_filter(&[
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        step(jump_if_greater, 2, 0, limit),
        step(jump_if_greater, 0, 1, above),
        step(answer, 0, 0, WHOLE_FRAME),
        step(answer, 0, 0, 0),
    ])
}

/// Gives the socket a ring to receive into.
pub(super) fn set_receive_ring(socket: &OwnedFd, request: &libc::tpacket_req) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)
}

/// Begins to receive all frames of the link with that number.
pub(super) fn start(socket: BorrowedFd<'_>, link: libc::c_int) -> io::Result<()> {
    let mut address = empty_address();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = link;
    // SAFETY: the pointer is to a live address of the length that is passed along.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })
}

/// Whether the link to which the socket was bound exists no more.
pub(super) fn link_has_gone(socket: BorrowedFd<'_>) -> bool {
    let mut address = empty_address();
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointers are to a live address and its length.
    let result = unsafe {
        libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
    };
    // `packet_notifier` of net/packet/af_packet.c
    result == 0 && address.sll_ifindex == -1
}

/// The number of the link of that name, in the calling thread's namespace.
pub(super) fn link_index(link: &str) -> io::Result<libc::c_int> {
    let no_device = || io::Error::from_raw_os_error(libc::ENODEV);
    let name = CString::new(link).map_err(|_| no_device())?;
    // SAFETY: the pointer is to a live NUL-terminated string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => libc::c_int::try_from(index).map_err(|_| no_device()),
    }
}

/// A descriptor that is readable when one of `sockets` is.
pub(super) fn readiness_of(sockets: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let readiness = epoll::create(CreateFlags::CLOEXEC)?;
    for socket in sockets {
        epoll::add(&readiness, socket, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(readiness)
}

/// Number of frames dropped since the last call.
pub(super) fn take_dropped(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // `struct tpacket_stats`: packets, drops.
    let mut counts = [0; 8];
    read_bytes(&socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts)?;
    Ok(u32::from_ne_bytes(counts.as_chunks().0[1]))
}

/// The error that waits on the socket, which is cleared.
pub(super) fn take_error(socket: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    SockRef::from(&socket).take_error()
}

fn empty_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: 0,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `TPACKET_V2`: frame by frame; version 3 shows frames in blocks, a millisecond or more late.
const TPACKET_VERSION: libc::c_int = 1;
const SEND_BUFFER: libc::c_int = 8 << 20;
/// What a filter answers to keep all bytes of a frame.
const WHOLE_FRAME: u32 = 0x7FFF_FFFF;

// `struct virtio_net_hdr` of include/uapi/linux/virtio_net.h, in the host's byte order.

/// What one frame still needs: a checksum, and to be cut. The default is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtioHeader {
    /// The checksum field holds only the pseudo-header's sum; that of the bytes from
    /// `checksum_start` on is to be added.
    pub needs_checksum: bool,
    /// Protocol by which the frame is cut into segments.
    pub gso: GsoType,
    /// The TCP segments carry congestion window reduced (CWR), in the first one only.
    pub ecn: bool,
    /// Length in bytes of all headers, of the Ethernet header and those inside; a hint.
    pub header_bytes: u16,
    /// Payload bytes of each segment (the last may be shorter); 0 without segmentation.
    pub gso_bytes: u16,
    /// Where checksumming begins, in bytes from the begin of the frame.
    pub checksum_start: u16,
    /// Where the checksum field is, in bytes from `checksum_start`.
    pub checksum_offset: u16,
}

/// What a frame of several segments consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum GsoType {
    /// One segment: not to be cut.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of one size, over either (Linux 6.2).
    Udp,
}

impl VirtioHeader {
    /// `None` for a kind of segmentation that [`GsoType`] does not have.
    pub(super) fn decode(bytes: [u8; HEADER_BYTES]) -> Option<Self> {
        let [flags, gso, a, b, c, d, e, f, g, h] = bytes;
        Some(Self {
            needs_checksum: flags & NEEDS_CHECKSUM != 0,
            gso: match gso & !ECN {
                0 => GsoType::None,
                TCP4 => GsoType::Tcp4,
                TCP6 => GsoType::Tcp6,
                UDP => GsoType::Udp,
                _ => return None,
            },
            ecn: gso & ECN != 0,
            header_bytes: u16::from_ne_bytes([a, b]),
            gso_bytes: u16::from_ne_bytes([c, d]),
            checksum_start: u16::from_ne_bytes([e, f]),
            checksum_offset: u16::from_ne_bytes([g, h]),
        })
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let flags = if self.needs_checksum { NEEDS_CHECKSUM } else { 0 };
        let gso = match self.gso {
            GsoType::None => 0,
            GsoType::Tcp4 => TCP4,
            GsoType::Tcp6 => TCP6,
            GsoType::Udp => UDP,
        };
        let [a, b] = self.header_bytes.to_ne_bytes();
        let [c, d] = self.gso_bytes.to_ne_bytes();
        let [e, f] = self.checksum_start.to_ne_bytes();
        let [g, h] = self.checksum_offset.to_ne_bytes();
        let gso = if self.ecn { gso | ECN } else { gso };
        [flags, gso, a, b, c, d, e, f, g, h]
    }
}

/// Without the buffer count and hashes that later versions append.
pub(super) const HEADER_BYTES: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

// Many frames in one system call.

/// The memory that describes frames to `sendmmsg`.
#[derive(Debug)]
pub(super) struct Batch {
    headers: Vec<[u8; HEADER_BYTES]>,
    vectors: Vec<[libc::iovec; 2]>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers are written anew before each call and are not followed otherwise.
unsafe impl Send for Batch {}

impl Batch {
    pub(super) fn new() -> Self {
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: a message header is integers and pointers, for which zero is a value.
        let message = unsafe { std::mem::zeroed::<libc::mmsghdr>() };
        Self {
            headers: vec![[0; HEADER_BYTES]; FRAMES],
            vectors: vec![[vector; 2]; FRAMES],
            messages: vec![message; FRAMES],
        }
    }

    /// Hands over the first of `frames`, as many as go into one call on a nonblocking socket, and
    /// answers how many were taken, at least 1.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: &[Outgoing<'_>],
    ) -> io::Result<usize> {
        let count = frames.len().min(FRAMES);
        let slots = self.headers.iter_mut().zip(&mut self.vectors);
        for ((outgoing, (header, vectors)), message) in
            frames.iter().zip(slots).zip(&mut self.messages)
        {
            *header = outgoing.header.encode();
            vectors[0].iov_base = header.as_mut_ptr().cast();
            vectors[0].iov_len = header.len();
            vectors[1].iov_base = outgoing.frame.as_ptr().cast_mut().cast();
            vectors[1].iov_len = outgoing.frame.len();
            message.msg_hdr.msg_iov = vectors.as_mut_ptr();
            message.msg_hdr.msg_iovlen = 2;
        }
        // SAFETY: the first `count` messages lead to this batch's vectors, and those to its headers
        // and to frames that are borrowed for the time of the call, which only reads them.
        let taken = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count as libc::c_uint, 0)
        };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }
}

/// Frames in one call: enough to make its own cost small.
const FRAMES: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::SIZES;
    use super::*;

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

    #[test]
    fn every_header_survives_encoding() {
        for gso in [GsoType::None, GsoType::Tcp4, GsoType::Tcp6, GsoType::Udp] {
            for flag in [false, true] {
                let header = VirtioHeader {
                    needs_checksum: flag,
                    gso,
                    ecn: !flag,
                    header_bytes: 66,
                    gso_bytes: 1448,
                    checksum_start: 34,
                    checksum_offset: 16,
                };
                assert_eq!(VirtioHeader::decode(header.encode()), Some(header));
            }
        }
        assert_eq!(VirtioHeader::default().encode(), [0; HEADER_BYTES]);
    }

    #[test]
    fn unknown_segmentation_is_no_header() {
        // 3 is UFO, which Linux no longer makes.
        for gso in [2, 3, 6, 0x7F] {
            assert_eq!(VirtioHeader::decode([0, gso, 0, 0, 0, 0, 0, 0, 0, 0]), None, "{gso}");
        }
    }
}
