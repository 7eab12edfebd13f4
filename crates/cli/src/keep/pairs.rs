//! The results of a run between two sites of a mesh, in each direction.

use linerate_core::plan::Direction;
use linerate_core::record::{Leg, Record};
use linerate_history::PairFigures;
use linerate_report::Document;

/// The results of a document that is saved with the labels `test`, `from` and `to`: one for each
/// direction in which its runs sent data, or the round trip of runs of `rr` and `crr`. There are
/// none without these labels.
pub(super) fn of(document: &dyn Document, labels: &[(String, String)]) -> Vec<PairFigures> {
    let label = |name: &str| {
        let found = labels.iter().rev().find(|(key, _)| key == name)?;
        Some(found.1.as_str())
    };
    let (Some(test), Some(from), Some(to)) = (label("test"), label("from"), label("to")) else {
        return Vec::new();
    };
    let named = |record: &Record, direction| {
        // Downwards the asked site is the sender.
        let (from, to) = match direction {
            Direction::Up | Direction::Both => (from, to),
            Direction::Down => (to, from),
        };
        PairFigures {
            test: test.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            rtt_us: record.latency_us.as_ref().map(|latency| latency.p50),
            ..PairFigures::default()
        }
    };
    let mut all = Vec::new();
    for record in document.records().unwrap_or_default() {
        if record.legs.is_empty() {
            all.push(named(record, Direction::Up));
        }
        for leg in &record.legs {
            let named = named(record, leg.direction);
            let verdict = leg.verdict.as_ref();
            all.push(PairFigures {
                throughput_bps: leg.throughput_bps,
                loss_percent: loss_percent(leg),
                rtt_us: rtt_us(leg).or(named.rtt_us),
                cause: verdict.map(|verdict| verdict.cause.name().to_owned()),
                confidence: verdict.and_then(|verdict| verdict.confidence),
                ..named
            });
        }
    }
    all
}

fn loss_percent(leg: &Leg) -> Option<f64> {
    if let Some(udp) = &leg.udp {
        return udp.path_loss_percent;
    }
    let tcp = leg.tcp_sender()?;
    let sent = tcp.data_segments_out.filter(|sent| *sent > 0)?;
    Some(100.0 * tcp.retransmitted_segments as f64 / sent as f64)
}

fn rtt_us(leg: &Leg) -> Option<f64> {
    leg.tcp_sender().map(|tcp| tcp.rtt_mean_us.into())
}
