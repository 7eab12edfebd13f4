//! Traffic of other programs: beside linerate's on the same path, and in place of it, with single
//! limits and the kernel's shapers.

use linerate_core::ceilings::Cause;
use linerate_core::plan::{Direction, Traffic};
use linerate_core::units::Dice;
use linerate_core::units::checksum::fnv1a;

use super::super::assemble::describe;
use super::super::conditions::{Bound, Conditions, CongestionControl, EmulatedLine};
use super::super::draw::{CAUSES, clear};
use super::super::{OtherTraffic, Scenario, TrafficProgram};
use super::paths::{htb, queue, tbf};
use super::{KernelQueue, QueueKind, ScenarioDraft, ShaperPlace, rate, usual};

/// Name of the family in which other programs make the traffic.
pub(in super::super) const OTHER_PROGRAMS: &str = "strangers";

/// TCP of another program on the same line. It is full, and the others cause the losses as much as
/// the flow itself does.
pub(super) fn competing_tcp(random: &mut Dice) -> ScenarioDraft {
    let flows = random.choose(&[1, 1, 2, 4]);
    let (mut made, _) = shared_line(random);
    made.accepted.push(Cause::Congestion);
    made.limit_bps = None;
    let direction = made.conditions.direction;
    made.around.traffic.push(OtherTraffic { direction, udp_bps: None, flows });
    made
}

/// Constant UDP of another program: the flow gets what the datagrams leave of the line.
pub(super) fn competing_udp(random: &mut Dice) -> ScenarioDraft {
    let (mut made, rate_bps) = shared_line(random);
    let taken = rate_bps as f64 * random.uniform(0.2, 0.6);
    made.limit_bps = Some((rate_bps as f64 - taken) * made.conditions.payload_share());
    let direction = made.conditions.direction;
    made.around.traffic.push(OtherTraffic {
        direction,
        // Without the headers of Ethernet, IP and UDP.
        udp_bps: Some((taken * DATAGRAM / (DATAGRAM + 42.0)) as u64),
        flows: 1,
    });
    made
}

/// A line of its own for each direction, of which the line back is full.
pub(super) fn busy_reverse_path(random: &mut Dice) -> ScenarioDraft {
    let (mut made, rate_bps) = shared_line(random);
    let back = match made.conditions.direction {
        Direction::Down => Direction::Up,
        Direction::Up | Direction::Both => Direction::Down,
    };
    let back_bps = (rate_bps as f64 * random.uniform(0.3, 1.0)) as u64;
    let wait_s = random.log_uniform(0.02, 0.15);
    let queue = KernelQueue {
        limit: (back_bps as f64 / 8.0 * wait_s).max(100_000.0) as u64,
        ..queue(QueueKind::Tbf, back_bps, 0.0, random)
    };
    if made.is_control_free || made.conditions.control == CongestionControl::Bbr {
        // BBR takes late acknowledgements for a slower path.
        made.accepted.push(Cause::Congestion);
    }
    made.shape_towards(back, ShaperPlace::Router, &queue);
    made.around.traffic.push(OtherTraffic {
        direction: back,
        udp_bps: None,
        flows: random.choose(&[1, 2]),
    });
    made
}

/// A TBF on a router, where all of a host's programs wait in one queue, for one to four flows.
fn shared_line(random: &mut Dice) -> (ScenarioDraft, u64) {
    let mut conditions = usual(random);
    conditions.streams = random.choose(&[1, 1, 1, 4]);
    let is_far = random.chance(0.3);
    let rtt_s = random.log_uniform(0.005, 0.05);
    conditions.line = is_far.then(|| EmulatedLine::new(rtt_s));
    let rtt_s = if is_far { rtt_s } else { 0.0 };
    let queue = queue(QueueKind::Tbf, rate(random, 5e6, 100e6), rtt_s, random);
    let mut made = ScenarioDraft::new(conditions, Cause::PathRate, random);
    made.shape(ShaperPlace::Router, &queue);
    made.limited_to(queue.rate_bps);
    made.seconds = Some((1.5, 4.0));
    (made, queue.rate_bps)
}

/// The scenario of [`OTHER_PROGRAMS`] with that number; the causes take turns.
pub(in super::super) fn other_program(seed: u64, number: u32) -> Scenario {
    let cause = CAUSES[number as usize % CAUSES.len()];
    let random = &mut Dice::new(seed ^ fnv1a(OTHER_PROGRAMS.as_bytes()), number.into());
    if cause == Cause::PathRate && random.chance(0.4) {
        return behind_kernels_shaper(seed, number, random);
    }
    let (conditions, limit) = clear(cause, random, |made| fits(made, cause));
    let made = Scenario::new(number, seed, cause, &conditions, limit.bps);
    by_a_program(made, &conditions, random)
}

