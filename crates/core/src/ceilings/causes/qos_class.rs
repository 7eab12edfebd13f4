//! A class, or a dropping meter, of the sender's own DiffServ policy.
//!
//! From outside a class looks like a link with a queue, and a meter like a policer. The host's own
//! counters tell: which class carried the transfer, how fast, and how often it had to wait.

use super::super::remedy::rate;
use super::super::thresholds::{
    CLASS_CARRIES, CLASS_FULL, EXACT_TOLERANCE, POLICER_LOSS, QDISC_HEADER_BYTES,
};
use super::super::view::{View, bps, percent};
use super::path_rate::believable_speed;
use super::{Basis, Cause, Ceiling, Rule, Signs};
use crate::plan::Role;
use crate::record::{QosClass, QosEvidence, QosPolicy};
use crate::remedy::{Change, Name, PolicyKey, Remedy};
use crate::units::BitRate;

/// A meter that drops packets above its rate.
pub(super) const METER: Rule = Rule {
    cause: Cause::QosClass,
    basis: Basis::Counted,
    tolerance: EXACT_TOLERANCE,
    ceiling: |view| find_meter(view).map(|found| ceiling(&found)),
    signs: |view| find_meter(view).and_then(|found| signs(&found)),
    remedy: |view, target_bps| remedy(view, &find_meter(view)?, target_bps),
};

/// A shaper without classes: it is a link for all that leaves by its device.
pub(super) const SHAPER: Rule = Rule {
    cause: Cause::PathRate,
    basis: Basis::Counted,
    tolerance: EXACT_TOLERANCE,
    ceiling: |view| find_shaper(view).map(|found| ceiling(&found)),
    signs: |view| {
        let found = find_shaper(view)?;
        let shaper = Traffic::of(view)?.qos.shaper.as_ref()?;
        let full = found.sent_bps >= CLASS_FULL * shaper.ceil_bps && shaper.overlimits > 0;
        Some(Signs { hold: full, ..signs(&found)? })
    },
    remedy: |_, _| None,
};

/// A class that makes packets wait.
pub(super) const CLASS: Rule = Rule {
    cause: Cause::QosClass,
    basis: Basis::Counted,
    tolerance: EXACT_TOLERANCE,
    ceiling: |view| find_class(view).map(|found| ceiling(&found)),
    signs: |view| find_class(view).and_then(|found| signs(&found)),
    remedy: |view, target_bps| remedy(view, &find_class(view)?, target_bps),
};

/// The part of a policy that holds the transfer.
enum Holder<'a> {
    /// The class may send no more.
    Limit(&'a QosClass),
    /// The class fills the link, which is as fast as the policy says.
    Link(&'a QosClass),
    /// Other classes fill the link, and the class gets its guaranteed rate.
    Reserve(&'a QosClass),
    /// Other classes fill the link, and the class gets what they leave.
    Rest(&'a QosClass),
    /// The meter drops the rest.
    Meter(&'a QosPolicy, f64),
}

/// The class or meter that carried the transfer, with what it carried.
struct CarrierClass<'a> {
    qos: &'a QosEvidence,
    holder: Holder<'a>,
    /// Rate of the frames that it passed, bits per second.
    sent_bps: f64,
    /// The part of this rate that was not of the transfer.
    others_bps: f64,
    /// Payload over frames.
    share: f64,
}

/// The policy of the sender's host, and the transfer's share of it.
struct Traffic<'a> {
    qos: &'a QosEvidence,
    /// Frames of the transfer, bits per second.
    own_bps: f64,
    seconds: f64,
    share: f64,
}

impl<'a> Traffic<'a> {
    fn of(view: &View<'a>) -> Option<Self> {
        let share = view.payload_share(QDISC_HEADER_BYTES)?;
        Some(Self {
            qos: view.sender?.qos.as_ref()?,
            own_bps: view.throughput_bps / share,
            seconds: view.seconds,
            share,
        })
    }

    fn rate_of(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.seconds
    }

    /// The holder with what it carried; `None` if it did not carry the transfer.
    fn found(&self, holder: Holder<'a>, sent_bps: f64) -> Option<CarrierClass<'a>> {
        (sent_bps >= CLASS_CARRIES * self.own_bps).then_some(CarrierClass {
            qos: self.qos,
            holder,
            sent_bps,
            others_bps: (sent_bps - self.own_bps).max(0.0),
            share: self.share,
        })
    }
}

fn find_meter<'a>(view: &View<'a>) -> Option<CarrierClass<'a>> {
    let traffic = Traffic::of(view)?;
    traffic.qos.policies.iter().find_map(|policy| {
        let limit = policy.drops_above_bps?;
        let passed = policy.bytes.saturating_sub(policy.dropped_bytes);
        let drops = policy.dropped_bytes as f64 >= POLICER_LOSS * policy.bytes as f64;
        traffic
            .found(Holder::Meter(policy, limit), traffic.rate_of(passed))
            .filter(|_| drops && policy.dropped_packets > 0)
    })
}

fn find_shaper<'a>(view: &View<'a>) -> Option<CarrierClass<'a>> {
    let traffic = Traffic::of(view)?;
    let shaper = traffic.qos.shaper.as_ref()?;
    traffic.found(Holder::Limit(shaper), traffic.rate_of(shaper.bytes))
}

