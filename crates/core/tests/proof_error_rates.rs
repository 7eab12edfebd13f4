//! The error rates of proofs, with few of them. The whole table, with many, is what
//! `cargo run --release -p linerate-core --example proof_error_rates` prints.

use linerate_core::proof::ruled_out;
use linerate_core::record::{Cause, ProofLevel};

use crate::compare_support::{MODELS, Source};
use crate::proof_support::{
    Answers, CAUSES, FOREIGN_CAUSES, Ranking, Scene, Tally, noise, prove, quiet, tally,
};

/// What costs for each packet is told from what answers to losses by BBR alone, in more runs; a
/// policer from bursts into a short queue by what more flows, another algorithm and other segments
/// do.
#[test]
fn without_noise_each_cause_is_proved_within_14_runs_and_its_rivals_excluded() {
    let own = CAUSES.into_iter().filter(|cause| *cause != Cause::SegmentSize).map(Scene::new);
    for scene in own.chain(FOREIGN_CAUSES.map(Scene::foreign)) {
        let cause = scene.truth;
        let mut source = Source::new(51, 0);
        let kind = (Answers::Expected, Ranking::Right);
        let findings = prove(&scene, kind, &[0.0; 16], &mut source);
        assert_eq!(findings.proof.level, ProofLevel::Proved, "{cause:?}: {findings:?}");
        assert_eq!(findings.proof.causes, [cause], "{findings:?}");
        let most = if cause == Cause::Policer { 16 } else { 14 };
        assert!(findings.runs <= most, "{cause:?} takes {} runs", findings.runs);
        let all = CAUSES.into_iter().chain([Cause::QosClass]);
        for rival in all.filter(|rival| *rival != cause) {
            let by_evidence = ruled_out(rival, &scene.test, &scene.seen).is_some();
            let by_change = findings.proof.ruled_out.iter().any(|out| out.cause == rival);
            assert!(by_evidence || by_change, "{cause:?}: {rival:?} is left: {findings:?}");
        }
    }
}

/// Each answer of the path, with right and wrong evidence, on all noise.
#[test]
fn a_wrong_proof_is_at_most_one_in_a_hundred() {
    const TRIALS: u32 = 2;
    let all = [Answers::Expected, Answers::Edge, Answers::Drawn, Answers::Foreign, Answers::Deaf];
    let models: Vec<_> = [quiet()].into_iter().chain(MODELS).collect();
    let mut sum = Tally::default();
    for (model, stream) in models.iter().zip(0..) {
        let mut source = Source::new(52, stream);
        for answers in all {
            for (cause, ranking) in
                CAUSES.iter().zip([Ranking::Right, Ranking::Wrong].iter().cycle())
            {
                let kind = (answers, *ranking);
                sum = sum
                    + tally(&Scene::new(*cause), kind, TRIALS, &mut source, |source| {
                        noise(model, source, stream % 2 == 0)
                    });
            }
        }
    }
    assert!(100 * sum.wrong <= sum.total(), "{sum:?}");
    assert!(5 * sum.right >= sum.total(), "{sum:?}");
}
