//! Limits of the hosts: their CPUs at full speed, buffers that are too small for the path, and a
//! slow reader.

use linerate_core::ceilings::Cause;
use linerate_core::units::Dice;

use super::super::CpuShare;
use super::super::conditions::{Bound, EmulatedLine};
use super::paths::{queue, queued_line};
use super::{QueueKind, ScenarioDraft, ShaperPlace, rate, usual};

/// Full speed, with nothing set: the CPUs are the limit. On one machine the sender's CPU is
/// as right an answer as the receiver's.
pub(super) fn full_speed(random: &mut Dice) -> ScenarioDraft {
    let draft = unlimited(random);
    if random.chance(0.25) { draft.routed() } else { draft }
}

/// Full speed over the loopback device.
pub(super) fn full_speed_loopback(random: &mut Dice) -> ScenarioDraft {
    let mut made = unlimited(random);
    made.around.is_loopback = true;
    made
}

/// Full speed with sender, receiver and soft interrupts on one CPU.
pub(super) fn full_speed_one_cpu(random: &mut Dice) -> ScenarioDraft {
    let mut made = unlimited(random);
    let cpu = random.choose(&[0, 1]);
    made.conditions.sender = CpuShare::Own { cpu };
    made.conditions.receiver = CpuShare::Own { cpu };
    made
}

/// Full speed beside other work, which takes half or more of a CPU: of the sender's, of the
/// receiver's or of both.
pub(super) fn full_speed_busy_host(random: &mut Dice) -> ScenarioDraft {
    let mut made = unlimited(random);
    let mut shared = |cpu| CpuShare::Shared { cpu, neighbours: random.choose(&[1, 2]) };
    let (first, second) = (shared(0), shared(1));
    let conditions = &mut made.conditions;
    match random.below(3) {
        0 => (conditions.sender, conditions.receiver) = (first, CpuShare::Own { cpu: 1 }),
        1 => (conditions.sender, conditions.receiver) = (CpuShare::Own { cpu: 0 }, second),
        _ => (conditions.sender, conditions.receiver) = (first, second),
    }
    made
}

/// A draft in which nothing limits but the machine.
fn unlimited(random: &mut Dice) -> ScenarioDraft {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 4, 16]);
    let mut made = ScenarioDraft::new(conditions, Cause::CpuSend, random);
    made.accepted = vec![Cause::CpuReceive, Cause::CpuHost];
    made.is_control_free = true;
    made.seconds = Some((0.5, 3.0));
    made
}

/// A small send buffer. A writer sleeps while the buffer is full, and the kernel takes one more
/// piece than fits: at most the buffer and 64 KiB are in flight. That is 0.3 to 0.9 of the capacity
/// of the path, so that no queue lasts, and a larger buffer raises the rate. A sender without a
/// pace sends more while its congestion window has room, in bursts between which the path is idle:
/// its rate is then higher than this limit, or lower if the bursts are lost.
pub(super) fn small_send_buffer(random: &mut Dice) -> ScenarioDraft {
    loop {
        let mut conditions = usual(random);
        let rate_bps = rate(random, 4e6, 150e6);
        let rtt_s = random.log_uniform(0.015, 0.2);
        let holds = rate_bps as f64 * conditions.payload_share() * rtt_s / 8.0;
        let memory = random.uniform(0.3, 0.9) * holds - PIECE;
        if memory < MIN_MEMORY {
            continue;
        }
        let is_option = random.chance(0.5);
        if is_option && memory > MAX_OPTION {
            continue;
        }
        // Doubled by the kernel (socket(7)).
        conditions.send_buffer = if is_option {
            Bound::Socket((memory / 2.0) as u64)
        } else {
            Bound::Host(memory as u64)
        };
        conditions.message_bytes = random.choose(&[65_536, 131_072, 262_144, 1_048_576]);
        conditions.nodelay = random.chance(0.3);
        let is_kernels = random.chance(0.5);
        let queue = queue(QueueKind::Tbf, rate_bps, rtt_s, random);
        conditions.line = Some(EmulatedLine {
            rate_bps: (!is_kernels).then_some(rate_bps),
            queue_bytes: if is_kernels { 0 } else { queue.limit },
            ..EmulatedLine::new(rtt_s)
        });
        let mut made = ScenarioDraft::new(conditions, Cause::SendBuffer, random);
        if is_kernels {
            let place = random.choose(&[ShaperPlace::SendersDevice, ShaperPlace::Router]);
            made.shape(place, &queue);
        }
        // Awake again when a third is free (`sk_stream_write_space`).
        made.limit_bps = Some((memory * 5.0 / 6.0 + PIECE / 2.0) * 8.0 / rtt_s);
        return made;
    }
}

