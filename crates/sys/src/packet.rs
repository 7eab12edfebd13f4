//! Whole Ethernet frames from and to one end of a link, with the offload work that is still to be
//! done on them.
//!
//! A frame comes as the stack left it: up to 64 KiB of TCP or UDP data under one set of headers,
//! its checksum not yet computed. [`VirtioHeader`] says so, and the frame can be sent elsewhere
//! with the same header, so that nobody cuts or sums what the next stack would only merge again.
//!
//! Frames are received in rings of memory shared with the kernel (`PACKET_RX_RING`), which copies
//! each frame into them on the sender's CPU time and notes the time. Unlike a receive buffer, a
//! ring's size is not bounded by
//! `net.core.rmem_max` without root. Its slots are of equal size, so there are three rings, for
//! short, middle and long frames, and [`PacketSocket::receive`] merges them by time.

mod ring;

pub use ring::{GsoType, VirtioHeader};

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::thread;

use crate::CallError;
use crate::clock::{RealtimeOffset, monotonic_ns};
use ring::{Batch, Ring};

/// A socket on one link that receives every frame arriving there, and sends frames. It never
/// blocks.
///
/// Its descriptor is for waiting until there is something to receive; it is never reported as ready
/// to send. It is readable until [`Self::receive`] has answered `None`.
///
/// It holds 41 MiB of memory: 8192 frames of up to 1972 bytes, 448 of up to 16,308 and 270 of up to
/// 65,550 bytes. Those for which there is no slot are dropped and counted.
#[derive(Debug)]
pub struct PacketSocket {
    link: String,
    /// Readable when a ring is.
    readiness: OwnedFd,
    /// By rising size of their slots.
    rings: [Ring; SIZES.len()],
    /// The ring whose current slot the caller may be looking at.
    held: Option<usize>,
    batch: Batch,
    offset: RealtimeOffset,
    state: LinkState,
    /// Frames lost so far: those that the kernel counted up to the last time it was asked, and
    /// those that it put into a ring but which are not for the caller.
    dropped: u64,
}

/// A frame that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Checksum and segmentation that are left to the receiver of the frame.
    pub header: VirtioHeader,
    /// From the Ethernet header on, without frame check sequence; at most 65,550 bytes.
    pub frame: &'a [u8],
    /// Priority, DEI and id of its VLAN tag, which the kernel has taken out of the bytes.
    pub vlan_tci: Option<u16>,
    /// Nanoseconds of [`monotonic_ns`] when the kernel put it into the ring. Good to some 10 us
    /// while the system's clock is being slewed.
    pub arrived_ns: u64,
}

/// A frame to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// What the receiver is to do with it.
    pub header: VirtioHeader,
    /// From the Ethernet header on. Longer than the link's MTU and 14 bytes only with a
    /// [`GsoType`].
    pub frame: &'a [u8],
}

impl PacketSocket {
    /// Opens a socket on `link` in the calling thread's network namespace; it stays there wherever
    /// it is used. The link may be down.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link, `EPERM` without
    /// `CAP_NET_RAW` in the user namespace that owns the network namespace, `ENOMEM`.
    pub fn open(link: &str) -> Result<Self, CallError> {
        Self::open_within(link, usize::MAX)
    }

    /// As [`PacketSocket::open`], with rings of at most so many bytes, but of 3 MiB in any case:
    /// for many sockets, which would take 41 MiB of the kernel's memory each.
    ///
    /// # Errors
    /// As of [`PacketSocket::open`].
    pub fn open_within(link: &str, bytes: usize) -> Result<Self, CallError> {
        let refused = |operation| move |source| refused(operation, link, source);
        let index = ring::link_index(link).map_err(refused("open a packet socket"))?;
        let open = |(above, size): (u32, ring::Size)| {
            let socket = ring::packet_socket().map_err(refused("open a packet socket"))?;
            ring::prepare(&socket).map_err(refused("prepare a packet socket"))?;
            ring::filter_by_length(&socket, above, size.filter_limit())
                .map_err(refused("filter frames"))?;
            Ring::map(socket, size).map_err(refused("map a ring of frames"))
        };
        let [short, middle, long] = ring::Size::shrunk(SIZES, bytes);
        let sizes = [(0, short), (short.longest_frame(), middle), (middle.longest_frame(), long)];
        // The kernel waits for all CPUs before it gives a socket its ring (synchronize_rcu);
        // threads let it do so once for all three.
        let [short, middle, long] = thread::scope(|scope| {
            let threads =
                sizes.map(|size| thread::Builder::new().spawn_scoped(scope, move || open(size)));
            threads.map(|thread| {
                let thread = thread.map_err(refused("start a thread"))?;
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            })
        });
        let rings = [short?, middle?, long?];
        let sockets = rings.each_ref().map(|ring| ring.socket());
        let readiness = ring::readiness_of(&sockets).map_err(refused("wait for frames"))?;
        for socket in sockets {
            ring::start(socket, index).map_err(refused("receive frames"))?;
        }
        Ok(Self {
            link: link.to_owned(),
            readiness,
            rings,
            held: None,
            batch: Batch::new(),
            offset: RealtimeOffset::default(),
            state: LinkState::default(),
            dropped: 0,
        })
    }

