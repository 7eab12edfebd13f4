//! The page of the truth test: how often verdicts were right, and what remedies brought.

use crate::page::{Page, Table};
use std::collections::BTreeMap;

use linerate_core::ceilings::Cause;
use linerate_core::truth::{
    Answer, Bin, Judgement, OLD, Proof, Reliability, RemedyScore, Score, Tally, Trial, Untried,
    UntriedReason,
};

use super::number::{NBSP, joined, percent, plural, rate};
use crate::document::Document;

impl Document for Score {
    /// Verdicts by cause, each scenario that was not right, and what remedies brought.
    fn page(&self, page: &mut Page) {
        page.heading(&answer(&self.all));
        page.gap();
        let named = |(cause, tally): (&Cause, &Tally)| (cause.name(), *tally);
        let all = [("all", self.all), ("borders among them", self.borders)];
        let all = all.into_iter().filter(|(_, tally)| tally.trials > 0);
        let rows = self.causes.iter().map(named).chain(all);
        page.table(&tallies("cause", "right", rows));
        if self.failed > 0 {
            let failed = self.failed;
            page.plain(&format!(
                "  {failed} could not be run and count as not right"
            ));
        }
        families(page, self);
        page.gap();
        let verdicts = |(_, verdicts): &(&Cause, &BTreeMap<Cause, u64>)| {
            let verdicts = verdicts.iter();
            joined(
                verdicts.map(|(verdict, n)| format!("{}{NBSP}{n}", verdict.name())),
                ", ",
            )
        };
        let matrix = Table::of(&self.matrix)
            .left("cause", |(cause, _)| cause.name())
            .left("verdicts", verdicts);
        page.table(&matrix);
        not_right(page, &self.trials);
        left_out(page, &self.trials);
        if let Some(sure) = &self.reliability {
            reliability(page, sure);
        }
        if let Some(score) = &self.remedies {
            remedies(page, score, &self.proofs, &self.untried_remedies);
        }
    }
}

/// `36 of 40 verdicts right, 90.0 % (76.9 to 96.0 %)`
fn answer(all: &Tally) -> String {
    let share = all.share.as_ref().map_or_else(String::new, |share| {
        let [share, low, high] = [share.share, share.low, share.high].map(|of| 100.0 * of);
        format!(", {share:.1}{NBSP}% ({low:.1} to {high:.1}{NBSP}%)")
    });
    let verdicts = plural(all.trials, "verdict");
    format!("{} of {verdicts} right{share}", all.right)
}

