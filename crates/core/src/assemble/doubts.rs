//! The caveats of a record, found from the record itself.

use std::time::Duration;

use crate::plan::{ReceiveMethod, Traffic};
use crate::record::{Caveat, CaveatKind, HostFacts, Leg, Record, Status};

use super::Run;
use crate::units::{BitRate, ByteCount, End, Span};

/// Share of a CPU from which on a thread has all of it, percent.
const THREAD_FULL: f64 = 95.0;
/// Share of the CPUs that a hypervisor takes, from which on it decides the rates, percent.
const STOLEN: f64 = 2.0;
/// Rate sent over the rate asked for, below which a paced sender failed.
const RATE_REACHED: f64 = 0.98;
/// Share of the payload that was sent before the measured time, from which on it is a caveat.
const WARM_UP_SHARE: f64 = 0.015;
/// Clock sources that are read in user space or with one instruction.
const GOOD_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase"];

/// Most caveats of the other end that are kept.
const MAX_TOLD: usize = 32;

/// All caveats of `record`, which was made from `run`.
pub(super) fn of(run: &Run, record: &Record) -> Vec<Caveat> {
    let mut doubts = run.client.caveats.clone();
    let told = run.server.iter().flat_map(|half| &half.caveats).take(MAX_TOLD).cloned();
    doubts.extend(told.map(|caveat| caveat.told_by(End::Server)));
    doubts.extend(partial(record));
    doubts.extend(linerate_limited(record));
    doubts.extend(hardly_a_datagram(record).or_else(|| rate_not_reached(record)));
    doubts.extend(requests_not_sent(record));
    doubts.extend(window_not_taken(run, record));
    doubts.extend(discarded(record));
    doubts.extend(no_fast_open(run));
    doubts.extend(socket_drops(record));
    let legs = record.legs.iter();
    doubts.extend(legs.filter_map(|leg| queue_of_warm_up(record, leg)));
    doubts.extend(stolen(record));
    doubts.extend(clock(&record.environment.client));
    let server = record.environment.server.as_ref().filter(|_| !record.environment.shared_kernel);
    doubts.extend(server.and_then(clock));
    doubts.extend(shared_kernel(record));
    doubts
}

fn partial(record: &Record) -> Option<Caveat> {
    let message = "the run ended before its time; the figures are of what there was";
    let caveat = Caveat::new(CaveatKind::Partial, message, "run it again");
    (record.status == Status::Partial).then_some(caveat)
}

/// A data thread had a whole CPU: the figure is that of the host and of linerate, not of the path.
fn linerate_limited(record: &Record) -> Option<Caveat> {
    if !matches!(record.plan.traffic, Traffic::Stream(_)) {
        return None;
    }
    let (leg, end, percent) = record.legs.iter().find_map(|leg| {
        leg.ends().find_map(|(end, report)| {
            let percent = report.busiest_thread_percent?;
            (percent >= THREAD_FULL).then_some((leg, end, percent))
        })
    })?;
    // A paced UDP sender spins between departures by design.
    let is_paced = leg.udp.as_ref().is_some_and(|udp| udp.asked_bps.is_some());
    let spins = end == "sender" && is_paced;
    let message =
        format!("linerate's {end} thread had {percent:.0} % of a CPU: the path may carry more");
    let remedy = "give more --streams, or larger messages by --size";
    (!spins).then(|| Caveat::new(CaveatKind::LinerateLimited, message, remedy))
}

fn rate_not_reached(record: &Record) -> Option<Caveat> {
    let shares = record.legs.iter().filter_map(|leg| {
        let udp = leg.udp.as_ref()?;
        let asked = udp.asked_bps? as f64 * record.flows_of(leg).count().max(1) as f64;
        let sent = udp.sent as f64 * udp.datagram_bytes as f64 * 8.0 / record.seconds;
        Some(sent / asked)
    });
    let share = shares.reduce(f64::min)?;
    let timed = record.plan.seconds().is_some() && record.status == Status::Complete;
    let percent = 100.0 * share;
    let message = format!("the sender reached {percent:.1} % of the rate asked for");
    let remedy = "lower --rate, or give --offload";
    let is_low = timed && share < RATE_REACHED;
    is_low.then(|| Caveat::new(CaveatKind::RateNotReached, message, remedy))
}

/// At the rate that was asked for, a flow sends one datagram in the run at most.
fn hardly_a_datagram(record: &Record) -> Option<Caveat> {
    let asked = record.legs.iter().find_map(|leg| leg.udp.as_ref()?.asked_bps)? as f64;
    let Traffic::Stream(stream) = &record.plan.traffic else {
        return None;
    };
    let bytes = stream.message_bytes;
    let seconds = record.plan.seconds().filter(|_| asked > 0.0)?;
    let takes = bytes as f64 * 8.0 / asked;
    let message = format!(
        "at {} a datagram of {bytes} bytes leaves every {takes:.1} s, and the run lasts {seconds:.1} \
         s: there is hardly a datagram to measure",
        BitRate(asked as u64)
    );
    let remedy = "give a higher --rate (1000 is 1000 bit/s; 1000mbit has a unit), a longer --time, \
                  or a smaller --size";
    (2.0 * takes > seconds).then(|| Caveat::new(CaveatKind::TooShort, message, remedy))
}

