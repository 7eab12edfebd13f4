//! The changes that shorten a queue.

use std::collections::BTreeMap;

use super::{Place, Queue};
use crate::remedy::{Change, Discipline, Name, Remedy};
use crate::units::{BitRate, End};

/// The host that sends the load.
#[derive(Debug, Clone, Copy)]
pub struct SendingHost<'a> {
    /// Which of both it is.
    pub end: End,
    /// The device by which it sends.
    pub device: Option<&'a str>,
    /// Queueing disciplines that its kernel is known to have.
    pub disciplines: &'a [String],
    /// Its kernel settings.
    pub sysctls: &'a BTreeMap<String, String>,
    /// Goodput of the load, bits per second.
    pub goodput_bps: f64,
    /// Its flows.
    pub flows: u32,
}

/// Shorter queues need none, µs: with it the grade is still the best.
const SHORT_US: f64 = 5e3;
/// What may wait unsent: as much as leaves in this time (the draft's figure), seconds.
const UNSENT_S: f64 = 0.005;
const UNSENT_LIMIT: &str = "net.ipv4.tcp_notsent_lowat";
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";
const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";

/// What shortens a queue, if that is worth it and the sender's kernel has what it takes.
pub fn remedy(queue: &Queue, host: &SendingHost<'_>) -> Option<Remedy> {
    if queue.delay_us < SHORT_US {
        return None;
    }
    let remedy = match queue.place {
        Place::SendSocket => less_unsent(host),
        Place::SendQdisc => discipline(host, None).or_else(|| bbr(host)),
        Place::Path => discipline(host, Some(host.goodput_bps)).or_else(|| bbr(host)),
        Place::ReceiveSocket => None,
    };
    remedy.map(|remedy| remedy.typed(None))
}

fn less_unsent(host: &SendingHost<'_>) -> Option<Remedy> {
    let each = host.goodput_bps / f64::from(host.flows.max(1)) / 8.0;
    let bytes = ((each * UNSENT_S) as u64).next_power_of_two().max(16 << 10);
    let now: u64 = host.sysctls.get(UNSENT_LIMIT)?.trim().parse().ok()?;
    let remedy = Remedy::host_setting(Some(host.end), UNSENT_LIMIT, &[bytes]);
    (bytes < now).then(|| remedy.because("programs that set TCP_NOTSENT_LOWAT need it not"))
}

/// One that keeps queues short, in front of which `goodput_bps` lets the queue form, if that is not
/// here already. What TCP carries is what the link does without headers: 94 % with Ethernet's.
fn discipline(host: &SendingHost<'_>, goodput_bps: Option<f64>) -> Option<Remedy> {
    let has = |kind: &Discipline| host.disciplines.iter().any(|name| name == kind.name());
    let value = [Discipline::Cake, Discipline::FqCodel].into_iter().find(has)?;
    let object = Name::new(host.device?)?;
    let rate = goodput_bps.map(|bps| BitRate(bps as u64));
    let remedy = Remedy::new(Change::Discipline { object, value, rate }, Some(host.end));
    Some(match rate {
        Some(_) => remedy.because("better on the router before the bottleneck"),
        None => remedy,
    })
}

/// A congestion control that fills no queue.
fn bbr(host: &SendingHost<'_>) -> Option<Remedy> {
    let available = host.sysctls.get(AVAILABLE)?;
    let is_there = available.split_whitespace().any(|name| name == "bbr");
    let in_use = host.sysctls.get(CONGESTION)?.trim() == "bbr";
    let change = Change::HostSetting { object: CONGESTION.to_owned(), value: "bbr".to_owned() };
    let remedy = Remedy::new(change, Some(host.end));
    (is_there && !in_use).then(|| remedy.because("for what this host sends; others fill the queue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(
        place: Place,
        delay_us: f64,
        disciplines: &[&str],
        congestion: &str,
    ) -> Option<String> {
        let queue = Queue { place, delay_us, bytes: None, remedy: None };
        let settings =
            [(UNSENT_LIMIT, "4294967295"), (CONGESTION, congestion), (AVAILABLE, "reno bbr cubic")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let disciplines: Vec<String> = disciplines.iter().map(|&name| name.to_owned()).collect();
        let host = SendingHost {
            end: End::Client,
            device: Some("eth0"),
            disciplines: &disciplines,
            sysctls: &settings.into(),
            goodput_bps: 94e6,
            flows: 4,
        };
        Some(remedy(&queue, &host)?.command)
    }

    #[test]
    fn a_remedy_is_for_the_place_of_the_queue_and_what_the_kernel_has() {
        let found =
            |place, disciplines: &[&str]| command(place, 90e3, disciplines, "cubic").unwrap();
        assert!(
            found(Place::Path, &["fq_codel", "cake"])
                .starts_with("tc qdisc replace dev eth0 root cake bandwidth 94mbit")
        );
        let shaped = found(Place::Path, &["fq", "fq_codel"]);
        assert!(shaped.contains("htb rate 94mbit") && shaped.contains("fq_codel"), "{shaped}");
        assert!(
            found(Place::Path, &[])
                .starts_with("linerate host set net.ipv4.tcp_congestion_control=bbr")
        );
        assert_eq!(
            found(Place::SendQdisc, &["fq_codel"]),
            "tc qdisc replace dev eth0 root fq_codel"
        );
        let unsent = found(Place::SendSocket, &["cake"]);
        assert!(
            unsent.starts_with("linerate host set net.ipv4.tcp_notsent_lowat=16384"),
            "{unsent}"
        );
    }

    #[test]
    fn what_is_short_or_cannot_be_helped_has_no_remedy() {
        assert_eq!(command(Place::Path, 4e3, &["cake"], "cubic"), None);
        assert_eq!(command(Place::Path, 90e3, &[], "bbr"), None);
        assert_eq!(command(Place::ReceiveSocket, 90e3, &["cake"], "cubic"), None);
    }
}