    /// The frame that has waited longest; `None` if none waits. A link that is down has no frames.
    ///
    /// # Errors
    /// `ENODEV` if the link was removed, noticed within 2 ms of calls without a frame.
    pub fn receive(&mut self) -> Result<Option<Received<'_>>, CallError> {
        if let Some(held) = self.held.take() {
            self.rings[held].release();
        }
        while let Some(earliest) = self.earliest() {
            let slot = self.rings[earliest].slot();
            if let Some(header) = slot.as_ref().and_then(|slot| slot.header) {
                self.held = Some(earliest);
                self.state.down = false;
                let slot = slot.expect("it has a header");
                return Ok(Some(Received {
                    header,
                    frame: self.rings[earliest].frame(&slot),
                    vlan_tci: slot.vlan_tci,
                    arrived_ns: self.offset.monotonic_ns(slot.realtime_ns),
                }));
            }
            self.rings[earliest].release();
            self.dropped += 1;
        }
        self.look_after_link()?;
        Ok(None)
    }

    /// Hands frames over in order and answers how many were taken: fewer than all when a buffer or
    /// the receiver's queue is full, or while the receiving end of the link is down. Try the others
    /// again some 50 us later: there is nothing to wait for.
    ///
    /// On a link that is itself down frames are lost, as on any cable, and count as taken. With
    /// checksum or segmentation offload turned off on this end of the link, frames that need it are
    /// not taken ever.
    ///
    /// # Errors
    /// Of the first of `frames`, such as `EMSGSIZE` for one that is longer than the link's MTU, or
    /// `EINVAL` for a header that does not fit it; `ENODEV` if the link was removed.
    pub fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, CallError> {
        let mut taken = 0;
        while taken < frames.len() {
            match self.batch.send(self.rings[0].socket(), &frames[taken..]) {
                Ok(sent) => taken += sent,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM) => break,
                    Some(libc::ENETDOWN) => {
                        self.state.down = true;
                        return Ok(frames.len());
                    }
                    _ if taken > 0 => break,
                    Some(libc::ENXIO) => return Err(self.gone("send frames")),
                    _ => return Err(refused("send frames", &self.link, error)),
                },
            }
        }
        Ok(taken)
    }

    /// Number of frames lost since the socket was opened: no slot was free, or they were longer
    /// than 65,550 bytes or of a kind unknown to [`GsoType`].
    ///
    /// # Errors
    /// A refused call, which a seccomp filter could cause.
    pub fn dropped(&mut self) -> Result<u64, CallError> {
        for ring in &self.rings {
            let dropped = ring::take_dropped(ring.socket())
                .map_err(|source| refused("count frames", &self.link, source))?;
            self.dropped += u64::from(dropped);
        }
        Ok(self.dropped)
    }

    /// The ring that has the oldest frame.
    fn earliest(&self) -> Option<usize> {
        let waiting = || {
            let rings = self.rings.iter().enumerate();
            rings.filter_map(|(number, ring)| Some((ring.peek()?, number)))
        };
        // A frame of another ring may have come before the first that is seen, but after a look at
        // its ring. By now it shows, so a second look finds the oldest.
        waiting().next()?;
        waiting().min().map(|(_, number)| number)
    }

    /// Clears the error that a link going down leaves on a socket, which would keep it readable,
    /// and finds out if the link was removed. Asks the kernel once in a millisecond at most.
    fn look_after_link(&mut self) -> Result<(), CallError> {
        let now = monotonic_ns();
        if now < self.state.next_look_ns {
            return Ok(());
        }
        self.state.next_look_ns = now + 1_000_000;
        for ring in &self.rings {
            let error = ring::take_error(ring.socket())
                .map_err(|source| refused("receive frames", &self.link, source))?;
            match error.map(|error| (error.raw_os_error(), error)) {
                None => {}
                Some((Some(libc::ENETDOWN), _)) => self.state.down = true,
                Some((_, source)) => return Err(refused("receive frames", &self.link, source)),
            }
        }
        // What goes away goes down first, and nothing more is reported then.
        if self.state.down && ring::link_has_gone(self.rings[0].socket()) {
            return Err(self.gone("receive frames"));
        }
        Ok(())
    }

    fn gone(&self, operation: &'static str) -> CallError {
        refused(operation, &self.link, io::Error::from_raw_os_error(libc::ENODEV))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

/// State of the link of a device.
#[derive(Debug, Default)]
struct LinkState {
    /// It was, and nothing has been received since.
    down: bool,
    /// When to ask again, by [`monotonic_ns`].
    next_look_ns: u64,
}

fn refused(operation: &'static str, link: &str, source: io::Error) -> CallError {
    CallError::new(format!("{operation} on link {link}"), source)
}

/// Short for frames of an ordinary MTU, middle for jumbo frames and a few segments, long for whole
/// GSO frames.
const SIZES: [ring::Size; 3] = [
    ring::Size { slot_bytes: 2048, blocks: 16 },
    ring::Size { slot_bytes: 16_384, blocks: 7 },
    ring::Size { slot_bytes: 65_632, blocks: 18 },
];

#[cfg(test)]
mod tests;
