//! The keys of a path's text, their values, and contradictions between them. The table of keys is
//! at `PathSpec`.

use linerate_units::Nanos;

use super::packet::CorruptionPlace;
use super::quantity::{parse_percent, parse_rate, parse_size, parse_time};
use super::rate::MAX_RATE_BPS;
use super::spec::{
    Aqm, Corrupt, Distribution, Framing, Jitter, LinkSpec, Loss, Mtu, QueueLimit, Reorder,
};

/// A key: its name and the setting that it changes. A new key is one more entry of [`KEYS`].
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) set: Setter,
    /// How to write its values, for errors.
    pub(super) example: &'static str,
    /// The range of its values, for errors.
    pub(super) range: &'static str,
}

pub(super) enum Setter {
    Link(fn(&mut LinkSpec, &str) -> Result<(), KeyRefusal>),
    Path(fn(&mut WholePath, &str) -> Result<(), KeyRefusal>),
}

/// Why a value is refused.
pub(super) enum KeyRefusal {
    Malformed,
    OutOfRange,
    /// A rate without a unit, which is too low as bits/s.
    NoUnit,
}

/// The settings of the whole path.
#[derive(Default)]
pub(super) struct WholePath {
    pub(super) rtt: Nanos,
    pub(super) hops: u32,
}

macro_rules! keys {
    ($($name:literal: $kind:ident.$field:ident = $value:expr, $example:literal, $range:literal;)*) => {
        &[$(Key {
            name: $name,
            set: Setter::$kind(|whole, text| {
                let read: fn(&str) -> Result<_, KeyRefusal> = $value;
                whole.$field = read(text)?;
                Ok(())
            }),
            example: $example,
            range: $range,
        }),*]
    };
}

/// All keys: the setting, how its values are written, and their range.
pub(super) const KEYS: &[Key] = keys! {
    "rate": Link.rate_bps = |text| rate(text).map(Some),
        "a rate such as 100mbit", "1kbit to 1tbit";
    "trace": Link.trace = |text| file(text).map(Some),
        "a file without commas and parentheses in its name, such as cell.txt", "up to 4096 bytes";
    "rtt": Path.rtt = |text| time(text, MAX_RTT),
        "a time with its unit, such as 29ms", "0s to 100s";
    "delay": Link.delay = |text| time(text, MAX_RTT),
        "a time with its unit, such as 14.5ms", "0s to 100s";
    "queue": Link.queue = queue,
        "packets or bytes, such as 100p or 64KiB", "up to 2^30 packets or 1024 GiB";
    "aqm": Link.aqm = aqm,
        "fifo, codel or codel:ecn", "fifo, codel or codel:ecn";
    "loss": Link.loss = |text| loss(text).map(Some),
        "0.1%, ge(1%,25%) or every(100)", "0% to 100%, r of ge(p,r) above 0%, every(1) or more";
    "jitter": Link.jitter = |text| jitter(text).map(Some),
        "2ms or normal(2ms)", "0s to 100s";
    "reorder": Link.reorder = |text| reorder(text).map(Some),
        "a share and how long it is held back, such as 1% or 1%:5ms",
        "0% to 100%, held back for 1ns to 100s";
    "duplicate": Link.duplicate_percent = percent,
        "a percentage such as 0.1%", "0% to 100%";
    "corrupt": Link.corrupt = |text| corrupt(text).map(Some),
        "a percentage such as 0.1%, 0.1%:payload or 0.1%:host", "0% to 100%";
    "verified": Link.is_verified = yes_or_no,
        "yes or no", "yes or no";
    "mtu": Link.mtu = |text| mtu(text).map(Some),
        "bytes, such as 1500 or 1400:blackhole", "68 to 65535";
    "policer": Link.policer_bps = |text| rate(text).map(Some),
        "a rate such as 50mbit", "1kbit to 1tbit";
    "burst": Link.burst_bytes = |text| within(read(parse_size(text))?, 1, 1 << 40).map(Some),
        "a size such as 64KiB", "1 to 1024 GiB";
    "framing": Link.framing = framing,
        "ethernet or aal5", "ethernet or aal5";
    "overhead": Link.overhead_bytes = |text| number(text, 0, 256),
        "bytes, such as 24", "0 to 256";
    "hops": Path.hops = |text| number(text, 0, 60),
        "a number of routers, such as 3", "0 to 60";
};

