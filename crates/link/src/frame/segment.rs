//! Cuts frames of segmentation offload into the segments that a wire would carry.

use super::checksum;
use super::layout::{Gso, Layout, Offload, layout};
use super::{TCP, UDP, read_u16, write_u16};
use linerate_units::Family;
use linerate_units::checksum::fold;

/// TCP flags: FIN and PSH belong to the last segment, CWR to the first.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The number of segments that a [`Cutter`] makes of a frame; 1 if it stays whole.
pub fn segment_count(frame: &[u8], offload: Offload) -> u32 {
    let cut = Cut::new(frame, offload);
    let count = cut.map_or(1, |cut| (cut.end - cut.payload).div_ceil(cut.size));
    u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

/// Cuts one frame segment by segment. A frame that needs no cutting, or cannot be cut, is returned
/// unchanged.
///
/// Each segment has its own lengths, IPv4 identification, sequence number, flags and checksums. A
/// checksum left to the device stays so in each segment; otherwise it is computed.
#[derive(Debug)]
pub struct Cutter<'a> {
    frame: &'a [u8],
    offload: Offload,
    /// `None` if the frame stays whole.
    cut: Option<Cut>,
    /// Payload bytes returned so far.
    done: usize,
    is_over: bool,
}

/// How a frame is cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    layout: Layout,
    /// Start and end of the payload.
    payload: usize,
    end: usize,
    size: usize,
}

impl<'a> Cutter<'a> {
    /// A cutter for a frame and its `offload`.
    pub fn new(frame: &'a [u8], offload: Offload) -> Self {
        Self { frame, offload, cut: Cut::new(frame, offload), done: 0, is_over: false }
    }

    /// Replaces the content of `buffer` with the next segment; `None` after the last.
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
            // Only for frames to be cut: otherwise the kernel refuses the frame.
            ecn: false,
            // The kernel reports what lies in one piece of a frame, headers or not, and refuses a
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

    /// Fixes headers and checksums of a segment; `done` payload bytes came before it.
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
        let layout = Layout { ip_bytes: u32::try_from(length).unwrap_or(u32::MAX), ..self.layout };
        if offload.needs_checksum {
            // The device adds the rest; its start value contains the length of this segment.
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
