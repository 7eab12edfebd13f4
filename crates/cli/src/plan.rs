//! Options → [`Plan`]: every default filled in, every contradiction an error that names both
//! options.
//!
//! The result has passed [`Test::check`]; nothing has been sent, looked up or opened.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use linerate_core::plan::{
    Closer, Direction, ExchangeTest, Extent, MAX_REPEATS, Plan, Protocol, ReceiveMethod, Repeats,
    SendMethod, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::units::{BitRate, Percent, Sizes, Span};

use crate::args::{
    CrrArgs, ExchangeOptions, ExtentOptions, RrArgs, RunOptions, SocketArgs, StreamArgs,
};

/// Measured time of a run, if none is given.
const DEFAULT_TIME: Span = Span(Duration::from_secs(10));
/// Longest warm-up that is chosen by default: slow start is over on all but the longest paths.
const MAX_DEFAULT_WARM_UP: Duration = Duration::from_secs(1);
/// Between two intervals of a record, if nothing is given.
const DEFAULT_INTERVAL: Span = Span(Duration::from_secs(1));
/// iperf3's message size over TCP, and large enough that system calls cost little.
const DEFAULT_MESSAGE: u64 = 128 << 10;
/// With the headers of UDP (8) and IPv6 (40) it fits an MTU of 1500, as a TCP segment's payload
/// does.
const DEFAULT_DATAGRAM: u64 = 1448;
/// Below this rate single datagrams cost little, and offload would send them in bursts.
const OFFLOAD_ABOVE: BitRate = BitRate(100_000_000);

/// The plan of `stream`.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn stream(args: &StreamArgs, fresh_seed: u64) -> anyhow::Result<Plan> {
    let protocol = args.run.transport.protocol();
    refuse_other_protocols_options(args, protocol)?;
    let default_size = match protocol {
        Protocol::Udp => DEFAULT_DATAGRAM,
        Protocol::Tcp | Protocol::Mptcp => DEFAULT_MESSAGE,
    };
    let sizes = args.traffic.size.clone();
    let sizes = sizes.unwrap_or_else(|| Sizes::one(default_size));
    let extent = match args.traffic.bytes {
        Some(bytes) => Extent::Bytes(bytes),
        None => extent(&args.run.extent),
    };
    let base = Base {
        direction: direction(args),
        extent,
        warm_up: warm_up(&args.run.extent, extent, args.traffic.whole),
        seed: args.run.extent.seed.unwrap_or(fresh_seed),
    };
    let traffic = |bytes| Traffic::Stream(stream_test(args, protocol, bytes));
    plan(&args.run, &base, &sizes, traffic)
}

/// The plan of `rr`.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn rr(args: &RrArgs, fresh_seed: u64) -> anyhow::Result<Plan> {
    exchange(&args.run, &args.exchange, fresh_seed, |test| {
        Traffic::Rr(ExchangeTest {
            depth: args.depth.unwrap_or(1),
            ..test
        })
    })
}

/// The plan of `crr`.
///
/// # Errors
/// The first contradiction, or the first figure that is out of range.
pub(crate) fn crr(args: &CrrArgs, fresh_seed: u64) -> anyhow::Result<Plan> {
    let protocol = args.run.transport.protocol();
    ensure!(
        protocol != Protocol::Udp,
        "crr cannot be used with --protocol udp: it opens connections, and UDP has none"
    );
    exchange(&args.run, &args.exchange, fresh_seed, |test| {
        Traffic::Crr(ExchangeTest {
            closer: args.close.unwrap_or(Closer::Server),
            reset: args.reset,
            ..test
        })
    })
}

/// A seed that no other run is likely to have. It has 32 bits, so that it can be typed and a JSON
/// reader that knows only doubles keeps it.
pub(crate) fn fresh_seed() -> u64 {
    // The standard library seeds its hash maps from the operating system's random numbers.
    RandomState::new().hash_one(std::process::id()) >> 32
}