fn find_class<'a>(view: &View<'a>) -> Option<CarrierClass<'a>> {
    let traffic = Traffic::of(view)?;
    let qos = traffic.qos;
    // The kernel counts waits since 5.10; a class that always has a queue says the same.
    let waits = |class: &&QosClass| class.overlimits > 0 || class.backlog_bytes > 0;
    let class = qos.classes.first().filter(waits)?;
    let sent = traffic.rate_of(class.bytes);
    let is_link = qos.link_bps.is_some_and(|link| class.ceil_bps >= link);
    let holder = match sent >= CLASS_FULL * class.ceil_bps {
        // A policy that is told the device's own speed: the link is the limit, and its rule says
        // so.
        true if is_link && has_devices_speed(view, qos) => return None,
        true if is_link => Holder::Link(class),
        true => Holder::Limit(class),
        false if traffic.rate_of(qos.link_bytes?) < CLASS_FULL * qos.link_bps? => return None,
        false if sent <= class.rate_bps / CLASS_FULL => Holder::Reserve(class),
        false => Holder::Rest(class),
    };
    traffic.found(holder, sent)
}

fn has_devices_speed(view: &View<'_>, qos: &QosEvidence) -> bool {
    let speed = view.sender_host.and_then(believable_speed);
    let rate = qos.link_bps.unwrap_or_default();
    speed.is_some_and(|speed| rate >= CLASS_FULL * speed)
}

fn ceiling(found: &CarrierClass<'_>) -> Ceiling {
    let (limit, formula) = match &found.holder {
        Holder::Limit(class) | Holder::Link(class) => {
            (class.ceil_bps, "ceil of the class, or rate of the shaper, × payload share")
        }
        Holder::Reserve(class) => (class.rate_bps, "rate of the class × payload share"),
        Holder::Rest(_) => (found.sent_bps, "what other classes left × payload share"),
        Holder::Meter(_, limit) => (*limit, "rate of the meter that drops × payload share"),
    };
    // A sender whose packets are dropped may be far below the meter's rate, since TCP responds to
    // losses.
    let is_starved =
        matches!(found.holder, Holder::Meter(..)) && found.sent_bps < CLASS_FULL * limit;
    let limit = if is_starved { found.sent_bps } else { limit };
    let made = Ceiling::new((limit - found.others_bps) * found.share, formula)
        .input("class_bps", Some(limit))
        .input("others_bps", Some(found.others_bps).filter(|bps| *bps > 0.0))
        .input("payload_share", Some(found.share));
    let shared = found.others_bps > (1.0 - CLASS_FULL) * found.sent_bps;
    if shared || is_starved || matches!(found.holder, Holder::Rest(_)) {
        made.dependent()
    } else {
        made
    }
}

