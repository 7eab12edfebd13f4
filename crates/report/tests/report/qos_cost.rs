//! What a terminal shows of a policy's cost.

use std::collections::BTreeMap;

use insta::assert_snapshot;
use linerate_core::experiment::Run;
use linerate_core::record::{Caveat, CaveatKind, HostFacts, Record, Status};
use linerate_core::stats::MedianInterval;
use linerate_core::units::{BitRate, Family};
use linerate_qos::cost::{
    Book, COST_SCHEMA, Cell, Choice, CostPolicy, DirectCost, Plan, QosCost, TREATMENTS, Test,
    Treatment,
};
use linerate_report::Document;
use linerate_report::text::Style;

use crate::samples;

fn plan(tests: &[Test], pairs: u32) -> Plan {
    Plan::new(&Choice {
        tests: tests.to_vec(),
        links: vec![BitRate(100_000_000)],
        families: vec![Family::Ipv4],
        sizes: vec![32, 1024],
        time: None,
        pairs: Some(pairs),
        quick: false,
        seed: 3,
    })
    .expect("a plan of three rows")
}

/// A machine on which a policy takes a little more each time, and a block is like the other but for
/// a wobble.
fn record(cell: &Cell, block: u32, treatment: Treatment) -> Record {
    let share = match treatment {
        Treatment::Without => 1.0,
        Treatment::Passthrough => 1.002,
        Treatment::Policy => 1.07,
    };
    let wobble = 1.0 + f64::from(((block - 1) * 7 + treatment as u32) % 5) * 1e-3;
    let mut record = match cell.test {
        Test::Rr => samples::rr(),
        _ => samples::stream(),
    };
    let leg = &mut record.legs[0];
    leg.throughput_bps = leg.throughput_bps.map(|bps| bps / share * wobble);
    record.transactions_per_s = record.transactions_per_s.map(|rate| rate / share * wobble);
    let sender = leg.sender.get_or_insert_default();
    sender.host_cpu_percent = Some(40.0 * wobble);
    if cell.test == Test::Rr {
        sender.service_demand_us_per_kib = None;
        sender.service_demand_threads_us_per_kib = None;
    } else {
        let demand = 5e3 / cell.message_bytes as f64;
        sender.service_demand_us_per_kib = Some(2.0 * demand * share * wobble);
        sender.service_demand_threads_us_per_kib = Some(demand * share * wobble);
    }
    record
}

fn nanoseconds(median: f64) -> MedianInterval {
    MedianInterval {
        median,
        low: median - 1.0,
        high: median + 1.0,
        coverage: 0.96,
        n: 11,
    }
}

pub(crate) fn document(pairs: u32) -> QosCost {
    let plan = plan(&[Test::Sizes, Test::Rr], pairs);
    let mut book = Book::new(&plan, 5.0);
    for (number, cell) in plan.cells.iter().enumerate() {
        let experiment = plan.experiment(number, &cell.policy());
        let experiment = experiment.expect("a policy that can be loaded");
        let mut runs = Vec::new();
        for block in 1..=pairs {
            runs.extend((0..).zip(TREATMENTS).map(|(level, treatment)| Run {
                levels: experiment.level_names(level),
                repeat: block,
                attempt: 1,
                treatments: experiment.cells[level].treatments.to_string(),
                faults: Vec::new(),
                error: None,
                figures: BTreeMap::new(),
                record: Some(Box::new(record(cell, block, treatment))),
            }));
        }
        book.enter(number, &experiment, &runs);
    }
    let first = &plan.cells[0];
    QosCost {
        schema: COST_SCHEMA.to_owned(),
        status: Status::Complete,
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        time_s: 2.0,
        blocks: pairs,
        margin_percent: 5.0,
        policies: vec![CostPolicy {
            tests: vec![Test::Sizes, Test::Rr],
            file: Some("voice.toml".to_owned()),
            filters: 1,
        }],
        links: book.links(),
        direct: vec![DirectCost {
            test: first.test,
            family: first.family,
            protocol: first.protocol,
            passthrough_ns: nanoseconds(9.0),
            policy_ns: nanoseconds(14.0),
            instructions: 61,
        }],
        rows: book.rows().expect("the design is one"),
        caveats: vec![Caveat::new(
            CaveatKind::SharedKernel,
            "both ends and the emulated link run on this machine",
            "",
        )],
        host: HostFacts::default(),
        seed: 3,
    }
}

#[test]
fn a_cost_has_the_papers_figures_and_what_each_treatment_adds() {
    let style = Style {
        width: 140,
        colour: false,
        ..Style::default()
    };
    assert_snapshot!(document(8).text(style));
}

#[test]
fn few_blocks_have_intervals_and_no_verdict() {
    let text = document(3).text(Style::default());
    assert!(text.contains("too few blocks"), "{text}");
    assert!(!text.contains("DIFFERENT"), "{text}");
}
