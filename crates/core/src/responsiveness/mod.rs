//! How responsive a path is while it is busy: round trips per minute.
//!
//! After draft-ietf-ippm-responsiveness, "Responsiveness under Working Conditions": flows are added
//! until goodput and round trips no longer change ([`WorkingConditions`]); what a small exchange
//! then takes, on a connection of its own and on one that carries load, makes the figure
//! ([`Responsiveness`]); where it waits is a [`Queue`].

mod working;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
pub use working::{Next, Seen, WorkingConditions};

use crate::names::names;
use crate::remedy::{Change, Discipline, Name, Remedy};
use crate::units::{BitRate, End};

// Round trips per minute, computed from probes.

/// Round trips of a path under load, and what load adds to them; of one direction's load.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Responsiveness {
    /// Round trips per minute under load: the mean of those on separate connections and of those on
    /// connections that carry load (draft-ietf-ippm-responsiveness, the case without TLS).
    pub rpm: f64,
    /// 60,000,000 over the mean of both kinds of round trips, µs: what earlier versions of the
    /// draft and some tools call RPM.
    pub rpm_of_mean: Option<f64>,
    /// Grade of `added_us`.
    pub grade: Grade,
    /// A round trip on a separate connection of the idle path, µs: the mean of TCP's handshake and
    /// of a request with its response.
    pub idle_us: f64,
    /// Round trip under load, µs.
    pub loaded_us: f64,
    /// What load adds: their difference, µs; 0 where load adds nothing.
    pub added_us: f64,
    /// TCP's handshake under load, µs.
    pub connect_us: f64,
    /// A request and its response on a new connection under load, µs.
    pub request_us: f64,
    /// What a request on a connection that carries load would have waited for its response, µs:
    /// that connection's round trip, and the time in which what its sender's socket held unsent
    /// arrived; absent where the sender's kernel does not tell.
    pub loaded_flow_us: Option<f64>,
    /// Separate connections that were measured under load.
    pub probes: u64,
    /// Flows that carried load at the end.
    pub flows: u32,
    /// Goodput of all of them, payload bits per second.
    pub throughput_bps: f64,
    /// Length of an interval, seconds; at the end of each a flow is added.
    pub interval_s: f64,
    /// Intervals with load.
    pub intervals: u32,
    /// Goodput and round trips no longer changed. Where not, time was up before.
    pub stable: bool,
    /// Goodput no longer changed.
    pub goodput_stable: bool,
    /// Where what load adds to the round trips of its own flows waits, the longest queue first.
    #[serde(default)]
    pub queues: Vec<Queue>,
}

/// A connection of its own: made, one request, one response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// TCP's handshake, µs.
    pub connect_us: f64,
    /// Request and response, µs.
    pub request_us: f64,
}

impl Probe {
    /// A round trip of it, µs.
    pub fn round_trip_us(self) -> f64 {
        f64::midpoint(self.connect_us, self.request_us)
    }
}

/// What the figure is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// On the idle path.
    pub idle: Vec<Probe>,
    /// In the last intervals under load.
    pub loaded: Vec<Probe>,
    /// What connections with load let a request wait in them, µs.
    pub loaded_flows_us: Vec<f64>,
}

/// Of all values, from the smallest on, these are averaged.
const TRIM_PERCENT: usize = 95;

/// The mean of the values without the largest [`TRIM_PERCENT`]…100 %; `None` of nothing.
fn trimmed_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let kept = (values.len() * TRIM_PERCENT).div_ceil(100);
    let sum: f64 = values[..kept].iter().sum();
    (kept > 0).then(|| sum / kept as f64)
}

impl Samples {
    /// The figures of the probes; what is known of the load besides is left to fill in. `None`
    /// without a probe on the idle path or under load.
    pub fn score(&self) -> Option<Responsiveness> {
        let connect = |probes: &[Probe]| trimmed_mean(probes.iter().map(|probe| probe.connect_us));
        let request = |probes: &[Probe]| trimmed_mean(probes.iter().map(|probe| probe.request_us));
        let idle_us = f64::midpoint(connect(&self.idle)?, request(&self.idle)?);
        let (connect_us, request_us) = (connect(&self.loaded)?, request(&self.loaded)?);
        let loaded_us = f64::midpoint(connect_us, request_us);
        let loaded_flow_us = trimmed_mean(self.loaded_flows_us.iter().copied());
        let own = per_minute(loaded_us);
        let rpm = loaded_flow_us.map_or(own, |us| f64::midpoint(own, per_minute(us)));
        let mean_us = loaded_flow_us.map_or(loaded_us, |us| f64::midpoint(loaded_us, us));
        let added_us = (loaded_us - idle_us).max(0.0);
        Some(Responsiveness {
            rpm,
            rpm_of_mean: Some(per_minute(mean_us)),
            grade: Grade::new(added_us),
            idle_us,
            loaded_us,
            added_us,
            connect_us,
            request_us,
            loaded_flow_us,
            probes: self.loaded.len() as u64,
            flows: 0,
            throughput_bps: 0.0,
            interval_s: 0.0,
            intervals: 0,
            stable: false,
            goodput_stable: false,
            queues: Vec::new(),
        })
    }
}

