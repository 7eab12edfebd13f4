//! The pages of `linerate web`: the saved history, and the running test.
//!
//! The pages load nothing from other sites. One page has a script, which only refreshes that page.

use std::fmt::Write;

use super::{BROAD, HALF, article, figure, head};
use linerate_core::record::Baseline;

use crate::charts::{self, PastRun};
use crate::document::StoredDocument;
use crate::number::{begun, ends, if_known, span, writer};
use crate::style::{Form, Style};
use crate::svg::{escaped, spark};
use crate::text::{self, SavedRun, SeriesChange, series_change};

/// A row of the overview: a test of a path.
#[derive(Debug, Clone)]
pub struct Overview {
    /// The path.
    pub path: String,
    /// The test.
    pub test: String,
    /// Key of the series that its runs belong to.
    pub series: String,
    /// Number of saved runs.
    pub runs: i64,
    /// The newest run: its number, its start and its answer.
    pub last: Option<(i64, String, String)>,
    /// The newest figures, the oldest first.
    pub values: Vec<f64>,
    /// The metric of these figures.
    pub metric: String,
    /// The latest change, if the runs show one.
    pub changed: Option<SeriesChange>,
    /// Whether the test can be started from this page.
    pub starts: bool,
}

/// A series of runs over time.
#[derive(Debug, Clone)]
pub struct TimeLine<'a> {
    /// Key of the series, and its name.
    pub series: &'a str,
    /// The metric that is shown.
    pub metric: &'a str,
    /// All metrics that can be shown.
    pub metrics: &'a [String],
    /// All runs, the oldest first.
    pub runs: &'a [PastRun],
    /// The changes, each with the index of the first run after it.
    pub changes: &'a [(usize, SeriesChange)],
    /// How exactly a change's position is known, in runs.
    pub exact: usize,
    /// The runs that this page lists, the newest first.
    pub listed: &'a [SavedRun<'a>],
    /// How many runs the page of newer runs skips.
    pub newer: Option<u32>,
    /// How many runs the page of older runs skips.
    pub older: Option<u32>,
}

/// The running test.
#[derive(Debug, Clone)]
pub struct Running {
    /// Test and path, such as `bulk to pit`.
    pub test: String,
    /// Seconds since the test began.
    pub elapsed_s: u64,
    /// Approximate duration, seconds.
    pub seconds: u64,
    /// The newest interval, in words.
    pub now: String,
}

/// A whole page; `body` and `more` are HTML.
fn page(title: &str, body: &str, more: &str) -> String {
    let head = head(&format!("{} · linerate", escaped(title)), more);
    format!(
        "{head}<nav class=\"site\"><b>linerate</b> <a href=\"/\">Paths</a> \
         <a href=\"/running\">Running</a></nav>\n\
         {body}</main></body></html>\n"
    )
}

/// A page with a single message.
pub fn notice(title: &str, words: &str) -> String {
    let body = format!("<h1>{}</h1><p>{}</p>\n", escaped(title), escaped(words));
    page(title, &body, "")
}

/// The overview: each path with its tests. `token` is sent with every form; `place` is where the
/// runs are kept.
pub fn overview(all: &[Overview], is_running: bool, token: &str, place: &str) -> String {
    let mut body = "<h1>Paths</h1>\n".to_owned();
    if is_running {
        body.push_str("<p class=\"doubt\">A test is <a href=\"/running\">running</a>.</p>\n");
    }
    if all.is_empty() {
        body.push_str("<p>No run was saved yet: measuring commands take --save.</p>\n");
    }
    for of_path in all.chunk_by(|one, other| one.path == other.path) {
        let path = escaped(&of_path[0].path);
        let _ = writeln!(
            body,
            "<section class=\"ends\"><h2>{path}</h2><table class=\"stack\"><thead><tr><th>Test</th>\
             <th>Status</th><th>Newest figures</th><th>Last run</th></tr></thead><tbody>"
        );
        of_path.iter().for_each(|one| line(&mut body, one, token));
        body.push_str("</tbody></table></section>\n");
    }
    let version = env!("CARGO_PKG_VERSION");
    let _ =
        writeln!(body, "<footer>linerate {version}. The runs are in {}.</footer>", escaped(place));
    page("Paths", &body, "")
}

