//! The way back: what a client may ask an endpoint to trace, what it takes of the answer, and what both ways say
//! together.
//!
//! A request names no address: an endpoint traces to where its client's control connection comes from, which TCP's
//! handshake has proved, and nowhere else. So it is no reflector, and hops, probes, size, rate and time are bounded.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::{ConfigError, TraceConfig};
use super::delay;
use super::document::{HopDocument, TRACE_SCHEMA, TraceDocument, end_in_words};
use super::outcome::PathEnd;
use super::probe::ProbeKind;
use crate::link::Nanos;
use crate::record::Caveat;
use crate::stats::wilson;
use crate::units::Dscp;

/// The highest TTL that an endpoint is asked for.
pub const MOST_REVERSE_HOPS: u8 = 64;
/// Probes of each of these hops.
pub const MOST_REVERSE_PROBES: u8 = 10;
/// Length of each, bytes from the IP header on: what Ethernet carries.
pub const MOST_REVERSE_SIZE: u16 = 1_500;
/// The longest time that an endpoint traces, if its owner allows as much.
pub const LONGEST_REVERSE: Nanos = Nanos::from_millis(10_000);

/// A hop is asked again as often as this at most, by whatever version of linerate.
const MOST_ATTEMPTS: usize = 11;
/// No round trip of a trace takes as long, µs.
const LONGEST_US: f64 = 1e9;
/// Characters of a text, and how many caveats.
const MOST_TEXT: usize = 1_000;
const MOST_CAVEATS: usize = 16;
const MOST_LABELS: usize = 16;

/// What an endpoint is to trace: the way to the client that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// UDP or ICMP.
    pub kind: ProbeKind,
    /// The highest TTL, 1 to [`MOST_REVERSE_HOPS`].
    pub hops: u8,
    /// Probes of each hop, 1 to [`MOST_REVERSE_PROBES`].
    pub probes: u8,
    /// Length of each probe from the IP header on, bytes; at most [`MOST_REVERSE_SIZE`].
    pub size_bytes: u16,
    /// The class that they are sent in.
    pub dscp: Dscp,
}

impl TraceRequest {
    /// The way back of what `config` traces, as far as an endpoint may be asked. A client has no port of TCP that
    /// answers, so that UDP stands for it.
    pub fn back_of(config: &TraceConfig) -> Self {
        let usual = TraceConfig::new(config.target);
        let (kind, size_bytes) = match config.kind {
            ProbeKind::Tcp => (ProbeKind::Udp, usual.size),
            kind => (kind, config.size.min(MOST_REVERSE_SIZE)),
        };
        Self {
            kind,
            hops: config.hops.min(MOST_REVERSE_HOPS),
            probes: config.probes.min(MOST_REVERSE_PROBES),
            size_bytes,
            dscp: config.dscp,
        }
    }

    /// The trace that an endpoint makes of it, to the client's own address; slower than usual where its owner's
    /// `rate_bps` is below that.
    ///
    /// # Errors
    /// Something is out of the range that endpoints allow.
    pub fn config(
        &self,
        client: IpAddr,
        rate_bps: Option<u64>,
    ) -> Result<TraceConfig, ConfigError> {
        let ranges = [
            (
                "the highest TTL",
                self.hops.into(),
                MOST_REVERSE_HOPS.into(),
            ),
            (
                "the number of probes",
                self.probes.into(),
                MOST_REVERSE_PROBES.into(),
            ),
            (
                "the size",
                self.size_bytes.into(),
                u64::from(MOST_REVERSE_SIZE),
            ),
            // SYN segments to a stranger's ports would be a scan of them.
            (
                "the kind of the probes, TCP being 2",
                u64::from(self.kind == ProbeKind::Tcp) + 1,
                1,
            ),
        ];
        let out = ranges
            .into_iter()
            .find(|(_, value, most)| !(1..=*most).contains(value));
        if let Some((what, value, most)) = out {
            return Err(ConfigError::OutOfRange {
                what,
                value,
                least: 1,
                most,
            });
        }
        let usual = TraceConfig::new(client);
        let bits = u64::from(self.size_bytes) * 8;
        let allowed = rate_bps.map_or(u64::MAX, |rate| (rate / bits).max(1));
        let config = TraceConfig {
            kind: self.kind,
            hops: self.hops,
            probes: self.probes,
            size: self.size_bytes,
            dscp: self.dscp,
            rate_per_s: u32::try_from(allowed)
                .map_or(usual.rate_per_s, |rate| rate.min(usual.rate_per_s)),
            ..usual
        };
        config.check()?;
        Ok(config)
    }
}