fn per_minute(us: f64) -> f64 {
    60e6 / us
}

// The wait of a request on a loaded connection, from the connection's state.

/// A connection with load at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Time since the look before, seconds.
    pub seconds: f64,
    /// What arrived meanwhile, bytes.
    pub bytes: u64,
    /// Bytes that the sender's socket holds unsent.
    pub unsent_bytes: u64,
    /// Its round trip as the sender's kernel has it, µs; `None` before it has one.
    pub rtt_us: Option<f64>,
}

/// A request that would have been made at a look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// When, seconds after the first look began.
    pub at_s: f64,
    /// Until its response would have been there, µs.
    pub us: f64,
}

/// One request for each look: a round trip, and the time in which arrived what was before it in the
/// sender's socket. Where the last look was before that, it would have gone on at the rate of the
/// looks before: to leave such a request out would leave out the longest waits.
pub fn waits(looks: &[Look]) -> Vec<Wait> {
    let recent = &looks[looks.len().saturating_sub(RECENT)..];
    let recent_s: f64 = recent.iter().map(|look| look.seconds).sum();
    let recent_bytes: u64 = recent.iter().map(|look| look.bytes).sum();
    let mut now_s = 0.0;
    let mut waits = Vec::new();
    for (number, look) in looks.iter().enumerate() {
        now_s += look.seconds;
        let sent_s =
            until_sent(look.unsent_bytes, &looks[number + 1..], recent_s / recent_bytes as f64);
        if let (Some(rtt_us), Some(sent_s)) = (look.rtt_us, sent_s) {
            let us = rtt_us + sent_s * 1e6;
            waits.push(Wait { at_s: now_s, us });
        }
    }
    waits
}

/// The last looks, by which the rest is judged: a second of them.
const RECENT: usize = 10;

/// Seconds in which so much arrives, after the last look so many for each byte; `None` if it never
/// does.
fn until_sent(mut unsent: u64, later: &[Look], seconds_each: f64) -> Option<f64> {
    let mut waited_s = 0.0;
    for look in later {
        if unsent <= look.bytes {
            let part = unsent as f64 / look.bytes.max(1) as f64;
            return Some(waited_s + part * look.seconds);
        }
        unsent -= look.bytes;
        waited_s += look.seconds;
    }
    if unsent > 0 {
        waited_s += unsent as f64 * seconds_each;
    }
    waited_s.is_finite().then_some(waited_s)
}

// The grade of a path, as one letter.

/// How much a round trip grows under load, as a school grade.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Grade {
    /// Less than 5 ms.
    #[serde(rename = "A+")]
    APlus,
    /// Less than 30 ms.
    A,
    /// Less than 60 ms.
    B,
    /// Less than 200 ms.
    C,
    /// Less than 400 ms.
    D,
    /// 400 ms and more.
    F,
}

/// What each grade is less than, milliseconds that load adds to a round trip; the last has no
/// bound. They are those that people know from the tests of bufferbloat on the Web.
const GRADES: [(Grade, Option<f64>); 6] = [
    (Grade::APlus, Some(5.0)),
    (Grade::A, Some(30.0)),
    (Grade::B, Some(60.0)),
    (Grade::C, Some(200.0)),
    (Grade::D, Some(400.0)),
    (Grade::F, None),
];

impl Grade {
    /// The grade of what load adds to a round trip, µs.
    pub fn new(added_us: f64) -> Self {
        let fits = |bound: Option<f64>| bound.is_none_or(|ms| added_us < ms * 1e3);
        let found = GRADES.iter().find(|(_, bound)| fits(*bound));
        found.map_or(Self::F, |(grade, _)| *grade)
    }
}

names! {
    /// The letter.
    Grade::letter: APlus "A+", A "A", B "B", C "C", D "D", F "F";
}

// The queues in which a request waits under load: what the load adds to its round trip, divided
// among them.

