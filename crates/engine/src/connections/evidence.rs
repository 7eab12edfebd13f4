//! Turns the readings of a socket into the same evidence that linerate's own flows leave.

use std::collections::BTreeMap;

use linerate_core::connection::{Connection, Vantage};
use linerate_core::record::{Interval, StepRates};
use linerate_sys::tcp_info::TcpInfo;

use super::watch::{SeenConnection, WatchReading};
use crate::measure::tcp_readings::{ReceiverFacts, SenderFacts, TcpReadings};

/// Kernel settings of the host, by key.
type Settings = BTreeMap<String, String>;

/// Fills in what the socket's readings tell.
pub(super) fn fill(
    connection: &mut Connection,
    seen: &SeenConnection,
    settings: &Settings,
    began_ns: u64,
) {
    let sends = connection.vantage == Vantage::Sender;
    let mut readings = seen.readings.clone();
    if seen.is_new && sends {
        begin_with_data(&mut readings);
    }
    if seen.has_ended {
        readings = while_it_carried(&readings, sends);
    }
    let readings = &readings;
    let (Some(first), Some(last)) = (readings.first(), readings.last()) else {
        return;
    };
    let late_s = first.at_ns.saturating_sub(began_ns) as f64 / 1e9;
    if connection.began {
        connection.seconds -= late_s;
    }
    if seen.has_ended {
        connection.seconds = last.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
    }
    if connection.seconds > 0.0 {
        connection.throughput_bps = connection.bytes() as f64 * 8.0 / connection.seconds;
    }
    let mut course = TcpReadings::default();
    course.begin(Some(first.info));
    for reading in &readings[1..] {
        if sends {
            let at_ns = reading.at_ns.saturating_sub(first.at_ns);
            course.sender(at_ns, reading.info, Some(reading.memory.send_queue));
        } else {
            course.receiver(reading.info, Some(reading.unread));
        }
    }
    let bytes = connection.bytes();
    connection.tcp = if sends {
        let facts = sender_facts(seen, last, settings);
        course.sender_evidence(facts, bytes).map(Into::into)
    } else {
        let facts = receiver_facts(seen, last, settings);
        course.receiver_evidence(facts).map(Into::into)
    };
    let moved = Moved::new(readings, sends);
    connection.steps = StepRates::new(moved.rates(STEP_S), STEP_S);
    connection.intervals = moved.intervals(INTERVAL_S);
}

/// Leaves out the handshake: the empty first reading is moved to the time at which the kernel began
/// to count the sender as busy.
fn begin_with_data(readings: &mut Vec<WatchReading>) {
    let busy_us = |reading: &WatchReading| reading.info.busy_time.unwrap_or(0);
    let Some(begun) = readings.iter().position(|reading| busy_us(reading) > 0) else {
        return;
    };
    let busy_ns = busy_us(&readings[begun]).saturating_mul(1000);
    readings.drain(1..begun.max(1));
    let next_ns = readings[1.min(readings.len() - 1)].at_ns;
    readings[0].at_ns = readings[0].at_ns.max(next_ns.saturating_sub(busy_ns));
}

/// The readings up to the first one that has all of the payload. Its time is moved back to when the
/// last byte was acknowledged, by the kernel's count of busy time, because closing takes time too.
fn while_it_carried(readings: &[WatchReading], sends: bool) -> Vec<WatchReading> {
    let all = readings.last().map_or(0, |last| last.payload(sends));
    let has_all = |reading: &WatchReading| reading.payload(sends) >= all;
    let end = readings.iter().position(has_all);
    let mut carried: Vec<WatchReading> = readings.to_vec();
    carried.truncate(end.map_or(0, |end| end.max(1) + 1));
    if let [.., before, last] = &mut carried[..]
        && let (Some(was_us), Some(is_us)) = (before.info.busy_time, last.info.busy_time)
    {
        let busy_ns = is_us.saturating_sub(was_us).saturating_mul(1000);
        if busy_ns > 0 && last.info.unacked == 0 {
            last.at_ns = last.at_ns.min(before.at_ns + busy_ns);
        }
    }
    carried
}