fn line(body: &mut String, one: &Overview, token: &str) {
    let test = escaped(&one.test);
    let named = if one.last.is_some() {
        format!("<a href=\"{}\">{test}</a>", link("/series", "name", &one.series))
    } else {
        test
    };
    let start = if one.starts {
        let value = |text: &str| escaped(text);
        format!(
            "<form method=\"post\" action=\"/start\"><input type=\"hidden\" name=\"token\" value=\"{}\">\
             <input type=\"hidden\" name=\"test\" value=\"{}\"><input type=\"hidden\" name=\"path\" value=\"{}\">\
             <button>Run now</button></form>",
            value(token),
            value(&one.test),
            value(&one.path)
        )
    } else {
        String::new()
    };
    let status = match &one.changed {
        Some(change) => format!(
            "<span class=\"changed\">changed</span> {}",
            escaped(&series_change(&one.metric, change))
        ),
        None if one.values.len() < FEW => "too few runs to tell a change".to_owned(),
        None => "steady".to_owned(),
    };
    let says = format!("{} newest of {} runs, {}", one.values.len(), one.runs, one.metric);
    let picture = if one.values.len() > 1 { spark(&one.values, &says) } else { String::new() };
    let newest = if_known(one.values.last().copied(), |newest| {
        let [low, high] = ends(one.values.iter().copied()).map(writer(&one.metric));
        format!("{}<br>{}", writer(&one.metric)(newest), span(&low, &high, "–"))
    });
    let last = one.last.as_ref().map_or_else(String::new, |(id, at, answer)| {
        format!("<a href=\"/run?id={id}\">{}</a><br>{}", escaped(&begun(at)), escaped(answer))
    });
    let _ = writeln!(
        body,
        "<tr><th>{named}{start}</th><td class=\"words\">{status}</td><td>{picture} \
         {newest}</td><td>{last}</td></tr>"
    );
}

/// With fewer runs, a change cannot be told from chance.
const FEW: usize = 10;

/// A series: its chart, its changes, and its runs, two of which can be compared.
pub fn time_line(line: &TimeLine<'_>) -> String {
    let name = escaped(line.series);
    let mut body = format!("<h1>{name}</h1>\n");
    metrics(&mut body, line);
    let changes = line.changes.iter();
    let medians: Vec<(usize, [f64; 2])> = changes.map(|(run, it)| (*run, it.figures)).collect();
    if let Some(chart) = charts::time_line(line.metric, line.runs, &medians) {
        figure(&mut body, &chart, BROAD);
    }
    body.push_str("<section class=\"ends\"><h2>Changes</h2>\n");
    for (_, change) in line.changes {
        let says = escaped(&series_change(line.metric, change));
        let _ =
            writeln!(body, "<p class=\"point\"><a href=\"/run?id={}\">{says}</a></p>", change.id);
    }
    let why = "What else changed at the same time need not be the reason.";
    let words = match (line.changes.is_empty(), line.exact) {
        (true, _) => "No change is clear.".to_owned(),
        (false, 1) => why.to_owned(),
        (false, exact) => format!("The place of each is known to {exact} runs. {why}"),
    };
    let _ = writeln!(body, "<p>{words}</p></section>");
    runs(&mut body, line);
    page(line.series, &body, "")
}

/// Writes a form to choose the metric.
fn metrics(body: &mut String, line: &TimeLine<'_>) {
    if line.metrics.len() < 2 {
        return;
    }
    let option = |metric: &String| {
        let chosen = if metric == line.metric { " selected" } else { "" };
        format!("<option{chosen}>{}</option>", escaped(metric))
    };
    let options: String = line.metrics.iter().map(option).collect();
    let _ = writeln!(
        body,
        "<form><input type=\"hidden\" name=\"name\" value=\"{}\"><label>Figure \
         <select name=\"metric\">{options}</select></label> <button>Show</button></form>",
        escaped(line.series)
    );
}