/// Where packets or bytes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Written and not yet sent, in the sender's socket.
    SendSocket,
    /// In the root queueing discipline of the sender's device.
    SendQdisc,
    /// Between the two hosts: at the path's bottleneck.
    Path,
    /// Received and not yet read, in the receiver's socket.
    ReceiveSocket,
}

/// A queue and what it adds to a round trip on a flow with load.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Place of the queue.
    pub place: Place,
    /// Delay that the queue adds, µs.
    pub delay_us: f64,
    /// What waits there, bytes, as the host's kernel counts it: of a socket the mean of each flow.
    /// Absent of the path, whose queue is what the round trip has grown by and no host's kernel
    /// has.
    pub bytes: Option<u64>,
    /// What shortens it.
    pub remedy: Option<Remedy>,
}

/// What the kernels of both ends show of the flows with load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Backlog {
    /// Mean round trip of the idle path, µs.
    pub idle_us: f64,
    /// Mean round trip of the flows, µs.
    pub round_trip_us: f64,
    /// Goodput of all flows, bits per second.
    pub goodput_bps: f64,
    /// Their number.
    pub flows: u32,
    /// Unsent, all flows together, bytes.
    pub unsent_bytes: u64,
    /// In the sender's queueing discipline; `None` where it has none, or does not tell.
    pub qdisc_bytes: Option<u64>,
    /// Unread, all flows together.
    pub unread_bytes: Option<u64>,
}

impl Backlog {
    /// The queues, the longest first; those that add nothing are left out.
    pub fn queues(&self) -> Vec<Queue> {
        let us = |bytes: u64| bytes as f64 * 8e6 / self.goodput_bps;
        let of_each = |bytes: u64| bytes / u64::from(self.flows.max(1));
        let grown_us = (self.round_trip_us - self.idle_us).max(0.0);
        // It cannot hold more than the round trip has grown by.
        let qdisc_us = self.qdisc_bytes.map_or(0.0, us).min(grown_us);
        let queue = |place, delay_us, bytes| Queue { place, delay_us, bytes, remedy: None };
        let unread = self.unread_bytes.unwrap_or(0);
        let mut queues = vec![
            queue(Place::SendSocket, us(self.unsent_bytes), Some(of_each(self.unsent_bytes))),
            queue(Place::SendQdisc, qdisc_us, self.qdisc_bytes),
            queue(Place::Path, grown_us - qdisc_us, None),
            queue(Place::ReceiveSocket, us(unread), Some(of_each(unread))),
        ];
        queues.retain(|queue| queue.delay_us.is_finite() && queue.delay_us >= MIN_US);
        queues.sort_by(|a, b| b.delay_us.total_cmp(&a.delay_us));
        queues
    }
}

/// Less is no queue: a packet's time on a slow link, a wake-up.
const MIN_US: f64 = 200.0;

