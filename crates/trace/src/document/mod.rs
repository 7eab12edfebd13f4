//! The document of a trace, the JSON contract; and what a client believes of an endpoint's.
//!
//! As in the record of a run: adding a key is free, renaming one is a new version; a key is absent
//! where its figure is not known.

mod both_ways;

use std::collections::BTreeMap;
use std::net::IpAddr;

pub use both_ways::{OneWayLoss, ReverseDocument};
use linerate_units::{Caveat, Dscp, Family};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::probe::{HopFate, Reply};
use crate::asn::{AsTable, Origin};
use crate::config::{TraceConfig, TraceRequest};
use crate::delay::{self, DelayAnalysis, HopSamples, LinkRate};
use crate::mtu::MtuOutcome;
use crate::multipath::PathsDocument;
use crate::outcome::{Hop, PathEnd, ProbeOutcome, TraceOutcome};
use crate::probe::{AnswerKind, MplsLabel, ProbeKind, ecn_bits};
use crate::quote::unreachable_reason;
use crate::watch::{WatchDocument, WatchRow};

/// Schema of [`TraceDocument`].
pub const TRACE_SCHEMA: &str = "linerate.trace/1";

/// What only the caller knows about a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceHeader {
    /// When it began, RFC 3339.
    pub started_at: String,
    /// The target as the user named it.
    pub host: String,
    /// The address that the probes were sent from.
    pub source: Option<IpAddr>,
    /// Kind of socket that sent the probes, such as `raw`.
    pub method: String,
    /// Target port, where the kind has one.
    pub port: Option<u16>,
    /// Random seed of its session.
    pub seed: u64,
    /// Names of addresses.
    pub names: BTreeMap<IpAddr, String>,
}

/// The route to a host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceDocument {
    /// [`TRACE_SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "linerate_units::deserialize_rfc3339")]
    pub started_at: String,
    /// The target as the user named it.
    pub host: String,
    /// The target's address.
    pub target: IpAddr,
    /// The address that the probes were sent from.
    pub source: Option<IpAddr>,
    /// The protocol of the probes.
    pub kind: ProbeKind,
    /// Kind of socket that sent the probes, such as `raw`.
    pub method: String,
    /// Target port; of UDP the first one.
    pub port: Option<u16>,
    /// The lowest TTL asked.
    pub first_ttl: u8,
    /// The highest TTL asked.
    pub last_ttl: u8,
    /// Probes of each TTL.
    pub probes_per_hop: u8,
    /// Length of each probe from the IP header on, bytes.
    pub size_bytes: u16,
    /// DSCP of the probes.
    pub dscp: Dscp,
    /// ECN field of the probes: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// Whether the target itself answered.
    pub reached: bool,
    /// How the path ends.
    pub end: PathEnd,
    /// The end in words.
    pub end_words: String,
    /// The hops, up to the end or to the last that answered.
    pub hops: Vec<HopDocument>,
    /// Where the delay is added.
    pub delay: DelayAnalysis,
    /// All equal-cost paths, if requested.
    pub paths: Option<PathsDocument>,
    /// The rates of the links, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link_rates: Vec<LinkRate>,
    /// The path MTU, if requested.
    pub mtu: Option<MtuOutcome>,
    /// The figures of all rounds, if there were several; `hops` are those of the last.
    pub watch: Option<WatchDocument>,
    /// The way back as seen by an endpoint at the target, if requested.
    pub reverse: Option<ReverseDocument>,
    /// Probes sent, including those beyond the end.
    pub probes_sent: u32,
    /// Probes answered.
    pub answers: u32,
    /// Answers that arrived after the wait for them ended.
    pub answers_late: u32,
    /// Repeated answers to a probe.
    pub answers_duplicate: u32,
    /// Answers that quoted no probe of this trace: forged, or another program's.
    pub answers_foreign: u32,
    /// How long it took.
    pub seconds: f64,
    /// Random seed of its session.
    pub seed: u64,
    /// What limits the value of the figures.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

