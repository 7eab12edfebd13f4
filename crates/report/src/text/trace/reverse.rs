//! The way back beside the way there.

use linerate_core::trace::ReverseDocument;

use super::super::ceilings::caveats;
use super::super::page::{Emphasis, Page};
use super::hops::hops;

pub(super) fn way_back(page: &mut Page, reverse: &ReverseDocument) {
    page.gap();
    let endpoint = &reverse.endpoint;
    match &reverse.trace {
        Some(back) => {
            let line = format!("the way back, as {endpoint} traces it to {}", back.target);
            page.line(Emphasis::Strong, &line);
            hops(page, back);
            page.gap();
            page.paragraph(Emphasis::None, "", 0, &format!("{}.", back.end_words));
            for sentence in &back.delay.words {
                page.paragraph(Emphasis::None, "", 0, sentence);
            }
        }
        None => {
            let line = format!("the way back is not known: {endpoint} has not traced it");
            page.line(Emphasis::Strong, &line);
        }
    }
    for sentence in &reverse.words {
        page.paragraph(Emphasis::None, "", 0, sentence);
    }
    let doubts = reverse.trace.iter().flat_map(|back| &back.caveats);
    let doubts: Vec<_> = doubts.chain(&reverse.caveats).cloned().collect();
    caveats(page, &doubts);
}
