//! The page of a throughput search: the rate that gets through, by frame size, and what ends it.

use linerate_core::plan::Direction;
use linerate_core::record::{Cause, Observed, Verdict};
use linerate_core::throughput::{BurstStore, ThroughputDocument, ThroughputLimit, ThroughputRow};

use super::number::{
    bytes, count, counted, digits, joined, micros, percent, rate, seconds, some_joined,
};
use super::parts::{caveats, destination, emulated};
use crate::document::{Document, Ending, Surroundings};
use crate::page::{Page, Table, table};

impl Document for ThroughputDocument {
    /// The largest rate of each direction, the table by size, and what ends it there.
    fn page(&self, page: &mut Page) {
        page.heading(&headline(self));
        emulated(page, &self.environment);
        for row in best(self) {
            bottleneck(page, self, row);
        }
        rows(page, self);
        for row in self.rows.iter().filter(|row| !row.settled) {
            let size = row.frame_bytes;
            page.doubt(&format!(
                "frames of {size} bytes: the border moved, or the search ended before it was \
                 decided"
            ));
        }
        page.gap();
        let bursts: Vec<String> = best(self).filter_map(burst_words).collect();
        page.facts("burst", [some_joined(bursts, "; ")]);
        page.facts("carried", [Some(carried(self))]);
        if page.has_details() {
            page.facts("run", run(self));
            trials(page, self);
        }
        caveats(page, &self.caveats);
    }

    fn observed(&self) -> Observed {
        Observed::figures_of(&self.started_at, self.rows.iter().map(figure))
    }

    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        vec![(&mut self.environment, &mut self.caveats)]
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }
}

/// `up.1518.frames_per_s`
fn figure(row: &ThroughputRow) -> (String, Option<f64>) {
    (format!("{}.{}.frames_per_s", row.direction.word(), row.frame_bytes), row.frames_per_s)
}

/// The row of each direction that carries most bits.
fn best(document: &ThroughputDocument) -> impl Iterator<Item = &ThroughputRow> {
    [Direction::Up, Direction::Down].into_iter().filter_map(|direction| {
        let rows = document.rows.iter().filter(|row| row.direction == direction);
        rows.max_by(|a, b| {
            let bits = |row: &ThroughputRow| row.frames_bps.unwrap_or(0.0);
            bits(a).total_cmp(&bits(b))
        })
    })
}

/// `up to 98.7 Mbit/s up without loss, in frames of 1518 bytes: to pit (…)`
fn headline(document: &ThroughputDocument) -> String {
    let loss = match document.test.goal.loss_percent {
        some if some > 0.0 => format!("with at most {} lost", percent(some)),
        _ => "without loss".to_owned(),
    };
    let each = best(document).map(|row| {
        let (way, size) = (row.direction.word(), row.frame_bytes);
        match row.frames_bps {
            Some(bps) => format!("{} {way} in frames of {size} bytes", rate(bps)),
            None => format!("no rate {way}"),
        }
    });
    let each = joined(each, " and ");
    let each = if each.is_empty() { "nothing was measured".to_owned() } else { each };
    format!("UDP {loss}: {each}, to {}", destination(&document.host, &document.peer, None))
}

/// What ends the row with the most bits.
fn bottleneck(page: &mut Page, document: &ThroughputDocument, row: &ThroughputRow) {
    let subject = match document.test.direction {
        Direction::Both => format!("Bottleneck {}", row.direction.word()),
        Direction::Up | Direction::Down => "Bottleneck".to_owned(),
    };
    page.verdict(&format!("{subject}: {}.", limit_sentence(row)));
    if let Some(verdict) = shown_verdict(row) {
        let beyond = verdict.evidence.first().map(|says| format!("beyond that rate {says}"));
        page.evidence(&beyond);
    }
}

/// The verdict about a trial beyond the border, where it names something of the path.
fn shown_verdict(row: &ThroughputRow) -> Option<&Verdict> {
    let says = |cause: Cause| ![Cause::Unexplained, Cause::AsAsked].contains(&cause);
    let verdict = row.verdict.as_ref().filter(|verdict| says(verdict.cause));
    verdict.filter(|_| row.limited_by == ThroughputLimit::Path)
}

fn limit(row: &ThroughputRow) -> String {
    match (row.limited_by, shown_verdict(row)) {
        (ThroughputLimit::Path, Some(verdict)) => verdict.cause.words().to_owned(),
        (ThroughputLimit::Path, None) => "the path".to_owned(),
        (ThroughputLimit::Receiver, _) => "receiver's socket".to_owned(),
        (ThroughputLimit::Sender, _) => "the sender".to_owned(),
        (ThroughputLimit::MostRate, _) => "highest rate".to_owned(),
        (ThroughputLimit::Losses, _) => "losses by chance".to_owned(),
        (ThroughputLimit::Ended, _) => "not found".to_owned(),
    }
}

