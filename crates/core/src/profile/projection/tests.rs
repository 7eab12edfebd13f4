//! Tests of the model on runs whose costs are known.

use super::*;
use crate::ceilings::{Cause, Ceiling};
use crate::plan::Protocol;

const MIB: f64 = 1048576.0;

fn costs() -> PerTerm {
    PerTerm::new([
        (Term::Call, 900.0),
        (Term::Packet, 400.0),
        (Term::Aggregate, 2000.0),
        (Term::Delivery, 1500.0),
        (Term::Byte, 0.05),
        (Term::CopiedByte, 0.1),
        (Term::Acknowledgement, 700.0),
    ])
}

/// Counts of a MiB in one state of the path: message, large packet and segment in bytes; cut by the
/// CPU, joined, copied.
fn counts(
    message: f64,
    large: f64,
    segment: f64,
    cut: bool,
    joined: bool,
    copied: bool,
) -> PerTerm {
    let packets = if cut { MIB / segment } else { MIB / large };
    let deliveries = if cut && !joined { packets } else { MIB / large };
    PerTerm::new([
        (Term::Call, MIB / message),
        (Term::Packet, packets),
        (Term::Aggregate, MIB / large),
        (Term::Delivery, deliveries),
        (Term::Byte, MIB),
        (Term::CopiedByte, if copied { MIB } else { 0.0 }),
        (Term::Acknowledgement, deliveries / 2.0),
    ])
}

/// A run whose sender costs what the model says and is busy all the time; the receiver costs half.
/// `off` is the error of its CPU time.
fn run(point: &str, counts: PerTerm, segment: f64, off: f64) -> Observation {
    let cpu_ns = counts.dot(&costs()) * (1.0 + off);
    let end = |cpu_ns| EndWork { cpu_ns, counts, granted: 1.0, cores: 1.0 };
    Observation {
        point: point.to_owned(),
        protocol: Protocol::Tcp,
        bytes: MIB,
        sent_bytes: MIB,
        throughput_bps: 8e9 * MIB / cpu_ns * 0.9,
        segment_bytes: segment,
        header_bytes: 52.0,
        shared_kernel: false,
        sender: end(cpu_ns),
        receiver: end(cpu_ns / 2.0),
    }
}

/// The design, each run off by at most `noise`, in a pattern that has no mean.
fn design(noise: f64) -> Vec<Observation> {
    let (k, large) = (1024.0, 60.0 * 1024.0);
    let mut runs = Vec::new();
    for round in 0..3 {
        let points = [
            ("base", counts(128.0 * k, large, 1448.0, false, false, true), 1448.0),
            ("writes_4k", counts(4.0 * k, large, 1448.0, false, false, true), 1448.0),
            ("pushed_16k", counts(16.0 * k, 16.0 * k, 1448.0, false, false, true), 1448.0),
            ("pushed_4k", counts(4.0 * k, 4.0 * k, 1448.0, false, false, true), 1448.0),
            ("cut", counts(128.0 * k, large, 1448.0, true, false, true), 1448.0),
            ("cut_1000", counts(128.0 * k, large, 988.0, true, false, true), 988.0),
            ("cut_536", counts(128.0 * k, large, 524.0, true, false, true), 524.0),
            ("joined", counts(128.0 * k, large, 1448.0, true, true, true), 1448.0),
            ("joined_536", counts(128.0 * k, large, 524.0, true, true, true), 524.0),
            ("spliced_64k", counts(64.0 * k, large, 1448.0, false, false, false), 1448.0),
        ];
        for (number, (name, counts, segment)) in points.into_iter().enumerate() {
            let mut counts = counts;
            if name == "joined" {
                // Acknowledged more often: what tells acknowledgements from deliveries.
                counts.scale(Term::Acknowledgement, 3.0);
            }
            let off = noise * [1.0, -1.0, 0.5, -0.5, 0.0][(number + round) % 5];
            runs.push(run(name, counts, segment, off));
        }
    }
    runs
}

