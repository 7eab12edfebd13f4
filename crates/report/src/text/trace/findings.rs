//! Findings besides the hops: the path MTU, the rates of links, all paths.

use linerate_core::trace::delay::LinkRate;
use linerate_core::trace::{MtuOutcome, Narrowing, PathsDocument, RoutedPath};

use super::super::number::{exact_bytes, joined, percent, rate, seconds};
use super::super::page::Page;
use super::super::table::table;

pub(super) fn fits(mtu: &MtuOutcome) -> String {
    let whole = match mtu.mtu_bytes {
        Some(bytes) => format!("Packets of up to {} reach the target", exact_bytes(bytes)),
        None => "The path MTU is not known".into(),
    };
    match joined(mtu.narrowings.iter().map(narrowing), "; ") {
        none if none.is_empty() => format!("{whole}; no smaller MTU was found on the path."),
        narrow => format!("{whole}; {narrow}."),
    }
}

fn narrowing(narrowing: &Narrowing) -> String {
    let place = match narrowing.after_ttl {
        Some(ttl) => format!("behind hop {ttl}"),
        None => "at a router that the trace has not seen".into(),
    };
    let bytes = exact_bytes(narrowing.mtu_bytes);
    if narrowing.is_told {
        format!("{place} {bytes} fit, as it says")
    } else {
        format!(
            "{place} {bytes} fit and NO message says so: a black hole, where TCP stalls unless it \
             probes by itself"
        )
    }
}

pub(super) fn rates(page: &mut Page, rates: &[LinkRate]) {
    page.gap();
    let from = |link: &LinkRate| {
        let ttl = link.after_ttl;
        ttl.map_or("here".to_owned(), |ttl| ttl.to_string())
    };
    page.table(&table! { rates, link =>
        left "link" => format!("{} to {}", from(link), link.to_ttl);
        right "rate" => link.rate_bps.map(rate);
        right "at least" => link.at_least_bps.map(rate);
        right "at most" => link.at_most_bps.map(rate);
    });
}

pub(super) fn all_paths(page: &mut Page, paths: &PathsDocument) {
    page.gap();
    let sure = percent(100.0 * paths.confidence);
    let complete = if paths.is_complete {
        ""
    } else {
        "; some answers stayed out, so that there may be more"
    };
    let number = paths.paths.len();
    let (probes, time) = (paths.probes_sent, seconds(paths.seconds));
    let what = if number == 1 {
        "path"
    } else {
        "equal-cost paths"
    };
    page.title(&format!(
        "{number} {what}; with {sure} probability none was missed at any one router{complete}; \
         {probes} probes in {time}"
    ));
    for (number, path) in (1..).zip(&paths.paths) {
        one_path(page, number, path, paths);
    }
}

/// Writes the hops at which the paths differ, or all hops if there is only one path.
fn one_path(page: &mut Page, number: usize, path: &RoutedPath, paths: &PathsDocument) {
    let flows = path.flows.len();
    let end = match path.is_whole {
        true => "",
        false => ", not to the target",
    };
    page.plain(&format!("path {number}: {flows} of the flows{end}"));
    let level = paths.levels.first();
    let first = level.map_or(1, |level| usize::from(level.ttl));
    for (place, address) in path.hops.iter().enumerate() {
        let differs = |other: &RoutedPath| other.hops.get(place) != Some(address);
        if paths.paths.len() > 1 && !paths.paths.iter().any(differs) {
            continue;
        }
        let rtts = path.rtt_us.get(place).map_or(&[][..], Vec::as_slice);
        let least = rtts.iter().copied().min_by(f64::total_cmp);
        let least = least.map_or_else(String::new, |us| format!("  {:.2} ms", us / 1e3));
        let address = address.map_or_else(|| "*".to_owned(), |address| address.to_string());
        page.plain(&format!("  {:>3}  {address}{least}", first + place));
    }
}
