//! For each cause, conditions under which it may be the lowest limit. The ranges are wide, and most
//! draws are no clear case: [`draw`](mod@super::draw) rejects those.

use linerate_core::ceilings::Cause;
use linerate_core::link::Loss;
use linerate_core::plan::Direction;
use linerate_core::units::{Dice, Family};

use super::CpuShare;
use super::conditions::{Bound, Conditions, CongestionControl, ETHERNET_MTU, EmulatedLine};

/// Draws conditions for `cause`; `None` for a cause that cannot be built.
pub(super) fn conditions(cause: Cause, random: &mut Dice) -> Option<Conditions> {
    match cause {
        Cause::ReceiveWindow => Some(receive_window(random)),
        Cause::SendBuffer => Some(send_buffer(random)),
        Cause::Congestion => Some(congestion(random)),
        Cause::Pacing => Some(pacing(random)),
        Cause::SegmentSize => Some(segment_size(random)),
        Cause::PathRate => Some(path_rate(random)),
        Cause::Policer => Some(policer(random)),
        Cause::ApplicationSend => Some(application_send(random)),
        Cause::ApplicationReceive => Some(application_receive(random)),
        Cause::CpuSend => Some(cpu_send(random)),
        Cause::CpuReceive => Some(cpu_receive(random)),
        Cause::Startup => Some(startup(random)),
        Cause::CpuHost | Cause::QosClass | Cause::AsAsked | Cause::Unexplained => None,
    }
}

/// Conditions on a plain veth pair, where only the hosts limit.
pub(super) fn plain(random: &mut Dice) -> Conditions {
    Conditions {
        direction: random.choose(&[Direction::Up, Direction::Down]),
        family: random.choose(&[Family::Ipv4, Family::Ipv6]),
        is_udp: false,
        streams: 1,
        line: None,
        mss: None,
        advertised_mss: None,
        control: random.choose(&[
            CongestionControl::Reno,
            CongestionControl::Cubic,
            CongestionControl::Bbr,
        ]),
        window: Bound::Free,
        send_buffer: Bound::Free,
        pacing_bps: None,
        write_bps: None,
        read_bps: None,
        message_bytes: random.choose(&[65_536, 131_072, 262_144]),
        nodelay: false,
        is_offload_off: false,
        sender: CpuShare::Any,
        receiver: CpuShare::Any,
        verifies: false,
        transfer_bytes: None,
    }
}

/// Conditions over an emulated path with a deep queue, with segments of any size.
fn emulated(random: &mut Dice) -> Conditions {
    let rtt_ms = random.log_uniform(2.0, 300.0);
    let mut made = plain(random);
    let (mtu, mss) = match random.below(20) {
        0..12 => (ETHERNET_MTU, None),
        12..15 => (9000, None),
        15..18 => (ETHERNET_MTU, Some(random.log_whole(88, 1440) as u32)),
        // Between the usual sizes, and up to the most that `TCP_MAXSEG` and the interface both
        // allow.
        _ => (9000, Some(random.log_whole(1460, 8928) as u32)),
    };
    made.mss = mss;
    made.line = Some(EmulatedLine {
        // Not by `new`: the last bit of a seed's round trip would change.
        rtt_s: (rtt_ms * 1000.0).round() / 1e6,
        rate_bps: Some(round(random.log_uniform(1e6, 1e9))),
        mtu,
        hops: random.choose(&[0, 0, 0, 1, 2, 3]),
        ..EmulatedLine::default()
    });
    deepen_queue(&mut made, 2.0);
    if random.chance(0.15) {
        let share = random.uniform(0.002, 0.02);
        line(&mut made).jitter_s = rtt_ms * share / 1e3;
    }
    made
}

/// The line of conditions from [`emulated`].
fn line(conditions: &mut Conditions) -> &mut EmulatedLine {
    conditions.line.as_mut().expect("made by `emulated`")
}

/// A queue for `products` bandwidth-delay products, and enough for bursts.
pub(super) fn deepen_queue(conditions: &mut Conditions, products: f64) {
    let message = conditions.message_bytes;
    let made = line(conditions);
    let rate = made.rate_bps.unwrap_or(1_000_000_000) as f64;
    let product = rate * made.rtt_s / 8.0;
    made.queue_bytes = ((products * product) as u64).max(4 * message).max(524_288);
}

