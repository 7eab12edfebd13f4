//! All runs of a cost measurement, and their evaluation.

use linerate_core::compare::{Design, Metric, MetricConclusion, Sequential, log_ratio};
use linerate_core::experiment::{Experiment, Run};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::stats::{MedianInterval, StatsError, median_interval};

use super::document::{
    CostComparison, CostFigure, CostRow, CostRun, LinkRates, PacketCost, TREATMENTS, Treatment,
};
use super::paper;
use super::plan::Plan;

/// Metrics that are kept of a run, where it has them.
pub const METRICS: [&str; 6] = [
    "throughput_bps",
    "transactions_per_s",
    "latency_us.p50",
    "sender.host_cpu_percent",
    "sender.service_demand_us_per_kib",
    "sender.service_demand_threads_us_per_kib",
];

/// The service demand from which the cost of a packet is computed. On a link that is emulated here,
/// netperf's own includes the emulator and the other end; this one has only the sending threads and
/// the soft interrupts, where the program runs.
const DEMAND: &str = "sender.service_demand_threads_us_per_kib";

/// Fewer pairs than this cannot reach 5 %; what they show is shown without a verdict.
const MIN_PAIRS: u32 = 6;

/// The runs of a plan.
#[derive(Debug)]
pub struct Book<'a> {
    plan: &'a Plan,
    margin_percent: f64,
    metrics: Vec<Metric>,
    /// The runs of each cell.
    runs: Vec<Vec<CostRun>>,
}

impl<'a> Book<'a> {
    /// An empty book; differences up to `margin_percent` count as equal.
    pub fn new(plan: &'a Plan, margin_percent: f64) -> Self {
        let metric = |path: &&str| path.parse().ok();
        Self {
            plan,
            margin_percent,
            metrics: METRICS.iter().filter_map(metric).collect(),
            runs: vec![Vec::new(); plan.cells.len()],
        }
    }

    /// Enters the valid runs of a cell's experiment.
    pub fn enter(&mut self, cell: usize, experiment: &Experiment, runs: &[Run]) {
        let entries = runs.iter().filter(|run| run.counts()).filter_map(|run| {
            let record = run.record.as_deref()?;
            let figure = |metric: &Metric| Some((metric.to_string(), metric.of(record)?));
            Some(CostRun {
                block: run.repeat,
                treatment: TREATMENTS[experiment.cell_of(run)?],
                figures: self.metrics.iter().filter_map(figure).collect(),
            })
        });
        self.runs[cell].extend(entries);
    }

    /// A caveat for each cell with runs that transferred nothing: their zeros are measured, and
    /// count as figures.
    pub fn empty_runs(&self) -> Vec<Caveat> {
        let cells = self.plan.cells.iter().zip(&self.runs);
        let told = cells.filter_map(|(cell, runs)| {
            let empty = runs.iter().filter(|run| carried_nothing(run)).count();
            let message = || {
                format!(
                    "{}, {} over {}, {} B: {empty} of {} runs carried nothing in {} s; their \
                     figures are measured zeros",
                    cell.link,
                    cell.test,
                    cell.family,
                    cell.message_bytes,
                    runs.len(),
                    self.plan.time.as_secs_f64()
                )
            };
            let remedy = "measure for longer (--time), or on a machine that does less";
            (empty > 0).then(|| Caveat::new(CaveatKind::TooShort, message(), remedy))
        });
        told.collect()
    }

    /// Packets per second of each link that was tested.
    pub fn links(&self) -> Vec<LinkRates> {
        let mut links: Vec<LinkRates> = Vec::new();
        for cell in &self.plan.cells {
            let link_bps = cell.link.as_f64();
            if links.iter().all(|known| known.link_bps != link_bps) {
                let [smallest, largest] = paper::frames_per_s(cell.link);
                links.push(LinkRates {
                    link_bps,
                    paper_packets_per_s: paper::packets_per_s(cell.link),
                    smallest_frames_per_s: smallest,
                    largest_frames_per_s: largest,
                });
            }
        }
        links
    }

    /// The rows of the cells that have at least one whole block.
    ///
    /// # Errors
    /// The statistical test refuses its design.
    pub fn rows(&self) -> Result<Vec<CostRow>, StatsError> {
        let cells = (0..self.plan.cells.len()).filter(|&cell| !self.blocks(cell).is_empty());
        cells.map(|cell| self.row(cell)).collect()
    }

