//! The page of a trace: what can be said of the route, then a line for each hop.

mod findings;
mod hops;
mod reverse;
mod watch;

use linerate_core::record::Observed;
use linerate_core::trace::{ProbeKind, TraceDocument};

use super::Style;
use super::ceilings::caveats;
use super::number::{exact_bytes, plural, seconds};
use super::page::Page;
use crate::charts;
use crate::document::Document;
use crate::svg::Chart;
use findings::{all_paths, fits, rates};
use hops::{first_translated, hops, named};
use reverse::way_back;
use watch::{changes, figures, limited, screen};

impl Document for TraceDocument {
    /// A trace as a page: the end, the delay, what changes packets; then the hops.
    fn page(&self, page: &mut Page) {
        page.title(&headline(self));
        let mut end = self.end_words.clone();
        if self.hops.iter().any(|hop| hop.address == Some(self.target)) {
            end = end.replacen(&self.target.to_string(), &self.host, 1);
        }
        page.words(&format!("{end}."));
        for sentence in &self.delay.words {
            page.words(sentence);
        }
        for sentence in changed(self) {
            page.words(&sentence);
        }
        if let Some(mtu) = &self.mtu {
            page.words(&fits(mtu));
        }
        if let Some(words) = self.watch.as_ref().and_then(limited) {
            page.words(&words);
        }
        page.gap();
        match &self.watch {
            Some(watch) => figures(page, watch),
            None => hops(page, self),
        }
        if !self.link_rates.is_empty() {
            rates(page, &self.link_rates);
        }
        if let Some(paths) = &self.paths {
            all_paths(page, paths);
        }
        if let Some(reverse) = &self.reverse {
            way_back(page, reverse);
        }
        caveats(page, &self.caveats);
    }

    fn answer(&self) -> String {
        let delay = self.delay.words.first().map(|words| format!(". {words}"));
        let delay = delay.unwrap_or_default();
        format!("{}: {}{delay}", self.host, self.end_words)
    }

    fn observed(&self) -> Observed {
        let last = self.delay.hops.last();
        let figures = [
            ("hops", last.map(|hop| f64::from(hop.ttl))),
            ("path_us", last.map(|hop| hop.path_us)),
        ];
        Observed::figures_of(&self.started_at, figures)
    }

    fn charts(&self) -> Vec<Chart> {
        charts::trace(self)
    }
}

/// A watch as a screen: the figures of each hop with a sparkline, and the latest changes of the
/// path.
pub fn watch(trace: &TraceDocument, style: Style) -> String {
    let mut page = Page::new(style);
    page.title(&headline(trace));
    if let Some(watch) = &trace.watch {
        screen(&mut page, watch);
        changes(&mut page, watch);
    }
    page.finish()
}

fn headline(trace: &TraceDocument) -> String {
    let host = Some(trace.host.as_str()).filter(|host| *host != trace.target.to_string());
    let target = named(trace.target, host);
    let kind = match trace.kind {
        ProbeKind::Udp => "UDP",
        ProbeKind::Icmp => "ICMP",
        ProbeKind::Tcp => "TCP SYN",
    };
    let size = exact_bytes(trace.size_bytes);
    let rounds = trace.watch.as_ref().map(|watch| watch.rounds);
    let extent = match rounds {
        Some(rounds) => plural(rounds, "round"),
        None => {
            let probes = plural(trace.probes_sent.into(), "probe");
            format!("{probes} in {}", seconds(trace.seconds))
        }
    };
    let most = trace.last_ttl;
    format!("trace to {target}: {kind} of {size}, {most} hops at most, {extent}")
}

/// Says where packets are changed, a sentence each.
fn changed(trace: &TraceDocument) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut seen = (trace.dscp.octet() >> 2, trace.ecn);
    let mut before = None;
    for hop in &trace.hops {
        if let (true, Some(dscp), Some(ecn)) = (hop.is_remarked, hop.dscp, hop.ecn) {
            let place = between(before, hop.ttl);
            let (was, had) = seen;
            sentences.push(format!(
                "Packets are remarked {place}: DSCP {was} becomes {dscp}, ECN {had} becomes {ecn}."
            ));
        }
        if let (Some(dscp), Some(ecn)) = (hop.dscp, hop.ecn) {
            seen = (dscp, ecn);
            before = Some(hop.ttl);
        }
    }
    if let Some(ttl) = first_translated(trace) {
        sentences.push(format!(
            "A NAT before hop {ttl} rewrites addresses, ports or checksums."
        ));
    }
    sentences
}

fn between(before: Option<u8>, ttl: u8) -> String {
    match before {
        None if ttl == 1 => "before hop 1".into(),
        None => format!("between this host and hop {ttl}"),
        Some(before) => format!("between hop {before} and hop {ttl}"),
    }
}
