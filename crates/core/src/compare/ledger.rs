//! The ledger of a running comparison: every pair that ran, which pairs count, and the answer so
//! far.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Conclusion, Design, Fault, Metric, MetricConclusion, Order, Sequential, Side, WouldDecide,
};
use crate::record::{Caveat, CaveatKind, Record};
use crate::stats::{Figure, StatsError, figure, median};

/// A fault that a run showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeenFault {
    /// The fault.
    pub fault: Fault,
    /// The treatment under which it ran.
    pub side: Side,
    /// The fault in words, with its figure.
    pub message: String,
}

/// Two runs, one under each treatment, one right after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedPair {
    /// The pair's number, from 1, in the order in which the pairs ran.
    pub pair: u32,
    /// The treatment that ran first.
    pub first: Side,
    /// The figures under A by their paths, each in the unit that its key names.
    pub a: BTreeMap<String, f64>,
    /// The figures under B.
    pub b: BTreeMap<String, f64>,
    /// Why the pair does not count; empty if it counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<SeenFault>,
}

impl ComparedPair {
    /// Whether the pair counts.
    pub fn counts(&self) -> bool {
        self.excluded.is_empty()
    }

    /// By how much B's figure differs from A's, percent of A's; `None` where there is no ratio.
    pub fn change_percent(&self, metric: &str) -> Option<f64> {
        let ratio = log_ratio(*self.a.get(metric)?, *self.b.get(metric)?)?;
        Some(100.0 * ratio.exp_m1())
    }
}

/// The result of a comparison in one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedMetric {
    /// The figure's path.
    pub metric: Metric,
    /// The runs under A that count: one figure with its interval, modes, or a drift.
    pub a: Figure,
    /// The runs under B.
    pub b: Figure,
    /// B against A, pair by pair.
    pub conclusion: MetricConclusion,
}

/// A fault that came repeatedly under one treatment and never under the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneSidedFault {
    /// The fault.
    pub fault: Fault,
    /// The treatment under which it came.
    pub side: Side,
    /// The number of pairs that had it.
    pub pairs: u32,
    /// The finding in words, with its probability by chance.
    pub message: String,
}

/// The state of a comparison after a pair.
#[derive(Debug)]
pub struct Standing<'a> {
    /// The pair that has just ended.
    pub pair: &'a ComparedPair,
    /// The metric that decides.
    pub metric: &'a Metric,
    /// The answer so far; `None` while no pair counts.
    pub conclusion: Option<Conclusion>,
    /// The number of pairs that count.
    pub counted: u32,
    /// The fewest and the most counted pairs after which an answer is expected, where that can be
    /// estimated.
    pub expected_pairs: Option<[u32; 2]>,
    /// The most pairs that may count.
    pub max_pairs: u32,
    /// The duration of a pair, seconds.
    pub pair_s: f64,
}

impl Standing<'_> {
    /// The shortest and the longest time to the answer, seconds.
    pub fn left_s(&self) -> [f64; 2] {
        let pairs = self.expected_pairs.unwrap_or([self.max_pairs; 2]);
        pairs.map(|pairs| f64::from(pairs.saturating_sub(self.counted)) * self.pair_s)
    }
}

/// Every pair of a comparison, with its sequential test.
#[derive(Debug)]
pub struct Ledger {
    metrics: Vec<Metric>,
    forbidden: Vec<Fault>,
    max_pairs: u32,
    sequential: Sequential,
    pairs: Vec<ComparedPair>,
    conclusion: Option<Conclusion>,
}

/// The number of excluded pairs at which the comparison is given up.
const MAX_EXCLUDED: u32 = 10;
/// Fewer pairs than this do not show how far the pairs scatter.
const MIN_PAIRS_TO_PREDICT: usize = 6;
/// A fault that came in this many pairs under one treatment alone is attributed to the treatment.
const ONE_SIDED: u32 = 3;

impl Ledger {
    /// An empty ledger for a test of `design` on these metrics. It excludes pairs with a forbidden
    /// fault.
    ///
    /// # Errors
    /// The design is impossible: [`Sequential::new`].
    pub fn new(
        metrics: Vec<Metric>,
        forbidden: &[Fault],
        design: &Design,
    ) -> Result<Self, StatsError> {
        let always = [Fault::Incomplete];
        Ok(Self {
            sequential: Sequential::new(design)?,
            max_pairs: design.max_pairs,
            forbidden: always.iter().chain(forbidden).copied().collect(),
            metrics,
            pairs: Vec::new(),
            conclusion: None,
        })
    }