    /// The whole blocks of a cell: the runs by treatment.
    fn blocks(&self, cell: usize) -> Vec<[&CostRun; 3]> {
        let of = |block: u32, treatment: Treatment| {
            let mut runs = self.runs[cell].iter();
            runs.find(|run| run.block == block && run.treatment == treatment)
        };
        let whole = |block| {
            let [without, passthrough, policy] = TREATMENTS.map(|treatment| of(block, treatment));
            Some([without?, passthrough?, policy?])
        };
        (1..=self.plan.pairs).filter_map(whole).collect()
    }

    fn row(&self, number: usize) -> Result<CostRow, StatsError> {
        let cell = &self.plan.cells[number];
        let blocks = self.blocks(number);
        let mut figures = Vec::new();
        let mut comparisons = Vec::new();
        for metric in &self.metrics {
            let Some(columns) = columns(&blocks, metric.as_str()) else {
                continue;
            };
            let [without, others @ ..] = &columns;
            for (column, treatment) in columns.iter().zip(TREATMENTS) {
                figures.push(CostFigure {
                    metric: metric.to_string(),
                    treatment,
                    figure: median_interval(column)?,
                });
            }
            for (column, treatment) in others.iter().zip(&TREATMENTS[1..]) {
                if let Some(conclusion) = self.compare(without, column)? {
                    comparisons.push(CostComparison {
                        metric: metric.to_string(),
                        treatment: *treatment,
                        conclusion,
                    });
                }
            }
        }
        Ok(CostRow {
            test: cell.test,
            link_bps: cell.link.as_f64(),
            mtu_bytes: cell.mtu,
            family: cell.family,
            protocol: cell.protocol,
            workload: cell.run(self.plan.time, self.plan.seed).workload(),
            message_bytes: cell.message_bytes,
            figures,
            comparisons,
            packet: packet_costs(&blocks)?,
            runs: self.runs[number].clone(),
        })
    }

    /// Compares a metric block by block; `None` where a ratio means nothing.
    fn compare(&self, a: &[f64], b: &[f64]) -> Result<Option<MetricConclusion>, StatsError> {
        let ratios: Result<Vec<f64>, _> = a.iter().zip(b).map(|(a, b)| log_ratio(*a, *b)).collect();
        let Ok(ratios) = ratios else {
            return Ok(None);
        };
        let mut sequential = Sequential::new(&Design {
            margin_percent: Some(self.margin_percent),
            metrics: 1,
            max_pairs: self.plan.pairs.max(MIN_PAIRS),
            seed: self.plan.seed,
        })?;
        for ratio in ratios {
            if let Some(conclusion) = sequential.push(&[ratio])? {
                return Ok(conclusion.metrics.into_iter().next());
            }
        }
        let conclusion = sequential.conclude();
        Ok(conclusion.and_then(|conclusion| conclusion.metrics.into_iter().next()))
    }
}

/// Whether no byte and no answer arrived during the measured time.
fn carried_nothing(run: &CostRun) -> bool {
    let figure = |metric| run.figures.get(metric);
    let rate = figure("transactions_per_s").or(figure("throughput_bps"));
    rate.is_some_and(|rate| *rate == 0.0)
}

/// A metric under each treatment, block by block; `None` unless every run has it.
fn columns(blocks: &[[&CostRun; 3]], metric: &str) -> Option<[Vec<f64>; 3]> {
    let mut columns: [Vec<f64>; 3] = Default::default();
    for block in blocks {
        for (column, run) in columns.iter_mut().zip(block) {
            column.push(*run.figures.get(metric)?);
        }
    }
    Some(columns)
}