/// The runs as they came about on a path of Ethernet's MTU.
fn designed(runs: &[Observation]) -> Designed {
    Designed { path_mtu_bytes: Some(ETHERNET_MTU), runs: runs.to_vec(), left_out: Vec::new() }
}

fn what_if(name: &str) -> &'static WhatIf {
    what_ifs().iter().find(|what_if| what_if.name == name).unwrap()
}

#[test]
fn known_costs_are_found_again() {
    let model = fit(&design(0.0), 1).unwrap();
    for cost in &model.ends[0].terms {
        let known = costs().at(cost.term);
        assert!((cost.ns / known - 1.0).abs() < 1e-6, "{cost:?} {known}");
    }
    assert!(model.ends[0].residual_percent < 1e-6);
    let shares: f64 = model.ends[0].terms.iter().map(|cost| cost.share_percent).sum();
    assert!((shares - 100.0).abs() < 1e-6, "{shares}");
}

#[test]
fn shares_are_of_the_test_as_it_is_whichever_run_came_first() {
    let mut runs = design(0.0);
    let shares = |runs: &[Observation]| {
        let terms = fit(runs, 1).unwrap().ends.remove(0).terms;
        let shares = terms.iter().map(|cost| cost.share_percent.round());
        shares.collect::<Vec<f64>>()
    };
    let in_order = shares(&runs);
    runs.rotate_left(3);
    assert_eq!(shares(&runs), in_order);
}

#[test]
fn intervals_hold_the_costs_of_noisy_runs() {
    let model = fit(&design(0.02), 1).unwrap();
    for cost in &model.ends[0].terms {
        let [low, high] = cost.interval_ns;
        let known = costs().at(cost.term);
        assert!(low <= known * 1.001 && known * 0.999 <= high, "{cost:?} {known}");
    }
    assert_eq!(fit(&design(0.02), 1).unwrap(), model, "the same seed gives the same intervals");
}

#[test]
fn terms_that_go_together_are_named() {
    let runs: Vec<Observation> = design(0.01)
        .into_iter()
        .map(|mut run| {
            // Each write is a large packet of its own, wherever.
            let large = run.sender.counts.at(Term::Aggregate);
            run.sender.counts.set(Term::Call, large);
            run
        })
        .collect();
    let model = fit(&runs, 1).unwrap();
    let groups = &model.ends[0].not_told_apart;
    assert!(
        groups.iter().any(|group| group.contains(&Term::Call) && group.contains(&Term::Aggregate)),
        "{groups:?}"
    );
    let others = &model.ends[1].not_told_apart;
    assert!(!others.iter().any(|group| group.contains(&Term::Call)), "{others:?}");
}

#[test]
fn larger_segments_bring_what_their_packets_cost() {
    let runs = design(0.0);
    let model = fit(&runs, 1).unwrap();
    let known = Known::default();
    let projected = project(&model, &designed(&runs), what_if("segments_9000"), &known).unwrap();
    let (now, then) = (
        counts(128.0 * 1024.0, 60.0 * 1024.0, 1448.0, true, false, true),
        counts(128.0 * 1024.0, 60.0 * 1024.0, 8948.0, true, false, true),
    );
    let expected = then.dot(&costs()) / now.dot(&costs());
    assert!((projected.ends[0].ratio() - expected).abs() < 1e-6, "{projected:?} {expected}");
    let faster = projected.throughput_bps / projected.throughput_now_bps;
    assert!((faster * expected - 1.0).abs() < 1e-6, "{faster} {expected}");
    assert_eq!(projected.ceiling, Cause::CpuSend);
    let [low, high] = projected.throughput_interval_bps;
    assert!(
        low <= projected.throughput_bps * 1.000_001 && projected.throughput_bps <= high * 1.000_001
    );
}

