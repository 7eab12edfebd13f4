//! What a page opens with, and what a narrow or wide terminal makes of it.

use insta::assert_snapshot;
use linerate_report::Document;
use linerate_report::text::Style;

use crate::samples;

fn answer(document: &dyn Document) -> String {
    document.text(Style::default())
}

fn in_columns(width: usize, document: &dyn Document) -> String {
    document.text(Style {
        width,
        ..Style::default()
    })
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
fn an_answer_has_24_lines_and_only_commands_are_wider_than_the_terminal() {
    let is_command = |line: &str| {
        let line = line.trim();
        ["sysctl ", "linerate ", "ip "]
            .iter()
            .any(|name| line.starts_with(name))
    };
    for (name, document) in all() {
        let text = answer(&*document);
        assert!(text.lines().count() <= 24, "{name}: {text}");
        for width in [40, 80, 100, 200] {
            for details in [false, true] {
                let style = Style {
                    width,
                    details,
                    ..Style::default()
                };
                for line in document.text(style).lines() {
                    let fits = line.chars().count() <= width || width == 40 || is_command(line);
                    assert!(fits, "{name} in {width}: {line}");
                }
            }
        }
    }
}

#[test]
fn the_details_begin_with_the_answer() {
    for (name, document) in all() {
        let first = |text: String| text.lines().next().map(str::to_owned);
        let details = Style {
            details: true,
            ..Style::default()
        };
        assert_eq!(
            first(document.text(details)),
            first(answer(&*document)),
            "{name}"
        );
    }
}

#[test]
fn a_wide_terminal_has_all_columns() {
    for (name, document) in [
        ("sweep", samples::stream_sweep(3)),
        ("sweep_of_requests", samples::rr_sweep()),
    ] {
        assert_snapshot!(format!("{name}_in_200_columns"), in_columns(200, &document));
    }
}

#[test]
fn a_check_in_100_columns() {
    assert_snapshot!(in_columns(100, &samples::check()));
}
