//! What the other end tells of a flow, held against what this end has seen of it.

use crate::record::TcpEvidence;
use crate::session::message::{FlowHalf, UdpReceived, UdpSent};

/// The other end's account of a flow.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Told {
    /// Payload that it has sent or received.
    pub(super) bytes: u64,
    /// Messages, where they are as long as this end's, or datagrams.
    pub(super) messages: Option<u64>,
    /// How long that took it.
    pub(super) seconds: Option<f64>,
    /// Segments that it has sent again.
    pub(super) retransmitted: Option<u64>,
    pub(super) udp_sent: Option<UdpSent>,
    pub(super) udp_received: Option<UdpReceived>,
}

/// Bytes per second.
const FASTEST_LINK: f64 = 1e12 / 8.0;

/// Whether that many bytes can be those of the flow that this end has seen: a receiver has no more
/// than was sent, and a sender no more than any link carries. A warm-up ends for the two at
/// different moments, so that twice as much is still possible.
pub(super) fn are_possible(bytes: u64, flow: &FlowHalf) -> bool {
    let beyond = if flow.sends {
        1 << 30
    } else {
        (flow.seconds.max(1.0) * FASTEST_LINK) as u64
    };
    bytes <= 2 * flow.bytes + beyond
}

impl Told {
    /// The other end's half of `flow`. Where it sent TCP, what it has sent again is all that is
    /// known of its kernel.
    pub(super) fn into_half(self, flow: &FlowHalf) -> FlowHalf {
        // A time that cannot be of this test makes no rate.
        let plausible = flow.seconds / 2.0..=flow.seconds * 2.0;
        let seconds = self.seconds.filter(|seconds| plausible.contains(seconds));
        let sends = !flow.sends;
        let retransmitted = (self.retransmitted).filter(|_| sends && flow.tcp.is_some());
        FlowHalf {
            local: flow.remote.clone(),
            remote: flow.local.clone(),
            bytes: self.bytes,
            // Of a stream nobody tells them: this end's are as long.
            messages: self.messages.unwrap_or(flow.messages),
            seconds: seconds.unwrap_or(flow.seconds),
            tcp: retransmitted.map(TcpEvidence::told),
            udp_sent: self.udp_sent,
            udp_received: self.udp_received,
            ..FlowHalf::new(flow.id, flow.direction, sends)
        }
    }
}