#[test]
fn segments_that_no_cpu_cuts_may_have_any_size() {
    let mut runs = design(0.0);
    runs.iter_mut().for_each(|run| run.shared_kernel = true);
    let model = fit(&runs, 1).unwrap();
    assert_eq!(model.ends.iter().map(|end| end.end).collect::<Vec<_>>(), [End::Both]);
    let projected =
        project(&model, &designed(&runs), what_if("segments_9000_offloaded"), &Known::default())
            .unwrap();
    assert!((projected.throughput_bps / projected.throughput_now_bps - 1.0).abs() < 1e-9);
    assert_eq!(projected.ends[0].ratio(), 1.0);
}

/// Counts of a MiB in datagrams of one size over a path without a wire and an MTU of 1500 bytes, or
/// one that carries all.
fn datagrams(bytes: f64, whole: bool) -> PerTerm {
    let number = MIB / bytes;
    let fragments = if whole { 1.0 } else { ((bytes + 8.0) / 1480.0).ceil() };
    let packets = number * fragments;
    PerTerm::new([
        (Term::Call, 2.0 * number),
        (Term::Packet, packets),
        (Term::Fragment, if fragments > 1.0 { packets } else { 0.0 }),
        (Term::Aggregate, number),
        (Term::Delivery, number),
        (Term::Byte, MIB),
        (Term::CopiedByte, 2.0 * MIB),
        (Term::Interrupt, packets),
    ])
}

#[test]
fn records_in_one_packet_each_save_what_fragments_take() {
    let costs = PerTerm::new([
        (Term::Call, 300.0),
        (Term::Packet, 500.0),
        (Term::Fragment, 700.0),
        (Term::Delivery, 400.0),
        (Term::CopiedByte, 0.1),
        (Term::Interrupt, 600.0),
    ]);
    let sizes = [
        ("records", 4096.0),
        ("a", 100.0),
        ("b", 700.0),
        ("c", 1400.0),
        ("d", 1600.0),
        ("e", 2800.0),
        ("f", 5600.0),
        ("g", 8400.0),
    ];
    let rounds = sizes.iter().chain(&sizes);
    let runs: Vec<Observation> = rounds
        .map(|(point, bytes)| {
            let counts = datagrams(*bytes, false);
            let cpu_ns = counts.dot(&costs);
            let mut run = run(point, counts, *bytes, 0.0);
            run.protocol = Protocol::Udp;
            run.shared_kernel = true;
            run.sender.cpu_ns = cpu_ns / 2.0;
            run.receiver.cpu_ns = cpu_ns / 2.0;
            run
        })
        .collect();
    let model = fit(&runs, 1).unwrap();
    let projected =
        project(&model, &designed(&runs), what_if("records_whole"), &Known::default()).unwrap();
    let expected = datagrams(4096.0, true).dot(&costs) / datagrams(4096.0, false).dot(&costs);
    let ratio = projected.ends[0].ratio();
    assert!((ratio / expected - 1.0).abs() < 0.01, "{ratio} {expected}");
}

#[test]
fn another_ceiling_holds_a_faster_cpu() {
    let runs = design(0.0);
    let model = fit(&runs, 1).unwrap();
    let now =
        project(&model, &designed(&runs), what_if("cpu_twice_as_fast"), &Known::default()).unwrap();
    assert!((now.throughput_bps / now.throughput_now_bps - 2.0).abs() < 1e-9);
    let ceiling = Ceiling {
        cause: Cause::ReceiveWindow,
        limit_bps: now.throughput_now_bps * 1.5,
        formula: String::new(),
        inputs: std::collections::BTreeMap::new(),
        evidence: Vec::new(),
        independent: true,
    };
    let known = Known { ceilings: vec![ceiling], ..Known::default() };
    let held = project(&model, &designed(&runs), what_if("cpu_twice_as_fast"), &known).unwrap();
    assert_eq!(held.ceiling, Cause::ReceiveWindow);
    assert!((held.throughput_bps / held.throughput_now_bps - 1.5).abs() < 1e-9);
}

