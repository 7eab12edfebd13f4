//! Finds segments that are small for the interface they leave by, and the reason.

use crate::plan::Role;
use crate::record::{Caveat, CaveatKind, DeviceFacts, TcpReceiver, TcpSender};
use crate::remedy::{Change, LookObject, Name, Remedy, RouteMetric, RunOption};
use crate::units::{CaveatRemedy, Family};

use super::formulas::{TCP_HEADER_BYTES, ip_header_bytes};
use super::remedy;
use super::signals::{option_bytes, positive};
use super::thresholds::{SEGMENT_SMALL, SOFTIRQ_QUEUES_PERCENT};
use super::view::View;

/// MTU that every path of today's Internet has, bytes.
const USUAL_MTU: u32 = 1500;

/// Segments that are small for their interface.
pub(super) struct SmallSegments {
    /// Their size and the reason, a sentence.
    pub(super) message: String,
    /// The remedy, or a look that shows more.
    pub(super) remedy: Remedy,
}

/// A caveat, if the segments are smaller than the sender's interface would carry.
pub(super) fn small_segments_caveat(view: &View<'_>) -> Option<Caveat> {
    let SmallSegments { message, remedy } = small_segments(view)?;
    let command = remedy.typed(Some(&view.run())).command;
    let command = CaveatRemedy::Command(command);
    Some(Caveat::new(CaveatKind::SmallSegments, message, command))
}

/// The reason why segments are smaller than the sender's interface would carry, if they are.
///
/// With segmentation offload a small size costs nothing on the host, but it always costs headers on
/// the path, and CPU time wherever nothing cuts or joins segments.
pub(super) fn small_segments(view: &View<'_>) -> Option<SmallSegments> {
    let device = view.sender_host?.device.as_ref()?;
    let mss = view.mss()?;
    let expected = expected_mss(view)?;
    // TCP keeps segments to half a window of 64 KiB: less than loopback's MTU, and no mistake.
    if device.name == "lo" {
        return None;
    }
    let (name, mtu) = (device_name(device), device.mtu_bytes);
    if mss < SEGMENT_SMALL * expected {
        let (why, remedy) = reason(view, device, mss);
        let message = format!(
            "segments carry {mss:.0} bytes where {name} with its MTU of {mtu} would carry \
             {expected:.0}: {why}",
        );
        return Some(SmallSegments { message, remedy });
    }
    (mtu < USUAL_MTU).then(|| SmallSegments {
        message: format!("segments carry {mss:.0} bytes: the MTU of {name} is {mtu}"),
        remedy: device_mtu(view, Role::Sender, name, USUAL_MTU),
    })
}

/// Whether the sender's device cuts large pieces into segments itself (TSO).
pub(super) fn segmentation_offload(view: &View<'_>) -> Option<bool> {
    let device = view.sender_host?.device.as_ref()?;
    let feature = match view.family {
        Family::Ipv4 => "tx-tcp-segmentation",
        Family::Ipv6 => "tx-tcp6-segmentation",
    };
    device.offloads.get(feature).copied()
}

/// Percent of a core that soft interrupts take, if small segments on a path of microseconds queue
/// before them: they take each segment by itself, and no clock of a link keeps the rate even.
pub(super) fn queue_of_cpu(view: &View<'_>) -> Option<f64> {
    let taken = view.sender?.softirq_core_percent?;
    let queue = view.inflation()?.may_be_of_cpus() && !view.is_even();
    let is_cut_here = segmentation_offload(view) == Some(false);
    // The reason for small segments, which is looked for last, takes some work.
    let is_it = taken >= SOFTIRQ_QUEUES_PERCENT && queue && is_cut_here;
    (is_it && small_segments(view).is_some()).then_some(taken)
}

/// Whether the receiver, whose senders were not read, takes small segments and a core's soft
/// interrupts are busy with them: its thread then lacks the time that the segments cost.
pub(super) fn busy_with_small_segments(view: &View<'_>) -> bool {
    let taken = view.receiver.and_then(|end| end.softirq_core_percent);
    let small = |it: &&TcpReceiver| {
        it.advmss_bytes > 0 && f64::from(it.advmss_bytes) < SEGMENT_SMALL * f64::from(it.pmtu_bytes)
    };
    let receivers = view.receivers_alone();
    let are_small = !receivers.is_empty() && receivers.iter().all(small);
    are_small && taken.is_some_and(|percent| percent >= SOFTIRQ_QUEUES_PERCENT)
}

fn device_name(device: &DeviceFacts) -> Name {
    Name::new(&device.name).unwrap_or_else(|| Name::new("DEVICE").expect("letters are a name"))
}