    /// Enters a pair; the test then looks at it if it counts.
    ///
    /// # Errors
    /// The test refuses the pair's ratios.
    pub fn enter(&mut self, order: Order, a: &Record, b: &Record) -> Result<(), StatsError> {
        let mut pair = ComparedPair {
            pair: self.pairs.len() as u32 + 1,
            first: order.sides()[0],
            a: self.figures(a),
            b: self.figures(b),
            excluded: self.faults(Side::A, a),
        };
        pair.excluded.extend(self.faults(Side::B, b));
        pair.excluded.extend(self.without_ratio(&pair));
        if pair.counts() {
            let ratios: Vec<f64> = self.metrics.iter().filter_map(|m| ratio(&pair, m)).collect();
            self.conclusion = self.sequential.push(&ratios)?;
        }
        self.pairs.push(pair);
        Ok(())
    }

    /// Adds the figures of the background load to the last pair, each with its path.
    pub fn add_load(&mut self, a: (String, f64), b: (String, f64)) {
        if let Some(pair) = self.pairs.last_mut() {
            pair.a.extend([a]);
            pair.b.extend([b]);
        }
    }

    /// Every pair, in the order in which they ran.
    pub fn pairs(&self) -> &[ComparedPair] {
        &self.pairs
    }

    /// The number of pairs that count.
    pub fn counted(&self) -> u32 {
        self.pairs.iter().filter(|pair| pair.counts()).count() as u32
    }

    /// The number of excluded pairs.
    pub fn excluded(&self) -> u32 {
        self.pairs.len() as u32 - self.counted()
    }

    /// Whether the comparison is over: it has an answer, or as many pairs as are allowed.
    pub fn is_over(&self) -> bool {
        self.conclusion.is_some()
            || self.counted() >= self.max_pairs
            || self.excluded() >= MAX_EXCLUDED
    }

    /// The answer, final or so far; `None` before the first pair that counts.
    pub fn conclusion(&self) -> Option<Conclusion> {
        if self.counted() == 0 {
            return None;
        }
        self.conclusion.clone().or_else(|| self.sequential.conclude())
    }

    /// The fewest pairs after which there can be an answer, and the most that may count.
    pub fn least_and_most(&self) -> [u32; 2] {
        [self.sequential.first_look(), self.max_pairs]
    }