fn receive_window(random: &mut Dice) -> Conditions {
    let mut made = emulated(random);
    let bytes = random.log_whole(8 << 10, 1 << 20);
    made.window = random.choose(&[Bound::Socket(bytes), Bound::Host(bytes)]);
    made
}

fn send_buffer(random: &mut Dice) -> Conditions {
    let mut made = emulated(random);
    made.send_buffer = if random.chance(0.5) {
        // Above the default of net.core.wmem_max the kernel would cut it.
        Bound::Socket(random.log_whole(32 << 10, 200 << 10))
    } else {
        Bound::Host(random.log_whole(128 << 10, 2 << 20))
    };
    made.nodelay = true;
    if random.chance(0.5) {
        made.message_bytes = random.log_whole(4096, 65_536);
    }
    made
}

fn congestion(random: &mut Dice) -> Conditions {
    let mut made = emulated(random);
    made.control = random.choose(&[CongestionControl::Reno, CongestionControl::Cubic]);
    made.streams = random.choose(&[1, 1, 1, 2, 4]);
    let percent = tidy(random.log_uniform(0.02, 3.0));
    let loss = match random.below(10) {
        0..7 => Loss::Random { percent },
        7 => Loss::Every { nth: (100.0 / percent) as u64 },
        // Bursts of 1.3 to 3 packets.
        _ => Loss::gilbert(percent, tidy(100.0 / random.uniform(1.3, 3.0))),
    };
    line(&mut made).loss = Some(loss);
    if random.chance(0.2) {
        line(&mut made).rate_bps = None;
    }
    made
}

fn pacing(random: &mut Dice) -> Conditions {
    if random.chance(0.15) {
        let mut made = plain(random);
        made.pacing_bps = Some(round(random.log_uniform(1e6, 1e9)));
        return made;
    }
    let mut made = emulated(random);
    let rate = line(&mut made).rate_bps.unwrap_or(1_000_000_000) as f64;
    made.pacing_bps = Some(round(rate * random.uniform(0.05, 0.6)));
    made
}

fn segment_size(random: &mut Dice) -> Conditions {
    let mut made = plain(random);
    made.is_offload_off = true;
    let mss = random.log_whole(88, 536) as u32;
    if random.chance(0.5) {
        made.mss = Some(mss)
    } else {
        made.advertised_mss = Some(mss)
    }
    made
}

fn path_rate(random: &mut Dice) -> Conditions {
    let mut made = emulated(random);
    let is_udp = random.chance(0.1);
    if is_udp {
        datagrams(&mut made, random);
        let rate = line(&mut made).rate_bps.unwrap_or(1_000_000_000) as f64;
        made.write_bps = Some(round(rate * random.uniform(1.7, 3.0)));
    }
    let products =
        if random.chance(0.3) { random.uniform(0.3, 0.9) } else { random.uniform(1.0, 3.0) };
    let share = made.segment_bytes() / made.payload_share();
    let codel_fills_to = codel_fills_to_s(made.control);
    let made_line = line(&mut made);
    let product = made_line.rate_bps.unwrap_or(1_000_000_000) as f64 * made_line.rtt_s / 8.0;
    made_line.queue_bytes = (products * product).max(16.0 * share) as u64;
    let slow = made_line.rate_bps.is_none_or(|rate| rate < 5_000_000);
    if !is_udp && random.chance(0.25) && made_line.rtt_s < codel_fills_to && !slow {
        made_line.codel = Some(random.chance(0.5));
        made_line.queue_bytes = (2.0 * product).max(131_072.0) as u64;
    }
    made
}

/// Round trip up to which CoDel leaves the line full, seconds: its target of 5 ms and the arrivals
/// in its interval of 100 ms must last while the window is halved, or cut to 0.7 (RFC 9438), and
/// grows again. BBR keeps the rate itself.
fn codel_fills_to_s(control: CongestionControl) -> f64 {
    match control {
        CongestionControl::Reno => 0.01,
        CongestionControl::Cubic => 0.025,
        CongestionControl::Bbr => 0.08,
    }
}

