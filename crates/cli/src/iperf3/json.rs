//! iperf3's JSON output, with its keys and nesting.

use linerate_core::foreign::iperf3::StreamResult;
use linerate_core::plan::Direction;
use linerate_core::record::Record;
use linerate_engine::{Accounts, LiveFlow};
use serde_json::{Map, Value, json};

use super::args::Options;
use super::course::{Facts, Iperf3Course, Row, Total, packets, per_second, percent, sum};
use super::text;

/// The start before there is a connection.
pub(super) fn start() -> Value {
    json!({
        "connected": [],
        "version": text::version(),
        "system_info": text::system(),
    })
}

/// Adds what is known when the flows are connected.
pub(super) fn started(start: &mut Value, facts: &Facts, flows: &[LiveFlow], options: &Options) {
    let connected = flows.iter().filter_map(|flow| {
        let (local, remote) = (flow.local?, flow.remote?);
        Some(json!({
            "socket": facts.socket(flow.id),
            "local_host": local.ip().to_canonical().to_string(),
            "local_port": local.port(),
            "remote_host": remote.ip().to_canonical().to_string(),
            "remote_port": remote.port(),
        }))
    });
    start["connected"] = connected.collect();
    let (date, seconds, milliseconds) = text::now();
    start["timestamp"] = json!({"time": date, "timesecs": seconds, "timemillisecs": milliseconds});
    start["cookie"] = json!(facts.cookie);
    let rate = facts.rate();
    if !facts.is_udp() {
        match facts.test.options.mss_bytes {
            Some(mss) => start["tcp_mss"] = json!(mss),
            None => start["tcp_mss_default"] = json!(facts.mss.unwrap_or(0)),
        }
    }
    start["target_bitrate"] = json!(rate);
    let pacing = facts.test.options.pacing_bps.map_or(0, |rate| rate.0);
    start["fq_rate"] = json!(pacing);
    start["sock_bufsize"] = json!(options.window);
    let [send, receive] = flows.first().map_or([0; 2], |flow| flow.buffers);
    start["sndbuf_actual"] = json!(send);
    start["rcvbuf_actual"] = json!(receive);
    let (duration, bytes, blocks) = facts.extent();
    let direction = facts.test.direction;
    start["test_start"] = json!({
        "protocol": text::protocol(facts),
        "num_streams": facts.test.streams,
        "blksize": facts.block(),
        "omit": facts.omit_s(),
        "duration": duration,
        "bytes": bytes,
        "blocks": blocks,
        "reverse": u8::from(direction == Direction::Down),
        "tos": facts.test.options.dscp.map_or(0, |dscp| dscp.octet()),
        "target_bitrate": rate,
        "bidir": u8::from(facts.is_both_ways()),
        "fqrate": pacing,
        "interval": facts.interval_s,
        "gso": u8::from(facts.is_udp() && facts.offload()),
        "gro": u8::from(facts.is_udp() && facts.offload()),
    });
}

/// An interval: its streams and their sums.
pub(super) fn interval(facts: &Facts, rows: &[Row]) -> Value {
    let mut interval = Map::new();
    let streams = rows.iter().map(|row| stream(facts, row)).collect();
    interval.insert("streams".into(), streams);
    for sends in [facts.is_client, !facts.is_client] {
        let of: Vec<&Row> = rows.iter().filter(|row| row.sends == sends).collect();
        if let Some(sum) = Row::sum(&of) {
            let key = with_direction("sum", facts, sends);
            interval.insert(key, row(facts, &sum));
        }
    }
    Value::Object(interval)
}

/// The name of a key: with two directions the one from the server has a suffix.
fn with_direction(name: &str, facts: &Facts, sends: bool) -> String {
    let is_reverse = facts.is_both_ways() && sends != facts.is_client;
    format!("{name}{}", if is_reverse { "_bidir_reverse" } else { "" })
}

fn row(facts: &Facts, row: &Row) -> Value {
    let mut value = json!({
        "start": row.start_s,
        "end": row.end_s,
        "seconds": row.seconds(),
        "bytes": row.bytes,
        "bits_per_second": 8.0 * row.rate(),
        "omitted": row.omitted,
        "sender": row.sends,
    });
    if facts.is_udp() {
        value["packets"] = json!(row.packets);
    }
    match (facts.is_udp(), row.sends) {
        (false, true) => value["retransmits"] = json!(row.retransmits),
        (true, false) => {
            value["jitter_ms"] = json!(row.jitter_ms);
            value["lost_packets"] = json!(row.lost);
            value["lost_percent"] = json!(row.lost_percent());
        }
        _ => {}
    }
    value
}

fn stream(facts: &Facts, of: &Row) -> Value {
    let mut value = row(facts, of);
    value["socket"] = json!(facts.socket(of.flow));
    if let Some(tcp) = of.tcp.filter(|_| of.sends) {
        value["snd_cwnd"] = json!(tcp.cwnd);
        value["snd_wnd"] = json!(tcp.window);
        value["rtt"] = json!(tcp.rtt_us);
        value["rttvar"] = json!(tcp.rtt_var_us);
        value["pmtu"] = json!(tcp.pmtu);
        value["reorder"] = json!(tcp.reordering);
    }
    value
}