fn signs(found: &CarrierClass<'_>) -> Option<Signs> {
    let device = &found.qos.device;
    let sent = bps(found.sent_bps);
    let say = match &found.holder {
        Holder::Limit(class) | Holder::Link(class) => vec![
            format!(
                "{} on the sender's {device} sent {sent} of the {} that it may",
                name_of(class),
                bps(class.ceil_bps)
            ),
            waits(class),
        ],
        Holder::Reserve(class) | Holder::Rest(class) => vec![
            format!(
                "{} on the sender's {device} sent {sent}; other classes filled the rest of its {}, and {} are reserved \
                 for it",
                name_of(class),
                bps(found.qos.link_bps.unwrap_or_default()),
                bps(class.rate_bps)
            ),
            waits(class),
        ],
        Holder::Meter(policy, limit) => vec![format!(
            "policy {} on the sender's {device} dropped {} of its bytes, above {}",
            policy.policy,
            percent(policy.dropped_bytes as f64 / policy.bytes as f64),
            bps(*limit)
        )],
    };
    Signs::new(true, say)
}

fn name_of(class: &QosClass) -> String {
    match &class.policy {
        Some(policy) => format!("class {} of policy {policy}", class.class),
        None if class.class.contains(':') => format!("class {}", class.class),
        None => class.class.clone(),
    }
}

fn waits(class: &QosClass) -> String {
    let dropped = match class.dropped {
        0 => String::new(),
        count => format!(", and dropped {count} packets"),
    };
    format!(
        "it had to wait {} times with {} bytes in its queue at the end{dropped}",
        class.overlimits, class.backlog_bytes
    )
}

/// The remedy names the key of the policy's file and its value; classes that are not linerate's are
/// changed by tc.
fn remedy(view: &View<'_>, found: &CarrierClass<'_>, target_bps: f64) -> Option<Remedy> {
    let target = target_bps / found.share + found.others_bps;
    let needed = match (&found.holder, found.qos.link_bps) {
        // More than the link carries is no limit and no reservation.
        (Holder::Limit(_) | Holder::Reserve(_) | Holder::Rest(_), Some(link)) => target.min(link),
        _ => target,
    };
    let needed = rate(needed);
    let now = |bps: f64| format!("now {}", rate(bps).typed());
    let (class, key, bps) = match &found.holder {
        Holder::Limit(class) => (*class, PolicyKey::Limit, class.ceil_bps),
        Holder::Reserve(class) | Holder::Rest(class) => {
            (*class, PolicyKey::Reserve, class.rate_bps)
        }
        Holder::Link(class) if class.policy.is_none() && found.qos.policies.is_empty() => {
            let link = found.qos.link_class.as_deref()?;
            return Some(at_sender(view, traffic_class(found, link, [needed; 2])?));
        }
        Holder::Link(class) => {
            let device = Name::new(&found.qos.device)?;
            let remedy = policy(view, Some(device), PolicyKey::Rate, needed);
            return Some(remedy.because(now(class.ceil_bps)));
        }
        Holder::Meter(metered, limit) => {
            let name = Name::new(&metered.policy)?;
            let remedy = policy(view, Some(name), PolicyKey::Meter, needed);
            return Some(remedy.because(format!("{}, or without `drop_red`", now(*limit))));
        }
    };
    match class.policy.as_deref() {
        Some(name) => {
            let remedy = policy(view, Some(Name::new(name)?), key, needed);
            Some(remedy.because(now(bps)))
        }
        None if found.qos.policies.is_empty() => {
            let has_rate = matches!(found.holder, Holder::Reserve(_) | Holder::Rest(_))
                // Without a class above it, it sends its rate.
                || found.qos.link_bps.is_none();
            let kept = if has_rate { needed } else { rate(class.rate_bps) };
            Some(at_sender(view, traffic_class(found, &class.class, [kept, needed])?))
        }
        None => Some(policy(view, None, PolicyKey::Reserve, needed)),
    }
}

fn policy(view: &View<'_>, object: Option<Name>, key: PolicyKey, value: BitRate) -> Remedy {
    at_sender(view, Change::Policy { object, key, value })
}

/// Another rate and ceil of a class that is not linerate's.
fn traffic_class(
    found: &CarrierClass<'_>,
    class: &str,
    [rate, value]: [BitRate; 2],
) -> Option<Change> {
    let (object, device) = (Name::new(class)?, Name::new(&found.qos.device)?);
    Some(Change::TrafficClass { object, device, rate, value })
}

fn at_sender(view: &View<'_>, change: Change) -> Remedy {
    Remedy::new(change, Some(Role::Sender.end(view.direction)))
}