fn requests_not_sent(record: &Record) -> Option<Caveat> {
    let not_sent = record.requests_not_sent.filter(|n| *n > 0)?;
    let message = format!(
        "{not_sent} requests that were due were never sent: the path or the hosts cannot do this \
         rate"
    );
    let remedy = "lower --rate, or give more --streams";
    Some(Caveat::new(CaveatKind::RateNotReached, message, remedy))
}

/// The window that a sender saw differs from the one that was asked for.
fn window_not_taken(run: &Run, record: &Record) -> Option<Caveat> {
    let wanted = run.test.options.receive_window_bytes?.0;
    let halves = std::iter::once(&run.client).chain(&run.server);
    let senders = halves.flat_map(|half| half.flows.iter().filter(|flow| flow.sends));
    let seen = senders
        .filter_map(|flow| flow.tcp.as_ref()?.sender()?.send_window_bytes)
        .find(|seen| seen.abs_diff(wanted) > wanted / 10)?;
    let message =
        format!("a receive window of {wanted} bytes was asked for and the sender saw {seen}");
    let legs = record.legs.iter();
    let remedy = legs.filter(|_| seen < wanted).find_map(|leg| {
        let receiver = record.environment.hosts_of(leg.direction)[1]?;
        let limit: u64 = receiver.setting(RECEIVE_LIMIT)?.parse().ok()?;
        (limit < wanted).then(|| without_window(receiver, limit, wanted))
    });
    let remedy = remedy.unwrap_or_else(|| {
        "give the run a longer --warm-up, or a window that fits the path's packets".to_owned()
    });
    Some(Caveat::new(CaveatKind::SettingNotTaken, message, remedy))
}

/// What to do where the receiver's host allows no such window.
fn without_window(receiver: &HostFacts, limit: u64, wanted: u64) -> String {
    let mut words = format!(
        "the receiver's host allows a program no more than {limit} ({RECEIVE_LIMIT}): leave \
         --receive-window out, and the kernel tunes the window"
    );
    if let Some(tuned) = receiver.setting("net.ipv4.tcp_rmem") {
        let most = tuned.split_whitespace().last().unwrap_or_default();
        words.push_str(&format!(" in a buffer of up to {most} bytes"));
    }
    if !receiver.is_read_only(RECEIVE_LIMIT) {
        words.push_str(&format!(
            "; or run `linerate host set {RECEIVE_LIMIT}={wanted}` there first"
        ));
    }
    words
}

const RECEIVE_LIMIT: &str = "net.core.rmem_max";

fn discarded(record: &Record) -> Option<Caveat> {
    let Traffic::Stream(stream) = &record.plan.traffic else {
        return None;
    };
    let message = "the receiver discarded the bytes in the kernel: no application gets this rate";
    let remedy = "leave --discard out for a figure of real copies";
    let caveat = Caveat::new(CaveatKind::Discarded, message, remedy);
    (stream.receive == ReceiveMethod::Discard).then_some(caveat)
}

/// The kernels fell back to an ordinary handshake, which they do silently.
fn no_fast_open(run: &Run) -> Option<Caveat> {
    let Traffic::Crr(exchange) = &run.test.traffic else {
        return None;
    };
    let taken = run.client.end.counters.get("TcpExtTCPFastOpenActive");
    let message = "--fast-open: no connection began with its request";
    let remedy = "net.ipv4.tcp_fastopen needs bit 1 at the client and bit 2 at the endpoint, and \
                  some middleboxes drop a SYN with data";
    let caveat = Caveat::new(CaveatKind::SettingNotTaken, message, remedy);
    (exchange.fast_open && taken.is_none_or(|count| *count == 0)).then_some(caveat)
}