fn device_mtu(view: &View<'_>, role: Role, object: Name, value: u32) -> Remedy {
    let change = Change::DeviceMtu { object, value };
    Remedy::new(change, Some(role.end(view.direction)))
}

/// Payload of the segments without what makes them small, bytes: what both interfaces carry, or, if
/// one of the interfaces is the reason, what the other one carries.
pub(super) fn full_segment(view: &View<'_>) -> Option<f64> {
    let mss = view.mss()?;
    let hosts = [view.sender_host, view.receiver_host].into_iter().flatten();
    let mtus: Vec<u32> = hosts.filter_map(|host| Some(host.device.as_ref()?.mtu_bytes)).collect();
    let of_mtu = |mtu: u32| mss_of(view, f64::from(mtu));
    let shared = of_mtu(*mtus.iter().min()?).filter(|full| mss < SEGMENT_SMALL * full);
    shared.or_else(|| of_mtu(*mtus.iter().max()?.max(&USUAL_MTU)))
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

/// The reason and the remedy. The kernel's path MTU names this end or rules it out; the MSS that
/// the receiver advertised distinguishes the receiver's end from a change on the way.
fn reason(view: &View<'_>, device: &DeviceFacts, mss: f64) -> (String, Remedy) {
    let seen = SegmentSizes::of(view, device, mss);
    if let Some(pmtu) = seen.pmtu.filter(|p| *p < f64::from(device.mtu_bytes))
        && mss_of(view, pmtu).is_some_and(|fits| mss >= SEGMENT_SMALL * fits)
    {
        return path_mtu(view, &seen, pmtu);
    }
    match seen.told {
        Some(told) if seen.reaches(told) => by_receiver(view, &seen, told),
        Some(told) => on_the_way(view, &seen, told),
        None => by_interface(view, &seen).unwrap_or_else(|| {
            let why = "TCP_MAXSEG of a socket, the advmss of the receiver's route, or a router that \
                       clamps the MSS";
            let metric = RouteMetric::Advmss;
            let remedy = remedy::route(view, Role::Receiver, metric, seen.largest);
            (why.to_owned(), remedy)
        }),
    }
}

/// The figures that distinguish the reasons. All sizes are as in the MSS option of a SYN: with TCP
/// options.
struct SegmentSizes {
    /// Size of the segments.
    size: f64,
    /// The largest that both interfaces carry.
    largest: f64,
    /// Sizes that the two ends advertised.
    own: Option<f64>,
    told: Option<f64>,
    /// Largest that the receiver's end would send.
    back: Option<f64>,
    /// Path MTUs that the two kernels believe in.
    pmtu: Option<f64>,
    receiver_pmtu: Option<f64>,
    /// TCP options in each segment.
    options: f64,
    /// IP and TCP headers.
    headers: f64,
}

impl SegmentSizes {
    fn of(view: &View<'_>, device: &DeviceFacts, mss: f64) -> Self {
        let options = view.mean(|tcp| Some(option_bytes(tcp))).unwrap_or(0.0);
        let headers = ip_header_bytes(view.family) + TCP_HEADER_BYTES;
        let figure = |pick: fn(&TcpSender) -> u32| {
            view.mean(|tcp| Some(pick(tcp).into())).and_then(positive)
        };
        let told = |pick: fn(&TcpReceiver) -> u32| {
            let sum = view.sum(|flow| flow.receiver.map(|end| pick(end).into()))?;
            positive(sum / view.tcp.len() as f64)
        };
        let receiver = view.receiver_host.and_then(|host| host.device.as_ref());
        let devices = [Some(device), receiver].into_iter().flatten();
        let mtus = devices.map(|device| f64::from(device.mtu_bytes)).filter(|mtu| *mtu > headers);
        Self {
            size: mss + options,
            largest: mtus.reduce(f64::min).unwrap_or(f64::from(USUAL_MTU)) - headers,
            // Linux takes the options off what it keeps of its offer
            // (tcp_rcv_synsent_state_process).
            own: figure(|tcp| tcp.advmss_bytes).map(|mss| mss + options),
            told: told(|end| end.advmss_bytes).map(|mss| mss + options),
            back: told(|end| end.mss_bytes).map(|mss| mss + options),
            pmtu: figure(|tcp| tcp.pmtu_bytes),
            receiver_pmtu: told(|end| end.pmtu_bytes),
            options,
            headers,
        }
    }

    /// Whether the segments are as large as this limit allows.
    fn reaches(&self, limit: f64) -> bool {
        self.size >= SEGMENT_SMALL * limit
    }
}

/// The path MTU is the reason. An end advertises what its route's MTU carries when the connection
/// begins: an end that advertised more learnt of the MTU later.
fn path_mtu(view: &View<'_>, seen: &SegmentSizes, pmtu: f64) -> (String, Remedy) {
    if seen.own.is_some_and(|own| own + seen.headers > pmtu) {
        return (
            format!("the path MTU is {pmtu:.0}, told by a router while the connection was open"),
            tracepath(view),
        );
    }
    (
        format!(
            "the path MTU is {pmtu:.0}, an mtu of the sender's route or told by a router before"
        ),
        route_mtu(view, Role::Sender, seen),
    )
}

fn tracepath(view: &View<'_>) -> Remedy {
    Remedy::look(LookObject::PathMtu, Some(Role::Sender.end(view.direction)))
}

/// An MTU of a role's route for the largest packets that both interfaces carry.
fn route_mtu(view: &View<'_>, role: Role, seen: &SegmentSizes) -> Remedy {
    remedy::route(view, role, RouteMetric::Mtu, seen.largest + seen.headers)
}

/// The receiver's interface is the reason, if it carries no more.
fn by_interface(view: &View<'_>, seen: &SegmentSizes) -> Option<(String, Remedy)> {
    let device = view.receiver_host?.device.as_ref()?;
    let carries = positive(f64::from(device.mtu_bytes) - seen.headers)?;
    let sender = view.sender_host?.device.as_ref()?;
    let name = device_name(device);
    seen.reaches(carries).then(|| {
        (
            format!("the receiver's {name} has an MTU of {}", device.mtu_bytes),
            device_mtu(view, Role::Receiver, name, sender.mtu_bytes),
        )
    })
}

/// The receiver asked for small segments: by its interface, the mtu or advmss of its route, or its
/// socket. `TCP_MAXSEG` also limits what an end sends; the advmss of a route does not.
fn by_receiver(view: &View<'_>, seen: &SegmentSizes, told: f64) -> (String, Remedy) {
    if let Some(found) = by_interface(view, seen) {
        return found;
    }
    let advertised = format!("the receiver advertised an MSS of {told:.0}");
    let near = |pmtu: &f64| *pmtu - seen.headers <= told;
    if let Some(pmtu) = seen.receiver_pmtu.filter(near) {
        return (
            format!("{advertised}: its route has an mtu of {pmtu:.0}"),
            route_mtu(view, Role::Receiver, seen),
        );
    }
    let advmss = remedy::route(view, Role::Receiver, RouteMetric::Advmss, seen.largest);
    // What the receiver sends is bound by what it was told as well: only a larger offer shows its
    // own limit.
    let free = seen.own.is_some_and(|own| own > told + seen.options);
    match seen.back {
        Some(back) if back > told + seen.options => {
            (format!("{advertised}: its route has such an advmss"), advmss)
        }
        Some(_) if free => {
            (format!("{advertised}: TCP_MAXSEG of its socket"), Remedy::without(RunOption::Mss))
        }
        _ => (format!("{advertised} (advmss of its route, TCP_MAXSEG of its socket)"), advmss),
    }
}

/// The receiver asked for larger segments: the reason is the sender's socket, its MTU probing, or a
/// router that rewrites SYNs.
fn on_the_way(view: &View<'_>, seen: &SegmentSizes, told: f64) -> (String, Remedy) {
    let more = format!("the receiver advertised an MSS of {told:.0}");
    if seen.own.is_some_and(|own| seen.reaches(own)) {
        return (
            format!("{more}, so TCP_MAXSEG of the sending socket made it less"),
            Remedy::without(RunOption::Mss),
        );
    }
    let probing = view.sender_host.and_then(|host| host.sysctls.get("net.ipv4.tcp_mtu_probing"));
    if let Some(mode) = probing.filter(|mode| mode.trim() != "0") {
        return (
            format!(
                "{more}, so TCP's MTU probing (net.ipv4.tcp_mtu_probing={}) found larger packets \
                 lost, or a router clamps the MSS",
                mode.trim().parse().unwrap_or(1_u8)
            ),
            tracepath(view),
        );
    }
    let default = match view.family {
        Family::Ipv4 => DEFAULT_MSS_IPV4,
        Family::Ipv6 => DEFAULT_MSS_IPV6,
    };
    let stripped = if (seen.size - default).abs() < 1.0 {
        " or takes the option away (TCP's default without it)"
    } else {
        ""
    };
    (
        format!(
            "{more}, so a router that clamps the MSS to {:.0}{stripped} made it less",
            seen.size
        ),
        Remedy::look(LookObject::RouterRules, None),
    )
}

/// Segment sizes where no MSS option came, bytes (RFC 9293, 3.7.1).
const DEFAULT_MSS_IPV4: f64 = 536.0;
const DEFAULT_MSS_IPV6: f64 = 1220.0;
