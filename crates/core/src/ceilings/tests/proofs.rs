//! What changes have shown stands above what the rules find.

use super::causes::small_window;
use crate::ceilings::{Cause, annotate, prove};
use crate::record::{ChangeResult, Proof, ProofLevel, Record};

fn proof(level: ProofLevel, causes: &[Cause]) -> Proof {
    Proof { level, causes: causes.to_vec(), ruled_out: Vec::new(), doubt: None }
}

fn explained() -> Record {
    let mut record = small_window().record();
    annotate(&mut record);
    record
}

#[test]
fn a_proof_keeps_the_verdict_that_it_agrees_with_and_needs_no_confidence() {
    let mut record = explained();
    let before = record.verdict().unwrap().clone();
    assert!(before.confidence.is_some());
    let proved = proof(ProofLevel::Proved, &[Cause::ReceiveWindow]);
    prove(&mut record, &proved);
    let verdict = record.verdict().unwrap();
    assert_eq!((verdict.cause, verdict.confidence), (Cause::ReceiveWindow, None));
    assert_eq!(verdict.proof.as_ref(), Some(&proved));
    assert_eq!((&verdict.evidence, &verdict.remedy), (&before.evidence, &before.remedy));
}

#[test]
fn a_proof_of_another_cause_replaces_the_verdict() {
    let mut record = explained();
    prove(&mut record, &proof(ProofLevel::Proved, &[Cause::PathRate]));
    let verdict = record.verdict().unwrap();
    assert_eq!(verdict.cause, Cause::PathRate);
    let words = verdict.evidence.join(" ");
    assert!(!words.contains("receiver's window held"), "{words}");
    prove(&mut record, &proof(ProofLevel::Open, &[]));
    assert_eq!(record.verdict().unwrap().cause, Cause::Unexplained);
}

#[test]
fn a_stored_record_that_is_explained_again_keeps_its_proof() {
    let mut record = explained();
    prove(&mut record, &proof(ProofLevel::Likely, &[Cause::SendBuffer]));
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(json["verdict"]["proof"], "likely");
    assert_eq!(json["verdict"]["causes"], serde_json::json!(["send_buffer"]));
    let mut stored: Record = serde_json::from_value(json).unwrap();
    annotate(&mut stored);
    assert_eq!(stored.verdict(), record.verdict());
}

#[test]
fn a_remedy_that_was_tried_has_a_measured_worth_in_place_of_a_prediction() {
    let tried = |lifts: Cause, interval: [f64; 2]| ChangeResult {
        change: "a change".to_owned(),
        end: None,
        ratio: 3.0,
        interval,
        runs: 1,
        predicted: [].into(),
        lifts: Some(lifts),
        window_ratio: None,
        cause_then: Some(Cause::PathRate),
    };
    let plain = explained();
    let predicted = plain.verdict().unwrap().predicted_bps;
    let measured = plain.throughput_bps().unwrap();
    let cases = [
        (tried(Cause::ReceiveWindow, [2.0, 4.5]), (Some(3.0 * measured), None)),
        // It may be nothing.
        (tried(Cause::ReceiveWindow, [0.9, 4.5]), (None, predicted)),
        // The remedy of something else.
        (tried(Cause::SendBuffer, [2.0, 4.5]), (None, predicted)),
    ];
    for (change, expected) in cases {
        let mut record = plain.clone();
        record.legs[0].experiments = vec![change];
        prove(&mut record, &proof(ProofLevel::Proved, &[Cause::ReceiveWindow]));
        let verdict = record.verdict().unwrap();
        assert_eq!((verdict.remedied_bps, verdict.predicted_bps), expected);
        if expected.0.is_some() {
            assert_eq!(verdict.next_cause, Some(Cause::PathRate));
        }
    }
}
