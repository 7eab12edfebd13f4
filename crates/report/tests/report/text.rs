//! What a terminal shows, as snapshots of hand-built documents.

use insta::assert_snapshot;
use linerate_core::record::{Record, TcpSender};
use linerate_report::Document;
use linerate_report::text::{self, Style};

use crate::samples::{self, whole};

fn shown(record: &Record) -> String {
    record.text(whole())
}

#[test]
fn a_stream_is_told_with_its_cause() {
    assert_snapshot!(shown(&samples::stream()));
}

#[test]
fn many_flows_on_one_kernel_are_cut_and_cleaned() {
    assert_snapshot!(shown(&samples::loopback()));
}

#[test]
fn datagrams_stopped_early() {
    assert_snapshot!(shown(&samples::udp_partial()));
}

#[test]
fn requests_in_an_open_loop() {
    assert_snapshot!(shown(&samples::rr()));
}

#[test]
fn connections_for_each_request() {
    assert_snapshot!(shown(&samples::crr()));
}

#[test]
fn both_directions() {
    assert_snapshot!(shown(&samples::both()));
}

#[test]
fn a_sweep_of_sizes() {
    assert_snapshot!(samples::stream_sweep(1).text(whole()));
}

#[test]
fn a_repeated_sweep_has_the_median_run_and_the_figure_of_each_size() {
    assert_snapshot!(samples::stream_sweep(3).text(whole()));
}

#[test]
fn a_sweep_of_requests() {
    assert_snapshot!(samples::rr_sweep().text(whole()));
}

#[test]
fn a_sweep_on_one_kernel_has_the_threads_service_demand_instead() {
    let mut sweep = samples::stream_sweep(1);
    for row in &mut sweep.rows {
        row.environment.shared_kernel = true;
        row.caveats = samples::loopback().caveats;
    }
    assert_snapshot!(sweep.text(whole()));
}

#[test]
fn an_empty_sweep_says_so() {
    let mut sweep = samples::rr_sweep();
    sweep.rows.clear();
    assert_eq!(sweep.text(whole()), "sweep without a run\n");
}

#[test]
fn a_check_explains_both_directions() {
    assert_snapshot!(samples::check().text(whole()));
}

#[test]
fn a_check_from_one_end() {
    assert_snapshot!(samples::one_sided_check().text(whole()));
}

#[test]
fn a_difference_is_told_with_effect_interval_and_n() {
    assert_snapshot!(samples::different().text(whole()));
}

#[test]
fn several_metrics_and_excluded_pairs() {
    assert_snapshot!(samples::undecided().text(whole()));
}

#[test]
fn an_equivalence_that_was_stopped() {
    assert_snapshot!(samples::equivalent().text(whole()));
}

#[test]
fn a_comparison_without_a_pair_that_counts_says_so() {
    let mut none = samples::undecided();
    none.metrics.clear();
    none.runs.retain(|pair| !pair.counts());
    (none.pairs, none.effect_percent, none.interval_percent) = (0, None, None);
    let text = none.text(whole());
    assert!(text.starts_with("INCONCLUSIVE: every pair was excluded\n"), "{text}");
}

#[test]
fn a_load_beside_the_runs_is_told_with_its_rate() {
    assert_snapshot!(samples::beside_a_load().text(Style::default()));
}

#[test]
fn what_has_changed_since_an_earlier_run_is_told_as_an_observation() {
    assert_snapshot!(samples::beside_an_earlier_one().text(Style::default()));
}

#[test]
fn pairs_are_reported_as_they_finish() {
    let comparison = samples::undecided();
    let metric = &comparison.metrics[0];
    let conclusion = linerate_core::compare::Conclusion {
        verdict: comparison.verdict,
        metrics: vec![metric.conclusion.clone()],
        pairs: comparison.pairs,
    };
    let standing = |index: usize, expected_pairs| linerate_core::compare::Standing {
        pair: &comparison.runs[index],
        metric: &metric.metric,
        conclusion: Some(conclusion.clone()),
        counted: 2,
        expected_pairs,
        max_pairs: 30,
        pair_s: 7.0,
    };
    let lines = [(0, Some([13, 17])), (1, None), (2, Some([2, 2]))]
        .map(|(index, expected)| text::pair_line(&standing(index, expected)));
    for whole in [&lines[0], &lines[2]] {
        assert!(whole.chars().count() <= 80, "{whole}");
    }
    assert_snapshot!(lines.join("\n"));
}