/// Share of the looks at which the program had to wait for its socket: to send, because the buffer
/// was full; to receive, because there was nothing to read.
pub(super) fn waiting_share(seen: &SeenConnection, sends: bool) -> Option<f64> {
    let looks = seen.readings.get(1..).filter(|looks| !looks.is_empty())?;
    let waits = |reading: &&WatchReading| {
        if sends { is_full(reading) } else { reading.unread == 0 }
    };
    Some(looks.iter().filter(waits).count() as f64 / looks.len() as f64)
}

/// The kernel wakes a writer when a third of the buffer is free (`sk_stream_is_writeable`,
/// include/net/sock.h). A program that limits itself by `TCP_NOTSENT_LOWAT` does not fill the
/// buffer, but then segments wait unsent.
fn is_full(reading: &WatchReading) -> bool {
    let (queue, buffer) = (reading.memory.send_queue, reading.memory.send_buffer);
    let unsent = reading.info.notsent_bytes.unwrap_or(0);
    u64::from(queue) * 3 >= u64::from(buffer) * 2 || unsent >= reading.info.snd_mss.max(1)
}

fn sender_facts(seen: &SeenConnection, last: &WatchReading, settings: &Settings) -> SenderFacts {
    let buffer = last.memory.send_buffer;
    SenderFacts {
        congestion: seen.congestion.clone(),
        buffer_bytes: buffer.into(),
        buffer_locked: !is_tuned(buffer, &last.info, settings),
        subflows: seen.is_mptcp.then_some(1),
        mptcp_fallback: None,
    }
}

/// Guesses from the size of a send buffer whether the kernel tunes it, as no other process can see
/// whether `SO_SNDBUF` was set. The kernel's tuning gives memory for a whole number of segments:
/// twice the window (three times with BBR), at least ten (`tcp_sndbuf_expand`,
/// net/ipv4/tcp_input.c).
fn is_tuned(buffer: u32, info: &TcpInfo, settings: &Settings) -> bool {
    let [_, default, most] = triple(settings, "net.ipv4.tcp_wmem");
    let segment = info.advmss.max(info.snd_mss) + OPTIONS;
    let is_multiple = SEGMENT_OVERHEADS.iter().any(|overhead| {
        let piece = (segment + overhead).next_power_of_two() + SK_BUFF;
        buffer.is_multiple_of(piece) && buffer / piece >= 2 * INITIAL_WINDOW
    });
    is_multiple || [default, most].contains(&buffer.into())
}

/// Takes a receive buffer for set by the program if it stayed the same in all readings and has
/// neither the default nor the largest size: the kernel would have grown one that it tunes.
fn receiver_facts(
    seen: &SeenConnection,
    last: &WatchReading,
    settings: &Settings,
) -> ReceiverFacts {
    let [_, default, most] = triple(settings, "net.ipv4.tcp_rmem");
    let buffer = last.memory.receive_buffer;
    let is_constant = |reading: &WatchReading| reading.memory.receive_buffer == buffer;
    let constant = seen.readings.iter().all(is_constant);
    ReceiverFacts {
        congestion: seen.congestion.clone(),
        buffer_bytes: Some(buffer.into()),
        buffer_locked: constant && ![default, most].contains(&buffer.into()),
    }
}

/// The three figures of such a setting, or the kernel's defaults where it could not be read.
fn triple(settings: &Settings, key: &str) -> [u64; 3] {
    let words = settings.get(key).map(|text| text.split_whitespace());
    let figures: Vec<u64> = words.into_iter().flatten().flat_map(str::parse).collect();
    let usual =
        if key.ends_with("wmem") { [4096, 16_384, 4_194_304] } else { [4096, 131_072, 6_291_456] };
    figures.try_into().unwrap_or(usual)
}

/// How much payload had passed at each time.
struct Moved {
    /// Seconds since the first reading, bytes since then, and the reading.
    totals: Vec<(f64, u64, WatchReading)>,
}

impl Moved {
    fn new(readings: &[WatchReading], sends: bool) -> Self {
        let first = readings[0];
        let total = |reading: &WatchReading| {
            let at_s = reading.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
            let bytes = reading.payload(sends).saturating_sub(first.payload(sends));
            (at_s, bytes, *reading)
        };
        Self { totals: readings.iter().map(total).collect() }
    }

    fn seconds(&self) -> f64 {
        self.totals.last().map_or(0.0, |(at_s, ..)| *at_s)
    }