/// The end: streams, sums, CPU time, congestion control.
pub(super) fn end(
    facts: &Facts,
    course: &Iperf3Course,
    totals: &[Total],
    accounts: &Accounts,
) -> Value {
    let streams = totals.iter().map(|total| total_stream(facts, course, total));
    let mut end = json!({"streams": streams.collect::<Vec<_>>()});
    for sends in [facts.is_client, !facts.is_client] {
        let of: Vec<&Total> = totals.iter().filter(|total| total.sends == sends).collect();
        if !of.is_empty() {
            sums(&mut end, facts, sends, &of);
        }
    }
    let (here_user, here_system) = accounts.here.cpu_percent;
    let there = accounts.there.as_ref();
    let (user, system) = there.map_or((0.0, 0.0), |there| there.cpu_percent);
    end["cpu_utilization_percent"] = json!({
        "host_total": here_user + here_system,
        "host_user": here_user,
        "host_system": here_system,
        "remote_total": user + system,
        "remote_user": user,
        "remote_system": system,
    });
    if !facts.is_udp() {
        let [sender, receiver] = congestions(facts, accounts);
        sender.iter().for_each(|name| end["sender_tcp_congestion"] = json!(name));
        receiver.iter().for_each(|name| end["receiver_tcp_congestion"] = json!(name));
    }
    end
}

/// The congestion control of the sender and of the receiver. As with iperf3, a server has its own
/// alone.
pub(super) fn congestions<'a>(facts: &Facts, accounts: &'a Accounts) -> [Option<&'a str>; 2] {
    let here = accounts.here.congestion.as_deref();
    let server = accounts.there.as_ref().filter(|_| facts.is_client);
    let there = server.and_then(|server| server.congestion.as_deref());
    if facts.sends() { [here, there] } else { [there, here] }
}

fn times(stream: Option<&StreamResult>, sends: bool) -> Value {
    let stream = stream.copied().unwrap_or_default();
    let seconds = stream.seconds.unwrap_or(0.0);
    json!({
        "start": 0,
        "end": seconds,
        "seconds": seconds,
        "bytes": stream.bytes,
        "bits_per_second": 8.0 * per_second(stream.bytes, seconds),
        "sender": sends,
    })
}

/// Adds the datagrams of a direction, as its receiver counted them.
fn datagrams(value: &mut Value, receiver: Option<&StreamResult>, all: u64) {
    let receiver = receiver.copied().unwrap_or_default();
    value["jitter_ms"] = json!(1e3 * receiver.jitter_s);
    value["lost_packets"] = json!(receiver.errors);
    value["packets"] = json!(all);
    value["lost_percent"] = json!(percent(receiver.errors, all));
}

fn total_stream(facts: &Facts, course: &Iperf3Course, total: &Total) -> Value {
    let socket = facts.socket(total.flow);
    let (sender, receiver) = (total.sender.as_ref(), total.receiver.as_ref());
    let mut sent = times(sender, total.sends);
    sent["socket"] = json!(socket);
    if facts.is_udp() {
        let all = receiver.or(sender).map_or(0, packets);
        datagrams(&mut sent, receiver, all);
        sent["out_of_order"] = json!(0);
        return json!({"udp": sent});
    }
    let peaks = course.peaks(total.flow);
    if let Some(retransmits) = retransmits(facts, total.sends, sender) {
        sent["retransmits"] = json!(retransmits);
        sent["reorder"] = json!(peaks.reordering);
        sent["max_snd_cwnd"] = json!(peaks.cwnd);
        sent["max_snd_wnd"] = json!(peaks.window);
        sent["max_rtt"] = json!(peaks.max_rtt);
        sent["min_rtt"] = json!(peaks.min_rtt);
        sent["mean_rtt"] = json!(peaks.mean_rtt());
    }
    let mut received = times(receiver, total.sends);
    received["socket"] = json!(socket);
    json!({"sender": sent, "receiver": received})
}

/// What the sender retransmitted. As with iperf3, a server knows it only where it sent.
fn retransmits(facts: &Facts, sends: bool, sender: Option<&StreamResult>) -> Option<u64> {
    let is_known = facts.is_client || sends;
    sender.filter(|_| is_known)?.retransmits
}

fn sums(end: &mut Value, facts: &Facts, sends: bool, of: &[&Total]) {
    let sender = sum(of.iter().filter_map(|total| total.sender));
    let receiver = sum(of.iter().filter_map(|total| total.receiver));
    let (sender, receiver) = (sender.as_ref(), receiver.as_ref());
    let mut sent = times(sender, sends);
    let mut received = times(receiver, sends);
    if facts.is_udp() {
        let all = receiver.or(sender).map_or(0, packets);
        let mut both = times(sender, sends);
        datagrams(&mut both, receiver, all);
        end[with_direction("sum", facts, sends)] = both;
        datagrams(&mut sent, None, sender.map_or(0, packets));
        datagrams(&mut received, receiver, all);
        (sent["sender"], received["sender"]) = (json!(true), json!(false));
    } else if let Some(retransmits) = retransmits(facts, sends, sender) {
        sent["retransmits"] = json!(retransmits);
    }
    end[with_direction("sum_sent", facts, sends)] = sent;
    end[with_direction("sum_received", facts, sends)] = received;
}

/// Writes numbers as iperf3's library does: whole ones without a fraction.
pub(super) fn numbers(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().map(|(key, of)| (key, numbers(of))).collect(),
        Value::Array(list) => list.into_iter().map(numbers).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() < 1e15 => {
                json!(whole as i64)
            }
            _ => Value::Number(number),
        },
        other => other,
    }
}

/// The key that linerate adds: the bottleneck of the test.
pub(super) fn bottleneck(record: &Record) -> Option<Value> {
    let text = text::bottleneck(record)?;
    let legs = record.legs.iter().filter_map(|leg| {
        let verdict = leg.verdict.as_ref()?;
        Some(json!({
            "direction": leg.direction,
            "cause": verdict.cause,
            "confidence": verdict.confidence,
        }))
    });
    Some(json!({"text": text, "directions": legs.collect::<Vec<_>>()}))
}
