//! One level against another: effect and interval of figures that were not paired.

use super::document::Contrast;
use super::words::{runs, signed_digits};
use crate::compare::{Observation, observational};

/// The figures of both levels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sides<'a> {
    pub(super) a: &'a str,
    pub(super) b: &'a str,
    /// At least one finite figure each.
    pub(super) of_a: &'a [f64],
    pub(super) of_b: &'a [f64],
    pub(super) median_a: f64,
    pub(super) median_b: f64,
    /// Whether the figures of each are several: modes, or a drift.
    pub(super) not_one_figure: [bool; 2],
    /// What the clock allows, where each level has one run.
    pub(super) ratio_by_clock: Option<[f64; 2]>,
}

/// Effect and interval, and what so many runs can show.
pub(super) fn contrast(sides: &Sides<'_>) -> Contrast {
    let (n_a, n_b) = (sides.of_a.len(), sides.of_b.len());
    // Figures that are not positive have no ratio; the difference remains.
    let seen = observational(sides.of_a, sides.of_b).ok();
    let has_spread = n_a + n_b > 2;
    let ratio = sides.median_b / sides.median_a;
    let mut contrast = Contrast {
        a: sides.a.to_owned(),
        b: sides.b.to_owned(),
        n_a,
        n_b,
        difference: sides.median_b - sides.median_a,
        ratio: ratio.is_finite().then_some(ratio),
        effect_percent: seen.as_ref().map(|seen| seen.effect_percent),
        interval_percent: seen
            .as_ref()
            .filter(|_| has_spread)
            .map(|seen| seen.interval_percent),
        confidence_percent: seen
            .as_ref()
            .filter(|_| has_spread)
            .map(|seen| seen.confidence_percent),
        smallest_p_value: seen.as_ref().map(|seen| seen.smallest_p_value),
        runs_to_reach_5_percent: seen.as_ref().map(|seen| seen.runs_to_reach_5_percent),
        runs_needed: seen.as_ref().and_then(|seen| seen.runs_needed),
        ratio_by_clock: sides.ratio_by_clock,
        shows: Vec::new(),
    };
    contrast.shows = several(sides).into_iter().collect();
    contrast.shows.extend(shows(&contrast, seen.as_ref()));
    contrast
}

/// A difference of medians that hardly occur says little.
fn several(sides: &Sides<'_>) -> Option<String> {
    let names = [sides.a, sides.b].into_iter().zip(sides.not_one_figure);
    let names: Vec<&str> = names
        .filter_map(|(name, is_several)| is_several.then_some(name))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "the figures under {} are not one but have modes, or drift from row to row: find out \
             what changed between \
             them before their medians are compared",
            names.join(" and ")
        )
    })
}

/// What so many runs show and cannot show.
fn shows(contrast: &Contrast, seen: Option<&Observation>) -> Vec<String> {
    let mut say = Vec::new();
    let Some(seen) = seen else {
        return vec![
            "not all figures are above 0: there is no ratio and no effect in percent".to_owned(),
        ];
    };
    if seen.runs_a == 1 && seen.runs_b == 1 {
        say.push(
            "one run each: the ratio is all there is, and whether it would come again is not known"
                .to_owned(),
        );
    } else if !seen.can_reach_5_percent() {
        let each = seen.runs_to_reach_5_percent;
        say.push(format!(
            "{} against {}: no test of ranks can reach 5 %, however large the difference (the \
             smallest p is {:.2}); \
             {each} against {each} can",
            runs(seen.runs_a),
            seen.runs_b,
            seen.smallest_p_value
        ));
    }
    match contrast.ratio_by_clock {
        Some([low, high]) if low < 1.0 && 1.0 < high => {
            say.push("the clock of whole seconds alone can make the difference".to_owned());
        }
        Some(_) => {
            say.push("the clock of whole seconds alone does not make the difference".to_owned());
        }
        None => {}
    }
    say.extend(interval_says(contrast));
    let fewest = seen.runs_a.min(seen.runs_b);
    if let Some(needed) = seen.runs_needed.filter(|needed| *needed > fewest) {
        say.push(format!(
            "a difference of this size, at the spread seen here, takes about {} of each to show in \
             four of five cases",
            runs(needed)
        ));
    }
    say
}

/// What the interval says of 0.
fn interval_says(contrast: &Contrast) -> Option<String> {
    let [low, high] = contrast.interval_percent?;
    let confidence = contrast.confidence_percent?;
    if low == 0.0 && high == 0.0 {
        return Some("all runs of both have the same figure".to_owned());
    }
    let range = format!("{} to {} %", signed_digits(low), signed_digits(high));
    Some(if low <= 0.0 && high >= 0.0 {
        format!("no difference is shown: {range} at {confidence:.0} % confidence has 0 in it")
    } else {
        format!(
            "{range} at {confidence:.0} % confidence leaves 0 out, if nothing but the factor \
             changed between the runs, \
             which were not paired and interleaved"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: [f64; 3] = [793.65, 786.84, 797.10];
    const ON: [f64; 3] = [780.14, 762.83, 669.91];

    fn of(a: &[f64], b: &[f64]) -> Contrast {
        contrast(&Sides {
            a: "off",
            b: "on",
            of_a: a,
            of_b: b,
            median_a: a[a.len() / 2],
            median_b: b[b.len() / 2],
            not_one_figure: [false; 2],
            ratio_by_clock: None,
        })
    }

    #[test]
    fn what_is_said_does_not_depend_on_the_unit() {
        let scaled = [OFF, ON].map(|side| side.map(|value| value * 1e6));
        assert_eq!(of(&OFF, &ON).shows, of(&scaled[0], &scaled[1]).shows);
    }

    #[test]
    fn three_against_three_are_told_that_they_cannot_reach_5_percent_and_four_are_not() {
        let three = of(&OFF, &ON);
        assert!(three.shows[0].contains("no test of ranks can reach 5 %"));
        assert!(three.shows[1].contains("at 90 % confidence leaves 0 out"));
        let four = of(&[100.0, 101.0, 102.0, 103.0], &[90.0, 91.0, 92.0, 93.0]);
        assert!(
            four.shows
                .iter()
                .all(|words| !words.contains("cannot") && !words.contains("no test"))
        );
    }

    #[test]
    fn one_run_each_has_a_ratio_and_no_interval() {
        let single = of(&[298.54], &[238.83]);
        assert_eq!(single.interval_percent, None);
        assert!((single.ratio.unwrap() - 0.8).abs() < 1e-3);
        assert!(single.shows[0].starts_with("one run each"));
    }

    #[test]
    fn figures_of_0_have_a_difference_and_no_effect() {
        let losses = of(&[0.0, 0.0], &[0.1, 0.2]);
        assert_eq!(losses.effect_percent, None);
        assert_eq!(losses.ratio, None);
        assert!(losses.difference > 0.0);
    }
}
