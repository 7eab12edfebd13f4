//! A test of linerate's as tests of netperf's: one for each flow, each with its own control
//! connection.

use std::net::SocketAddr;

use linerate_core::foreign::netperf::{Client, DataTest, Length, Role, Transport};
use linerate_core::plan::{Direction, Extent, Protocol, SendMethod, SocketOptions, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::units::{ByteCount, Family, Span};

use crate::measure::flow::flow_direction;
use crate::partner::{refuse_lacking, stream_lacks};

/// Seconds for which a netserver is asked to send longer than this end measures, because this end
/// is to end the test. The sum is rounded up to whole seconds.
const LONGER_S: f64 = 1.0;

/// A test as this end drives it.
#[derive(Debug, Clone)]
pub(super) struct Adapted {
    pub(super) test: Test,
    /// What differs from the test that was asked for.
    pub(super) caveats: Vec<Caveat>,
}

/// Turns a test of linerate's into one of netperf's.
///
/// # Errors
/// The message says what netperf's protocol lacks for it.
pub(super) fn adapt(test: &Test) -> Result<Adapted, String> {
    lacks(test)?;
    let mut adapted = Adapted { test: test.clone(), caveats: Vec::new() };
    let receives = test.direction != Direction::Up;
    let streams = matches!(test.traffic, Traffic::Stream(_));
    if streams && test.direction != Direction::Down && !test.warm_up.0.is_zero() {
        // A netserver counts from the first byte to the last.
        adapted.test.warm_up = Span(std::time::Duration::ZERO);
        adapted.caveats.push(Caveat::new(
            CaveatKind::SettingNotTaken,
            "a netserver has no warm-up: what it received counts from the first byte, slow start \
             included",
            "measure for longer, or run `linerate serve` on that host",
        ));
    }
    if receives
        && matches!(test.extent, Extent::Bytes(_) | Extent::Count(_))
        && count(test) > MAX_UNITS
    {
        return Err(format!("a netserver counts to {MAX_UNITS} at most"));
    }
    Ok(adapted)
}

/// Largest number that netperf's 32-bit lengths hold.
const MAX_UNITS: u64 = i32::MAX as u64;

fn count(test: &Test) -> u64 {
    match (test.extent, &test.traffic) {
        (Extent::Bytes(ByteCount(bytes)), _) => bytes,
        (Extent::Count(count), Traffic::Stream(stream)) => {
            count.saturating_mul(stream.message_bytes)
        }
        (Extent::Count(count), _) => count,
        (Extent::Time(_), _) => 0,
    }
}

fn lacks(test: &Test) -> Result<(), String> {
    let down = test.direction != Direction::Up;
    let udp = test.protocol == Protocol::Udp;
    let mut missing = match &test.traffic {
        Traffic::Stream(stream) => {
            // A netserver sends datagrams to an address that it is told: NAT does not let them
            // through.
            let mut missing = vec![(udp && down, "--reverse with --udp")];
            missing.extend(stream_lacks(test, stream));
            missing.extend([
                (stream.write_rate_bps.is_some() && down, "--write-rate at the server"),
                (test.options.pacing_bps.is_some() && down, "--pacing at the server"),
            ]);
            missing
        }
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => vec![
            (udp, "--udp in rr"),
            (exchange.reset, "--reset"),
            (exchange.fast_open, "--fast-open"),
        ],
    };
    missing.push((test.options.source_port.is_some(), "--source-port"));
    refuse_lacking("a netserver", test, &missing)
}

/// The request to the netserver for flow `id`.
pub(super) fn request(test: &Test, id: u32, peer: SocketAddr) -> DataTest {
    let down = flow_direction(test, id) == Direction::Down;
    let role = match test.traffic {
        Traffic::Stream(_) if down => Role::Send,
        Traffic::Stream(_) => Role::Receive,
        Traffic::Rr(_) => Role::Exchange,
        Traffic::Crr(_) => Role::ConnectExchange,
    };
    let transport = match test.protocol {
        Protocol::Udp => Transport::Udp,
        Protocol::Tcp | Protocol::Mptcp => Transport::Tcp,
    };
    let asked = Client::test(role, transport, length(test, role));
    let options = &test.options;
    let bytes = |size: Option<ByteCount>| size.map(|ByteCount(bytes)| clamp(bytes));
    let asked = DataTest {
        // A netserver exits if it is told no address family.
        family: Some(Family::from(peer.ip())),
        nodelay: options.nodelay,
        receive_buffer: bytes(options.receive_window_bytes).filter(|_| !down),
        send_buffer: bytes(options.send_buffer_bytes).filter(|_| down),
        congestion: options.congestion.clone().filter(|_| down),
        traffic_class: options.dscp.map(|dscp| dscp.octet()),
        measure_cpu: true,
        ..asked
    };
    with_sizes(asked, test)
}

fn with_sizes(asked: DataTest, test: &Test) -> DataTest {
    match &test.traffic {
        Traffic::Stream(stream) => DataTest {
            send_bytes: Some(clamp(stream.message_bytes)),
            receive_bytes: Some(clamp(stream.message_bytes)),
            sendfile: stream.send == SendMethod::ZeroCopy,
            ..asked
        },
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => DataTest {
            request_bytes: clamp(exchange.request_bytes),
            response_bytes: clamp(exchange.response_bytes),
            ..asked
        },
    }
}

fn length(test: &Test, role: Role) -> Length {
    match (test.extent, role) {
        (Extent::Time(time), _) => {
            let seconds = (test.warm_up.as_secs_f64() + time.as_secs_f64()).ceil();
            // A sender ends the test by itself, which must not happen before this end has measured.
            let longer = if role == Role::Send { LONGER_S } else { 0.0 };
            Length::Seconds((seconds + longer).max(1.0) as u32)
        }
        // The netserver receives until the end of the stream.
        (_, Role::Receive) => Length::Open,
        _ => Length::Units(u32::try_from(count(test)).unwrap_or(i32::MAX as u32)),
    }
}

fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The options of this end, without those that the netserver was asked to set.
pub(super) fn own_options(test: &Test, id: u32) -> SocketOptions {
    let mut options = test.options.clone();
    if flow_direction(test, id) == Direction::Down {
        options.congestion = None;
    }
    options
}