/// Keys, and the names that netem, tc and other emulators have for them.
pub(super) const ELSEWHERE: &[(&str, &[&str])] = &[
    ("rate", &["bandwidth", "bw", "speed", "capacity"]),
    ("rtt", &["latency", "ping"]),
    ("queue", &["limit", "buffer"]),
    ("loss", &["drop", "plr"]),
];

/// A key, when its setting is contradictory, and why.
pub(super) type Contradiction = (&'static str, fn(&LinkSpec) -> bool, &'static str);

/// All contradictions; the first that applies is reported.
pub(super) const CONTRADICTIONS: &[Contradiction] = &[
    (
        "trace",
        |link| link.rate_bps.is_some(),
        "`rate` says how fast the line is already; for one direction there is `up.rate`",
    ),
    (
        "jitter",
        |link| link.jitter.is_some_and(|it| it.reach() > link.delay),
        "packets would arrive before they are sent; the one-way delay must be at least the jitter, \
         three times \
         a normal one",
    ),
    ("queue", |link| !link.has_line(), NOTHING_WAITS),
    ("aqm", |link| !link.has_line(), NOTHING_WAITS),
    (
        "queue",
        |link| matches!(link.queue, QueueLimit::Bytes(bytes) if is_less_than_a_packet(link, bytes)),
        "so few bytes hold no full packet; packets are written as 100p",
    ),
    ("burst", has_no_rate, "it is the bucket of a `policer`, a `rate` or a `trace`"),
    (
        "burst",
        |link| matches!(link.burst_bytes, Some(bytes) if is_less_than_a_packet(link, bytes)),
        "a full packet is larger, and would never pass",
    ),
    ("framing", has_no_rate, NOTHING_COUNTED),
    ("overhead", has_no_rate, NOTHING_COUNTED),
];

const NOTHING_WAITS: &str = "without `rate` or `trace` nothing waits";
const NOTHING_COUNTED: &str = "without `rate`, `trace` or `policer` nothing is counted";

fn has_no_rate(link: &LinkSpec) -> bool {
    !link.has_line() && link.policer_bps.is_none()
}

fn read<T>(value: Option<T>) -> Result<T, KeyRefusal> {
    value.ok_or(KeyRefusal::Malformed)
}

fn within<T: PartialOrd>(value: T, least: T, most: T) -> Result<T, KeyRefusal> {
    let is_within = value >= least && value <= most;
    is_within.then_some(value).ok_or(KeyRefusal::OutOfRange)
}

fn rate(text: &str) -> Result<u64, KeyRefusal> {
    let rate = read(parse_rate(text))?;
    let has_unit = text.bytes().any(|byte| !byte.is_ascii_digit());
    if !has_unit && (1..MIN_RATE_BPS).contains(&rate) {
        return Err(KeyRefusal::NoUnit);
    }
    within(rate, MIN_RATE_BPS, MAX_RATE_BPS)
}

fn time(text: &str, most: Nanos) -> Result<Nanos, KeyRefusal> {
    within(read(parse_time(text))?, Nanos::ZERO, most)
}

fn percent(text: &str) -> Result<f64, KeyRefusal> {
    within(read(parse_percent(text))?, 0.0, 100.0)
}

fn number(text: &str, least: u32, most: u32) -> Result<u32, KeyRefusal> {
    within(read(text.parse().ok())?, least, most)
}

/// A file name. The file is not read here; its name must not look like other parts of a path's
/// text.
fn file(text: &str) -> Result<String, KeyRefusal> {
    let is_odd = |c: char| c.is_control() || matches!(c, ',' | '(' | ')');
    if text.is_empty() || text.contains(is_odd) {
        return Err(KeyRefusal::Malformed);
    }
    within(text.len(), 1, MAX_FILE)?;
    Ok(text.to_owned())
}

/// The arguments of `name(…)`.
fn arguments<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let inside = text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
    Some(inside.split(',').map(str::trim).collect())
}

/// Splits `value:word` or `value` into the value and whether the word is there.
fn flagged<'a>(text: &'a str, word: &str) -> Result<(&'a str, bool), KeyRefusal> {
    match text.split_once(':') {
        None => Ok((text, false)),
        Some((value, flag)) if flag == word => Ok((value, true)),
        Some(_) => Err(KeyRefusal::Malformed),
    }
}