/// What a client takes of an endpoint's trace. Every figure is in range; what can be worked out from the probes is worked
/// out again, so that the words are ours; what was not asked for is dropped.
///
/// # Errors
/// What is wrong with it, in words.
pub fn admit(document: TraceDocument, request: &TraceRequest) -> Result<TraceDocument, String> {
    if document.schema != TRACE_SCHEMA {
        return Err("it is of another schema".into());
    }
    if document.kind != request.kind || document.hops.len() > usize::from(request.hops) {
        return Err("it is another trace than was asked for".into());
    }
    check_figures(&document)?;
    let mut ttl = 0;
    for hop in &document.hops {
        if hop.ttl <= ttl || hop.ttl > request.hops {
            return Err(format!("hop {} has no place there", hop.ttl));
        }
        ttl = hop.ttl;
        check_hop(hop, &document, request)?;
    }
    Ok(TraceDocument {
        host: document.target.to_string(),
        reached: matches!(document.end, PathEnd::Reached { .. }),
        end_words: end_in_words(&document.end, document.target),
        delay: delay::analyze(&delay::HopSamples::of_document(&document)),
        hops: document.hops.iter().map(without_names).collect(),
        paths: None,
        link_rates: Vec::new(),
        mtu: None,
        watch: None,
        reverse: None,
        ..document
    })
}

fn check_figures(document: &TraceDocument) -> Result<(), String> {
    let texts = [&document.started_at, &document.method];
    let caveats = document
        .caveats
        .iter()
        .flat_map(|c| [&c.message, &c.remedy]);
    let is_long = |text: &&String| text.chars().count() > MOST_TEXT;
    if document.caveats.len() > MOST_CAVEATS
        || texts.into_iter().chain(caveats).any(|t| is_long(&t))
    {
        return Err("it talks too much".into());
    }
    let last = document.hops.last().map_or(0, |hop| hop.ttl);
    let end = match document.end {
        PathEnd::Reached { ttl }
        | PathEnd::Unreachable { ttl, .. }
        | PathEnd::TooBig { ttl, .. }
        | PathEnd::Silent { after_ttl: ttl } => ttl,
        PathEnd::Loop { from_ttl, length } => from_ttl.saturating_add(length),
        PathEnd::HopLimit | PathEnd::NoAnswer => 0,
    };
    if end > last {
        return Err(format!("it ends at hop {end} and has {last}"));
    }
    match is_time(document.seconds * 1e6) {
        true => Ok(()),
        false => Err(format!("it took {:e} s", document.seconds)),
    }
}

fn check_hop(
    hop: &HopDocument,
    document: &TraceDocument,
    request: &TraceRequest,
) -> Result<(), String> {
    let most = usize::from(request.probes) + MOST_ATTEMPTS;
    let counts = [
        hop.probes.len(),
        hop.rtt_us.len(),
        hop.other_addresses.len(),
    ];
    if counts.into_iter().any(|count| count > most) || hop.mpls.len() > MOST_LABELS {
        return Err(format!("hop {} has too many answers", hop.ttl));
    }
    let probes = || hop.probes.iter();
    let times = hop.rtt_us.iter().copied();
    let times = times.chain(
        probes()
            .flat_map(|probe| [Some(probe.sent_us), probe.rtt_us])
            .flatten(),
    );
    if let Some(absurd) = times.into_iter().find(|time| !is_time(*time)) {
        return Err(format!("hop {} has a time of {absurd:e} µs", hop.ttl));
    }
    let addresses = hop.address.iter().chain(&hop.other_addresses);
    let mut addresses = addresses
        .copied()
        .chain(probes().filter_map(|probe| probe.address));
    match addresses.all(|address| address.is_ipv4() == document.target.is_ipv4()) {
        true => Ok(()),
        false => Err(format!(
            "hop {} has an address of the other family",
            hop.ttl
        )),
    }
}

fn is_time(us: f64) -> bool {
    (0.0..=LONGEST_US).contains(&us)
}

