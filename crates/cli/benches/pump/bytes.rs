//! What the pump does to bytes and decides of packets, without sockets, in this process.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::ensure;
use linerate_core::link::frame::{Cutter, Gso, Offload, complete_checksum};
use linerate_core::link::{Link, Packet, PathSpec};
use linerate_core::units::{Ecn, Nanos};

use crate::cases::Figures;

/// Length of a run.
const LONG: Duration = Duration::from_millis(300);
/// Payload of a full segment with time stamps, bytes.
const SEGMENT: u16 = 1448;
const SEGMENTS: usize = 44;

/// Frames of 44 segments of TCP, cut, and cut with the checksums made that a device would make.
pub(crate) fn cut() -> anyhow::Result<Figures> {
    let (frame, offload) = frame();
    let plain = per_second(|| cut_one(&frame, offload, false))?;
    let summed = per_second(|| cut_one(&frame, offload, true))?;
    Ok(vec![
        ("cut, million segments/s", plain / 1e6),
        ("cut, Gbit/s of payload", plain * f64::from(SEGMENT) * 8.0 / 1e9),
        ("cut and summed, million/s", summed / 1e6),
    ])
}

/// A TCP frame over IPv4 as a host gives it to a device that cuts it and makes the checksums.
fn frame() -> (Vec<u8>, Offload) {
    let payload = SEGMENTS * usize::from(SEGMENT);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(((52 + payload) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
    // Ports, numbers, a header of 32 bytes, ACK and PSH, window, checksum, time stamps.
    frame.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 0, 0, 0, 2, 0x80, 0x18]);
    frame.extend([1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4]);
    frame.extend((0..payload).map(|i| i as u8));
    let offload = Offload {
        needs_checksum: true,
        gso: Gso::Tcp4,
        header_bytes: 66,
        gso_bytes: SEGMENT,
        checksum_start: 34,
        checksum_offset: 16,
        ..Offload::default()
    };
    (frame, offload)
}

/// How many segments came out.
fn cut_one(frame: &[u8], offload: Offload, is_summed: bool) -> u64 {
    let (mut cutter, mut buffer, mut count) = (Cutter::new(frame, offload), Vec::new(), 0);
    while let Some(mut left) = cutter.next_into(&mut buffer) {
        if is_summed {
            complete_checksum(&mut buffer, &mut left);
        }
        black_box(&buffer);
        count += 1;
    }
    count
}

/// Packets of 1500 bytes back to back over a link that has a rate, a delay and loss.
pub(crate) fn decide() -> anyhow::Result<Figures> {
    let path: PathSpec = "rate=10gbit,rtt=10ms,loss=0.1%".parse()?;
    let mut link = Link::new(&path.up, 1);
    let mut id = 0;
    let packets = per_second(|| {
        for _ in 0..1000 {
            // As fast as the link: 1514 bytes at 10 Gbit/s.
            let now = Nanos(id * 1212);
            let ecn = Ecn::NotEct;
            let packet = Packet { id, ip_bytes: 1500, ecn };
            black_box(link.handle_packet(now, packet));
            while let Some(delivery) = link.poll_deliver(now) {
                black_box(delivery);
            }
            id += 1;
        }
        1000
    })?;
    Ok(vec![("decided, million packets/s", packets / 1e6)])
}

/// How much of `work` is done each second.
fn per_second(mut work: impl FnMut() -> u64) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let mut done = 0;
    while begin.elapsed() < LONG {
        done += work();
    }
    ensure!(done > 0, "nothing was done");
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}
