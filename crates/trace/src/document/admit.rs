//! Checks the trace that an endpoint sends: the client believes nothing a stranger could not say as
//! well.

use super::{HopDocument, TRACE_SCHEMA, TraceDocument, end_in_words};
use crate::config::TraceRequest;
use crate::delay;
use crate::outcome::PathEnd;
use linerate_units::Caveat;

/// Most retries of a hop by any version of linerate.
const MAX_ATTEMPTS: usize = 11;
/// Longest round trip believed, µs.
const LONGEST_US: f64 = 1e9;
/// Limits for the characters of a text and the number of caveats.
const MAX_TEXT: usize = 1_000;
const MAX_CAVEATS: usize = 16;
const MAX_LABELS: usize = 16;

/// Checks the trace that an endpoint sends. Every figure must be in range; whatever follows from
/// the probes is computed here, including the sentences; parts that were not requested are dropped.
///
/// # Errors
/// Checks a peer's document against the request; an error says in words what contradicts it.
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
        delay: delay::analyze(&document.samples(), document.probed_s()),
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
    HopDocument { name: None, origin: None, ..hop.clone() }
}