fn exchange(
    run: &RunOptions,
    options: &ExchangeOptions,
    fresh_seed: u64,
    traffic: impl Fn(ExchangeTest) -> Traffic,
) -> anyhow::Result<Plan> {
    refuse_tcp_options_over_udp(&run.sockets, run.transport.protocol())?;
    let extent = extent(&run.extent);
    let base = Base {
        direction: Direction::Up,
        extent,
        warm_up: warm_up(&run.extent, extent, false),
        seed: run.extent.seed.unwrap_or(fresh_seed),
    };
    let requests = options.request.clone().unwrap_or_else(|| Sizes::one(1));
    plan(run, &base, &requests, |request_bytes| {
        traffic(ExchangeTest {
            request_bytes,
            response_bytes: options.response.map_or(1, |size| size.0),
            depth: 1,
            rate_per_s: options.rate.map(|rate| rate.0),
            spin: options.spin,
            closer: Closer::Client,
            reset: false,
        })
    })
}

/// What all tests of a plan share, apart from what [`RunOptions`] says as it stands.
struct Base {
    direction: Direction,
    extent: Extent,
    warm_up: Span,
    seed: u64,
}

fn plan(
    run: &RunOptions,
    base: &Base,
    sizes: &Sizes,
    traffic: impl Fn(u64) -> Traffic,
) -> anyhow::Result<Plan> {
    let options = |traffic: &Traffic| SocketOptions {
        // Nagle's algorithm would hold a request back for the last one's acknowledgement: no
        // application that asks and waits leaves it on.
        nodelay: run.sockets.nodelay
            || run.transport.protocol() != Protocol::Udp && !matches!(traffic, Traffic::Stream(_)),
        ..socket_options(&run.sockets)
    };
    let test = |&bytes: &u64| Test {
        options: options(&traffic(bytes)),
        traffic: traffic(bytes),
        protocol: run.transport.protocol(),
        direction: base.direction,
        streams: run.transport.streams.unwrap_or(1),
        extent: base.extent,
        warm_up: base.warm_up,
        interval: run.extent.interval.unwrap_or(default_interval(base.extent)),
        seed: base.seed,
    };
    let tests: Vec<Test> = sizes.as_slice().iter().map(test).collect();
    for test in &tests {
        let checked = test.check();
        checked.map_err(|error| anyhow!(error.on_command_line()))?;
    }
    Ok(Plan {
        tests,
        repeats: repeats(&run.extent)?,
    })
}

fn stream_test(args: &StreamArgs, protocol: Protocol, message_bytes: u64) -> StreamTest {
    let options = &args.traffic;
    let offload_by_default = !options.no_offload
        && protocol == Protocol::Udp
        && options.rate.is_none_or(|rate| rate > OFFLOAD_ABOVE);
    StreamTest {
        message_bytes,
        send: if options.zerocopy {
            SendMethod::ZeroCopy
        } else {
            SendMethod::Copy
        },
        receive: if options.discard {
            ReceiveMethod::Discard
        } else {
            ReceiveMethod::Read
        },
        verify: options.verify,
        whole: options.whole,
        write_rate_bps: options.write_rate,
        read_rate_bps: options.read_rate,
        rate_bps: options.rate,
        offload: options.offload || offload_by_default,
        train: false,
    }
}

fn direction(args: &StreamArgs) -> Direction {
    match (args.traffic.reverse, args.traffic.bidir) {
        (true, _) => Direction::Down,
        (_, true) => Direction::Both,
        _ => args.traffic.direction.unwrap_or(Direction::Up),
    }
}

fn extent(options: &ExtentOptions) -> Extent {
    match options.count {
        Some(count) => Extent::Count(count),
        None => Extent::Time(options.time.unwrap_or(DEFAULT_TIME)),
    }
}

