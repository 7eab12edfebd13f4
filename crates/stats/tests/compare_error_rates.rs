//! The error rates of the comparison on noise that no test likes, with few comparisons. The whole
//! table, with many, is what `cargo run --release -p linerate-core --example error_rates` prints.

mod compare_support;

use compare_support::{
    MODELS, Model, Source, blocks_with_mann_whitney, compare, design, t_test_with_peeking,
};
use linerate_stats::paired::Conclusion;

const TRIALS: u32 = 2_000;
/// What 5 % can come out as: four standard errors of 2,000 trials.
const FIVE_PERCENT_AT_MOST: f64 = 0.05 + 4.0 * 0.0049;

fn rate(mut event: impl FnMut() -> bool) -> f64 {
    f64::from((0..TRIALS).filter(|_| event()).count() as u32) / f64::from(TRIALS)
}

fn named(name: &str) -> &'static Model {
    MODELS.iter().find(|model| model.name == name).expect("a model of that name")
}

fn covers(conclusion: &Conclusion, percent: f64) -> bool {
    let [low, high] = conclusion.metrics[0].interval_percent;
    (low..=high).contains(&percent)
}

#[test]
fn a_against_a_is_different_in_five_percent_whatever_the_noise() {
    for (model, stream) in MODELS.iter().zip(0..) {
        let mut source = Source::new(41, stream);
        let different =
            rate(|| compare(model, &mut source, &design(None, 1), 0.0).metrics[0].different);
        // Far below 5 % the error would not be put to use.
        assert!((0.025..FIVE_PERCENT_AT_MOST).contains(&different), "{}: {different}", model.name);
    }
}

#[test]
fn several_metrics_share_the_five_percent() {
    let mut source = Source::new(42, 0);
    let model = named("AR(1) with bursts");
    let wrong = rate(|| {
        let conclusion = compare(model, &mut source, &design(None, 3), 0.0);
        conclusion.metrics.iter().any(|metric| metric.different)
    });
    assert!((0.02..FIVE_PERCENT_AT_MOST).contains(&wrong), "{wrong}");
}

#[test]
fn at_the_margin_equivalent_comes_up_in_five_percent() {
    for (model, stream) in MODELS.iter().zip(0..) {
        let mut source = Source::new(43, stream);
        let wrong =
            rate(|| compare(model, &mut source, &design(Some(5.0), 1), 5.0).metrics[0].equivalent);
        assert!(wrong < FIVE_PERCENT_AT_MOST, "{}: {wrong}", model.name);
    }
}

#[test]
fn the_interval_holds_the_effect_in_95_percent_wherever_it_stops() {
    for (model, stream) in MODELS.iter().zip(0..) {
        for percent in [0.0, 5.0, 10.0] {
            let mut source = Source::new(44, stream);
            let covered =
                rate(|| covers(&compare(model, &mut source, &design(None, 1), percent), percent));
            assert!(
                covered > 1.0 - FIVE_PERCENT_AT_MOST,
                "{} at {percent} %: {covered}",
                model.name
            );
        }
    }
}

#[test]
fn ten_percent_are_found_in_a_path_that_scatters_by_five() {
    let mut source = Source::new(45, 0);
    let model = named("independent");
    let found = rate(|| compare(model, &mut source, &design(None, 1), 10.0).metrics[0].different);
    assert!(found > 0.97, "{found}");
}

/// The bounds above can fail: by the same yardstick the usual ways do.
#[test]
fn the_usual_ways_are_found_wrong_more_often_than_five_percent() {
    let mut source = Source::new(46, 0);
    let drift = rate(|| blocks_with_mann_whitney(named("drift"), &mut source));
    assert!(drift > 0.2, "{drift}");
    let independent = rate(|| blocks_with_mann_whitney(named("independent"), &mut source));
    assert!(independent < FIVE_PERCENT_AT_MOST, "{independent}");
    let peeking = rate(|| t_test_with_peeking(named("independent"), &mut source));
    assert!(peeking > 0.15, "{peeking}");
}
