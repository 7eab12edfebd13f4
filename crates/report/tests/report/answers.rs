//! What a page opens with, and what a narrow or wide terminal makes of it.

use insta::assert_snapshot;
use linerate_core::plan::Direction;
use linerate_core::record::{Cause, Caveat, CaveatKind, Ceiling, Check, SizeFigure, Sweep};
use linerate_core::remedy::{CommandLine, Remedy};
use linerate_core::stats::{Figure, MedianInterval};
use linerate_report::Document;
use linerate_report::text::Style;
use proptest::prelude::*;

use crate::samples;

fn answer(document: &dyn Document) -> String {
    document.text(Style::default())
}

fn in_columns(width: usize, document: &dyn Document) -> String {
    document.text(Style { width, ..Style::default() })
}

/// Every sample that is not a table.
fn all() -> [(&'static str, Box<dyn Document>); 15] {
    [
        ("stream", Box::new(samples::stream())),
        ("loopback", Box::new(samples::loopback())),
        ("datagrams", Box::new(samples::udp_partial())),
        ("both", Box::new(samples::both())),
        ("requests", Box::new(samples::rr())),
        ("connections", Box::new(samples::crr())),
        ("emulated", Box::new(samples::emulated())),
        ("sweep", Box::new(samples::stream_sweep(3))),
        ("sweep_of_requests", Box::new(samples::rr_sweep())),
        ("check", Box::new(samples::check())),
        ("one_sided", Box::new(samples::one_sided_check())),
        ("demonstration", Box::new(samples::demonstration())),
        ("different", Box::new(samples::different())),
        ("undecided", Box::new(samples::undecided())),
        ("equivalent", Box::new(samples::equivalent())),
    ]
}

#[test]
fn the_answer_comes_first() {
    for (name, document) in all() {
        assert_snapshot!(name, answer(&*document));
    }
}

#[test]
fn the_share_and_the_limit_of_a_sentence_are_of_one_ceiling() {
    let sentence = |measured_bps: f64, of_bps: f64| {
        let mut record = samples::stream();
        let leg = &mut record.legs[0];
        leg.throughput_bps = Some(measured_bps);
        let verdict = leg.verdict.as_mut().unwrap();
        verdict.cause = Cause::PathRate;
        verdict.share_of_ceiling = Some(measured_bps / of_bps);
        let ceiling = leg.ceilings[0].clone();
        // What was delivered, and what packet trains found.
        leg.ceilings = [(95.5e6, false), (136e6, true)]
            .map(|(limit_bps, independent)| Ceiling {
                cause: Cause::PathRate,
                limit_bps,
                independent,
                ..ceiling.clone()
            })
            .into();
        let text = answer(&record);
        let line = text.lines().find(|line| line.contains("Bottleneck:"));
        line.unwrap().trim().replace('\u{a0}', " ")
    };
    assert_eq!(sentence(95e6, 95.5e6), "Bottleneck: path rate.");
    let of_trains = "Bottleneck: path rate, at 98.5 % of its ceiling of 136 Mbit/s.";
    assert_eq!(sentence(134e6, 136e6), of_trains);
}

#[test]
fn a_ceiling_derived_from_the_measured_rate_has_no_bar() {
    let mut check = samples::check();
    let leg = &mut check.up.as_mut().unwrap().legs[0];
    leg.verdict.as_mut().unwrap().cause = Cause::SegmentSize;
    let text = answer(&check);
    let line = text.lines().find(|line| line.trim().starts_with("segment size")).expect(&text);
    assert!(line.ends_with("from the measured rate"), "{line}");
    let whole = check.text(Style { details: true, ..Style::default() });
    let line = whole.lines().find(|line| line.trim().starts_with('*')).expect(&whole);
    assert!(!line.contains('%'), "{line}");
    assert!(whole.contains("congestion") && text.contains("[####"), "{text}");
}

#[test]
fn a_hidden_fault_whose_direction_was_not_measured_is_kept() {
    let mut check = samples::demonstration();
    check.hidden_fault.as_mut().unwrap().direction = Direction::Down;
    check.down = None;
    let text = answer(&check);
    assert!(text.contains("Hidden fault: not looked for"), "{text}");
    assert!(!text.contains("NOT FOUND"), "{text}");
}

#[test]
fn an_answer_has_24_lines_and_only_commands_are_wider_than_the_terminal() {
    let is_command = |line: &str| {
        let line = line.trim();
        ["sysctl ", "linerate ", "ip "].iter().any(|name| line.starts_with(name))
    };
    for (name, document) in all() {
        let text = answer(&*document);
        assert!(text.lines().count() <= 24, "{name}: {text}");
        for width in [40, 80, 100, 200] {
            for details in [false, true] {
                let style = Style { width, details, ..Style::default() };
                for line in document.text(style).lines() {
                    let fits = line.chars().count() <= width || width == 40 || is_command(line);
                    assert!(fits, "{name} in {width}: {line}");
                }
            }
        }
    }
}

#[test]
fn a_long_path_is_broken_where_its_entries_end() {
    let mut record = samples::emulated();
    let lab = record.environment.lab.as_mut().unwrap();
    lab.spec = ["up.rate=100mbit,up.jitter=3ms,up.loss=0.1%"; 3].join(",");
    let spec = lab.spec.clone();
    let text = answer(&record);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.replace(['\n', ' '], "").contains(&spec), "{text}");
}