    /// The state after the last pair, when a pair takes `pair_s` seconds; `None` before the first.
    pub fn standing(&self, pair_s: f64) -> Option<Standing<'_>> {
        Some(Standing {
            pair: self.pairs.last()?,
            metric: self.metrics.first()?,
            conclusion: self.conclusion(),
            counted: self.counted(),
            expected_pairs: self.sequential.expected_pairs(),
            max_pairs: self.max_pairs,
            pair_s,
        })
    }

    /// The result of each metric; empty before the first pair that counts.
    ///
    /// # Errors
    /// A figure is not finite.
    pub fn metrics(&self) -> Result<Vec<ComparedMetric>, StatsError> {
        let Some(conclusion) = self.conclusion() else {
            return Ok(Vec::new());
        };
        let found = self.metrics.iter().zip(conclusion.metrics);
        found
            .map(|(metric, conclusion)| {
                Ok(ComparedMetric {
                    a: figure(&self.counted_values(metric, |pair| &pair.a))?,
                    b: figure(&self.counted_values(metric, |pair| &pair.b))?,
                    metric: metric.clone(),
                    conclusion,
                })
            })
            .collect()
    }

    /// Faults that came under one treatment alone: an effect of the treatment, not an accident.
    pub fn one_sided(&self) -> Vec<OneSidedFault> {
        let seen = self.pairs.iter().flat_map(|pair| &pair.excluded);
        let faults: BTreeSet<Fault> = seen.map(|seen| seen.fault).collect();
        let one_sided = faults.into_iter().filter_map(|fault| {
            let [a, b] = [Side::A, Side::B].map(|side| self.messages(fault, side));
            let (side, messages) = match (a.is_empty(), b.is_empty()) {
                (false, true) => (Side::A, a),
                (true, false) => (Side::B, b),
                _ => return None,
            };
            let pairs = messages.len() as u32;
            (pairs >= ONE_SIDED).then(|| OneSidedFault {
                fault,
                side,
                pairs,
                message: self.one_sided_message(fault, side, &messages),
            })
        });
        one_sided.collect()
    }

    /// The first message of each pair that has a fault on a side.
    fn messages(&self, fault: Fault, side: Side) -> Vec<&str> {
        let is_it = |seen: &&SeenFault| seen.fault == fault && seen.side == side;
        let pairs = self.pairs.iter();
        let seen = pairs.filter_map(|pair| pair.excluded.iter().find(is_it));
        seen.map(|seen| seen.message.as_str()).collect()
    }

    /// What to keep in mind of the answer.
    pub fn caveats(&self) -> Vec<Caveat> {
        let caveats = [self.load_changed(), self.stopped_early(), self.gave_up()];
        caveats.into_iter().flatten().collect()
    }

    /// What would decide the first metric; `None` where it is decided, or there are too few pairs
    /// to tell.
    pub fn would_decide(&self) -> Option<WouldDecide> {
        let conclusion = self.conclusion()?;
        let first = conclusion.metrics.first()?;
        let metric = self.metrics.first()?.as_str();
        let counted = self.pairs.iter().filter(|pair| pair.counts());
        let changes: Vec<f64> = counted.filter_map(|pair| pair.change_percent(metric)).collect();
        if first.different || first.equivalent || changes.len() < MIN_PAIRS_TO_PREDICT {
            return None;
        }
        Some(WouldDecide::new(first, &changes))
    }

    fn figures(&self, record: &Record) -> BTreeMap<String, f64> {
        let value = |metric: &Metric| Some((metric.to_string(), metric.of(record)?));
        self.metrics.iter().filter_map(value).collect()
    }

    fn faults(&self, side: Side, record: &Record) -> Vec<SeenFault> {
        let seen = self.forbidden.iter().filter_map(|fault| {
            Some(SeenFault { fault: *fault, side, message: fault.seen_in(record)? })
        });
        seen.collect()
    }

    /// The figures that prevent a ratio, each with its side.
    fn without_ratio(&self, pair: &ComparedPair) -> Vec<SeenFault> {
        let mut faults = Vec::new();
        for metric in &self.metrics {
            if ratio(pair, metric).is_some() {
                continue;
            }
            for (side, values) in [(Side::A, &pair.a), (Side::B, &pair.b)] {
                let why = match values.get(metric.as_str()) {
                    None => "is missing".to_owned(),
                    Some(value) if *value > 0.0 && value.is_finite() => continue,
                    Some(value) => format!("is {value}"),
                };
                faults.push(SeenFault {
                    fault: Fault::NoRatio,
                    side,
                    message: format!("{metric} {why}: there is no ratio"),
                });
            }
        }
        faults
    }

    fn counted_values(
        &self,
        metric: &Metric,
        side: impl Fn(&ComparedPair) -> &BTreeMap<String, f64>,
    ) -> Vec<f64> {
        let counted = self.pairs.iter().filter(|pair| pair.counts());
        counted.filter_map(|pair| side(pair).get(metric.as_str()).copied()).collect()
    }

    fn one_sided_message(&self, fault: Fault, side: Side, messages: &[&str]) -> String {
        let (ran, pairs, side) = (self.pairs.len(), messages.len(), side.name());
        let example = messages[0];
        // The probability that a fair coin shows the same side `pairs` times.
        let chance = 100.0 * 0.5_f64.powi(pairs as i32 - 1);
        format!(
            "{fault} came under {side} alone, in {pairs} of {ran} pairs (such as: {example}); by \
             chance on one side alone that comes about in {chance:.1} % of comparisons: take it as \
             an effect of {side}, which the pairs that count do not show"
        )
    }

    /// A treatment that changes the load beside the runs by more than half: they differ in two
    /// things then.
    fn load_changed(&self) -> Option<Caveat> {
        let of = |side: fn(&ComparedPair) -> &BTreeMap<String, f64>| {
            let counted = self.pairs.iter().filter(|pair| pair.counts()).flat_map(side);
            let figures = counted.filter(|(path, _)| path.starts_with("with."));
            let figures: Vec<f64> = figures.map(|(_, value)| *value).collect();
            (!figures.is_empty()).then(|| median(&figures))
        };
        let (a, b) = (of(|pair| &pair.a)?, of(|pair| &pair.b)?);
        let message = format!(
            "the load of --with had under B {:.2} times what it had under A: part of the effect \
             is that of another load",
            b / a
        );
        let remedy = "pace the load below what either lets through (--with \"stream --pacing \
                      RATE\"), or write the link's own rate into the policy";
        let is_other = a > 0.0 && !(0.5..=1.5).contains(&(b / a));
        is_other.then(|| Caveat::new(CaveatKind::LoadChanged, message, remedy))
    }

    fn stopped_early(&self) -> Option<Caveat> {
        let mut metrics = self.conclusion.as_ref()?.metrics.iter();
        let early = metrics.find(|metric| metric.different && metric.pairs < self.max_pairs)?;
        let message = format!(
            "a difference was certain after {} pairs, and its effect is told as of there: an \
             effect measured as soon as it is certain is, on average, overstated",
            early.pairs
        );
        Some(Caveat::new(CaveatKind::EarlyStop, message, ""))
    }

    fn gave_up(&self) -> Option<Caveat> {
        let (excluded, ran) = (self.excluded(), self.pairs.len());
        let given_up = match self.conclusion {
            None if excluded >= MAX_EXCLUDED => ", and the comparison was given up",
            _ => "",
        };
        let message = format!(
            "{excluded} of {ran} pairs were excluded for a fault{given_up}; the document's `runs` \
             say which"
        );
        (excluded > 0).then(|| Caveat::new(CaveatKind::ExcludedPairs, message, ""))
    }
}