/// Whose names an endpoint has seen is its own resolver's word: the client looks them up itself.
fn without_names(hop: &HopDocument) -> HopDocument {
    HopDocument {
        name: None,
        origin: None,
        ..hop.clone()
    }
}

/// The way back beside the way there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReverseDocument {
    /// Address and port of the endpoint that traced it.
    pub endpoint: String,
    /// Its trace to the address that this host's packets reach it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceDocument>>,
    /// Of packets from here to the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_there: Option<OneWayLoss>,
    /// Of packets from the endpoint to here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_back: Option<OneWayLoss>,
    /// What both ways say together, a sentence each.
    pub words: Vec<String>,
    /// What limits the worth of these figures.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

impl ReverseDocument {
    /// Says what follows, once the way there is known.
    pub fn conclude(&mut self, forward: &TraceDocument) {
        self.words = loss_in_words(self.loss_there.as_ref(), self.loss_back.as_ref());
        if let Some(back) = &self.trace {
            self.words.extend(hops_in_words(forward.end, back.end));
            if Some(back.target) != forward.source {
                self.words.push(format!(
                    "The endpoint sees this host as {}: a NAT is between, and its trace ends there.",
                    back.target
                ));
            }
        }
    }
}

/// Numbered packets in one direction: what one end sent and the other counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneWayLoss {
    /// Packets that the sender handed over.
    pub sent: u64,
    /// Different ones that arrived.
    pub received: u64,
    /// The others.
    pub lost: u64,
    /// Share of them, percent.
    pub lost_percent: f64,
    /// Its interval at 95 %, percent, if losses do not come in bursts.
    pub interval_percent: [f64; 2],
    /// Arrived more than once.
    pub duplicated: u64,
    /// Arrived after a later one.
    pub reordered: u64,
}

impl OneWayLoss {
    /// From both ends' counts; `None` if nothing was sent. Whoever says that more arrived than was sent has counted
    /// something else too: then all arrived.
    pub fn of(sent: u64, received: u64, duplicated: u64, reordered: u64) -> Option<Self> {
        let received = received.min(sent);
        let lost = sent - received;
        let share = wilson(lost, sent).ok()?;
        Some(Self {
            sent,
            received,
            lost,
            lost_percent: 100.0 * share.share,
            interval_percent: [100.0 * share.low, 100.0 * share.high],
            duplicated,
            reordered,
        })
    }

    fn is_above(&self, other: &Self) -> bool {
        self.interval_percent[0] > other.interval_percent[1]
    }
}

fn loss_in_words(there: Option<&OneWayLoss>, back: Option<&OneWayLoss>) -> Vec<String> {
    let mut words = Vec::new();
    for (loss, way) in [(there, "there"), (back, "back")] {
        if let Some(loss) = loss {
            words.push(one_loss(loss, way));
        }
    }
    if let (Some(there), Some(back)) = (there, back) {
        match (there.is_above(back), back.is_above(there)) {
            (true, _) => words.push("The way there loses more than the way back.".into()),
            (_, true) => words.push("The way back loses more than the way there.".into()),
            _ => {}
        }
    }
    words
}

fn one_loss(loss: &OneWayLoss, way: &str) -> String {
    let [low, high] = loss.interval_percent;
    match loss.lost {
        0 => format!(
            "On the way {way} none of {} packets was lost: at most {high:.1} %.",
            loss.sent
        ),
        lost => format!(
            "On the way {way} {lost} of {} packets were lost: {:.1} % (interval {low:.1} to {high:.1} %, 95 %).",
            loss.sent, loss.lost_percent
        ),
    }
}

