//! What a client takes of an endpoint's trace: nothing that a stranger could not say as well is
//! believed.

use super::{HopDocument, TRACE_SCHEMA, TraceDocument, end_in_words};
use crate::delay;
use crate::outcome::PathEnd;
use crate::reverse::TraceRequest;

/// A hop is asked again as often as this at most, by whatever version of linerate.
const MAX_ATTEMPTS: usize = 11;
/// No round trip of a trace takes as long, µs.
const LONGEST_US: f64 = 1e9;
/// Characters of a text, and how many caveats.
const MAX_TEXT: usize = 1_000;
const MAX_CAVEATS: usize = 16;
const MAX_LABELS: usize = 16;

/// What a client takes of an endpoint's trace. Every figure is in range; what can be worked out
/// from the probes is worked out again, so that the words are ours; what was not asked for is
/// dropped.
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
        delay: delay::analyze(&document.samples()),
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
    let caveats = document.caveats.iter();
    let texts = texts.into_iter().cloned();
    let mut texts = texts.chain(caveats.flat_map(|c| [c.message.clone(), c.remedy.to_string()]));
    let is_long = |text: String| text.chars().count() > MAX_TEXT;
    if document.caveats.len() > MAX_CAVEATS || texts.any(is_long) {
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
    if is_time(document.seconds * 1e6) {
        Ok(())
    } else {
        Err(format!("it took {:e} s", document.seconds))
    }
}

fn check_hop(
    hop: &HopDocument,
    document: &TraceDocument,
    request: &TraceRequest,
) -> Result<(), String> {
    let most = usize::from(request.probes) + MAX_ATTEMPTS;
    let counts = [
        hop.probes.len(),
        hop.rtt_us.len(),
        hop.other_addresses.len(),
    ];
    if counts.into_iter().any(|count| count > most) || hop.mpls.len() > MAX_LABELS {
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
    if addresses.all(|address| address.is_ipv4() == document.target.is_ipv4()) {
        Ok(())
    } else {
        Err(format!(
            "hop {} has an address of the other family",
            hop.ttl
        ))
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
