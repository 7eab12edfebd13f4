//! Segments that are small for the interface they leave by, and why.

use crate::record::{Caveat, CaveatKind, DeviceFacts};

use super::formulas::{TCP_HEADER_BYTES, ip_header_bytes};
use super::remedy::plain;
use super::signals::{option_bytes, positive};
use super::thresholds::SEGMENT_SMALL;
use super::view::View;

/// MTU that every path of today's Internet has, bytes.
const USUAL_MTU: u32 = 1500;

/// What made the segments smaller than the sender's interface would carry, if they are.
///
/// With segmentation offload a small size costs nothing on the host, but it always costs headers on the
/// path, and CPU time wherever nothing cuts or joins segments.
pub fn small_segments(view: &View<'_>) -> Option<Caveat> {
    let device = view.sender_host?.device.as_ref()?;
    let mss = view.mean(|tcp| positive(tcp.mss_bytes.into()))?;
    let expected = expected_mss(view)?;
    // TCP keeps segments to half a window of 64 KiB: less than loopback's MTU, and no mistake.
    if device.name == "lo" {
        return None;
    }
    let name = plain(&device.name).unwrap_or("the interface");
    if mss < SEGMENT_SMALL * expected {
        let (why, remedy) = reason(view, device, mss);
        let message = format!(
            "segments carry {mss:.0} bytes where {name} with its MTU of {} would carry {expected:.0}: {why}",
            device.mtu_bytes
        );
        return Some(Caveat::new(CaveatKind::SmallSegments, message, remedy));
    }
    (device.mtu_bytes < USUAL_MTU).then(|| {
        Caveat::new(
            CaveatKind::SmallSegments,
            format!(
                "segments carry {mss:.0} bytes: the MTU of {name} is {}",
                device.mtu_bytes
            ),
            format!("ip link set dev {name} mtu {USUAL_MTU}"),
        )
    })
}

/// Payload of a segment that fills the sender's interface, bytes.
fn expected_mss(view: &View<'_>) -> Option<f64> {
    let device = view.sender_host?.device.as_ref()?;
    mss_of(view, f64::from(device.mtu_bytes))
}

fn mss_of(view: &View<'_>, mtu: f64) -> Option<f64> {
    let options = view.mean(|tcp| Some(option_bytes(tcp)))?;
    positive(mtu - ip_header_bytes(view.family) - TCP_HEADER_BYTES - options)
}

/// Why, and the command that mends it or shows more. The kernel's path MTU rules out or names this end;
/// what the receiver advertised tells its end from a change on the way.
fn reason(view: &View<'_>, device: &DeviceFacts, mss: f64) -> (String, String) {
    let pmtu = view
        .mean(|tcp| Some(tcp.pmtu_bytes.into()))
        .and_then(positive);
    if let Some(pmtu) = pmtu.filter(|p| *p < f64::from(device.mtu_bytes))
        && mss_of(view, pmtu).is_some_and(|fits| mss >= SEGMENT_SMALL * fits)
    {
        return (
            format!("the path MTU is {pmtu:.0}, set on the route or told by a router"),
            "ip route get PEER  # shows an mtu; ip route flush cache forgets a router's".into(),
        );
    }
    let receiver = view.receiver_host.and_then(|host| host.device.as_ref());
    if let Some(peer) = receiver.filter(|peer| peer.mtu_bytes > 0) {
        let name = plain(&peer.name).unwrap_or("its interface");
        let fits = mss_of(view, f64::from(peer.mtu_bytes));
        if fits.is_some_and(|fits| mss >= SEGMENT_SMALL * fits) {
            return (
                format!("the receiver's {name} has an MTU of {}", peer.mtu_bytes),
                format!(
                    "ip link set dev {name} mtu {}  # on the receiver's host",
                    device.mtu_bytes
                ),
            );
        }
    }
    advertised(view, mss)
}

/// Neither interface explains it: a route, a socket option, or a router that rewrites the SYN.
fn advertised(view: &View<'_>, mss: f64) -> (String, String) {
    let options = view.mean(|tcp| Some(option_bytes(tcp))).unwrap_or(0.0);
    let told = view.mean(|tcp| tcp.receiver_advmss_bytes.map(f64::from));
    let on_receiver = "ip route get PEER  # on the receiver's host: shows an advmss".to_owned();
    match told {
        Some(told) if mss + options >= SEGMENT_SMALL * told => (
            format!(
                "the receiver advertised an MSS of {told:.0} (advmss of its route, TCP_MAXSEG of its \
                 socket)"
            ),
            on_receiver,
        ),
        Some(told) => (
            format!(
                "the receiver advertised an MSS of {told:.0}, so TCP_MAXSEG of the sending socket or a \
                 router that clamps the MSS made it less"
            ),
            "nft list ruleset  # on the routers: shows a rule with tcp option maxseg".to_owned(),
        ),
        None => (
            "TCP_MAXSEG of a socket, the advmss of the receiver's route, or a router that clamps the \
             MSS"
                .to_owned(),
            on_receiver,
        ),
    }
}
