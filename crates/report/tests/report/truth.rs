//! What verdicts and remedies came to.

use linerate_core::ceilings::{Cause, Verdict};
use linerate_core::remedy::{Remedy, RunOption};
use linerate_core::truth::{
    Answer, Judgement, Proof, Remedied, Score, Trial, Untried, UntriedReason,
};
use linerate_report::Document;

use crate::samples::whole;

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
    Score::new(3, Vec::new(), remedied).text(whole())
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
        caveats: Vec::new(),
    }
}

#[test]
fn families_have_a_table_and_confidence_one_of_how_often_it_was_right() {
    let verdict = |cause, confidence| Answer::Verdict {
        cause,
        throughput_bps: 1e7,
        confidence,
    };
    let reason = "`tc qdisc`: Specified qdisc kind is unknown.".to_owned();
    let trials = vec![
        trial(0, Judgement::Right, verdict(Cause::PathRate, Some(0.9))),
        trial(1, Judgement::Wrong, verdict(Cause::Pacing, Some(0.9))),
        trial(2, Judgement::Wrong, verdict(Cause::Unexplained, None)),
        trial(3, Judgement::LeftOut, Answer::LeftOut { reason }),
    ];
    insta::assert_snapshot!(Score::new(3, trials, Vec::new()).text(whole()));
}