/// A tenth of the time, at most a second; nothing where everything counts or the end is no time.
fn warm_up(options: &ExtentOptions, extent: Extent, whole: bool) -> Span {
    let default = match extent {
        Extent::Time(time) if !whole => (time.0 / 10).min(MAX_DEFAULT_WARM_UP),
        Extent::Time(_) | Extent::Bytes(_) | Extent::Count(_) => Duration::ZERO,
    };
    options.warm_up.unwrap_or(Span(default))
}

/// A second, or the whole of a shorter run.
fn default_interval(extent: Extent) -> Span {
    match extent {
        Extent::Time(time) => time.min(DEFAULT_INTERVAL),
        Extent::Bytes(_) | Extent::Count(_) => DEFAULT_INTERVAL,
    }
}

fn repeats(options: &ExtentOptions) -> anyhow::Result<Repeats> {
    if let Some(precision) = options.precision {
        ensure!(
            precision.0 > 0.0 && precision <= Percent(100.0),
            "--precision is {precision}: it must be above 0 % and at most 100 %"
        );
        return Ok(Repeats::Precision(precision));
    }
    let times = options.repeat.unwrap_or(1);
    ensure!(
        (1..=MAX_REPEATS).contains(&times),
        "--repeat is {times}: it must be 1 to {MAX_REPEATS}"
    );
    Ok(Repeats::Times(times))
}

fn socket_options(sockets: &SocketArgs) -> SocketOptions {
    SocketOptions {
        receive_window_bytes: sockets.receive_window,
        send_buffer_bytes: sockets.send_buffer,
        mss_bytes: sockets.mss,
        pacing_bps: sockets.pacing,
        congestion: sockets.congestion.clone(),
        nodelay: sockets.nodelay,
        dscp: sockets.dscp,
        ..SocketOptions::default()
    }
}

/// An option that was given and has no meaning over the protocol, with what to do instead or why.
fn refuse(given: &[(&str, bool, &str)], protocol: &str) -> anyhow::Result<()> {
    for (option, is_given, why) in given {
        ensure!(
            !is_given,
            "{option} cannot be used with --protocol {protocol}: {why}"
        );
    }
    Ok(())
}

fn refuse_other_protocols_options(args: &StreamArgs, protocol: Protocol) -> anyhow::Result<()> {
    let options = &args.traffic;
    const OF_UDP: &str = "it is an option of UDP";
    const OF_TCP: &str = "it is an option of TCP";
    let over_tcp = [
        (
            "--rate",
            options.rate.is_some(),
            "a TCP stream is limited by --pacing or --write-rate",
        ),
        ("--offload", options.offload, OF_UDP),
        ("--no-offload", options.no_offload, OF_UDP),
    ];
    let over_udp = [
        ("--write-rate", options.write_rate.is_some(), "give --rate"),
        ("--zerocopy", options.zerocopy, OF_TCP),
        ("--discard", options.discard, OF_TCP),
        ("--whole", options.whole, "it has no connection to count in"),
    ];
    match protocol {
        Protocol::Tcp => refuse(&over_tcp, "tcp"),
        Protocol::Mptcp => refuse(&over_tcp, "mptcp"),
        Protocol::Udp => {
            refuse(&over_udp, "udp")?;
            refuse_tcp_options_over_udp(&args.run.sockets, protocol)
        }
    }
}

fn refuse_tcp_options_over_udp(sockets: &SocketArgs, protocol: Protocol) -> anyhow::Result<()> {
    const OF_TCP: &str = "it is an option of TCP sockets";
    if protocol != Protocol::Udp {
        return Ok(());
    }
    let given = [
        ("--mss", sockets.mss.is_some(), OF_TCP),
        ("--congestion", sockets.congestion.is_some(), OF_TCP),
        ("--nodelay", sockets.nodelay, OF_TCP),
        ("--pacing", sockets.pacing.is_some(), "give --rate"),
    ];
    refuse(&given, "udp")
}

#[cfg(test)]
mod tests;
