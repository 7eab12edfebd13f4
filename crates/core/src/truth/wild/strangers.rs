//! Traffic of other programs, with the limits of the old family and of the kernel's shapers.

use super::super::conditions::{Bound, Conditions, Control};
use super::super::describe::describe;
use super::super::draw::{CAUSES, clear};
use super::super::scenario::{Program, Scenario};
use super::super::strangers::STRANGERS;
use super::shaped::{htb, tbf};
use crate::ceilings::Cause;
use crate::plan::{Direction, Traffic};
use crate::units::Dice;
use crate::units::checksum::fnv1a;

/// The scenario with that number; the causes take turns.
pub(in super::super) fn stranger(seed: u64, number: u32) -> Scenario {
    let cause = CAUSES[number as usize % CAUSES.len()];
    let random = &mut Dice::new(seed ^ fnv1a(STRANGERS.as_bytes()), number.into());
    if cause == Cause::PathRate && random.chance(0.4) {
        return behind_kernels_shaper(seed, number, random);
    }
    let (conditions, limit) = clear(cause, random, |made| fits(made, cause));
    let made = Scenario::new(number, seed, cause, &conditions, limit.bps);
    by_a_program(made, &conditions, random)
}

fn behind_kernels_shaper(seed: u64, number: u32, random: &mut Dice) -> Scenario {
    loop {
        let draw = random.choose(&[tbf, htb]);
        let mut made = draw(random);
        made.conditions.streams = 1;
        let is_slow = made.limit_bps.is_some_and(|bps| bps <= FAST_BPS);
        if is_slow {
            let conditions = made.conditions.clone();
            return by_a_program(made.scenario(STRANGERS, number, seed), &conditions, random);
        }
    }
}

/// Limits conditions to what programs can do: one flow with the host's congestion control or Reno,
/// which any program may use.
fn fits(made: &mut Conditions, cause: Cause) -> bool {
    made.streams = 1;
    made.verifies = false;
    if cause == Cause::Congestion {
        made.control = Control::Reno;
    }
    // The host's congestion control is not known: CUBIC is the usual one.
    if made.control != Control::Reno {
        made.control = Control::Cubic;
    }
    let codel = made.line.as_ref().is_some_and(|line| line.codel.is_some());
    let is_slow = |cause| made.limit(cause).is_none_or(|limit| limit.bps <= FAST_BPS);
    let is_seen = cause != Cause::Startup || takes_s(made) >= SEEN_S;
    !made.is_udp && !codel && (made.line.is_none() || is_slow(cause)) && is_seen
}

/// Length of a transfer that is over in slow start, seconds.
fn takes_s(made: &Conditions) -> f64 {
    let limit = made.limit(Cause::Startup);
    let bits = made.transfer_bytes.unwrap_or(0) as f64 * 8.0;
    limit.map_or(0.0, |limit| bits / limit.bps)
}

fn by_a_program(made: Scenario, conditions: &Conditions, random: &mut Dice) -> Scenario {
    let able = Program::ALL.into_iter();
    let able: Vec<Program> = able.filter(|one| can(*one, &made, conditions)).collect();
    let program = random.choose(&able);
    let by_reno = conditions.control == Control::Reno;
    let mut made = Scenario {
        family: STRANGERS.to_owned(),
        ..made
    };
    made.test.options.congestion = None;
    if by_reno {
        for host in [&mut made.client, &mut made.server] {
            let key = "net.ipv4.tcp_congestion_control".to_owned();
            host.sysctls.insert(key, "reno".to_owned());
        }
    }
    if let Traffic::Stream(stream) = &mut made.test.traffic
        && program == Program::Nginx
    {
        // In pieces of its own.
        stream.message_bytes = NGINX_PIECE;
    }
    let words = describe(conditions, made.path.as_ref(), !by_reno);
    let around = made.around.describe();
    made.describe = [vec![program.words().to_owned(), words], around]
        .concat()
        .join(", ");
    // Its receiver makes as many calls as its sender, of the same length: either may be the slower.
    if program == Program::Iperf3 && made.cause == Cause::CpuSend {
        made.accepted
            .extend([Cause::CpuReceive, Cause::Unexplained]);
    }
    made.around.program = Some(program);
    made
}

/// Whether a program can do everything that was drawn.
fn can(program: Program, made: &Scenario, conditions: &Conditions) -> bool {
    let of_socket = |bound| matches!(bound, Bound::Socket(_));
    let Conditions {
        window,
        send_buffer,
        pacing_bps: pacing,
        write_bps: write,
        read_bps: read,
        transfer_bytes: transfer,
        mss,
        ..
    } = *conditions;
    let plain = made.path.is_none() && made.around.shapers.is_empty();
    match program {
        Program::Python => true,
        Program::Iperf3 => {
            let buffers = of_socket(window) || of_socket(send_buffer);
            !buffers
                && read.is_none()
                && transfer.is_none()
                && (pacing.is_none() || conditions.direction != Direction::Down)
                && conditions.message_bytes <= MOST_OF_IPERF3
        }
        // It sends a file, of which a fast path takes gigabytes.
        Program::Nginx => {
            let is_served = conditions.direction == Direction::Down && !plain;
            is_served && pacing.is_none() && mss.is_none() && !of_socket(window) && write.is_none()
        }
        Program::Socat => pacing.is_none() && write.is_none() && read.is_none(),
        // It has a window of its own, and what is encrypted costs CPU time.
        Program::Ssh | Program::Scp => {
            let ends = [window, send_buffer].into_iter().all(|one| !of_socket(one));
            let tells = pacing.is_none() && write.is_none() && read.is_none() && mss.is_none();
            let in_flight = made.limit_bps.unwrap_or(f64::INFINITY) * conditions.rtt_s() / 8.0;
            ends && tells && transfer.is_none() && !plain && in_flight <= MAX_OF_SSH
        }
    }
}

/// Fastest limit, bits/s: with more, several scenarios would not fit beside each other on two CPUs.
const FAST_BPS: f64 = 6e7;
/// Shortest transfer, seconds: several looks, one each 50 ms, must see it.
const SEEN_S: f64 = 0.4;
/// `iperf3 --length` at most, bytes.
const MOST_OF_IPERF3: u64 = 1 << 20;
/// Most bytes in flight with ssh: a quarter of the window that it gives a session.
const MAX_OF_SSH: f64 = 5e5;
/// `output_buffers` and `sendfile` alike, bytes.
const NGINX_PIECE: u64 = 65_536;