/// A small send buffer as in [`small_send_buffer`], or a small window, with small segments. The
/// window is no smaller than what the handshake offers: if a segment is smaller than the unit of
/// a scaled window, the kernel rounds up at each acknowledgement and never comes down again
/// (`tcp_select_window`).
pub(super) fn small_segments(random: &mut Dice) -> ScenarioDraft {
    loop {
        let mut conditions = usual(random);
        conditions.mss = Some(random.log_whole(100, 500) as u32);
        conditions.nodelay = true;
        let rate_bps = rate(random, 4e6, 40e6);
        let rtt_s = random.log_uniform(0.02, 0.2);
        let holds = rate_bps as f64 * conditions.payload_share() * rtt_s / 8.0;
        let share = random.uniform(0.3, 0.8);
        let (cause, reached) = if random.chance(0.5) {
            let window = share * holds;
            if !(FIRST_WINDOW..MAX_OPTION / 2.0).contains(&window) {
                continue;
            }
            conditions.window = Bound::Socket(window as u64);
            (Cause::ReceiveWindow, window)
        } else {
            let memory = share * holds - PIECE;
            if !(MIN_MEMORY..MAX_OPTION).contains(&memory) {
                continue;
            }
            // Doubled by the kernel (socket(7)).
            conditions.send_buffer = Bound::Socket((memory / 2.0) as u64);
            (Cause::SendBuffer, memory * 5.0 / 6.0 + PIECE / 2.0)
        };
        conditions.line = Some(queued_line(rate_bps, rtt_s, random));
        let mut made = ScenarioDraft::new(conditions, cause, random);
        made.limit_bps = Some(reached * 8.0 / rtt_s);
        return made;
    }
}

/// A host's small `tcp_rmem[2]` on a fast, long path, which it fills to a tenth or less: a remedy
/// for the next limit alone would be too small.
pub(super) fn small_receive_limit(random: &mut Dice) -> ScenarioDraft {
    let (rate_bps, rtt_s, bytes) = random.choose(&FAST_AND_LONG);
    let mut conditions = usual(random);
    conditions.window = Bound::Host(bytes);
    conditions.line = Some(EmulatedLine {
        rate_bps: Some(rate_bps),
        queue_bytes: (rate_bps as f64 * rtt_s / 8.0) as u64,
        ..EmulatedLine::new(rtt_s)
    });
    let limit = conditions.limit(Cause::ReceiveWindow);
    let mut made = ScenarioDraft::new(conditions, Cause::ReceiveWindow, random);
    made.limit_bps = limit.map(|limit| limit.bps);
    made
}

/// Rate, bits/s, round-trip time, seconds, and the most of a receive buffer, bytes.
const FAST_AND_LONG: [(u64, f64, u64); 4] = [
    (1_000_000_000, 0.04, 262_144),
    (500_000_000, 0.06, 262_144),
    (300_000_000, 0.1, 131_072),
    (200_000_000, 0.03, 65_536),
];

/// A slow reader. It does not read enough for the kernel to enlarge the window
/// (`tcp_rcv_space_adjust`): that it stays small is as true as that the reader is slow.
pub(super) fn slow_reader(random: &mut Dice) -> ScenarioDraft {
    loop {
        let mut conditions = usual(random);
        let rtt_s = random.log_uniform(0.03, 0.2);
        let read_bps = rate(random, 1e6, 30e6);
        if read_bps as f64 / 8.0 * rtt_s < FIRST_WINDOW {
            continue;
        }
        let line_bps = (read_bps as f64 * random.uniform(3.0, 8.0)) as u64;
        conditions.read_bps = Some(read_bps);
        conditions.line = Some(queued_line(line_bps, rtt_s, random));
        let mut made = ScenarioDraft::new(conditions, Cause::ApplicationReceive, random);
        made.accepted.push(Cause::ReceiveWindow);
        made.limit_bps = Some(read_bps as f64);
        return made;
    }
}

/// Bytes that `tcp_sendmsg` adds to a buffer that has room for one byte, at most.
const PIECE: f64 = 65_536.0;
/// Least memory: four full segments with their overhead, bytes.
const MIN_MEMORY: f64 = 9_000.0;
/// Window that a receive buffer of 128 KiB offers at first, the most without scaling, bytes.
const FIRST_WINDOW: f64 = 65_536.0;
/// Twice the default of `net.core.wmem_max`, bytes.
const MAX_OPTION: f64 = 425_984.0;