/// More arrived than was sent, and faster than through most of the run: it waited behind a loss
/// when the measured time began. (What waits in a queue arrives at the path's own rate, and does
/// not mislead.)
fn queue_of_warm_up(record: &Record, leg: &Leg) -> Option<Caveat> {
    let tcp = leg.tcp_sender()?;
    let segment = tcp.effective_segment_bytes?;
    let passed = (tcp.data_segments_out? as f64 * segment) as u64;
    let sent = passed.saturating_sub(tcp.retransmitted_bytes?);
    let more = leg.bytes.checked_sub(sent)?;
    let share = more as f64 / leg.bytes.max(1) as f64;
    let has_warm_up = record.plan.warm_up > Span(Duration::ZERO) && sent > 0;
    let lost = tcp.retransmitted_segments + tcp.warm_up_retransmitted_segments.unwrap_or(1);
    let usual = leg.steps.map(|steps| steps.p50_bps);
    let is_faster = usual
        .zip(leg.throughput_bps)
        .is_none_or(|(usual, mean)| mean > usual * (1.0 + share / 2.0));
    let (more, percent) = (ByteCount(more / 1000 * 1000), share * 100.0);
    let message = format!(
        "{more} of what came, {percent:.1} %, had been sent in the warm-up: the rate is up to that \
         much too high"
    );
    let remedy = "a longer run (-t) has a smaller share of it";
    let is_much = has_warm_up && share >= WARM_UP_SHARE && lost > 0 && is_faster;
    is_much.then(|| Caveat::new(CaveatKind::TooShort, message, remedy))
}

fn socket_drops(record: &Record) -> Option<Caveat> {
    let legs = record.legs.iter().filter_map(|leg| leg.udp.as_ref());
    let dropped: u64 = legs.filter_map(|udp| udp.socket_drops).sum();
    let message = format!(
        "the receiver's socket dropped about {dropped} datagrams: the receiver, not the path, lost \
         them"
    );
    let remedy = "lower --rate, or raise sysctl net.core.rmem_max on the receiver's host";
    (dropped > 0).then(|| Caveat::new(CaveatKind::SocketDrops, message, remedy))
}

fn stolen(record: &Record) -> Option<Caveat> {
    let percents = record.ends().filter_map(|(_, end)| end.steal_percent);
    let percent = percents.fold(0.0, f64::max);
    let message = format!("the hypervisor took {percent:.1} % of the CPUs for others");
    let remedy = "run it again, or on a host of its own";
    (percent >= STOLEN).then(|| Caveat::new(CaveatKind::BusyHost, message, remedy))
}

fn clock(host: &HostFacts) -> Option<Caveat> {
    let source = host.clock_source.as_deref()?;
    let message = format!(
        "the clock source of {} is {source}: each reading costs a microsecond or so",
        host.hostname
    );
    let remedy = "boot with clocksource=tsc where the CPU's counter is fit for it";
    let is_slow = !GOOD_CLOCKS.contains(&source);
    is_slow.then(|| Caveat::new(CaveatKind::Clock, message, remedy))
}

fn shared_kernel(record: &Record) -> Option<Caveat> {
    let message =
        "both ends run on one kernel: host-wide CPU figures and service demand count both";
    let remedy = "run `linerate serve` on another host";
    let caveat = Caveat::new(CaveatKind::SharedKernel, message, remedy);
    record.environment.shared_kernel.then_some(caveat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Direction, Test};
    use crate::record::{StepRates, TcpSender};

    #[test]
    fn what_the_warm_up_had_sent_is_told_where_it_makes_the_rate() {
        let mut test = Test::stream().resolve(1).expect("a test");
        test.warm_up = Span(Duration::from_secs(1));
        let leg = |bytes| Leg {
            bytes,
            tcp: Some(
                TcpSender {
                    data_segments_out: Some(10_100),
                    effective_segment_bytes: Some(1000.0),
                    retransmitted_bytes: Some(100_000),
                    ..TcpSender::default()
                }
                .into(),
            ),
            ..Leg::new(Direction::Up)
        };
        let mut record = Record::new(test);
        let doubt = queue_of_warm_up(&record, &leg(10_200_000)).expect("200 kB more came");
        assert!(doubt.message.contains(" 2.0 %, "), "{}", doubt.message);
        assert_eq!(queue_of_warm_up(&record, &leg(10_100_000)), None);
        assert_eq!(queue_of_warm_up(&record, &leg(9_000_000)), None);
        let with_steps = |p50_bps| Leg {
            throughput_bps: Some(8e6),
            steps: Some(StepRates { p50_bps, ..StepRates::default() }),
            ..leg(10_200_000)
        };
        assert!(queue_of_warm_up(&record, &with_steps(7.9e6)).is_some());
        // The path's queue of the warm-up, at the path's rate from the first step to the last.
        assert_eq!(queue_of_warm_up(&record, &with_steps(7.99e6)), None);
        let mut sender = leg(10_200_000).tcp_sender().expect("a sender").clone();
        sender.warm_up_retransmitted_segments = Some(0);
        let without_a_loss = Leg { tcp: Some(sender.into()), ..leg(10_200_000) };
        assert_eq!(queue_of_warm_up(&record, &without_a_loss), None);
        record.plan.warm_up = Span(Duration::ZERO);
        assert_eq!(queue_of_warm_up(&record, &leg(10_200_000)), None);
    }
}