#[test]
fn where_the_link_holds_cpu_time_saved_brings_nothing() {
    let mut runs = design(0.0);
    runs.iter_mut().for_each(|run| run.throughput_bps *= 0.1);
    let model = fit(&runs, 1).unwrap();
    let known = Known { cause: Some(Cause::PathRate), ..Known::default() };
    let projected = project(&model, &designed(&runs), what_if("segments_9000"), &known).unwrap();
    assert_eq!(projected.throughput_bps, projected.throughput_now_bps);
    assert_eq!(projected.ceiling, Cause::PathRate);
    assert!(projected.ends[0].ratio() < 0.9);
    let faster =
        project(&model, &designed(&runs), what_if("link_ten_times_as_fast"), &known).unwrap();
    let times = faster.throughput_bps / faster.throughput_now_bps;
    assert!(times > 9.9 && times <= 10.000_001, "{times}");
}

#[test]
fn a_copy_that_the_design_cannot_tell_has_the_share_of_the_profile() {
    let runs: Vec<Observation> =
        design(0.0).into_iter().filter(|run| run.point != "spliced_64k").collect();
    let model = fit(&runs, 1).unwrap();
    let doubtful =
        project(&model, &designed(&runs), what_if("without_copy_at_sender"), &Known::default())
            .unwrap();
    assert!(!doubtful.doubts.is_empty());
    let known = Known {
        layers: Some([LayerShares { copy: 0.4, checksum: 0.0 }, LayerShares::default()]),
        ..Known::default()
    };
    let projected =
        project(&model, &designed(&runs), what_if("without_copy_at_sender"), &known).unwrap();
    assert_eq!(projected.basis, Basis::Layers);
    assert!((projected.ends[0].ratio() - 0.6).abs() < 1e-9);
    assert_eq!(projected.ends[1].ratio(), 1.0);
}

#[test]
fn too_few_runs_make_no_model() {
    let runs = design(0.0);
    let error = fit(&runs[..5], 1).unwrap_err();
    assert!(error.to_string().starts_with("5 runs for "), "{error}");
    assert!(fit(&[], 1).is_err());
}

#[test]
fn the_median_error_is_of_sizes() {
    let model = fit(&design(0.0), 1).unwrap();
    let base =
        project(&model, &designed(&design(0.0)), what_if("segments_9000"), &Known::default())
            .unwrap();
    let proved = |projected: f64| Projection {
        proof: Some(Proof {
            a: "none".to_owned(),
            b: "mss=536".to_owned(),
            pairs: 8,
            verdict: crate::compare::ComparisonVerdict::Different,
            throughput: Proved::new(projected, 1.0, None),
            cpu: Vec::new(),
        }),
        ..base.clone()
    };
    let all = [proved(0.9), base.clone(), proved(1.3), proved(1.02)];
    assert!((median_error_percent(&all).unwrap() - 10.0).abs() < 1e-9);
    assert_eq!(median_error_percent(&[base]), None);
}

/// The design of a path whose packets are larger than Ethernet's.
fn on_a_path_of_9000() -> Designed {
    let k = 1024.0;
    let mut runs = design(0.0);
    for cut in runs.iter_mut().filter(|run| run.point == "cut") {
        let counts = counts(128.0 * k, 60.0 * k, 8948.0, true, false, true);
        *cut = run("cut", counts, 8948.0, 0.0);
    }
    Designed { path_mtu_bytes: Some(9000), runs, left_out: Vec::new() }
}