fn hops_in_words(there: PathEnd, back: PathEnd) -> Option<String> {
    let (PathEnd::Reached { ttl: there }, PathEnd::Reached { ttl: back }) = (there, back) else {
        return None;
    };
    Some(match there == back {
        true => format!(
            "It is {there} hops there and {back} back; whether by the same routers cannot be told, since each answers \
             from the side that it was asked from."
        ),
        false => format!("It is {there} hops there and {back} back: they are not the same path."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> TraceRequest {
        TraceRequest::back_of(&TraceConfig::new(IpAddr::from([198, 18, 0, 1])))
    }

    #[test]
    fn what_is_asked_is_within_what_endpoints_allow() {
        for kind in [ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp] {
            for target in ["198.18.0.1", "2001:2::1"] {
                let target: IpAddr = target.parse().unwrap();
                let config = TraceConfig {
                    hops: 255,
                    probes: 100,
                    size: 9_000,
                    ..TraceConfig::new(target)
                };
                let request = TraceRequest::back_of(&config.with_kind(kind));
                let made = request.config(target, None).unwrap();
                assert_eq!((made.target, made.hops, made.probes), (target, 64, 10));
                assert_ne!(made.kind, ProbeKind::Tcp);
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let client = IpAddr::from([198, 18, 0, 1]);
        let cases = [
            (
                TraceRequest {
                    hops: 65,
                    ..request()
                },
                "the highest TTL is 65, allowed are 1 to 64",
            ),
            (
                TraceRequest {
                    probes: 11,
                    ..request()
                },
                "probes is 11",
            ),
            (
                TraceRequest {
                    size_bytes: 1_501,
                    ..request()
                },
                "the size is 1501",
            ),
            (
                TraceRequest {
                    size_bytes: 20,
                    ..request()
                },
                "the size is 20",
            ),
            (
                TraceRequest {
                    kind: ProbeKind::Tcp,
                    ..request()
                },
                "TCP",
            ),
        ];
        for (request, words) in cases {
            let error = request.config(client, None).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_owners_rate_holds_for_probes_too() {
        let client = IpAddr::from([198, 18, 0, 1]);
        let rate = |rate| request().config(client, Some(rate)).unwrap().rate_per_s;
        // 60 bytes are 480 bits.
        assert_eq!(rate(48_000), 100);
        assert_eq!(rate(1), 1);
        assert_eq!(rate(u64::MAX), TraceConfig::new(client).rate_per_s);
    }

    #[test]
    fn losses_are_told_by_direction() {
        let none = OneWayLoss::of(200, 200, 0, 0).unwrap();
        let some = OneWayLoss::of(200, 150, 0, 0).unwrap();
        let words = loss_in_words(Some(&some), Some(&none));
        assert_eq!(
            words,
            [
                "On the way there 50 of 200 packets were lost: 25.0 % (interval 19.5 to 31.4 %, 95 %).",
                "On the way back none of 200 packets was lost: at most 1.9 %.",
                "The way there loses more than the way back.",
            ]
        );
        assert_eq!(loss_in_words(Some(&some), Some(&some)).len(), 2);
        assert_eq!(OneWayLoss::of(0, 0, 0, 0), None);
        assert_eq!(OneWayLoss::of(5, 9, 4, 0).unwrap().lost, 0);
    }

    proptest! {
        #[test]
        fn no_request_becomes_more_than_the_bounds(
            kind in prop::sample::select(vec![ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp]),
            hops: u8, probes: u8, size_bytes: u16, rate in prop::option::of(any::<u64>()), is_v6: bool,
        ) {
            let request = TraceRequest { kind, hops, probes, size_bytes, ..request() };
            let client: IpAddr = if is_v6 { [1u16; 8].into() } else { [198, 18, 0, 1].into() };
            if let Ok(config) = request.config(client, rate) {
                prop_assert_eq!(config.target, client);
                prop_assert!(config.hops <= MOST_REVERSE_HOPS && config.probes <= MOST_REVERSE_PROBES);
                prop_assert!(config.size <= MOST_REVERSE_SIZE && config.kind != ProbeKind::Tcp);
                let bits = u64::from(config.rate_per_s) * u64::from(config.size) * 8;
                let is_within = rate.is_none_or(|rate| config.rate_per_s == 1 || bits <= rate);
                prop_assert!(is_within);
            }
        }

        #[test]
        fn a_loss_is_a_share_and_lies_in_its_interval(sent in 1..1u64 << 55, received: u64) {
            let loss = OneWayLoss::of(sent, received, 0, 0).unwrap();
            prop_assert_eq!(loss.lost + loss.received, sent);
            let [low, high] = loss.interval_percent;
            prop_assert!((0.0..=100.0).contains(&loss.lost_percent));
            prop_assert!(low <= loss.lost_percent + 1e-9 && loss.lost_percent <= high + 1e-9);
        }
    }
}
