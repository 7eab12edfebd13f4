//! The way back beside the way there.

use linerate_core::trace::ReverseDocument;
use linerate_core::units::End;

use super::super::ceilings::caveats;
use super::super::page::Page;
use super::hops::hops;

pub(super) fn way_back(page: &mut Page, reverse: &ReverseDocument) {
    page.gap();
    let endpoint = &reverse.endpoint;
    match &reverse.trace {
        Some(back) => {
            let line = format!("the way back, as {endpoint} traces it to {}", back.target);
            page.title(&line);
            page.words(&format!("{}.", back.end_words));
            for sentence in &back.delay.words {
                page.words(sentence);
            }
        }
        None => {
            let line = format!("the way back is not known: {endpoint} has not traced it");
            page.title(&line);
        }
    }
    for sentence in &reverse.words {
        page.words(sentence);
    }
    if let Some(back) = &reverse.trace {
        page.gap();
        hops(page, back);
    }
    let doubts = reverse.trace.iter().flat_map(|back| &back.caveats);
    let doubts = doubts.map(|caveat| caveat.clone().told_by(End::Server));
    let doubts: Vec<_> = doubts.chain(reverse.caveats.iter().cloned()).collect();
    caveats(page, &doubts);
}
