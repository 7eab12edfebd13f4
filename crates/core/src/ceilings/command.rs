//! `linerate stream` as it was run, with one thing changed; what to change, compared with what was;
//! or a host's setting.
//!
//! What else was asked stays: without it another ceiling would be the next one.

use crate::host::quoted;
use crate::link::PathSpec;
use crate::plan::{Direction, Extent, Protocol, ReceiveMethod, SendMethod, Traffic};
use crate::units::{BitRate, ByteCount, DEFAULT_PORT, EndpointName, Family};

use super::view::View;

/// The same run with one more option, or another value of it.
pub(super) fn stream(view: &View<'_>, option: &str) -> String {
    let name = option.split(' ').next().unwrap_or_default();
    let mut command = command(view, "stream", name);
    command.push(' ');
    command.push_str(option);
    command
}

/// The same run without an option.
pub(super) fn stream_without(view: &View<'_>, option: &str) -> String {
    command(view, "stream", option)
}

/// The same run on the same emulated path under one treatment and under another; `None` where there
/// is no such path, or the run has what comparisons have not.
pub(super) fn compare(view: &View<'_>, a: &str, b: &str) -> Option<String> {
    view.lab.and_then(quotable)?;
    let has_all = match &view.plan.traffic {
        Traffic::Stream(stream) => {
            !stream.whole && !stream.verify && stream.receive == ReceiveMethod::Read
        }
        Traffic::Rr(_) | Traffic::Crr(_) => false,
    };
    has_all.then(|| format!("{} --a '{a}' --b '{b}'", command(view, "compare", "")))
}

/// Sets a kernel setting of the host on which it is typed, for `linerate host undo` to put back.
pub(super) fn host_set(key: &str, value: &str) -> String {
    format!("linerate host set {}", quoted(key, value))
}

fn command(view: &View<'_>, verb: &str, dropped: &str) -> String {
    let mut command = format!("linerate {verb} {}", target(view));
    let flows = view.flow_count();
    let streams = format!(" -P {flows}");
    let mut add = |wanted: bool, words: &str| {
        if wanted {
            command.push_str(words);
        }
    };
    add(view.direction == Direction::Down, " -R");
    add(view.protocol == Protocol::Udp, " -u");
    add(view.protocol == Protocol::Mptcp, " --protocol mptcp");
    add(view.family == Family::Ipv6, " -6");
    add(flows > 1 && dropped != "--streams", &streams);
    for (name, value) in asked(view) {
        // A time takes the place of an amount.
        let replaced = dropped == "--time" && ["--bytes", "--count"].contains(&name);
        if name != dropped && !replaced {
            command.push_str(&format!(" {name}{value}"));
        }
    }
    command
}

/// The host as it was named, or the emulated path.
fn target(view: &View<'_>) -> String {
    if let Some(spec) = view.lab.and_then(quotable) {
        return format!("--lab '{spec}'");
    }
    let host = plain(view.host).unwrap_or("HOST");
    let named = host.parse::<EndpointName>();
    let has_port = named.is_ok_and(|name| name.port.is_some());
    match view.port {
        Some(port) if port != DEFAULT_PORT && !has_port => format!("{host} -p {port}"),
        _ => host.to_owned(),
    }
}

/// Options that are not the default, by their names, with a blank before the value.
fn asked(view: &View<'_>) -> Vec<(&'static str, String)> {
    let mut asked = of_traffic(view);
    let options = &view.plan.options;
    let bytes = |size: Option<ByteCount>| size.map(|ByteCount(bytes)| format!(" {bytes}"));
    let values = [
        ("--receive-window", bytes(options.receive_window_bytes)),
        ("--send-buffer", bytes(options.send_buffer_bytes)),
        ("--mss", options.mss_bytes.map(|mss| format!(" {mss}"))),
        ("--pacing", exact_rate(options.pacing_bps)),
        (
            "-C",
            options
                .congestion
                .as_deref()
                .and_then(plain)
                .map(|name| format!(" {name}")),
        ),
        ("--nodelay", options.nodelay.then(String::new)),
        ("--dscp", options.dscp.map(|dscp| format!(" {dscp}"))),
    ];
    asked.extend(present(values));
    asked
}

fn of_traffic(view: &View<'_>) -> Vec<(&'static str, String)> {
    let Traffic::Stream(stream) = &view.plan.traffic else {
        return Vec::new();
    };
    let usual = match view.protocol {
        Protocol::Udp => USUAL_DATAGRAM,
        Protocol::Tcp | Protocol::Mptcp => USUAL_MESSAGE,
    };
    let size = (stream.message_bytes != usual).then(|| format!(" {}", stream.message_bytes));
    let (bytes, count) = match view.plan.extent {
        Extent::Time(_) => (None, None),
        Extent::Bytes(ByteCount(bytes)) => (Some(format!(" {bytes}")), None),
        Extent::Count(count) => (None, Some(format!(" {count}"))),
    };
    let flag = |on: bool| on.then(String::new);
    let values = [
        ("--size", size),
        ("--bytes", bytes),
        ("--count", count),
        ("--whole", flag(stream.whole)),
        ("--verify", flag(stream.verify)),
        ("--zerocopy", flag(stream.send == SendMethod::ZeroCopy)),
        ("--discard", flag(stream.receive == ReceiveMethod::Discard)),
        ("--write-rate", exact_rate(stream.write_rate_bps)),
        ("--read-rate", exact_rate(stream.read_rate_bps)),
        ("--rate", exact_rate(stream.rate_bps)),
    ];
    present(values).collect()
}

fn present<const N: usize>(
    values: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = (&'static str, String)> {
    values
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
}

fn exact_rate(rate: Option<BitRate>) -> Option<String> {
    let BitRate(bps) = rate?;
    let units = [(1_000_000, "mbit"), (1_000, "kbit"), (1, "bit")];
    let (scale, unit) = units.into_iter().find(|(scale, _)| bps % scale == 0)?;
    Some(format!(" {}{unit}", bps / scale))
}

/// A name that means nothing to a shell, or nothing.
pub(super) fn plain(name: &str) -> Option<&str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || ".:_-%@[]".contains(c);
    (!name.is_empty() && !name.starts_with('-') && name.chars().all(harmless)).then_some(name)
}

/// A path's specification, which stands between single quotes. The name of a topology is none.
fn quotable(spec: &str) -> Option<&str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || ".,=%()+:_-/~ ".contains(c);
    let is_path = || spec.parse::<PathSpec>().is_ok();
    (spec.chars().all(harmless) && is_path()).then_some(spec)
}

/// Bytes of a write and of a datagram's payload that `linerate stream` takes of itself.
const USUAL_MESSAGE: u64 = 128 << 10;
const USUAL_DATAGRAM: u64 = 1448;