// The changes that shorten a queue.

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
    (bytes < now).then(|| remedy.because("not needed by programs that set TCP_NOTSENT_LOWAT"))
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
    use proptest::prelude::*;

    use super::*;

    fn look(bytes: u64, unsent_bytes: u64) -> Look {
        Look { seconds: 0.1, bytes, unsent_bytes, rtt_us: Some(20e3) }
    }

    #[test]
    fn a_request_waits_for_what_is_unsent_at_the_rate_that_there_is_then() {
        // The flow is ten times as fast from the third look on.
        let looks = [look(1_000, 1_500), look(1_000, 0), look(10_000, 20_000)];
        let waits = waits(&looks);
        // 1,000 bytes in a tenth of a second, and 500 of 10,000 in the next.
        assert!((waits[0].us - 125e3).abs() < 1.0 && (waits[0].at_s - 0.1).abs() < 1e-6);
        assert!((waits[1].us - 20e3).abs() < 1.0);
        // Nothing was looked at any more: 12,000 bytes in 0.3 s are the rate that is known.
        assert!((waits[2].us - 520e3).abs() < 1.0);
    }

    #[test]
    fn a_flow_without_a_round_trip_or_without_a_byte_answers_nothing() {
        let unknown = Look { rtt_us: None, ..look(0, 0) };
        assert_eq!(waits(&[unknown, look(0, 7), look(0, 7)]), []);
    }

    proptest! {
        #[test]
        fn no_wait_is_shorter_than_a_round_trip_or_begins_after_the_last_look(
            looks in prop::collection::vec((0..100_000u64, 0..500_000u64), 0..50)
        ) {
            let looks: Vec<Look> = looks.into_iter()
                .map(|(bytes, unsent)| look(bytes, unsent)).collect();
            for wait in waits(&looks) {
                prop_assert!(wait.us >= 20e3 && wait.us.is_finite());
                prop_assert!(wait.at_s <= looks.len() as f64 * 0.1 + 1e-9);
            }
        }
    }

    #[test]
    fn a_grade_is_what_load_adds_and_its_bound_is_the_next_ones() {
        for (added_ms, letter) in [
            (-3.0, "A+"),
            (4.999, "A+"),
            (5.0, "A"),
            (29.9, "A"),
            (30.0, "B"),
            (60.0, "C"),
            (200.0, "D"),
            (400.0, "F"),
            (9e9, "F"),
        ] {
            assert_eq!(Grade::new(added_ms * 1e3).letter(), letter, "{added_ms} ms");
        }
    }

    /// 80 Mbit/s: 10 kB are 1 ms.
    fn backlog() -> Backlog {
        Backlog {
            idle_us: 30e3,
            round_trip_us: 130e3,
            goodput_bps: 80e6,
            flows: 4,
            unsent_bytes: 400_000,
            qdisc_bytes: Some(600_000),
            unread_bytes: Some(100),
        }
    }

    #[test]
    fn what_load_adds_is_shared_out_over_the_queues() {
        let queues = backlog().queues();
        let found: Vec<_> = queues.iter().map(|queue| (queue.place, queue.delay_us)).collect();
        assert_eq!(
            found,
            [(Place::SendQdisc, 60e3), (Place::SendSocket, 40e3), (Place::Path, 40e3)]
        );
        assert_eq!(queues[1].bytes, Some(100_000));
    }

    #[test]
    fn what_no_host_holds_is_on_the_path() {
        let queues = Backlog { unsent_bytes: 0, qdisc_bytes: None, ..backlog() }.queues();
        assert_eq!(queues.len(), 1);
        assert_eq!((queues[0].place, queues[0].delay_us), (Place::Path, 100e3));
    }

    #[test]
    fn an_idle_path_has_no_queue() {
        assert_eq!(Backlog::default().queues(), []);
    }

    proptest! {
        #[test]
        fn path_and_qdisc_are_what_the_round_trip_has_grown_by(
            grown_us in 1e3..1e6f64, qdisc_bytes in 0..10_000_000u64, goodput_bps in 1e3..1e10f64
        ) {
            let queues = Backlog {
                round_trip_us: 30e3 + grown_us,
                qdisc_bytes: Some(qdisc_bytes),
                goodput_bps,
                ..backlog()
            }
            .queues();
            let on_the_way = queues
                .iter()
                .filter(|queue| matches!(queue.place, Place::SendQdisc | Place::Path));
            let sum: f64 = on_the_way.map(|queue| queue.delay_us).sum();
            prop_assert!((sum - grown_us).abs() < 2.0 * MIN_US);
        }
    }

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

    fn probes(connect_us: f64, request_us: f64) -> Vec<Probe> {
        let probe = Probe { connect_us, request_us };
        vec![probe; 40]
    }

    #[test]
    fn both_kinds_of_connections_have_half_of_the_figure() {
        let mut samples = Samples {
            idle: probes(10e3, 12e3),
            loaded: probes(50e3, 70e3),
            loaded_flows_us: vec![120e3; 9],
        };
        let score = samples.score().unwrap();
        // 1000 on separate connections, 500 on those with load.
        assert!((score.rpm - 750.0).abs() < 1e-9, "{}", score.rpm);
        // 60 ms and 120 ms.
        assert!((score.rpm_of_mean.unwrap() - 60e3 / 90.0).abs() < 1e-9);
        assert!((score.added_us - 49e3).abs() < 1e-6);
        assert_eq!(score.grade, Grade::B);
        samples.loaded_flows_us.clear();
        assert!((samples.score().unwrap().rpm - 1000.0).abs() < 1e-9);
        samples.loaded.clear();
        assert_eq!(samples.score(), None);
    }

    #[test]
    fn the_slowest_twentieth_of_the_probes_is_left_out() {
        let values = (1..=100).map(f64::from);
        assert_eq!(trimmed_mean(values), Some(48.0));
        // Of a few none is.
        assert_eq!(trimmed_mean([1.0, 2.0, 9.0]), Some(4.0));
        assert_eq!(trimmed_mean([]), None);
    }

    #[test]
    fn load_that_makes_a_path_faster_adds_nothing() {
        let samples =
            Samples { idle: probes(12e3, 12e3), loaded: probes(9e3, 9e3), ..Samples::default() };
        let score = samples.score().unwrap();
        assert_eq!((score.added_us, score.grade), (0.0, Grade::APlus));
    }
}
