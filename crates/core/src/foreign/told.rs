//! The other end's account of a flow, checked against what this end has seen of it.

use crate::record::TcpEvidence;
use crate::session::message::FlowHalf;

/// Rate that no link exceeds, bytes per second.
const FASTEST_LINK: f64 = 1e12 / 8.0;

/// Whether the other end can have counted that many bytes of a flow that this end has seen: a
/// receiver has no more than was sent, and a sender no more than any link carries. A warm-up ends
/// at different moments at the two ends, so that twice as much is still possible.
pub(super) fn are_possible(bytes: u64, flow: &FlowHalf) -> bool {
    let beyond = if flow.sends { 1 << 30 } else { (flow.seconds.max(1.0) * FASTEST_LINK) as u64 };
    bytes <= 2 * flow.bytes + beyond
}

/// The other end's half of `flow`, from its counts. Without messages or a plausible time those of
/// this end are taken. Of a kernel that sent TCP nothing more is known than the segments that it
/// retransmitted.
pub(super) fn other_half(
    flow: &FlowHalf,
    bytes: u64,
    messages: Option<u64>,
    seconds: Option<f64>,
    retransmitted: Option<u64>,
) -> FlowHalf {
    let plausible = flow.seconds / 2.0..=flow.seconds * 2.0;
    let seconds = seconds.filter(|seconds| plausible.contains(seconds));
    let sends = !flow.sends;
    let retransmitted = retransmitted.filter(|_| sends && flow.tcp.is_some());
    FlowHalf {
        local: flow.remote.clone(),
        remote: flow.local.clone(),
        bytes,
        messages: messages.unwrap_or(flow.messages),
        seconds: seconds.unwrap_or(flow.seconds),
        tcp: retransmitted.map(TcpEvidence::told),
        ..FlowHalf::new(flow.id, flow.direction, sends)
    }
}