#[test]
fn an_effect_is_told_beside_an_earlier_one() {
    let mut earlier = samples::different();
    earlier.metrics[0].conclusion.effect_percent = 2.5;
    earlier.metrics[0].conclusion.interval_percent = [1.5, 3.5];
    let mut comparison = samples::different();
    comparison.baseline = Some(earlier.observed().until(&comparison.observed()));
    let page = comparison.text(Style::default());
    for words in ["throughput_bps.effect_percent", "points", "the intervals lie\napart"] {
        assert!(page.contains(words), "{page}");
    }
}

#[test]
fn an_emulated_path_is_named_as_the_option_reads_it() {
    assert_snapshot!(shown(&samples::emulated()));
}

#[test]
fn the_proof_of_a_check_of_an_emulated_path_runs_on_the_same_path() {
    assert_snapshot!(samples::emulated_check().text(whole()));
}

#[test]
fn the_demonstration_ends_with_its_fault() {
    assert_snapshot!(samples::demonstration().text(whole()));
}

#[test]
fn a_narrow_terminal_breaks_no_command() {
    let narrow = Style { width: 60, colour: false, ..Style::default() };
    assert_snapshot!(samples::stream().text(narrow));
}

#[test]
fn colour_adds_nothing_but_escape_sequences() {
    let coloured = Style { colour: true, ..whole() };
    let without = |text: String| {
        ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[33m", "\u{1b}[36m"]
            .iter()
            .fold(text, |text, sequence| text.replace(sequence, ""))
    };
    for record in [samples::stream(), samples::loopback(), samples::rr()] {
        let text = record.text(coloured);
        assert!(text.contains('\u{1b}'));
        assert_eq!(without(text), record.text(whole()));
    }
    let text = samples::check().text(coloured);
    assert_eq!(without(text), samples::check().text(whole()));
}

#[test]
fn the_remedy_stands_alone_on_its_line() {
    let record = samples::stream();
    let verdict = record.verdict().unwrap();
    let remedy = verdict.remedy.clone().unwrap().command;
    for width in [0, 40, 80, 200] {
        let style = Style { width, colour: false, ..Style::default() };
        let text = record.text(style);
        assert!(text.lines().any(|line| line.trim() == remedy), "{width}");
    }
}

#[test]
fn eighty_columns_hold_every_line_but_the_commands() {
    let style = Style { width: 80, colour: false, ..Style::default() };
    let records = [samples::stream(), samples::udp_partial(), samples::rr()];
    let mut texts = records.map(|record| record.text(style)).to_vec();
    texts.push(samples::check().text(style));
    texts.push(samples::rr_sweep().text(style));
    let is_command = |line: &str| {
        let line = line.trim();
        ["sysctl ", "linerate ", "ip "].iter().any(|name| line.starts_with(name))
    };
    for line in texts.iter().flat_map(|text| text.lines()) {
        assert!(line.chars().count() <= 80 || is_command(line), "{line}");
    }
}

#[test]
fn a_record_of_absurd_figures_is_still_text() {
    let mut record = samples::stream();
    let leg = &mut record.legs[0];
    leg.throughput_bps = Some(f64::NAN);
    record.seconds = 1e300;
    leg.bytes = u64::MAX;
    record.messages = Some(0);
    for interval in &mut record.intervals {
        interval.throughput_bps = f64::INFINITY;
    }
    for ceiling in &mut leg.ceilings {
        ceiling.limit_bps = 0.0;
    }
    let tcp = TcpSender {
        busy_us: Some(1),
        rwnd_limited_us: Some(u64::MAX),
        sndbuf_limited_us: Some(u64::MAX),
        data_segments_out: Some(0),
        ..leg.tcp_sender().cloned().unwrap()
    };
    leg.tcp = Some(tcp.into());
    let text = shown(&record);
    assert!(text.starts_with("-"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
}
