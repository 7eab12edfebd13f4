//! A test of linerate's as one of iperf3's.

use linerate_core::foreign::iperf3::{Layout, Params, Transport};
use linerate_core::plan::{
    Direction, Extent, Protocol, ReceiveMethod, SendMethod, StreamTest, Test, Traffic,
};
use linerate_core::units::{BitRate, ByteCount, Span};

use crate::partner::{refuse_lacking, stream_lacks};

/// A test as this end drives it, and as the server is asked for it.
#[derive(Debug, Clone)]
pub(super) struct Adapted {
    pub(super) test: Test,
    pub(super) params: Params,
    /// Bytes of a counted test that the server sends, over all flows.
    pub(super) down_bytes: u64,
}

/// Turns a test of linerate's into one of iperf3's. The warm-up is rounded up to whole seconds.
///
/// # Errors
/// The message says what iperf3's protocol lacks for it.
pub(super) fn adapt(test: &Test) -> Result<Adapted, String> {
    let Traffic::Stream(stream) = &test.traffic else {
        return Err(
            "an iperf3 server answers there, which has no requests and responses: rr and crr need \
             `linerate serve` on that host"
                .into(),
        );
    };
    refuse_lacking("an iperf3 server", test, &stream_lacks(test, stream))?;
    let mut test = test.clone();
    let warm_up = test.warm_up.as_secs_f64().ceil();
    test.warm_up = Span(std::time::Duration::from_secs_f64(warm_up));
    let params = params(&test, stream)?;
    // What the server would refuse by its own limits is refused here, with the reason.
    Params::parse(&params.to_json())
        .map_err(|error| format!("iperf3 cannot do this test: {error}"))?;
    let down_bytes = match (test.direction, params.blocks) {
        (Direction::Up, _) => 0,
        (_, 0) => params.bytes,
        (_, blocks) => blocks.saturating_mul(stream.message_bytes),
    };
    Ok(Adapted { test, params, down_bytes })
}

fn params(test: &Test, stream: &StreamTest) -> Result<Params, String> {
    let flows = u64::from(test.streams);
    let (time, bytes, blocks) = match test.extent {
        Extent::Time(time) => (time.as_secs_f64().ceil().max(1.0), 0, 0),
        Extent::Bytes(bytes) => (0.0, bytes.0.saturating_mul(flows), 0),
        Extent::Count(count) => (0.0, 0, count.saturating_mul(flows)),
    };
    let (transport, rate) = match test.protocol {
        Protocol::Udp => (Transport::Udp(Layout::Wide), stream.rate_bps),
        Protocol::Tcp | Protocol::Mptcp => (Transport::Tcp, stream.write_rate_bps),
    };
    let options = &test.options;
    Ok(Params {
        transport,
        omit_s: test.warm_up.as_secs_f64() as u32,
        time_s: time as u32,
        bytes,
        blocks,
        streams: test.streams,
        direction: test.direction,
        block_bytes: stream.message_bytes,
        nodelay: options.nodelay,
        window_bytes: window(test)?,
        mss_bytes: options.mss_bytes,
        rate_bps: rate.map(|BitRate(bps)| bps),
        pacing_bps: options.pacing_bps.map(|BitRate(bps)| bps),
        tos: options.dscp.map_or(0, |dscp| dscp.octet()),
        congestion: options.congestion.clone(),
        zerocopy: stream.send == SendMethod::ZeroCopy,
        discard: stream.receive == ReceiveMethod::Discard,
        wants_output: false,
        token: None,
        version: Some(format!("linerate-{}", env!("CARGO_PKG_VERSION"))),
    })
}

/// The size of both of the server's socket buffers; in each direction only one of them matters.
fn window(test: &Test) -> Result<Option<u64>, String> {
    let bytes = |size: Option<ByteCount>| size.map(|ByteCount(bytes)| bytes);
    let receive = bytes(test.options.receive_window_bytes);
    let send = bytes(test.options.send_buffer_bytes);
    match (test.direction, receive, send) {
        (Direction::Up, receive, _) => Ok(receive),
        (Direction::Down, _, send) => Ok(send),
        (Direction::Both, Some(receive), Some(send)) if receive != send => Err(
            "iperf3 has one size for both socket buffers: give --receive-window and --send-buffer \
             the same, or one direction"
                .into(),
        ),
        (Direction::Both, receive, send) => Ok(receive.or(send)),
    }
}
