//! What a test may do at this endpoint, and whether this host can do it.

use std::net::SocketAddr;

use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::units::{BitRate, End};
use linerate_sys::proc::sysctl;
use linerate_sys::socket::{self, Mptcp, OptionError};

use crate::measure::flow::{Flow, FlowSocket, flow_direction, sends};
use crate::measure::options;
use crate::words;

/// Limits a test to the owner's rate, bits per second: what this end sends or reads is slowed down
/// to it. A test that it cannot slow down must not ask for more.
pub(super) fn within_rate(test: Box<Test>, limit: Option<u64>) -> Result<Box<Test>, String> {
    let Some(limit) = limit.map(BitRate) else {
        return Ok(test);
    };
    let share = test.share_of(limit);
    let mut test = test.slowed_to(limit);
    match (&mut test.traffic, test.protocol) {
        (Traffic::Rr(_), Protocol::Udp) => {
            Err(format!("the endpoint allows {limit} in all, and nobody slows requests over UDP"))
        }
        (Traffic::Stream(stream), Protocol::Udp)
            if stream.rate_bps.is_none_or(|rate| rate > share) =>
        {
            Err(format!(
                "the endpoint allows {limit} in all: give --rate {} or less for each stream",
                share.0
            ))
        }
        (Traffic::Stream(stream), Protocol::Tcp | Protocol::Mptcp) => {
            let reads = &mut stream.read_rate_bps;
            *reads = Some(reads.map_or(share, |rate| rate.min(share)));
            Ok(Box::new(test))
        }
        _ => Ok(Box::new(test)),
    }
}

/// The caveat in the client's record about a rate that the owner has set.
pub(super) fn owners_limit(rate_bps: u64) -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        format!(
            "the endpoint's owner allows {} in all: it paces and reads no faster",
            BitRate(rate_bps)
        ),
        "on that host: linerate serve with another --max-rate, or without",
    )
}

/// Tries the test's options on a temporary socket, so that a refusal comes before the flows. A
/// client without the key may only name a congestion control that is loaded and allowed to
/// everybody.
pub(super) fn can_do(test: &Test, has_key: bool) -> Result<(), String> {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let fail = |what: String| format!("the endpoint's host cannot do this test: {what}");
    let mut directions = test.direction.parts().iter();
    if let Some(name) = &test.options.congestion
        && !has_key
        && directions.any(|direction| sends(End::Server, *direction))
    {
        is_open_to_strangers(name).map_err(fail)?;
    }
    if test.protocol == Protocol::Udp {
        let socket = socket::udp_socket(here, None, false).map_err(|e| fail(e.to_string()))?;
        return [true, false].into_iter().try_for_each(|sends| {
            options::apply_udp(&socket, &test.options, sends).map_err(|e| fail(e.to_string()))
        });
    }
    let socket =
        socket::tcp_socket(here, None, Mptcp::Off).map_err(|error| fail(error.to_string()))?;
    let parts = test.direction.parts().iter();
    parts.map(|direction| sends(End::Server, *direction)).try_for_each(|sends| {
        options::apply_tcp(&socket, &test.options, End::Server, sends)
            .map_err(|error| fail(words::chain(&error)))
    })
}

/// Checks that a congestion control algorithm is loaded and allowed to every user. For root the
/// kernel loads the module of any name (`tcp_set_congestion_control`, net/ipv4/tcp_cong.c).
fn is_open_to_strangers(name: &str) -> Result<(), String> {
    let allowed = sysctl::read(ALLOWED_CONGESTION).map_err(|error| words::chain(&error))?;
    if allowed.split_whitespace().any(|word| word == name) {
        return Ok(());
    }
    Err(format!(
        "clients without its key choose from {ALLOWED_CONGESTION} ({allowed}), which has no {name}"
    ))
}

/// Lists the algorithms that are loaded and allowed to every user.
const ALLOWED_CONGESTION: &str = "net.ipv4.tcp_allowed_congestion_control";

/// Sets the test's options on a flow that has arrived.
pub(super) fn prepare(test: &Test, flow: &Flow) -> Result<(), OptionError> {
    let sends = sends(End::Server, flow_direction(test, flow.id));
    match &flow.socket {
        FlowSocket::Tcp(stream) => options::apply_tcp(stream, &test.options, End::Server, sends),
        FlowSocket::Udp(socket) => options::apply_udp(socket, &test.options, sends),
    }
}
