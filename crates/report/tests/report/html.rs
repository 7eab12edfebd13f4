//! Documents as a page for a browser, and as Markdown.

use linerate_report::Document;
use linerate_report::document::{Charted, StoredDocument, read};
use linerate_report::html::{documents as documents_of, page};
use linerate_report::text::{Form, Style};
use serde_json::Value;

use crate::documents::documents;
use crate::samples;

/// The page without the documents in it.
fn shown(page: &str) -> String {
    let mut parts = page.split("<script type=\"application/json\"");
    let first = parts.next().expect("a split has a first part").to_owned();
    parts.fold(first, |shown, part| shown + part.split_once("</script>").expect("it is closed").1)
}

fn page_of(document: impl Into<StoredDocument>) -> String {
    page(&mut [document.into()])
}

#[test]
fn every_document_makes_a_page_that_has_it() {
    for document in documents() {
        let (json, answer) = (document.json(), document.answer());
        let page = page_of(document);
        assert!(!answer.is_empty(), "{json}");
        let block = page.split("class=\"linerate\">").nth(1).unwrap();
        let block = block.split("</script>").next().unwrap();
        let [held, given]: [Value; 2] =
            [block, &json].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(held, given);
        let read = documents_of(page.as_bytes()).unwrap();
        assert_eq!(read.len(), 1);
        let text = shown(&page);
        assert_eq!(text.matches("<h1>").count(), 1);
        for svg in text.split("<svg").skip(1) {
            let head = &svg[..svg.find("</desc>").unwrap_or(300.min(svg.len()))];
            assert!(head.contains("role=\"img\""), "{head}");
            assert!(head.contains("<desc>") || head.contains("aria-label"), "{head}");
        }
    }
}

#[test]
fn a_page_says_its_figure_once() {
    for document in documents() {
        let page = page_of(document);
        let heading = page.split("<h1>").nth(1).unwrap();
        let section = page.split("</header>\n<section>\n").nth(1).unwrap();
        let first = section.lines().next().unwrap().split('>').nth(1).unwrap_or_default();
        let figure = first.split([':', '<']).next().unwrap().replace('\u{a0}', " ");
        assert!(figure.is_empty() || !heading.starts_with(&figure), "{figure}: {heading:.200}");
    }
}

#[test]
fn a_page_of_several_documents_names_each_and_holds_each() {
    let mut all: Vec<StoredDocument> = documents().into_iter().map(Into::into).collect();
    let count = all.len();
    let page = page(&mut all);
    assert_eq!(page.matches("<article").count(), count);
    assert_eq!(page.matches("<li><a href=\"#d").count(), count);
    assert_eq!(documents_of(page.as_bytes()).unwrap().len(), count);
}

#[test]
fn a_page_asks_for_nothing_from_anywhere_and_runs_nothing() {
    let pages: String = documents().into_iter().map(page_of).collect();
    let text = shown(&pages).to_lowercase();
    for foreign in
        ["http:", "https:", "src=", "@import", "<link", "<script", "<iframe", "onclick", "onload"]
    {
        assert!(!text.contains(foreign), "{foreign}");
    }
    assert!(text.split("url(").skip(1).all(|rest| rest.starts_with('#')));
    assert!(text.split("href=\"").skip(1).all(|rest| rest.starts_with('#')));
}

#[test]
fn a_chart_in_a_file_of_its_own_needs_no_browser() {
    for chart in documents().iter().flat_map(|document| document.charts()) {
        let svg = chart.svg(900);
        assert!(svg.contains("xmlns=") && !svg.contains("var("), "{svg}");
    }
}

#[test]
fn no_name_of_a_peer_becomes_markup() {
    let hostile = "</script><script>alert(1)</script><b onmouseover='x' \u{202e}\"`|*](x)";
    let quoted = serde_json::to_string(hostile).unwrap();
    for document in documents() {
        let json = document.json().replace("pit.example", quoted.trim_matches('"'));
        let mut document = read(json.as_bytes()).unwrap();
        document.annotate();
        let markdown =
            document.text(Style { form: Form::Markdown, details: true, ..Style::default() });
        for line in markdown.lines().filter(|line| !line.starts_with("linerate ")) {
            assert!(!line.contains("<script") && !line.contains("<b "), "{line}");
        }
        let charts = document.charts();
        let page = page_of(document);
        let svgs: String = charts.iter().map(|chart| chart.svg(400)).collect();
        for text in [&page, &svgs] {
            assert!(!text.contains("<script>") && !text.contains("<b "), "{text}");
            assert!(!text.contains('\u{202e}'));
        }
        assert_eq!(page.matches("<script").count(), 1);
        assert_eq!(page.matches("</script").count(), 1);
    }
}

#[test]
fn markdown_has_the_answer_its_table_and_commands_to_copy() {
    insta::assert_snapshot!(
        samples::check().text(Style { form: Form::Markdown, ..Style::default() })
    );
}

#[test]
fn the_ceilings_are_bars_with_the_measured_rate_as_a_line() {
    let charts = samples::stream().charts();
    let ceilings = charts.iter().find(|chart| chart.name == "ceilings-up").unwrap();
    insta::assert_snapshot!(
        ceilings.inline(600).replace("/>", "/>\n").replace("</text>", "</text>\n")
    );
}

/// Number of an attribute.
fn attribute(element: &str, name: &str) -> f64 {
    let rest = element.split(&format!("{name}=\"")).nth(1).expect(name);
    let value = rest.split('"').next().expect("a split has a first part");
    value.parse().expect("a number")
}

#[test]
fn the_figures_of_a_chart_are_those_of_the_document() {
    let record = samples::stream();
    let charts = record.charts();
    let svg = charts.iter().find(|chart| chart.name == "time").unwrap().inline(900);
    // The first panel's axis: two ticks make its scale.
    let ticks: Vec<(f64, f64)> = svg
        .split("<text ")
        .filter(|text| text.contains("class=\"end dim\""))
        .map(|text| {
            let value = text.split('>').nth(1).unwrap().split('<').next().unwrap();
            (attribute(text, "y") - 4.0, value.parse().unwrap())
        })
        .collect();
    let [(y0, v0), (y1, v1)] = [ticks[0], ticks[1]];
    let path = svg.split("<path class=\"s0\" d=\"M").nth(1).unwrap();
    let path = path.split('"').next().unwrap();
    let drawn: Vec<f64> = path
        .split('L')
        .map(|point| point.split(' ').nth(1).unwrap().parse().unwrap())
        .map(|y: f64| (v0 + (y - y0) * (v1 - v0) / (y1 - y0)) * 1e6)
        .collect();
    let measured: Vec<f64> = record.intervals.iter().map(|it| it.throughput_bps).collect();
    assert_eq!(drawn.len(), measured.len());
    for (drawn, measured) in drawn.iter().zip(&measured) {
        assert!((drawn - measured).abs() < 0.01 * measured, "{drawn} of {measured}");
    }
}