/// Both directions with three ceilings and a remedy with a comment, and the fault besides.
#[test]
fn a_check_with_two_remedies_has_fewer_ceilings_and_always_that_of_the_verdict() {
    let mut check = samples::demonstration();
    check.caveats.clear();
    let words = "linerate stream pit --pacing 17.9mbit  # no faster, but without the queue of \
                 27 ms; so would fq_codel or cake do on the router before the link";
    for record in check.up.iter_mut().chain(&mut check.down) {
        let leg = &mut record.legs[0];
        let lowest = leg.ceilings[0].clone();
        leg.ceilings = [Cause::SendBuffer, Cause::Congestion, Cause::PathRate]
            .map(|cause| Ceiling { cause, ..lowest.clone() })
            .into();
        let verdict = leg.verdict.as_mut().unwrap();
        verdict.cause = Cause::PathRate;
        let remedy = Remedy::host_setting(None, "net.ipv4.tcp_rmem", &[1, 2, 3]);
        let line = CommandLine { words: words.to_owned(), ..CommandLine::default() };
        verdict.remedy = Some(Remedy { line, ..remedy });
    }
    let text = answer(&check);
    assert!(text.lines().count() <= 24, "{text}");
    assert_eq!(text.matches("path rate ").count(), 2, "{text}");
    // With all else that a page can have, too.
    let mut full = check.clone();
    let (message, remedy) = ("a hypervisor took 12 % of the CPUs for others: ", "run it again");
    full.caveats = [CaveatKind::BusyHost, CaveatKind::TooShort]
        .map(|kind| Caveat::new(kind, message.repeat(2), remedy))
        .into();
    let text = answer(&full);
    assert!(text.lines().count() <= 24, "{text}");
    let wide = in_columns(200, &check);
    assert!(wide.matches("send buffer ").count() > 0, "{wide}");
}

#[test]
fn the_details_begin_with_the_answer() {
    for (name, document) in all() {
        let first = |text: String| text.lines().next().map(str::to_owned);
        let details = Style { details: true, ..Style::default() };
        assert_eq!(first(document.text(details)), first(answer(&*document)), "{name}");
    }
}

#[test]
fn a_wide_terminal_has_all_columns() {
    for (name, document) in
        [("sweep", samples::stream_sweep(3)), ("sweep_of_requests", samples::rr_sweep())]
    {
        assert_snapshot!(format!("{name}_in_200_columns"), in_columns(200, &document));
    }
}

#[test]
fn a_check_in_100_columns() {
    assert_snapshot!(in_columns(100, &samples::check()));
}

/// A figure and its unit, such as `9.41 Mbit/s`, in bits per second.
fn bits_per_s(figure: &str) -> f64 {
    let (number, unit) = figure.trim().rsplit_once(' ').expect(figure);
    let scale = match unit {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        "Tbit/s" => 1e12,
        other => panic!("{other} in {figure}"),
    };
    number.replace(',', "").parse::<f64>().expect(figure) * scale
}

/// The point and both ends of `9.41 Mbit/s [9.32 – 9.45 Mbit/s]`, which stands at the beginning of
/// a line or behind a name.
fn printed(page: &str) -> [f64; 3] {
    let words: Vec<&str> = page.split_whitespace().collect();
    let page = words.join(" ");
    let (before, rest) = page.split_once(" [").expect(&page);
    let point: Vec<&str> = before.rsplit(' ').take(2).collect();
    let (low, high) = rest.split_once(']').expect(rest).0.split_once(" – ").expect(rest);
    let unit = high.rsplit_once(' ').expect(high).1;
    let low = if low.contains(' ') { low.to_owned() } else { format!("{low} {unit}") };
    [&low, &format!("{} {}", point[1], point[0]), high].map(bits_per_s)
}

proptest! {
    /// However the three are rounded and whatever their units are.
    #[test]
    fn every_point_lies_in_the_interval_beside_it(
        mut ends in prop::array::uniform3(0.0..13.0_f64),
            effects in prop::array::uniform3(-60.0..200.0_f64),
    ) {
        ends.sort_by(f64::total_cmp);
        let [low, median, high] = ends.map(|exponent| 10_f64.powf(exponent));
        let one = Figure::One(MedianInterval { median, low, high, coverage: 0.97, n: 7 });
        let run = samples::stream();
        let size = SizeFigure {
            message_bytes: run.plan.traffic.message_bytes(),
            metric: "throughput_bps".to_owned(),
            figure: one.clone(),
        };
        let repeats = Sweep::new(vec![run.clone(), run], vec![size], Vec::new());
        let check =
            Check { host: "pit".to_owned(), up_throughput_bps: Some(one), ..samples::check() };
        for page in [answer(&repeats), answer(&check)] {
            let points = printed(&page);
            prop_assert!(points.is_sorted(), "{points:?}: {page}");
        }

        let mut effects = effects;
        effects.sort_by(f64::total_cmp);
        let mut comparison = samples::different();
        let found = &mut comparison.metrics[0].conclusion;
        (found.interval_percent, found.effect_percent) = ([effects[0], effects[2]], effects[1]);
        let page = answer(&comparison);
        let words: Vec<&str> = page.split_whitespace().collect();
        let number = |word: &str| word.replace(',', "").parse::<f64>().expect(word);
        let way = words.iter().position(|word| ["higher", "lower"].contains(word)).expect("a way");
        let sign = if words[way] == "lower" { -1.0 } else { 1.0 };
        let interval = words.iter().position(|word| *word == "interval").expect("an interval");
        let points = [
            number(words[interval + 1]),
            sign * number(words[way - 2]),
            number(words[interval + 4]),
        ];
        prop_assert!(points.is_sorted(), "{points:?}: {page}");
    }
}
