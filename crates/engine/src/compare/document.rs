//! What a comparison leaves.

use linerate_core::compare::{COMPARISON_SCHEMA, Comparison, ComparisonVerdict, Ledger, ReadBack};
use linerate_core::record::{Caveat, CaveatKind, Status};
use linerate_core::stats::Figure;

use super::CompareOptions;
use super::preflight::Preflight;
use crate::client::Client;
use crate::error::MeasureError;
use crate::words::chain;

/// Puts it together; `error` is what ended it early.
pub(super) fn assemble(
    client: &Client,
    options: &CompareOptions,
    ledger: &Ledger,
    preflight: Preflight,
    read_back: ReadBack,
    error: Option<&MeasureError>,
) -> Result<Comparison, MeasureError> {
    let metrics = ledger.metrics()?;
    let first = metrics.first().map(|metric| &metric.conclusion);
    let mut caveats: Vec<Caveat> = error.map(partial).into_iter().collect();
    caveats.extend(options.caveats.iter().cloned());
    caveats.extend(preflight.caveats);
    caveats.extend(ledger.caveats());
    caveats.extend(metrics.iter().filter_map(|metric| {
        not_one_figure(metric.metric.as_str(), [("A", &metric.a), ("B", &metric.b)])
    }));
    Ok(Comparison {
        schema: COMPARISON_SCHEMA.to_owned(),
        status: match error {
            Some(_) => Status::Partial,
            None => Status::Complete,
        },
        started_at: preflight.started_at,
        host: client.host().to_owned(),
        peer: client.peer().to_string(),
        would_decide: ledger.would_decide(),
        verdict: first.map_or(ComparisonVerdict::Inconclusive, |first| first.verdict),
        effect_percent: first.map(|first| first.effect_percent),
        interval_percent: first.map(|first| first.interval_percent),
        pairs: first.map_or(0, |first| first.pairs),
        metrics,
        one_sided_faults: ledger.one_sided(),
        a: options.a.clone(),
        b: options.b.clone(),
        lab_b: None,
        read_back,
        plan: options.test.clone(),
        with: options.with.clone(),
        margin_percent: options.design.margin_percent,
        max_pairs: options.design.max_pairs,
        forbidden: options.forbidden.clone(),
        runs: ledger.pairs().to_vec(),
        idle: preflight.idle,
        notes: options.notes.clone(),
        caveats,
        environment: preflight.environment,
        seed: options.design.seed,
        baseline: None,
    })
}

fn partial(error: &MeasureError) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        chain(error),
        "run it again; the pairs that ran are in the document",
    )
}

/// The pairs stand up to modes and drifts; a single figure of a side does not.
fn not_one_figure(metric: &str, sides: [(&str, &Figure); 2]) -> Option<Caveat> {
    let odd: Vec<&str> = sides
        .iter()
        .filter(|(_, figure)| !matches!(figure, Figure::One(_)))
        .map(|(name, _)| *name)
        .collect();
    (!odd.is_empty()).then(|| {
        Caveat::new(
            CaveatKind::NotOneFigure,
            format!(
                "{metric} under {} is not one figure: its runs fall into groups, or rise or fall \
                 with time. The comparison is of pairs, which this does not mislead",
                odd.join(" and ")
            ),
            "",
        )
    })
}
