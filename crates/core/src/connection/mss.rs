//! Why the segments of a capture are small, as the SYNs of both ends have it.

use crate::capture::{Flow, Side};
use crate::record::{Caveat, CaveatKind};

/// What the SYNs told, where it is less than Ethernet carries or the ends differ; `None` for what
/// is usual.
pub(super) fn small_segments(flow: &Flow) -> Option<Caveat> {
    let told = |side| Some(f64::from(flow.offer_of(side)?.mss?));
    let [initiator, responder] = [told(Side::Initiator)?, told(Side::Responder)?];
    let (side, least, most) = if initiator < responder {
        (Side::Initiator, initiator, responder)
    } else {
        (Side::Responder, responder, initiator)
    };
    let is_ipv4 = flow.ends[0].is_ipv4();
    let usual = if is_ipv4 { USUAL_IPV4 } else { USUAL_IPV6 };
    let end = flow.ends[side as usize];
    let message = if least < SMALL * most {
        let why = match flow.near {
            Some(near) if near == side => {
                "the MTU of this host's interface, the advmss of its route, or TCP_MAXSEG"
            }
            _ => {
                "a router on the way clamps the MSS, or the MTU of that host's interface, the \
                 advmss \
                 of its route or TCP_MAXSEG is smaller"
            }
        };
        format!("the SYN of {end} came with an MSS of {least}, the other end's with {most}: {why}")
    } else if least < SMALL * usual {
        format!(
            "the SYNs of both ends came with an MSS of {least}, and Ethernet carries {usual}: a \
             router on the way clamps the MSS, or interfaces have a smaller MTU"
        )
    } else {
        return None;
    };
    let remedy = "capture at the other end, too: an MSS that differs there was changed on the way";
    Some(Caveat::new(CaveatKind::SmallSegments, message, remedy))
}

/// A tunnel takes 60 bytes and more, PPPoE 8.
const SMALL: f64 = 0.95;
/// Ethernet's MTU of 1500 less the headers of IP and TCP, bytes.
const USUAL_IPV4: f64 = 1460.0;
const USUAL_IPV6: f64 = 1440.0;