/// The log ratio of a pair's metric.
fn ratio(pair: &ComparedPair, metric: &Metric) -> Option<f64> {
    log_ratio(*pair.a.get(metric.as_str())?, *pair.b.get(metric.as_str())?)
}

/// [`super::log_ratio`]; 0 where both are 0: a counter that rose in neither run did not differ.
fn log_ratio(a: f64, b: f64) -> Option<f64> {
    if a == 0.0 && b == 0.0 { Some(0.0) } else { super::log_ratio(a, b).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::samples::record;
    use crate::record::{Status, TcpEvidence};

    fn design(max_pairs: u32) -> Design {
        Design { margin_percent: None, metrics: 1, max_pairs, seed: 7 }
    }

    fn ledger(metric: &str, forbidden: &[Fault]) -> Ledger {
        Ledger::new(vec![metric.parse().unwrap()], forbidden, &design(30)).unwrap()
    }

    fn with_retransmissions(count: u64) -> Record {
        let mut sample = record(1e6);
        sample.legs[0].tcp = Some(TcpEvidence::told(count));
        sample
    }

    #[test]
    fn a_clear_difference_ends_the_comparison() {
        let mut ledger = ledger("throughput_bps", &[]);
        while !ledger.is_over() {
            let noise = 1.0 + 1e-3 * f64::from(ledger.counted());
            ledger.enter(Order::AFirst, &record(1e6 * noise), &record(1.1e6)).unwrap();
        }
        assert!((6..=10).contains(&ledger.counted()), "{}", ledger.counted());
        assert_eq!(ledger.standing(6.0).unwrap().counted, ledger.counted());
        let metrics = ledger.metrics().unwrap();
        assert!(metrics[0].conclusion.different);
        assert!((metrics[0].conclusion.effect_percent - 10.0).abs() < 0.8);
        assert!(matches!(metrics[0].b, Figure::One(one) if one.median == 1.1e6));
        assert_eq!(ledger.caveats()[0].kind, CaveatKind::EarlyStop);
    }

    #[test]
    fn a_load_that_a_treatment_changes_by_more_than_half_is_told() {
        for (b_bps, is_told) in [(9e6, false), (4e6, true), (16e6, true)] {
            let mut ledger = ledger("throughput_bps", &[]);
            ledger.enter(Order::AFirst, &record(1e6), &record(1e6)).unwrap();
            let load = |bps| ("with.throughput_bps".to_owned(), bps);
            ledger.add_load(load(1e7), load(b_bps));
            let told = ledger.caveats().iter().any(|it| it.kind == CaveatKind::LoadChanged);
            assert_eq!(told, is_told, "{b_bps}");
        }
    }

    #[test]
    fn a_pair_with_a_forbidden_fault_is_excluded_whole() {
        let mut ledger = ledger("throughput_bps", &[Fault::Retransmissions]);
        ledger.enter(Order::BFirst, &record(1e6), &with_retransmissions(2)).unwrap();
        let pair = &ledger.pairs()[0];
        assert_eq!((pair.first, pair.counts()), (Side::B, false));
        assert_eq!(pair.excluded[0].side, Side::B);
        assert_eq!(pair.excluded[0].message, "2 retransmitted segments");
        assert_eq!((ledger.counted(), ledger.excluded()), (0, 1));
        assert!(ledger.conclusion().is_none() && ledger.metrics().unwrap().is_empty());
    }

    #[test]
    fn a_run_that_ended_early_never_counts() {
        let mut ledger = ledger("throughput_bps", &[]);
        let mut short = record(1e6);
        short.status = Status::Partial;
        ledger.enter(Order::AFirst, &short, &record(1e6)).unwrap();
        assert_eq!(ledger.pairs()[0].excluded[0].fault, Fault::Incomplete);
    }

    #[test]
    fn a_fault_of_one_treatment_alone_is_an_outcome() {
        let mut one_sided = ledger("throughput_bps", &[Fault::Retransmissions]);
        let mut both_sided = ledger("throughput_bps", &[Fault::Retransmissions]);
        for pair in 0..4 {
            let (clean, lossy) = (record(1e6), with_retransmissions(5));
            one_sided.enter(Order::AFirst, &clean, &lossy).unwrap();
            let (a, b) = if pair == 0 { (&lossy, &clean) } else { (&clean, &lossy) };
            both_sided.enter(Order::AFirst, a, b).unwrap();
        }
        let found = one_sided.one_sided();
        assert_eq!(
            (found[0].fault, found[0].side, found[0].pairs),
            (Fault::Retransmissions, Side::B, 4)
        );
        assert!(found[0].message.contains("in 12.5 % of comparisons"), "{}", found[0].message);
        assert!(both_sided.one_sided().is_empty());
    }

    #[test]
    fn exclusions_are_bounded() {
        let mut ledger = ledger("throughput_bps", &[Fault::Retransmissions]);
        while !ledger.is_over() {
            ledger
                .enter(Order::AFirst, &with_retransmissions(1), &with_retransmissions(1))
                .unwrap();
        }
        assert_eq!(ledger.excluded(), MAX_EXCLUDED);
        assert!(ledger.caveats()[0].message.contains("given up"));
    }

    #[test]
    fn two_zeros_do_not_differ_and_one_zero_has_no_ratio() {
        let mut ledger = ledger("tcp.retransmitted_segments", &[]);
        let [none, some] = [0, 4].map(with_retransmissions);
        ledger.enter(Order::AFirst, &none, &none).unwrap();
        ledger.enter(Order::AFirst, &none, &some).unwrap();
        ledger.enter(Order::AFirst, &record(1e6), &some).unwrap();
        assert_eq!(ledger.pairs()[0].change_percent("tcp.retransmitted_segments"), Some(0.0));
        let words = |index: usize| ledger.pairs()[index].excluded[0].message.clone();
        assert_eq!(words(1), "tcp.retransmitted_segments is 0: there is no ratio");
        assert_eq!(words(2), "tcp.retransmitted_segments is missing: there is no ratio");
        assert_eq!(ledger.pairs()[2].excluded[0].side, Side::A);
    }

    /// Two sides that change places are as far apart, to the last bit: ties among the turned signs
    /// depend on it.
    #[test]
    fn a_pairs_ratio_is_exactly_the_opposite_of_that_the_other_way_round() {
        for n in 1..2000 {
            let (a, b) = (1.0 + f64::from(n) * 0.37, 3.1 + f64::from(n * n) * 1e-3);
            assert_eq!(log_ratio(a, b).unwrap(), -log_ratio(b, a).unwrap());
        }
        assert_eq!(log_ratio(0.0, 0.0), Some(0.0));
        assert_eq!((log_ratio(0.0, 1.0), log_ratio(1.0, 0.0)), (None, None));
    }

    #[test]
    fn the_last_pair_allowed_ends_it_without_an_answer() {
        let metrics = vec!["throughput_bps".parse().unwrap()];
        let mut ledger = Ledger::new(metrics, &[], &design(8)).unwrap();
        let mut up = true;
        while !ledger.is_over() {
            let b = if up { 1.02e6 } else { 0.98e6 };
            up = !up;
            ledger.enter(Order::AFirst, &record(1e6), &record(b)).unwrap();
        }
        assert_eq!(ledger.counted(), 8);
        let metrics = ledger.metrics().unwrap();
        assert!(!metrics[0].conclusion.different && !metrics[0].conclusion.equivalent);
    }
}