fn limit_sentence(row: &ThroughputRow) -> String {
    match row.limited_by {
        ThroughputLimit::Path => limit(row),
        ThroughputLimit::Receiver => {
            "the receiver: its socket drops what its program does not take in time, so the path \
             may carry more"
                .to_owned()
        }
        ThroughputLimit::Sender => {
            "none of the path's. The sender can send no faster, and all of it arrives".to_owned()
        }
        ThroughputLimit::MostRate => {
            "none. The highest rate that may be tried was carried".to_owned()
        }
        ThroughputLimit::Ended => "not found. The search ended before it".to_owned(),
        ThroughputLimit::Losses => {
            let lost = row
                .lost_percent
                .map_or_else(String::new, |lost| format!(": {} at the slowest", percent(lost)));
            format!(
                "losses at any rate{lost}. They are no full queue; --loss finds the rate that \
                 carries the rest"
            )
        }
    }
}

fn rows(page: &mut Page, document: &ThroughputDocument) {
    let is_both = document.test.direction == Direction::Both;
    let has_line = document.link_bps.is_some();
    page.gap();
    let mut all = Table::of(&document.rows);
    if is_both {
        all = table! { to all, row => left "" => row.direction.word(); };
    }
    all = table! { to all, row =>
        right ["frame", "bytes"] => row.frame_bytes;
        right ["frames/s", "carried"] => row.frames_per_s.map(|n| n.round() as u64);
        right "rate" => row.frames_bps.map(rate);
        right @2 "payload" => row.throughput_bps.map(rate);
    };
    if has_line {
        all = table! { to all, row =>
            right @1 ["of the", "line"] => row.line_percent.map(percent);
        };
    }
    if document.test.bursts {
        all = table! { to all, row =>
            right @4 ["longest", "burst"] => row.burst.as_ref().map(|burst| burst.frames);
        };
    }
    page.table(&table! { to all, row =>
        right ["frames/s", "fail"] => row.fails_at_frames_per_s.map(|n| n.round() as u64);
        right @3 ["lost", "there"] => row.lost_percent.map(percent);
        left ["limited", "by"] => limit(row);
    });
}

/// `up, 1518 bytes: 66 frames (100 KiB) pass at once and wait for 3.00 ms in the mean: a queue`
fn burst_words(row: &ThroughputRow) -> Option<String> {
    let burst = row.burst.as_ref()?;
    let (way, size) = (row.direction.word(), row.frame_bytes);
    let [frames, length] = [count(burst.frames), bytes(burst.bytes)];
    let waits = burst
        .delay_us
        .map_or_else(String::new, |delay| format!(" and wait for {} in the mean", micros(delay)));
    let store = match (burst.store, burst.fails_at_frames) {
        (Some(BurstStore::Queue), _) => ": a queue",
        (Some(BurstStore::Bucket), _) => ": a token bucket",
        (Some(BurstStore::Receiver), _) => ", more are dropped by the receiver's socket",
        (None, None) => ", the longest that is tried",
        (None, Some(_)) => "",
    };
    Some(format!("{way}, {size} bytes: {frames} frames ({length}) pass at once{waits}{store}"))
}

/// What counted as carried, and how it was decided.
fn carried(document: &ThroughputDocument) -> String {
    let goal = document.test.goal;
    let trial = seconds(goal.trial.as_secs_f64());
    let trials = match goal.trials {
        1 => format!("one trial of {trial}"),
        several => format!("most of {several} trials of {trial}"),
    };
    let lost = match goal.loss_percent {
        some if some > 0.0 => format!("at most {} lost", percent(some)),
        _ => "nothing lost".to_owned(),
    };
    format!("{lost} and no queue that grows, in {trials}; known to {}", percent(goal.width_percent))
}

fn run(document: &ThroughputDocument) -> [Option<String>; 4] {
    let number: usize = document.rows.iter().map(|row| row.trials.len()).sum();
    [
        Some(format!("over {}", document.family)),
        counted(number as u64, "trials"),
        Some(format!("{} in all", seconds(document.seconds))),
        Some(format!("begun {}", document.started_at)),
    ]
}

fn trials(page: &mut Page, document: &ThroughputDocument) {
    for row in &document.rows {
        let size = row.frame_bytes;
        page.section(format!("Trials {}, frames of {size} bytes", row.direction.word()));
        page.table(&table! { &row.trials, trial =>
            right ["asked", "frames/s"] => trial.asked_per_s.round() as u64;
            right ["sent", "frames/s"] => trial.sent_per_s.round() as u64;
            right "time" => seconds(trial.seconds);
            right "lost" => percent(trial.lost_percent);
            right ["at the", "socket"] => trial.socket_drops_percent.map(percent);
            right ["delay", "grows"] => trial.delay_growth_percent.map(growth);
            left "" => if trial.carried { "carried" } else { "not" };
        });
    }
}

/// The growth of the delay; the clocks' own drift is none.
fn growth(percent: f64) -> String {
    format!("{} %", digits(if percent.abs() < DRIFT_PERCENT { 0.0 } else { percent }))
}

/// Two clocks run apart by a hundred millionths at most.
const DRIFT_PERCENT: f64 = 0.01;