/// A scenario behind the kernel's TBF or HTB.
fn behind_kernels_shaper(seed: u64, number: u32, random: &mut Dice) -> Scenario {
    loop {
        let draw = random.choose(&[tbf, htb]);
        let mut made = draw(random);
        made.conditions.streams = 1;
        let is_slow = made.limit_bps.is_some_and(|bps| bps <= FAST_BPS);
        if is_slow {
            let conditions = made.conditions.clone();
            return by_a_program(made.scenario(OTHER_PROGRAMS, number, seed), &conditions, random);
        }
    }
}

/// Limits conditions to what programs can do: one flow with the host's congestion control or Reno,
/// which any program may use.
fn fits(made: &mut Conditions, cause: Cause) -> bool {
    made.streams = 1;
    made.verifies = false;
    if cause == Cause::Congestion {
        made.control = CongestionControl::Reno;
    }
    // The host's congestion control is not known: CUBIC is the usual one.
    if made.control != CongestionControl::Reno {
        made.control = CongestionControl::Cubic;
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

/// Leaves a scenario's traffic to one of the programs that can make it.
fn by_a_program(made: Scenario, conditions: &Conditions, random: &mut Dice) -> Scenario {
    let able: Vec<TrafficProgram> =
        TrafficProgram::ALL.into_iter().filter(|one| can(*one, &made, conditions)).collect();
    let program = random.choose(&able);
    let by_reno = conditions.control == CongestionControl::Reno;
    let mut made = Scenario { family: OTHER_PROGRAMS.to_owned(), ..made };
    made.test.options.congestion = None;
    if by_reno {
        for host in [&mut made.client, &mut made.server] {
            let key = "net.ipv4.tcp_congestion_control".to_owned();
            host.sysctls.insert(key, "reno".to_owned());
        }
    }
    if let Traffic::Stream(stream) = &mut made.test.traffic
        && program == TrafficProgram::Nginx
    {
        // In pieces of its own.
        stream.message_bytes = NGINX_PIECE;
    }
    let words = describe(conditions, made.path.as_ref(), !by_reno);
    let around = made.around.describe();
    made.describe = [vec![program.words().to_owned(), words], around].concat().join(", ");
    // Its receiver makes as many calls as its sender, of the same length: either may be the slower.
    if program == TrafficProgram::Iperf3 && made.cause == Cause::CpuSend {
        made.accepted.extend([Cause::CpuReceive, Cause::Unexplained]);
    }
    made.around.program = Some(program);
    made
}

/// Whether a program can do everything that was drawn.
fn can(program: TrafficProgram, made: &Scenario, conditions: &Conditions) -> bool {
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
        TrafficProgram::Python => true,
        TrafficProgram::Iperf3 => {
            let buffers = of_socket(window) || of_socket(send_buffer);
            !buffers
                && read.is_none()
                && transfer.is_none()
                && (pacing.is_none() || conditions.direction != Direction::Down)
                && conditions.message_bytes <= MOST_OF_IPERF3
        }
        // It sends a file, of which a fast path takes gigabytes.
        TrafficProgram::Nginx => {
            let is_served = conditions.direction == Direction::Down && !plain;
            is_served && pacing.is_none() && mss.is_none() && !of_socket(window) && write.is_none()
        }
        TrafficProgram::Socat => pacing.is_none() && write.is_none() && read.is_none(),
        // It has a window of its own, and what is encrypted costs CPU time.
        TrafficProgram::Ssh | TrafficProgram::Scp => {
            let ends = [window, send_buffer].into_iter().all(|one| !of_socket(one));
            let tells = pacing.is_none() && write.is_none() && read.is_none() && mss.is_none();
            let in_flight = made.limit_bps.unwrap_or(f64::INFINITY) * conditions.rtt_s() / 8.0;
            ends && tells && transfer.is_none() && !plain && in_flight <= MAX_OF_SSH
        }
    }
}

/// Fastest limit, bits/s: with more, several scenarios would not fit beside each other on two CPUs.
const FAST_BPS: f64 = 6e7;
/// Shortest transfer, seconds: a watch with a look each 50 ms must see it several times.
const SEEN_S: f64 = 0.4;
/// Largest `iperf3 --length`, bytes.
const MOST_OF_IPERF3: u64 = 1 << 20;
/// Most bytes in flight with ssh: a quarter of the window that it gives a session.
const MAX_OF_SSH: f64 = 5e5;
/// Size of the pieces in which nginx writes, bytes: that of `output_buffers` and `sendfile` alike.
const NGINX_PIECE: u64 = 65_536;
/// Payload of the other program's datagrams, bytes.
const DATAGRAM: f64 = 1200.0;
