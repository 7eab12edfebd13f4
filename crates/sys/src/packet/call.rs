//! The system calls of packet sockets, packet(7).

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use socket2::{Domain, SockFilter, SockRef, Socket, Type};

use crate::socket::{read_bytes, set};

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
