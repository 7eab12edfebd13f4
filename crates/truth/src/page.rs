//! The page of the truth test: how often verdicts were right, and what remedies brought.

use std::collections::BTreeMap;

use linerate_core::ceilings::Cause;
use linerate_report::text::{NBSP, Page, Style, Table, percent, plural, rate};

use crate::remedy::{Proof, RemedyScore, Untried, UntriedReason};
use crate::scenario::SINGLE_LIMIT;
use crate::score::{Bin, Reliability, Score};
use crate::trial::{Answer, Judgement, Tally, Trial};

impl Score {
    /// Verdicts by cause, each scenario that was not right, and what remedies brought.
    pub(crate) fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        self.write(&mut page);
        page.finish()
    }

    fn write(&self, page: &mut Page) {
        page.heading(&answer(&self.all));
        page.gap();
        let named = |(cause, tally): (&Cause, &Tally)| (cause.name(), *tally);
        let all = [
            ("all", self.all),
            ("proved", self.proved),
            ("likely", self.likely),
            ("borders among them", self.borders),
        ]
        .into_iter()
        .filter(|(_, tally)| tally.trials > 0);
        let rows = self.causes.iter().map(named).chain(all);
        page.table(&tallies("cause", "right", rows));
        if self.failed > 0 {
            let failed = self.failed;
            page.plain(&format!("  {failed} could not be run and count as not right"));
        }
        families(page, self);
        page.gap();
        let verdicts = |(_, verdicts): &(&Cause, &BTreeMap<Cause, u64>)| {
            let count = |(verdict, n): (&Cause, &u64)| format!("{}{NBSP}{n}", verdict.name());
            verdicts.iter().map(count).collect::<Vec<_>>().join(", ")
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

/// A table of tallies with a name for each.
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

/// `36/40`
fn of_trials(tally: &Tally) -> String {
    format!("{}/{}", tally.right, tally.trials)
}

fn some_trials(tally: &Tally) -> Option<String> {
    (tally.trials > 0).then(|| of_trials(tally))
}

/// Writes the score of each family, if there is more than that of single limits.
fn families(page: &mut Page, score: &Score) {
    if score.families.keys().all(|name| name == SINGLE_LIMIT) {
        return;
    }
    page.gap();
    let table = Table::of(&score.families)
        .left("family", |(name, _)| name.as_str())
        .right("right", |(_, family)| of_trials(&family.tally))
        .right("95 % interval", |(_, family)| interval(&family.tally))
        .right("unexplained", |(_, family)| family.unexplained.to_string())
        .right("confidently wrong", |(_, family)| family.confidently_wrong.to_string())
        .right("left out", |(_, family)| family.left_out.to_string())
        .right("proved", |(_, family)| some_trials(&family.proved))
        .right("likely", |(_, family)| some_trials(&family.likely));
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

/// Writes how often verdicts of about the same confidence are right.
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

/// The 95 % interval of the share that is right.
fn interval(tally: &Tally) -> Option<String> {
    let [low, high] = tally.share.map(|share| [share.low, share.high].map(|end| 100.0 * end))?;
    Some(format!("{low:.1} to {high:.1}{NBSP}%"))
}

/// Writes each trial that is not right.
fn not_right(page: &mut Page, trials: &[Trial]) {
    let is_fine = [Judgement::Right, Judgement::LeftOut];
    let mut wrong = trials.iter().filter(|trial| !is_fine.contains(&trial.judgement)).peekable();
    if wrong.peek().is_some() {
        page.gap();
        page.title("not right");
    }
    for trial in wrong {
        let proof = trial.proof.map_or(String::new(), |proof| format!(", {}", proof.word()));
        let answer = match &trial.answer {
            Answer::Verdict { cause, .. } => cause.name(),
            Answer::Failed { reason } | Answer::LeftOut { reason } => reason,
        };
        let (number, cause) = (trial.number, trial.cause.name());
        let about = &trial.describe;
        page.plain(&format!("{number:>5} {cause} → {answer}{proof}: {about}"));
    }
}

/// Writes the remedies by cause, those that missed their prediction, and those that a lab cannot
/// apply.
fn remedies(page: &mut Page, score: &RemedyScore, proofs: &[Proof], untried: &[Untried]) {
    page.gap();
    page.words(&counts(score));
    for (of_exact, all, tally) in
        [(true, "exact, within 15 %", score.exact), (false, "model, within 30 %", score.modelled)]
    {
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
    for proof in proofs.iter().filter(|proof| !proof.held) {
        page.plain(&line(proof));
    }
    let not_in_a_lab = |one: &&Untried| one.why == UntriedReason::NotInALab;
    for one in untried.iter().filter(not_in_a_lab) {
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

/// A proof as a line.
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

#[cfg(test)]
mod tests {
    use linerate_core::ceilings::Verdict;
    use linerate_core::remedy::{Remedy, RunOption};

    use super::*;
    use crate::remedy::Remedied;

    /// Pages with the evidence, in 100 columns.
    fn style() -> Style {
        Style { width: 100, details: true, ..Style::default() }
    }

    fn verdict(cause: Cause) -> Verdict {
        Verdict {
            cause,
            share_of_ceiling: Some(1.0),
            evidence: Vec::new(),
            remedy: Some(Remedy {
                command: "linerate stream pit".to_owned(),
                ..Remedy::without(RunOption::Pacing)
            }),
            predicted_bps: Some(100e6),
            next_cause: Some(Cause::PathRate),
            ..Verdict::default()
        }
    }

    fn tried(cause: Cause, measured: Result<f64, String>) -> Remedied {
        Remedied::Tried(Proof::new(7, &verdict(cause), measured).expect("something was predicted"))
    }

    fn untried(cause: Option<Cause>, why: UntriedReason) -> Remedied {
        Remedied::Untried(Untried::new(1, cause.map(verdict).as_ref(), why))
    }

    fn text(remedied: Vec<Remedied>) -> String {
        Score::new(3, Vec::new(), remedied).text(style())
    }

    #[test]
    fn what_did_not_come_true_is_listed_and_counted_apart_by_kind() {
        let text = text(vec![
            tried(Cause::Pacing, Ok(99e6)),
            tried(Cause::Pacing, Ok(50e6)),
            tried(Cause::Pacing, Err("peer lost".to_owned())),
            tried(Cause::Congestion, Ok(99e6)),
        ]);
        for words in [
            "4 were run, 1 of them failed",
            "exact, within 15 %      1/3",
            "goal 90.0 %: missed",
            "model, within 30 %      1/1",
            "goal 90.0 %: met",
            "0.50 of the 100 Mbit/s predicted",
            "failed (peer lost), not the 100 Mbit/s predicted",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn what_was_not_run_is_counted_by_its_reason() {
        let text = text(vec![
            untried(None, UntriedReason::NoVerdict),
            untried(Some(Cause::Policer), UntriedReason::NothingPredicted),
            untried(Some(Cause::CpuSend), UntriedReason::NotInALab),
            untried(Some(Cause::CpuSend), UntriedReason::NotInALab),
        ]);
        let counts = "0 were run, 1 have no verdict, 1 predict nothing, 2 cannot be done in a lab";
        assert!(text.contains(counts), "{text}");
        assert_eq!(text.matches("not in a lab: linerate stream pit").count(), 2);
    }

    fn trial(number: u32, judgement: Judgement, answer: Answer) -> Trial {
        Trial {
            seen_from: None,
            number,
            family: "tbf".to_owned(),
            cause: Cause::PathRate,
            accepted: Vec::new(),
            is_kernels_own: true,
            is_border: false,
            limit_bps: None,
            describe: "TBF of 20 Mbit/s at client's eth0".to_owned(),
            answer,
            judgement,
            proof: None,
            caveats: Vec::new(),
        }
    }

    #[test]
    fn families_have_a_table_and_confidence_one_of_how_often_it_was_right() {
        let verdict =
            |cause, confidence| Answer::Verdict { cause, throughput_bps: 1e7, confidence };
        let reason = "`tc qdisc`: Specified qdisc kind is unknown.".to_owned();
        let trials = vec![
            trial(0, Judgement::Right, verdict(Cause::PathRate, Some(0.9))),
            trial(1, Judgement::Wrong, verdict(Cause::Pacing, Some(0.9))),
            trial(2, Judgement::Wrong, verdict(Cause::Unexplained, None)),
            trial(3, Judgement::LeftOut, Answer::LeftOut { reason }),
        ];
        insta::assert_snapshot!(Score::new(3, trials, Vec::new()).text(style()));
    }
}