fn tallies(
    of: &'static str,
    right: &'static str,
    rows: impl IntoIterator<Item = (&'static str, Tally)>,
) -> Table<(&'static str, Tally)> {
    let share = |tally: &Tally| Some(format!("{:.1}{NBSP}%", 100.0 * tally.share?.share));
    Table::of(rows)
        .left(of, |(name, _)| *name)
        .right(right, |(_, tally)| of_trials(tally))
        .right("", |(_, tally)| share(tally))
        .right("95 % interval", |(_, tally)| interval(tally))
}

fn of_trials(tally: &Tally) -> String {
    format!("{}/{}", tally.right, tally.trials)
}

/// Writes the score of each family, if there is more than the original one.
fn families(page: &mut Page, score: &Score) {
    if score.families.keys().all(|name| name == OLD) {
        return;
    }
    page.gap();
    let table = Table::of(&score.families)
        .left("family", |(name, _)| name.as_str())
        .right("right", |(_, family)| of_trials(&family.tally))
        .right("95 % interval", |(_, family)| interval(&family.tally))
        .right("unexplained", |(_, family)| family.unexplained.to_string())
        .right("confidently wrong", |(_, family)| {
            family.confidently_wrong.to_string()
        })
        .right("left out", |(_, family)| family.left_out.to_string());
    page.table(&table);
    let (own, all) = (score.kernels_own, score.all.trials);
    page.words(&format!("{own} of {all} by the kernel's own means"));
}

/// Writes each reason for leaving trials out once, with their number.
fn left_out(page: &mut Page, trials: &[Trial]) {
    let mut reasons: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for trial in trials {
        if let Answer::LeftOut { reason } = &trial.answer {
            *reasons.entry((&trial.family, reason)).or_default() += 1;
        }
    }
    if !reasons.is_empty() {
        page.gap();
        page.title("left out");
    }
    for ((family, reason), count) in reasons {
        page.plain(&format!("{count:>5} {family}: {reason}"));
    }
}

fn reliability(page: &mut Page, sure: &Reliability) {
    page.gap();
    let range = |bin: &&Bin| {
        let [from, to] = [bin.from, bin.to].map(|share| percent(100.0 * share));
        format!("{from} to {to}")
    };
    let table = Table::of(&sure.bins)
        .left("confidence", range)
        .right("mean", |bin| percent(100.0 * bin.confidence))
        .right("right", |bin| of_trials(&bin.tally))
        .right("95 % interval", |bin| interval(&bin.tally));
    page.table(&table);
    let brier = format!("Brier score {:.3}", sure.brier);
    page.words(&match sure.unknown {
        0 => brier,
        unknown => format!("{brier}, {unknown} verdicts without a confidence"),
    });
}

fn interval(tally: &Tally) -> Option<String> {
    let [low, high] = tally
        .share
        .map(|share| [share.low, share.high].map(|end| 100.0 * end))?;
    Some(format!("{low:.1} to {high:.1}{NBSP}%"))
}

fn not_right(page: &mut Page, trials: &[Trial]) {
    let is_fine = [Judgement::Right, Judgement::LeftOut];
    let wrong = trials
        .iter()
        .filter(|trial| !is_fine.contains(&trial.judgement));
    let mut wrong = wrong.peekable();
    if wrong.peek().is_some() {
        page.gap();
        page.title("not right");
    }
    for trial in wrong {
        let answer = match &trial.answer {
            Answer::Verdict { cause, .. } => cause.name(),
            Answer::Failed { reason } | Answer::LeftOut { reason } => reason,
        };
        let (number, cause) = (trial.number, trial.cause.name());
        let about = &trial.describe;
        page.plain(&format!("{number:>5} {cause} → {answer}: {about}"));
    }
}

/// Writes the remedies by cause, those that missed their prediction, and those that a lab cannot
/// apply.
fn remedies(page: &mut Page, score: &RemedyScore, proofs: &[Proof], untried: &[Untried]) {
    page.gap();
    page.words(&counts(score));
    for (of_exact, all, tally) in [
        (true, "exact, within 15 %", score.exact),
        (false, "model, within 30 %", score.modelled),
    ] {
        let mut causes: BTreeMap<Cause, Vec<&Proof>> = BTreeMap::new();
        for proof in proofs.iter().filter(|proof| proof.is_exact() == of_exact) {
            causes.entry(proof.cause).or_default().push(proof);
        }
        let rows = causes.into_iter().map(|(cause, proofs)| {
            let held = proofs.iter().filter(|proof| proof.held).count();
            let tally = Tally::of_counts(held as u64, proofs.len() as u64);
            (cause.name(), tally)
        });
        let rows = rows.chain((tally.trials > 0).then_some((all, tally)));
        page.table(&tallies("remedy of", "as said", rows));
        if let Some(share) = tally.share {
            let met = 100.0 * share.share >= score.goal_percent;
            let met = if met { "met" } else { "missed" };
            page.plain(&format!("  goal {}: {met}", percent(score.goal_percent)));
        }
    }
    let missed = proofs.iter().filter(|proof| !proof.held);
    missed.for_each(|proof| page.plain(&line(proof)));
    let elsewhere = untried.iter();
    for one in elsewhere.filter(|one| one.why == UntriedReason::NotInALab) {
        let cause = one.cause.map_or("", Cause::name);
        let command = one.remedy.as_ref().map_or("", |remedy| &remedy.command);
        let number = one.number;
        page.plain(&format!("{number:>5} {cause:<19} not in a lab: {command}"));
    }
}

/// Counts all scenarios by what became of their remedy.
fn counts(score: &RemedyScore) -> String {
    let run = score.exact.trials + score.modelled.trials;
    let mut parts = vec![format!("{run} were run")];
    if score.failed > 0 {
        let failed = score.failed;
        parts.push(format!("{failed} of them failed and count as not as said"));
    }
    parts.extend(score.untried.iter().map(|(why, count)| {
        let words = match why {
            UntriedReason::NoVerdict => "have no verdict",
            UntriedReason::NothingPredicted => "predict nothing",
            UntriedReason::NotInALab => "cannot be done in a lab",
        };
        format!("{count} {words}")
    }));
    format!("remedies: {}", parts.join(", "))
}

fn line(proof: &Proof) -> String {
    let came = match (proof.measured_bps, &proof.failure) {
        (Some(measured), _) => format!("{:.2} of", measured / proof.predicted_bps),
        (None, Some(reason)) => format!("failed ({reason}), not"),
        (None, None) => "nothing of".to_owned(),
    };
    let (number, cause, command) = (proof.number, proof.cause.name(), &proof.remedy.command);
    let predicted = rate(proof.predicted_bps);
    format!("{number:>5} {cause:<19} {came} the {predicted} predicted: {command}")
}