#[test]
fn larger_packets_start_from_ethernets_whatever_the_path_has() {
    let large = 60.0 * 1024.0;
    let mut designed = on_a_path_of_9000();
    let model = fit(&designed.runs, 1).unwrap();
    let projected = |designed: &Designed| {
        project(&model, designed, what_if("segments_9000"), &Known::default())
    };
    let why = projected(&designed).unwrap_err().to_string();
    assert!(why.contains("`ethernet_cut`"), "{why}");
    designed.left_out.push(LeftOut {
        point: "ethernet_cut".to_owned(),
        why: "the device has one MTU".to_owned(),
        remedy: "",
    });
    let why = projected(&designed).unwrap_err().to_string();
    assert!(why.contains("the device has one MTU"), "{why}");

    let ethernet = counts(128.0 * 1024.0, large, 1448.0, true, false, true);
    designed.runs.push(run("ethernet_cut", ethernet, 1448.0, 0.0));
    let projected = projected(&designed).unwrap();
    assert_eq!(projected.from, "ethernet_cut");
    let then = counts(128.0 * 1024.0, large, 8948.0, true, false, true);
    let expected = then.dot(&costs()) / ethernet.dot(&costs());
    assert!((projected.ends[0].ratio() / expected - 1.0).abs() < 1e-6);
}

#[test]
fn each_change_is_projected_or_named_with_the_reason() {
    let designed = designed(&design(0.0));
    let model = fit(&designed.runs, 1).unwrap();
    let (projections, others) = project_all(&model, &designed, &Known::default());
    let projected = projections.iter().map(|one| one.what_if.as_str());
    let mut all: Vec<&str> =
        projected.chain(others.iter().map(|one| one.what_if.as_str())).collect();
    all.sort_unstable();
    let mut table: Vec<&str> = what_ifs_of(Protocol::Tcp).map(|one| one.name).collect();
    table.sort_unstable();
    assert_eq!(all, table);
    let held_back = others.iter().find(|one| one.what_if == "interrupts_held_back");
    assert!(held_back.unwrap().why.contains("`held_back_64k`"));
}

#[test]
fn interrupts_that_are_held_back_are_as_many_as_in_their_point() {
    let mut runs = design(0.0);
    for run in &mut runs {
        run.receiver.counts.set(Term::Interrupt, 100.0);
    }
    let base = runs.iter().find(|run| run.point == "base").unwrap();
    let mut held_back = base.clone();
    held_back.point = "held_back_64k".to_owned();
    held_back.receiver.counts.set(Term::Interrupt, 25.0);
    runs.push(held_back);
    let designed = designed(&runs);
    let state = state::ProjectionState::at(&designed, "base").unwrap();
    let then = state.changed(what_if("interrupts_held_back"), &designed).unwrap();
    let ratio =
        then.receiver.counts.at(Term::Interrupt) / state.receiver.counts.at(Term::Interrupt);
    assert!((ratio - 0.25).abs() < 1e-12, "{ratio}");
    assert_eq!(then.sender.counts, state.sender.counts);
}

#[test]
fn records_that_were_not_fragmented_have_nothing_to_save() {
    let mut whole = run("records", datagrams(4096.0, true), 4096.0, 0.0);
    whole.protocol = Protocol::Udp;
    let designed = designed(&[whole]);
    let state = state::ProjectionState::at(&designed, "records").unwrap();
    let changed = state.changed(what_if("records_whole"), &designed);
    let expected = NotProjected::new("the datagrams were not fragmented as it is");
    assert_eq!(changed, Err(expected));
}

#[test]
fn what_was_left_out_is_said_once_for_each_reason() {
    let left_out = |point: &str, why: &str| LeftOut {
        point: point.to_owned(),
        why: why.to_owned(),
        remedy: "as root",
    };
    let designed = Designed {
        left_out: vec![
            left_out("cut", "not permitted"),
            left_out("joined", "not permitted"),
            left_out("cut", "not permitted"),
            left_out("held_back_64k", "the driver does not have it"),
        ],
        ..Designed::default()
    };
    let caveats = designed.caveats();
    let messages: Vec<&str> = caveats.iter().map(|caveat| caveat.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "left out of the projections' design (cut, joined): not permitted",
            "left out of the projections' design (held_back_64k): the driver does not have it",
        ]
    );
    assert_eq!(caveats[0].remedy.to_string(), "as root");
}