/// One TTL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HopDocument {
    /// The TTL.
    pub ttl: u8,
    /// The address that answered first; absent for a silent hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner of its network, from the given table.
    #[serde(flatten)]
    pub origin: Option<Origin>,
    /// RTTs of the answers, in the order of sending, microseconds.
    pub rtt_us: Vec<f64>,
    /// Further addresses that answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_addresses: Vec<IpAddr>,
    /// Whether several addresses answered probes of one flow that left one after another: a router
    /// before balances by packet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_by_packet: bool,
    /// Why answers are missing, if they are.
    pub fate: HopFate,
    /// Probes sent to it, including retries.
    pub sent: u32,
    /// Routers that the answer passed on its way back, including this one, judged by the nearest
    /// usual initial TTL (64, 128, 255). If it differs from `ttl`, the way back is different or a
    /// tunnel hides hops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_hops: Option<u8>,
    /// DSCP with which the probe arrived there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// ECN field with which it arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<u8>,
    /// Whether these differ from what the previous hop saw or from what was sent: changed there or
    /// just before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remarked: bool,
    /// Whether an address, port or checksum had been rewritten on the way: a NAT before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_translated: Option<bool>,
    /// The MPLS label stack of the probe there, top first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpls: Vec<MplsLabel>,
    /// The lowest TTL at which one of its addresses answered before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u8>,
    /// Each probe.
    pub probes: Vec<ProbeDocument>,
}

/// One probe.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeDocument {
    /// When it was sent, microseconds since the start.
    pub sent_us: f64,
    /// Its flow.
    pub flow: u16,
    /// 0 for the first attempt, then 1 and up.
    pub attempt: u8,
    /// The address that answered; absent with everything below if none did.
    pub address: Option<IpAddr>,
    /// From sending to receiving, microseconds.
    pub rtt_us: Option<f64>,
    /// What the answer says.
    pub answer: Option<AnswerKind>,
    /// TTL of the answer on arrival.
    pub reply_ttl: Option<u8>,
    /// TTL of the probe on arrival there; above 1 if routers did not decrement it.
    pub quoted_ttl: Option<u8>,
}

impl TraceDocument {
    /// The document of a trace.
    pub fn new(header: TraceHeader, config: &TraceConfig, outcome: &TraceOutcome) -> Self {
        let hops = hops(outcome, config, &header.names);
        Self {
            schema: TRACE_SCHEMA.into(),
            started_at: header.started_at,
            host: header.host,
            target: outcome.target,
            source: header.source,
            kind: outcome.kind,
            method: header.method,
            port: header.port,
            first_ttl: config.first,
            last_ttl: config.hops,
            probes_per_hop: config.probes,
            size_bytes: config.size,
            dscp: config.dscp,
            ecn: ecn_bits(config.ecn),
            reached: outcome.is_reached(),
            end: outcome.end,
            end_words: end_in_words(&outcome.end, outcome.target),
            delay: delay::analyze(&samples(&hops), probed_s(&hops)),
            hops,
            paths: None,
            link_rates: Vec::new(),
            mtu: None,
            watch: None,
            reverse: None,
            probes_sent: outcome.sent,
            answers: outcome.answered,
            answers_late: outcome.late,
            answers_duplicate: outcome.duplicates,
            answers_foreign: outcome.foreign,
            seconds: outcome.elapsed.0 as f64 / 1e9,
            seed: header.seed,
            caveats: Vec::new(),
        }
    }

    /// Adds the rounds of a watch, `seconds` long so far. The delay is then that of all rounds.
    pub fn set_watch(&mut self, watch: WatchDocument, seconds: f64) {
        let samples = |row: &WatchRow| {
            let hop = self.hops.iter().find(|hop| hop.ttl == row.ttl);
            HopSamples {
                ttl: row.ttl,
                address: row.address,
                rtt_us: row.recent_us.iter().flatten().copied().collect(),
                is_labelled: hop.is_some_and(|hop| !hop.mpls.is_empty()),
                return_hops: hop.and_then(|hop| hop.return_hops),
            }
        };
        let samples: Vec<HopSamples> = watch.rows.iter().map(samples).collect();
        let kept = watch.rows.iter().map(|row| row.recent_us.len()).max();
        let share = kept.unwrap_or(0) as f64 / watch.rounds.max(1) as f64;
        self.delay = delay::analyze(&samples, share.min(1.0) * seconds);
        self.watch = Some(watch);
    }

    /// Fills in the owner of each hop's network, there and back and in the rounds.
    pub fn set_origins(&mut self, table: &AsTable) {
        let origin = |address: Option<IpAddr>| table.origin(address?).cloned();
        for hop in &mut self.hops {
            hop.origin = origin(hop.address);
        }
        for row in self.watch.iter_mut().flat_map(|watch| &mut watch.rows) {
            row.origin = origin(row.address);
        }
        let back = self.reverse.as_mut().and_then(|back| back.trace.as_mut());
        if let Some(back) = back {
            back.set_origins(table);
        }
    }
}