fn packet_costs(blocks: &[[&CostRun; 3]]) -> Result<Vec<PacketCost>, StatsError> {
    let Some([without, others @ ..]) = columns(blocks, DEMAND) else {
        return Ok(Vec::new());
    };
    let cost = |(column, treatment): (&Vec<f64>, &Treatment)| {
        let added: Vec<f64> = column.iter().zip(&without).map(|(b, a)| b - a).collect();
        let demand: MedianInterval = median_interval(&added)?;
        Ok(PacketCost {
            treatment: *treatment,
            paper_us: paper::packet_us(demand.median),
            paper_interval_us: [demand.low, demand.high].map(paper::packet_us),
            demand_us_per_kib: demand,
        })
    };
    others.iter().zip(&TREATMENTS[1..]).map(cost).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use linerate_core::compare::Verdict3;
    use linerate_core::units::{BitRate, Family};

    use super::super::plan::{Choice, Test};
    use super::*;

    fn figures(values: &[(&str, f64)]) -> BTreeMap<String, f64> {
        let entries = values.iter();
        entries
            .map(|(path, value)| ((*path).to_owned(), *value))
            .collect()
    }

    fn plan(pairs: u32) -> Plan {
        Plan::new(&Choice {
            tests: vec![Test::Sizes],
            links: vec![BitRate(100_000_000)],
            families: vec![Family::Ipv4],
            sizes: vec![1024],
            time: None,
            pairs: Some(pairs),
            quick: false,
            seed: 3,
        })
        .unwrap()
    }

    /// Runs of a machine whose speed wanders far more than the treatments differ.
    fn filled(plan: &Plan, policy: f64) -> Book<'_> {
        let mut book = Book::new(plan, 5.0);
        let blocks = (0..plan.pairs).flat_map(|block| TREATMENTS.map(|one| (block, one)));
        for (block, treatment) in blocks {
            let wander = 1.0 + f64::from(block % 4) * 0.2;
            let share = match treatment {
                Treatment::Without => 1.0,
                Treatment::Passthrough => 1.001 + f64::from(block % 3) * 1e-4,
                Treatment::Policy => policy + f64::from(block % 5) * 1e-3,
            };
            book.runs[0].push(CostRun {
                block: block + 1,
                treatment,
                figures: figures(&[
                    ("throughput_bps", 90e6 * wander / share),
                    (DEMAND, 10.0 * wander * share),
                ]),
            });
        }
        book
    }

    fn of<'a>(row: &'a CostRow, metric: &str, treatment: Treatment) -> &'a MetricConclusion {
        let mut all = row.comparisons.iter();
        let found = all.find(|one| one.metric == metric && one.treatment == treatment);
        &found.expect("is compared").conclusion
    }

    #[test]
    fn what_costs_a_tenth_is_different_and_what_costs_nothing_is_equivalent() {
        let plan = plan(10);
        let row = &filled(&plan, 1.1).rows().unwrap()[0];
        let policy = of(row, "throughput_bps", Treatment::Policy);
        assert_eq!(policy.verdict, Verdict3::Different);
        assert!((policy.effect_percent + 9.2).abs() < 0.3, "{policy:?}");
        let through = of(row, "throughput_bps", Treatment::Passthrough);
        assert!(through.equivalent, "{through:?}");
    }

    #[test]
    fn the_cost_of_a_packet_is_the_papers_rule_on_what_is_added() {
        let plan = plan(10);
        let row = &filled(&plan, 1.1).rows().unwrap()[0];
        let cost = row
            .packet
            .iter()
            .find(|cost| cost.treatment == Treatment::Policy);
        let cost = cost.expect("has a demand");
        assert!((cost.paper_us / cost.demand_us_per_kib.median - 1.46).abs() < 1e-12);
        assert!(
            (1.0..1.7).contains(&cost.demand_us_per_kib.median),
            "{cost:?}"
        );
        assert!(cost.paper_interval_us[0] > 1.0 && cost.paper_interval_us[1] < 3.0);
    }

    #[test]
    fn few_blocks_have_an_effect_and_no_verdict() {
        let plan = plan(3);
        let row = &filled(&plan, 1.1).rows().unwrap()[0];
        let policy = of(row, "throughput_bps", Treatment::Policy);
        assert_eq!((policy.verdict, policy.pairs), (Verdict3::Inconclusive, 3));
        assert!(policy.confidence_percent < 95.0);
    }

    #[test]
    fn runs_that_carried_nothing_are_said() {
        let plan = plan(3);
        let mut book = filled(&plan, 1.1);
        assert_eq!(book.empty_runs(), []);
        for run in &mut book.runs[0][..2] {
            run.figures.insert("throughput_bps".to_owned(), 0.0);
        }
        let said = &book.empty_runs()[0].message;
        assert!(said.contains("2 of 9 runs carried nothing"), "{said}");
    }

    #[test]
    fn blocks_that_were_not_finished_do_not_count() {
        let plan = plan(3);
        let mut book = filled(&plan, 1.1);
        book.runs[0].pop();
        let row = &book.rows().unwrap()[0];
        assert_eq!(of(row, "throughput_bps", Treatment::Policy).pairs, 2);
        book.runs[0].truncate(2);
        assert!(book.rows().unwrap().is_empty());
    }
}