fn policer(random: &mut Dice) -> Conditions {
    let mut made = emulated(random);
    let rate = round(random.log_uniform(1e6, 2e8));
    let burst_s = random.uniform(0.01, 0.05);
    let packet = made.segment_bytes() / made.payload_share();
    let burst = (rate as f64 / 8.0 * burst_s).max(10.0 * packet) as u64;
    let fast = random.uniform(3.0, 20.0);
    let is_unlimited = random.chance(0.5);
    let made_line = line(&mut made);
    made_line.rate_bps = (!is_unlimited).then(|| round((rate as f64 * fast).min(1e9)));
    made_line.policer = Some((rate, burst));
    made_line.jitter_s = 0.0;
    made
}

fn application_send(random: &mut Dice) -> Conditions {
    let mut made = if random.chance(0.25) { plain(random) } else { emulated(random) };
    if random.chance(0.15) && made.line.is_some() {
        datagrams(&mut made, random);
    }
    let rate = random.log_uniform(2e5, 5e8);
    made.write_bps = Some(round(rate));
    made.streams = random.choose(&[1, 1, 1, 2]);
    if made.is_udp {
        return made;
    }
    // A burst each 20 to 250 ms, or small messages evenly.
    made.message_bytes = if random.chance(0.5) {
        (rate / 8.0 * random.log_uniform(0.02, 0.25)) as u64
    } else {
        random.log_whole(512, 16_384)
    }
    .clamp(256, 4 << 20);
    if made.line.is_some() {
        deepen_queue(&mut made, 2.0);
    }
    made
}

fn application_receive(random: &mut Dice) -> Conditions {
    let mut made = if random.chance(0.3) { plain(random) } else { emulated(random) };
    made.read_bps = Some(round(random.log_uniform(5e5, 5e8)));
    made
}

fn cpu_send(random: &mut Dice) -> Conditions {
    let mut made = plain(random);
    made.receiver = CpuShare::Own { cpu: 1 };
    match random.below(3) {
        0 => {
            made.sender = CpuShare::Own { cpu: 0 };
            made.message_bytes = random.log_whole(32, 512);
        }
        1 => made.sender = CpuShare::Shared { cpu: 0, neighbours: random.choose(&[1, 2, 3]) },
        _ => {
            made.sender = CpuShare::Quota { percent: random.choose(&[10, 12, 15, 18, 20]) };
            made.receiver = CpuShare::Any;
        }
    }
    made
}

fn cpu_receive(random: &mut Dice) -> Conditions {
    let mut made = plain(random);
    match random.below(3) {
        // The pattern costs both ends CPU time; with a busy neighbour the receiver has less of it.
        verifies @ (0 | 1) => {
            made.sender = CpuShare::Own { cpu: 0 };
            made.receiver = CpuShare::Shared { cpu: 1, neighbours: random.choose(&[2, 3]) };
            made.verifies = verifies == 1;
        }
        _ => made.receiver = CpuShare::Quota { percent: random.choose(&[10, 12, 15, 18, 20]) },
    }
    made
}

fn startup(random: &mut Dice) -> Conditions {
    let mut made = emulated(random);
    let bytes = random.log_whole(20_000, 8_000_000);
    made.transfer_bytes = Some(bytes);
    let made_line = line(&mut made);
    made_line.jitter_s = 0.0;
    made
}

/// Makes it UDP, in datagrams that fit a packet.
pub(super) fn datagrams(conditions: &mut Conditions, random: &mut Dice) {
    conditions.is_udp = true;
    conditions.mss = None;
    let most = u64::from(conditions.mtu() - 48);
    conditions.message_bytes = random.log_whole(200, most);
}

/// Rounds to three digits, so that specs are easy to read.
pub(super) fn round(rate: f64) -> u64 {
    let scale = 10_f64.powf(rate.log10().floor() - 2.0);
    ((rate / scale).round() * scale).round() as u64
}

/// Rounds a percentage to three decimals, for the same reason.
fn tidy(percent: f64) -> f64 {
    (percent * 1000.0).round() / 1000.0
}