/// The samples of each hop: the address that answered first, with only its RTTs.
fn samples(hops: &[HopDocument]) -> Vec<HopSamples> {
    let samples = |hop: &HopDocument| {
        let answered = hop.probes.iter().find_map(|probe| probe.address);
        let is_own = |probe: &&ProbeDocument| answered.is_some() && probe.address == answered;
        let own = hop.probes.iter().filter(is_own);
        HopSamples {
            ttl: hop.ttl,
            address: answered,
            rtt_us: own.filter_map(|probe| probe.rtt_us).collect(),
            is_labelled: !hop.mpls.is_empty(),
            return_hops: hop.return_hops,
        }
    };
    hops.iter().map(samples).collect()
}

/// Time between the first and the last probe, seconds.
fn probed_s(hops: &[HopDocument]) -> f64 {
    let sent = hops.iter().flat_map(|hop| &hop.probes).map(|probe| probe.sent_us);
    let [first, last] =
        sent.fold([f64::INFINITY, 0.0], |[first, last], at| [at.min(first), at.max(last)]);
    (last - first).max(0.0) / 1e6
}

/// How a path to `target` ends, in words.
pub fn end_in_words(end: &PathEnd, target: IpAddr) -> String {
    match *end {
        PathEnd::Reached { ttl } => format!("{target} answers at hop {ttl}"),
        PathEnd::Unreachable { ttl, code } => {
            let reason = unreachable_reason(Family::from(target), code);
            format!("{target} is unreachable: hop {ttl} says {reason} (code {code})")
        }
        PathEnd::TooBig { ttl, mtu: 0 } => {
            format!("the probes do not fit the link after hop {ttl}, which does not say what would")
        }
        PathEnd::TooBig { ttl, mtu } => {
            format!("the probes do not fit a link: the answer at hop {ttl} allows {mtu} bytes")
        }
        PathEnd::Loop { from_ttl, length } => {
            format!("the path loops: {length} hops, again and again from hop {from_ttl} on")
        }
        PathEnd::HopLimit => format!("{target} is farther than the highest TTL"),
        PathEnd::Silent { after_ttl } => format!(
            "nothing answers beyond hop {after_ttl}: {target} is silent, or packets are lost or \
             filtered there"
        ),
        PathEnd::NoAnswer => "neither a router nor the target answers".into(),
    }
}

fn hops(
    outcome: &TraceOutcome,
    config: &TraceConfig,
    names: &BTreeMap<IpAddr, String>,
) -> Vec<HopDocument> {
    let mut marks = config.dscp.octet() | ecn_bits(config.ecn);
    let mut documents = Vec::with_capacity(outcome.hops.len());
    for hop in &outcome.hops {
        let quoted = first_of(hop, |reply| reply.quoted.traffic_class);
        let mut document = hop_document(hop, names);
        document.dscp = quoted.map(|class| class >> 2);
        document.ecn = quoted.map(|class| class & 3);
        document.is_remarked = quoted.is_some_and(|class| class != marks);
        marks = quoted.unwrap_or(marks);
        documents.push(document);
    }
    documents
}

fn hop_document(hop: &Hop, names: &BTreeMap<IpAddr, String>) -> HopDocument {
    let mut addresses = hop.addresses().into_iter();
    let address = addresses.next();
    let probes: Vec<ProbeDocument> = hop.probes.iter().map(probe_document).collect();
    HopDocument {
        ttl: hop.ttl,
        address,
        name: address.and_then(|address| names.get(&address).cloned()),
        origin: None,
        rtt_us: hop.rtts_us(),
        other_addresses: addresses.collect(),
        is_by_packet: is_by_packet(&probes),
        fate: hop.fate,
        sent: u32::try_from(hop.probes.len()).unwrap_or(u32::MAX),
        return_hops: first_of(hop, |reply| reply.reply_ttl.and_then(return_hops)),
        dscp: None,
        ecn: None,
        is_remarked: false,
        is_translated: first_of(hop, |reply| reply.quoted.is_translated),
        mpls: first_of(hop, |reply| (!reply.mpls.is_empty()).then(|| reply.mpls.clone()))
            .unwrap_or_default(),
        repeats: hop.repeats,
        probes,
    }
}

