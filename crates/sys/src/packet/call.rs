//! The system calls of packet sockets, packet(7).

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A socket that receives nothing until [`start`].
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    check(fd)?;
    // SAFETY: the descriptor has just been made and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets all options but the ring. The kernel takes that with headers only in this order.
pub(super) fn prepare(socket: &OwnedFd) -> io::Result<()> {
    let socket = socket.as_raw_fd();
    for option in [
        libc::PACKET_VNET_HDR,
        libc::PACKET_IGNORE_OUTGOING,
        libc::PACKET_QDISC_BYPASS,
    ] {
        set_option(socket, libc::SOL_PACKET, option, &1)?;
    }
    set_option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_VERSION,
        &TPACKET_VERSION,
    )?;
    // Frames on their way to the receiver's queue. Without privilege the second is what can be had.
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
        .or_else(|_| set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER))
}

/// Lets through frames that are longer than `above` bytes and not longer than `limit`.
pub(super) fn filter_by_length(socket: &OwnedFd, above: u32, limit: u32) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let jump_if_greater = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        step(jump_if_greater, 2, 0, limit),
        step(jump_if_greater, 0, 1, above),
        step(answer, 0, 0, WHOLE_FRAME),
        step(answer, 0, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    set_option(
        socket.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        &program,
    )
}

/// Gives the socket a ring to receive into.
pub(super) fn set_receive_ring(socket: &OwnedFd, request: &libc::tpacket_req) -> io::Result<()> {
    set_option(
        socket.as_raw_fd(),
        libc::SOL_PACKET,
        libc::PACKET_RX_RING,
        request,
    )
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
        libc::getsockname(
            socket.as_raw_fd(),
            (&raw mut address).cast(),
            &raw mut length,
        )
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
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    check(fd)?;
    // SAFETY: the descriptor has just been made and is nobody else's.
    let readiness = unsafe { OwnedFd::from_raw_fd(fd) };
    for socket in sockets {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: the pointer is to a live event.
        check(unsafe {
            libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &raw mut event)
        })?;
    }
    Ok(readiness)
}

/// Frames put into the ring and frames dropped since the last call.
pub(super) fn take_statistics(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut counts = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_STATISTICS,
        &mut counts,
    )?;
    // The kernel counts the dropped among all.
    Ok((
        counts.tp_packets.saturating_sub(counts.tp_drops),
        counts.tp_drops,
    ))
}

/// The error that waits on the socket, which is cleared.
pub(super) fn take_error(socket: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let mut errno: libc::c_int = 0;
    option(socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut errno)?;
    Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
}

/// `T` must be the type that the kernel reads for the option; all are plain data.
fn set_option<T>(
    socket: libc::c_int,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads no more than the length of the live value.
    check(unsafe {
        libc::setsockopt(
            socket,
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

/// `T` must be the plain data that the kernel writes for the option.
fn option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than the length of the live value.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(value).cast(),
            &raw mut length,
        )
    })
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
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `TPACKET_V2`: frame by frame; version 3 shows frames in blocks, a millisecond or more late.
const TPACKET_VERSION: libc::c_int = 1;
const SEND_BUFFER: libc::c_int = 8 << 20;
/// What a filter answers to keep all bytes of a frame.
const WHOLE_FRAME: u32 = 0x7FFF_FFFF;
