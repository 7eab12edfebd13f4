//! Documents as one HTML page. The page loads nothing, needs no script, and contains the documents
//! themselves as JSON, so that `linerate explain` can read them again.

mod site;

use std::fmt::Write;

use linerate_core::record::{Environment, HostFacts};
use serde_json::Value;

use crate::document::{ReadError, StoredDocument, read};
use crate::style::{Form, Style};
use crate::svg::{self, Chart, escaped};

pub use crate::charts::PastRun;
pub use site::{
    Ended, LIVE, Overview, Running, TimeLine, beside, live, notice, overview, run, running,
    time_line,
};

/// The page's style sheet, apart from colours and charts.
const STYLE: &str = include_str!("html/page.css");
/// Width of a chart in pixels: on a screen, beside another document, and on a telephone.
const BROAD: u32 = 900;
const HALF: u32 = 660;
const NARROW: u32 = 328;
/// Content Security Policy of a page in one file: it may load nothing.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none';style-src 'unsafe-inline'\">\n";

/// The page of these documents, whose conclusions the caller has just computed
/// ([`Document::annotate`](crate::Document::annotate)).
pub fn page(documents: &mut [StoredDocument]) -> String {
    let answers: Vec<String> = documents.iter().map(|one| escaped(&one.answer())).collect();
    let title = match answers.as_slice() {
        [only] => only.clone(),
        all => format!("{} documents of linerate", all.len()),
    };
    let mut page = head(&title, POLICY);
    if answers.len() > 1 {
        page.push_str("<nav><ol>");
        for (number, answer) in answers.iter().enumerate() {
            let _ = write!(page, "<li><a href=\"#d{number}\">{answer}</a></li>");
        }
        page.push_str("</ol></nav>\n");
    }
    for (number, document) in documents.iter_mut().enumerate() {
        article(&mut page, number, document, BROAD);
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(
        page,
        "<footer>Made by linerate {version}. The documents are in this page: linerate explain FILE.html</footer>\n\
         </main></body></html>"
    );
    page
}

/// The page's head. `more` is HTML and is not escaped.
fn head(title: &str, more: &str) -> String {
    let (light, dark, charts) = (svg::LIGHT, svg::DARK, svg::STYLE);
    format!(
        "{DOCTYPE}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         {more}<title>{title}</title>\n\
         <style>:root{{{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{{light}}}}}\n{STYLE}{charts}</style></head>\n<body><main>\n"
    )
}

/// First line of every page; [`documents`] recognises a page by it.
const DOCTYPE: &str = "<!doctype html>";

/// Writes a document: its answer, charts of `pixels` width, all figures, both hosts, and its JSON.
fn article(page: &mut String, number: usize, document: &mut StoredDocument, pixels: u32) {
    let json = document.json_line();
    let answer = escaped(&document.answer());
    let about = about(&json);
    let _ = write!(
        page,
        "<article id=\"d{number}\">\n<header><p>{about}</p><h1>{answer}</h1></header>\n<section>\n"
    );
    let form = |details| Style { details, form: Form::Html, ..Style::default() };
    let text = document.text(form(false));
    let (first, rest) = text.split_once('\n').unwrap_or_default();
    page.push_str(&unrepeated(first, &answer.replace('\u{a0}', " ")));
    page.push_str(rest);
    page.push_str("</section>\n");
    for chart in document.charts() {
        figure(page, &chart, pixels);
    }
    let all = document.text(form(true));
    let _ =
        write!(page, "<details class=\"all\"><summary>All figures</summary>\n{all}</details>\n");
    let environment = document.environments_mut().pop();
    if let Some((environment, _)) = environment {
        ends(page, environment);
    }
    // In JSON, these characters occur only in strings, where they can be escaped.
    let inert = json.trim_end().replace('<', "\\u003c").replace('>', "\\u003e");
    let _ = writeln!(page, "{OPEN}{inert}{CLOSE}\n</article>");
}

/// The first line of a page without what the answer above it has said: all of it, or the figure
/// before a colon.
fn unrepeated(first: &str, answer: &str) -> String {
    let plain = |words: &str| words.replace('\u{a0}', " ");
    let paragraph = first.strip_suffix("</p>").and_then(|line| line.split_once('>'));
    let Some((open, line)) = paragraph else { return format!("{first}\n") };
    match line.split_once(": ") {
        _ if answer == plain(line) => String::new(),
        Some((figure, more)) if answer.starts_with(&plain(figure)) => {
            format!("{open}>{more}</p>\n")
        }
        _ => format!("{first}\n"),
    }
}

/// Enclose the JSON of each document in a page.
const OPEN: &str = "<script type=\"application/json\" class=\"linerate\">";
const CLOSE: &str = "</script>";

/// `linerate.check/1, begun 2026-11-21T09:00:00Z`
fn about(json: &str) -> String {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let begun = ["/started_at", "/record/started_at", "/rows/0/started_at"]
        .iter()
        .find_map(|at| value.pointer(at)?.as_str())
        .map(|begun| format!(", begun {}", escaped(begun)));
    let schema = value["schema"].as_str().map(escaped);
    schema.unwrap_or_default() + &begun.unwrap_or_default()
}

fn figure(page: &mut String, chart: &Chart, pixels: u32) {
    let (title, says) = (escaped(&chart.title), escaped(&chart.says));
    let broad = chart.inline(pixels);
    let narrow = chart.inline(NARROW);
    let pictures = if broad == narrow {
        format!("<div class=\"wide\">{broad}</div>")
    } else {
        format!("<div class=\"broad\">{broad}</div><div class=\"narrow\">{narrow}</div>")
    };
    let _ = writeln!(
        page,
        "<figure><h2>{title}</h2>\n{pictures}<figcaption>{says}</figcaption></figure>"
    );
}

/// A fact about a host: its name, and how to find it.
type Fact = (&'static str, fn(&HostFacts) -> Option<String>);

const FACTS: [Fact; 9] = [
    ("host", |host| Some(host.hostname.clone())),
    ("linerate", |host| Some(host.linerate.clone())),
    ("kernel", |host| Some(host.kernel.clone())),
    ("congestion control", |host| host.congestion.clone()),
    ("CPUs", |host| Some(host.cpu.count.to_string())),
    ("CPU", |host| host.cpu.model.clone()),
    ("hypervisor", |host| host.cpu.virtualisation.clone()),
    ("interface", |host| {
        let device = host.device.as_ref()?;
        Some(format!("{}, MTU {}", device.name, device.mtu_bytes))
    }),
    ("queueing discipline", |host| host.device.as_ref()?.qdisc.clone()),
];

/// Writes a table of the hosts of both ends.
fn ends(page: &mut String, environment: &Environment) {
    let hosts: Vec<&HostFacts> = [Some(&environment.client), environment.server.as_ref()]
        .into_iter()
        .flatten()
        .filter(|host| !host.kernel.is_empty())
        .collect();
    if hosts.is_empty() {
        return;
    }
    page.push_str(
        "<section class=\"ends\"><h2>Measured on</h2><div class=\"wide\"><table><thead><tr><th></th><th>here</th>",
    );
    page.push_str(if hosts.len() > 1 { "<th>endpoint</th>" } else { "" });
    page.push_str("</tr></thead><tbody>\n");
    for (name, fact) in FACTS {
        let cells: Vec<Option<String>> = hosts.iter().map(|host| fact(host)).collect();
        if cells.iter().flatten().all(String::is_empty) {
            continue;
        }
        let cells: String = cells
            .into_iter()
            .map(|cell| cell.unwrap_or_else(|| "-".to_owned()))
            .map(|cell| format!("<td>{}</td>", escaped(&cell)))
            .collect();
        let _ = writeln!(page, "<tr><th>{name}</th>{cells}</tr>");
    }
    page.push_str("</tbody></table></div></section>\n");
}

/// The documents in `bytes`: all those of an HTML page, or the single JSON document.
///
/// # Errors
/// [`ReadError`] if one of them is not a document.
pub fn documents(bytes: &[u8]) -> Result<Vec<StoredDocument>, ReadError> {
    if !bytes.starts_with(DOCTYPE.as_bytes()) {
        return Ok(vec![read(bytes)?]);
    }
    let text = String::from_utf8_lossy(bytes);
    let blocks = text.split(OPEN).skip(1).map(|rest| rest.split(CLOSE).next().unwrap_or(rest));
    blocks.map(|json| read(json.as_bytes())).collect()
}