fn queue(text: &str) -> Result<QueueLimit, KeyRefusal> {
    const MAX_QUEUE_BYTES: u64 = 1 << 40;
    let Some(packets) = text.strip_suffix('p') else {
        let bytes = within(read(parse_size(text))?, 0, MAX_QUEUE_BYTES)?;
        return Ok(QueueLimit::Bytes(bytes));
    };
    let packets = within(read(packets.parse().ok())?, 0, 1 << 30)?;
    Ok(QueueLimit::Packets(packets))
}

fn loss(text: &str) -> Result<Loss, KeyRefusal> {
    if let Some(nth) = arguments(text, "every") {
        let [nth] = nth[..] else {
            return Err(KeyRefusal::Malformed);
        };
        let nth = within(read(nth.parse().ok())?, 1, 1 << 40)?;
        return Ok(Loss::Every { nth });
    }
    let Some(shares) = arguments(text, "ge") else {
        let percent = percent(text)?;
        return Ok(Loss::Random { percent });
    };
    let shares: Result<Vec<_>, _> = shares.into_iter().map(percent).collect();
    let shares = shares?;
    let (enter_percent, leave_percent, bad_loss_percent, good_loss_percent) = match shares[..] {
        [p, r] => (p, r, 100.0, 0.0),
        [p, r, bad] => (p, r, bad, 0.0),
        [p, r, bad, good] => (p, r, bad, good),
        _ => return Err(KeyRefusal::Malformed),
    };
    // A channel that never recovers would lose everything after the first bad moment.
    if leave_percent == 0.0 {
        return Err(KeyRefusal::OutOfRange);
    }
    Ok(Loss::GilbertElliott { enter_percent, leave_percent, bad_loss_percent, good_loss_percent })
}

fn jitter(text: &str) -> Result<Jitter, KeyRefusal> {
    let (distribution, size) = match arguments(text, "normal").as_deref() {
        Some([size]) => (Distribution::Normal, *size),
        Some(_) => return Err(KeyRefusal::Malformed),
        None => (Distribution::Uniform, text),
    };
    let size = time(size, MAX_RTT)?;
    Ok(Jitter { distribution, size })
}

fn reorder(text: &str) -> Result<Reorder, KeyRefusal> {
    let (share, hold_back) = match text.split_once(':') {
        None => (text, Nanos::ZERO),
        Some((share, hold_back)) => {
            let hold_back = within(read(parse_time(hold_back))?, Nanos(1), MAX_RTT)?;
            (share, hold_back)
        }
    };
    Ok(Reorder { percent: percent(share)?, hold_back })
}

fn corrupt(text: &str) -> Result<Corrupt, KeyRefusal> {
    let (share, place) = match text.split_once(':') {
        None => (text, CorruptionPlace::Wire),
        Some((share, "payload")) => (share, CorruptionPlace::Payload),
        Some((share, "host")) => (share, CorruptionPlace::Host),
        Some(_) => return Err(KeyRefusal::Malformed),
    };
    Ok(Corrupt { percent: percent(share)?, place })
}

fn yes_or_no(text: &str) -> Result<bool, KeyRefusal> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(KeyRefusal::Malformed),
    }
}

fn mtu(text: &str) -> Result<Mtu, KeyRefusal> {
    let (bytes, is_black_hole) = flagged(text, "blackhole")?;
    Ok(Mtu {
        // From the minimum of IPv4 routers (RFC 791) to the maximum of the length field.
        bytes: number(bytes, 68, 65_535)?,
        is_black_hole,
    })
}

fn aqm(text: &str) -> Result<Aqm, KeyRefusal> {
    match text {
        "fifo" => Ok(Aqm::Fifo),
        "codel" => Ok(Aqm::CoDel { marks_ect: false }),
        "codel:ecn" => Ok(Aqm::CoDel { marks_ect: true }),
        _ => Err(KeyRefusal::Malformed),
    }
}

fn framing(text: &str) -> Result<Framing, KeyRefusal> {
    match text {
        "ethernet" => Ok(Framing::Ethernet),
        "aal5" => Ok(Framing::Aal5),
        _ => Err(KeyRefusal::Malformed),
    }
}

fn is_less_than_a_packet(link: &LinkSpec, bytes: u64) -> bool {
    bytes < u64::from(link.full_packet_wire_bytes())
}

/// Minimum rate of a link: below it a packet takes seconds.
const MIN_RATE_BPS: u64 = 1_000;
/// Maximum length of a path in Linux (PATH_MAX).
const MAX_FILE: usize = 4096;
/// Maximum RTT, longer than any path on Earth including buffers.
const MAX_RTT: Nanos = Nanos::from_millis(100_000);