/// Only probes of the first round count: they leave within milliseconds, in which a route hardly
/// changes.
fn is_by_packet(probes: &[ProbeDocument]) -> bool {
    let first = || probes.iter().filter(|probe| probe.attempt == 0 && probe.address.is_some());
    let differ = |a: &ProbeDocument, b: &ProbeDocument| a.flow == b.flow && a.address != b.address;
    first().any(|probe| first().any(|other| differ(probe, other)))
}

fn first_of<T>(hop: &Hop, what: impl Fn(&Reply) -> Option<T>) -> Option<T> {
    hop.replies().find_map(what)
}

/// Routers on the way back, from the nearest usual initial TTL at or above. `None` for 0, which no
/// host delivers.
fn return_hops(reply_ttl: u8) -> Option<u8> {
    let first = [64, 128, 255].into_iter().find(|it| reply_ttl <= *it)?;
    (reply_ttl > 0).then(|| (first - reply_ttl).saturating_add(1))
}

fn probe_document(probe: &ProbeOutcome) -> ProbeDocument {
    let reply = probe.reply.as_ref();
    ProbeDocument {
        sent_us: probe.sent_at.0 as f64 / 1e3,
        flow: probe.flow,
        attempt: probe.attempt,
        address: reply.map(|reply| reply.from),
        rtt_us: reply.map(|reply| reply.rtt.0 as f64 / 1e3),
        answer: reply.map(|reply| reply.kind),
        reply_ttl: reply.and_then(|reply| reply.reply_ttl),
        quoted_ttl: reply.and_then(|reply| reply.quoted.ttl),
    }
}

// The check of an endpoint's document.

/// Most retries of a hop by any version of linerate.
const MAX_ATTEMPTS: usize = 11;
/// Longest round trip believed, µs.
const LONGEST_US: f64 = 1e9;
/// Limits for the characters of a text and the number of caveats.
const MAX_TEXT: usize = 1_000;
const MAX_CAVEATS: usize = 16;
const MAX_LABELS: usize = 16;

/// Checks the trace that an endpoint sends: the client believes nothing that a stranger could not
/// say as well. Every figure must be in range; whatever follows from the probes is computed here,
/// including the sentences; parts that were not requested are dropped.
///
/// # Errors
/// The document contradicts the request; the error says in words how.
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
        delay: delay::analyze(&samples(&document.hops), probed_s(&document.hops)),
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
    let is_long = |text: &str| text.chars().count() > MAX_TEXT;
    let is_long_caveat = |it: &Caveat| is_long(&it.message) || is_long(&it.remedy.to_string());
    if document.caveats.len() > MAX_CAVEATS
        || is_long(&document.started_at)
        || is_long(&document.method)
        || document.caveats.iter().any(is_long_caveat)
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
    let most = usize::from(request.probes) + MAX_ATTEMPTS;
    let most_counted = hop.probes.len().max(hop.rtt_us.len()).max(hop.other_addresses.len());
    if most_counted > most || hop.mpls.len() > MAX_LABELS {
        return Err(format!("hop {} has too many answers", hop.ttl));
    }
    let probes = || hop.probes.iter();
    let of_probes = probes().flat_map(|probe| [Some(probe.sent_us), probe.rtt_us]);
    let mut times = hop.rtt_us.iter().copied().chain(of_probes.flatten());
    if let Some(absurd) = times.find(|time| !is_time(*time)) {
        return Err(format!("hop {} has a time of {absurd:e} µs", hop.ttl));
    }
    let of_probes = probes().filter_map(|probe| probe.address.as_ref());
    let mut addresses = hop.address.iter().chain(&hop.other_addresses).chain(of_probes);
    if !addresses.all(|address| address.is_ipv4() == document.target.is_ipv4()) {
        return Err(format!("hop {} has an address of the other family", hop.ttl));
    }
    Ok(())
}

fn is_time(us: f64) -> bool {
    (0.0..=LONGEST_US).contains(&us)
}

/// Names come from the endpoint's own resolver, so they are dropped: the client looks them up
/// itself.
fn without_names(hop: &HopDocument) -> HopDocument {
    let balanced = is_by_packet(&hop.probes);
    HopDocument { name: None, origin: None, is_by_packet: balanced, ..hop.clone() }
}
