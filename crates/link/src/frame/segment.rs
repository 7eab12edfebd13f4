//! Frames of segmentation offload, cut to the segments that a wire would carry.

use super::checksum;
use super::layout::{Gso, Layout, Offload, layout};
use super::{TCP, UDP, read_u16, write_u16};
use linerate_units::Family;
use linerate_units::checksum::fold;

/// TCP's flags, in the second half of the word at 12: FIN and PSH belong to the last segment, CWR
/// to the first.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// How many segments a [`Cutter`] makes of a frame, without cutting it; 1 where it stays whole.
pub fn segment_count(frame: &[u8], offload: Offload) -> u32 {
    let count =
        Cut::new(frame, offload).map_or(1, |cut| (cut.end - cut.payload).div_ceil(cut.size));
    u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

/// Cuts one frame, segment by segment. A frame that is not to be cut, or cannot be, comes out as it
/// is.
///
/// Each segment has its own lengths, IPv4 identification, sequence number, flags and checksums.
/// Where the checksum was left to the device it still is, for each segment; else it is computed.
#[derive(Debug)]
pub struct Cutter<'a> {
    frame: &'a [u8],
    offload: Offload,
    /// `None`: the frame stays whole.
    cut: Option<Cut>,
    /// Payload bytes that have come out.
    done: usize,
    is_over: bool,
}

/// How a frame is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    layout: Layout,
    /// Where the payload begins and ends.
    payload: usize,
    end: usize,
    size: usize,
}

impl<'a> Cutter<'a> {
    /// A cutter for `frame`, which `offload` came with.
    pub fn new(frame: &'a [u8], offload: Offload) -> Self {
        Self {
            frame,
            offload,
            cut: Cut::new(frame, offload),
            done: 0,
            is_over: false,
        }
    }

    /// Writes the next segment into `buffer`, over what was there; `None` after the last.
    pub fn next_into(&mut self, buffer: &mut Vec<u8>) -> Option<Offload> {
        if self.is_over {
            return None;
        }
        buffer.clear();
        let Some(cut) = self.cut else {
            self.is_over = true;
            buffer.extend_from_slice(self.frame);
            return Some(self.offload);
        };
        let from = cut.payload + self.done;
        let to = (from + cut.size).min(cut.end);
        buffer.extend_from_slice(&self.frame[..cut.payload]);
        buffer.extend_from_slice(&self.frame[from..to]);
        cut.finish(buffer, self.done, to == cut.end, &self.offload);
        self.done += cut.size;
        self.is_over = to == cut.end;
        Some(Offload {
            gso: Gso::None,
            gso_bytes: 0,
            // Of what is to be cut alone: with nothing to cut the kernel refuses the frame.
            ecn: false,
            // The kernel gives what lies in one piece of a frame, headers or not, and refuses a
            // segment that is shorter (packet_snd of net/packet/af_packet.c).
            header_bytes: u16_of(cut.payload),
            ..self.offload
        })
    }
}

impl Cut {
    fn new(frame: &[u8], offload: Offload) -> Option<Self> {
        let protocol = match offload.gso {
            Gso::None => return None,
            Gso::Tcp4 | Gso::Tcp6 => TCP,
            Gso::Udp => UDP,
        };
        let layout = layout(frame)?;
        let payload = layout.payload_start(frame)?;
        let size = usize::from(offload.gso_bytes);
        (layout.protocol == protocol && size > 0).then_some(Self {
            layout,
            payload,
            end: layout.end(),
            size,
        })
    }

    /// Makes headers and checksums of one segment right; `done` payload bytes came before it.
    fn finish(&self, segment: &mut [u8], done: usize, is_last: bool, offload: &Offload) {
        let Some(transport) = self.layout.transport else {
            return;
        };
        let length = segment.len() - self.layout.ip;
        self.write_ip(segment, length, done);
        if self.layout.protocol == TCP {
            advance_tcp(segment, transport, done, is_last);
        } else {
            write_u16(segment, transport + 4, u16_of(segment.len() - transport));
        }
        let layout = Layout {
            ip_bytes: u32::try_from(length).unwrap_or(u32::MAX),
            ..self.layout
        };
        if offload.needs_checksum {
            // The device sums the rest; what it starts from holds the length of this segment.
            if let Some(place) = checksum::place(&layout) {
                let seed = checksum::pseudo_header(segment, &layout, segment.len() - transport);
                write_u16(segment, place, fold(seed));
            }
        } else {
            checksum::write_transport(segment, &layout);
        }
    }

    fn write_ip(&self, segment: &mut [u8], length: usize, done: usize) {
        let ip = self.layout.ip;
        match self.layout.family {
            Family::Ipv4 => {
                let number = u16_of(done / self.size);
                let id = read_u16(segment, ip + 4).unwrap_or(0);
                write_u16(segment, ip + 2, u16_of(length));
                write_u16(segment, ip + 4, id.wrapping_add(number));
                checksum::write_ip(segment, &self.layout);
            }
            Family::Ipv6 => write_u16(segment, ip + 4, u16_of(length - 40)),
        }
    }
}

fn advance_tcp(segment: &mut [u8], transport: usize, done: usize, is_last: bool) {
    if let Some(field) = segment.get_mut(transport + 4..transport + 8) {
        let first = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
        let own = first.wrapping_add(u32::try_from(done).unwrap_or(0));
        field.copy_from_slice(&own.to_be_bytes());
    }
    if let Some(flags) = segment.get_mut(transport + 13) {
        if !is_last {
            *flags &= !(FIN | PSH);
        }
        if done > 0 {
            *flags &= !CWR;
        }
    }
}

/// Segments are shorter than 64 KiB.
fn u16_of(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}