    /// Bytes up to a time; between two readings they are taken to pass evenly.
    fn at(&self, at_s: f64) -> f64 {
        let next = self.totals.partition_point(|(known, ..)| *known < at_s);
        let before = next.checked_sub(1).map(|i| &self.totals[i]);
        match (before, self.totals.get(next)) {
            (Some((from_s, from, _)), Some((to_s, to, _))) => {
                let share = (at_s - from_s) / (to_s - from_s).max(1e-9);
                *from as f64 + share * to.saturating_sub(*from) as f64
            }
            (Some((_, bytes, _)), None) | (None, Some((_, bytes, _))) => *bytes as f64,
            (None, None) => 0.0,
        }
    }

    /// Rate of each whole step, bits/s.
    fn rates(&self, step_s: f64) -> Vec<f64> {
        let count = (self.seconds() / step_s + 1e-6).floor() as usize;
        let total = |step: usize| self.at(step as f64 * step_s);
        (0..count).map(|step| (total(step + 1) - total(step)) * 8.0 / step_s).collect()
    }

    fn intervals(&self, width_s: f64) -> Vec<Interval> {
        let count = (self.seconds() / width_s).round().max(1.0) as usize;
        let width = self.seconds() / count as f64;
        if width <= 0.0 {
            return Vec::new();
        }
        let interval = |number: usize| {
            let (start, end) = (number as f64 * width, (number + 1) as f64 * width);
            let bytes = (self.at(end) - self.at(start)).max(0.0);
            let is_inside = |(at, ..): &&(f64, _, _)| *at > start && *at <= end + 1e-9;
            let inside = self.totals.iter().filter(is_inside);
            let infos: Vec<&TcpInfo> = inside.map(|(_, _, reading)| &reading.info).collect();
            let before = self.totals.iter().rev().find(|(at, ..)| *at <= start);
            let again = |last: &&TcpInfo| {
                let before = before.map_or(0, |(_, _, reading)| reading.info.total_retrans);
                u64::from(last.total_retrans.saturating_sub(before))
            };
            let rtts: f64 = infos.iter().map(|info| f64::from(info.rtt)).sum();
            let window = |last: &&TcpInfo| u64::from(last.snd_cwnd) * u64::from(last.snd_mss);
            Interval {
                start_s: start,
                seconds: width,
                bytes: bytes as u64,
                throughput_bps: bytes * 8.0 / width,
                rtt_us: (!infos.is_empty()).then(|| rtts / infos.len() as f64),
                cwnd_bytes: infos.last().map(window),
                retransmitted_segments: infos.last().map(again),
                ..Interval::default()
            }
        };
        (0..count).map(interval).collect()
    }
}

/// As the sampler of linerate's own runs.
const STEP_S: f64 = 0.1;
const INTERVAL_S: f64 = 1.0;
/// Timestamps in each segment, bytes.
const OPTIONS: u32 = 12;
/// `struct skb_shared_info` and `MAX_TCP_HEADER`, bytes: kernels are built with a short one and
/// with a long one.
const SEGMENT_OVERHEADS: [u32; 2] = [576, 640];
/// `struct sk_buff` with its alignment, bytes.
const SK_BUFF: u32 = 256;
/// `TCP_INIT_CWND`, segments.
const INITIAL_WINDOW: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn info(mss: u32) -> TcpInfo {
        TcpInfo { snd_mss: mss, advmss: mss, ..TcpInfo::default() }
    }

    #[test]
    fn a_buffer_that_the_kernel_tunes_is_told_from_one_that_was_set() {
        let settings = Settings::new();
        // Read of sockets on Linux 6.18: Ethernet's, loopback's, grown ones, the most.
        for (buffer, mss) in [
            (46_080, 1448),
            (87_040, 1448),
            (165_888, 1448),
            (2_626_560, 65_483),
            (348_160, 1448),
            (4_194_304, 1448),
            (16_384, 1448),
        ] {
            assert!(is_tuned(buffer, &info(mss), &settings), "{buffer}");
        }
        for buffer in [4608, 65_536, 131_072, 262_144, 425_984] {
            assert!(!is_tuned(buffer, &info(1448), &settings), "{buffer}");
        }
    }
}
