//! `report`: makes a page for a browser, Markdown or pictures of stored documents.

#[cfg_attr(not(feature = "png"), path = "report/no_png.rs")]
mod png;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use linerate_report::svg::Chart;
use linerate_report::text::{Form, Style};
use linerate_report::{Document, html};
use png::Painter;

use crate::args::ReportArgs;
use crate::capture::Opened;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT, OutputFile};
use crate::output;

/// Writes the page and the pictures that were asked for.
///
/// # Errors
/// A file is no document, or what was made of them cannot be written.
pub(crate) fn execute(args: &ReportArgs) -> Result<(), Failure> {
    let file = OutputFile::of_output(args.output.as_deref())?;
    let is_page = file.is_some() || (args.svg.is_none() && args.png.is_none());
    if is_page && !args.markdown && file.is_none() && io::stdout().is_terminal() {
        return Err(Failure::usage(anyhow!(
            "a page of HTML is for a browser: give -o FILE.html, or --markdown to read it here"
        )));
    }
    // Before anything is written: the build may lack PNG, or the host a font.
    let painter = args.png.as_ref().map(|_| Painter::new()).transpose()?;
    let png = args.png.as_ref().map(|png| &png.directory);
    for (option, directory) in [("--svg", args.svg.as_ref()), ("--png", png)] {
        let Some(directory) = directory else { continue };
        let place = || format!("{option} {}", directory.display());
        let made = fs::create_dir_all(directory).with_context(place);
        made.map_err(Failure::usage)?;
    }
    let mut documents = Vec::new();
    for path in &args.files {
        let read = Opened::new(path).and_then(|opened| self::documents(opened, "report"));
        documents.extend(read.map_err(Failure::usage)?);
    }
    documents
        .iter_mut()
        .for_each(|document| document.annotate());
    if let Some(directory) = &args.svg {
        let drawn = |chart: &Chart| Ok(chart.svg(WIDTH).into_bytes());
        pictures(directory, "svg", &documents, drawn).map_err(Failure::failed)?;
    }
    if let (Some(png), Some(painter)) = (&args.png, painter) {
        // A narrow chart has a layout of its own; a wide one is the usual one, enlarged.
        let drawn = |chart: &Chart| painter.png(&chart.svg(png.pixels.min(WIDTH)), png.pixels);
        pictures(&png.directory, "png", &documents, drawn).map_err(Failure::failed)?;
    }
    let page = match (is_page, args.markdown) {
        (false, _) => return Ok(()),
        (true, false) => html::page(&mut documents),
        (true, true) => markdown(&documents),
    };
    match file {
        Some(file) => file.write(&page),
        None => output::print(&page),
    }
}

/// The documents in a file: one, or those of a report.
pub(crate) fn documents(opened: Opened, command: &str) -> anyhow::Result<Vec<Box<dyn Document>>> {
    let name = opened.name.clone();
    if opened.is_capture() {
        bail!("{name}: a packet capture: linerate explain {name} --json --output FILE, then FILE");
    }
    if let Some(unpack) = opened.unpacked_by() {
        bail!("{name}: it is compressed: {unpack} FILE | linerate {command} -");
    }
    if !opened.may_be_a_document() {
        let other = match command {
            "explain" => "a packet capture (pcap, pcapng)",
            _ => "a page of `linerate report` (HTML)",
        };
        bail!("{name}: it is neither a document of linerate's (JSON) nor {other}");
    }
    let bytes = files::read_open(opened.bytes, &name, MAX_DOCUMENT)?;
    let documents = html::documents(&bytes).with_context(|| name.clone())?;
    if documents.is_empty() {
        bail!("{name}: an HTML page without a document of linerate");
    }
    Ok(documents)
}

fn markdown(documents: &[Box<dyn Document>]) -> String {
    let style = Style {
        form: Form::Markdown,
        ..Style::default()
    };
    let parts: Vec<String> = documents.iter().map(|one| one.text(style)).collect();
    parts.join("\n---\n\n")
}

/// Writes each chart into a file, numbered in the order of the page.
fn pictures(
    directory: &Path,
    kind: &str,
    documents: &[Box<dyn Document>],
    drawn: impl Fn(&Chart) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<()> {
    let charts = documents.iter().flat_map(|document| document.charts());
    for (number, chart) in (1..).zip(charts) {
        let path = directory.join(format!("{number:02}-{}.{kind}", chart.name));
        let written = drawn(&chart).and_then(|bytes| Ok(fs::write(&path, bytes)?));
        written.with_context(|| format!("--{kind} {}", path.display()))?;
    }
    Ok(())
}

/// Width of a chart, in pixels.
const WIDTH: u32 = 900;