/// Writes a table of the runs, two of which can be chosen.
fn runs(body: &mut String, line: &TimeLine<'_>) {
    body.push_str(
        "<form action=\"/compare\"><section class=\"ends\"><h2>Runs</h2><table class=\"stack\"><thead><tr>\
         <th>A</th><th>B</th><th>Run</th><th>Labels</th><th>Result</th></tr></thead><tbody>\n",
    );
    for (place, run) in line.listed.iter().enumerate() {
        let radio = |name: &str, chosen: usize| {
            let is_chosen = if place == chosen { " checked" } else { "" };
            let (id, shown) = (run.id, name.to_uppercase());
            format!(
                "<label class=\"pick\"><input type=\"radio\" name=\"{name}\" value=\"{id}\" \
                 aria-label=\"run {id} as {shown}\"{is_chosen}>\
                 <span class=\"narrow\">{shown}</span></label>"
            )
        };
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td><td><a href=\"/run?id={}\">{} · {}</a></td>\
             <td class=\"words\">{}</td><td>{}</td></tr>",
            radio("a", 1),
            radio("b", 0),
            run.id,
            run.id,
            escaped(&begun(run.started_at)),
            escaped(run.labels),
            escaped(run.answer)
        );
    }
    body.push_str("</tbody></table>\n<p><button>Compare A with B</button>");
    let at = link("/series", "name", line.series);
    for (name, skip) in [("newer", line.newer), ("older", line.older)] {
        if let Some(skip) = skip {
            let _ = write!(body, " <a href=\"{at}&amp;skip={skip}\">{name}</a>");
        }
    }
    body.push_str("</p></section></form>\n");
}

/// The page of one run, whose conclusions have just been computed. `before` is the run before it in
/// its series.
pub fn run(id: i64, series: &str, before: Option<i64>, document: &mut StoredDocument) -> String {
    let title = format!("Run {id}");
    let mut body = format!(
        "<p>{title} of <a href=\"{}\">{}</a>",
        link("/series", "name", series),
        escaped(series)
    );
    if let Some(before) = before {
        let _ =
            write!(body, " · <a href=\"/compare?a={before}&amp;b={id}\">beside run {before}</a>");
    }
    body.push_str("</p>\n");
    article(&mut body, 0, document, BROAD);
    page(&title, &body, "")
}

/// Two runs side by side, with the changes from the first to the second.
pub fn beside(
    numbers: [i64; 2],
    changes: &Baseline,
    documents: [&mut StoredDocument; 2],
) -> String {
    let [a, b] = numbers;
    let title = format!("Run {b} beside run {a}");
    let style = Style { form: Form::Html, ..Style::default() };
    let changes = text::changes(&title, changes, style);
    let mut body = format!("<section>{changes}</section>\n<div class=\"two\">\n");
    for (id, document) in numbers.into_iter().zip(documents) {
        let _ = writeln!(body, "<div><p><a href=\"/run?id={id}\">Run {id}</a></p>");
        article(&mut body, id as usize, document, HALF);
        body.push_str("</div>\n");
    }
    body.push_str("</div>\n");
    page(&title, &body, "")
}

/// How the last test ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The run, if it was saved.
    pub run: Option<i64>,
    /// The outcome in words.
    pub says: String,
}

/// The script that refreshes the page of the running test.
pub const LIVE: &str = include_str!("live.js");

/// The page of the running test. Without scripts, the browser reloads it.
pub fn running(running: Option<&Running>, last: Option<&Ended>) -> String {
    let more = "<script src=\"/live.js\" defer></script>\n\
                <noscript><meta http-equiv=\"refresh\" content=\"2\"></noscript>\n";
    let body = format!(
        "<h1>Running</h1>\n<div id=\"live\" aria-live=\"polite\">{}</div>\n",
        live(running, last)
    );
    page("Running", &body, if running.is_some() { more } else { "" })
}

/// The part of that page that is refreshed.
pub fn live(running: Option<&Running>, last: Option<&Ended>) -> String {
    let Some(running) = running else {
        let last = last.map_or_else(String::new, |last| match last.run {
            Some(id) => format!("<p><a href=\"/run?id={id}\">{}</a></p>", escaped(&last.says)),
            None => format!("<p class=\"doubt\">{}</p>", escaped(&last.says)),
        });
        return format!("<p>No test is running.</p>{last}");
    };
    let (elapsed, all) = (running.elapsed_s, running.seconds);
    format!(
        "<p class=\"strong\">{}</p><p><progress max=\"{all}\" value=\"{}\"></progress> {elapsed} of about {all} s</p>\
         <p>{}</p>",
        escaped(&running.test),
        elapsed.min(all),
        escaped(&running.now)
    )
}

/// An address with a percent-encoded value in its query.
fn link(path: &str, key: &str, value: &str) -> String {
    let code = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    let value: String = value.bytes().map(code).collect();
    format!("{path}?{key}={value}")
}
