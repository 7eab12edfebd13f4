//! `report`: makes a page for a browser, Markdown or pictures of stored documents.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use linerate_report::document::StoredDocument;
use linerate_report::html;
use linerate_report::text::{Form, Style};

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
    let is_page = file.is_some() || args.svg.is_none();
    if is_page && !args.markdown && file.is_none() && io::stdout().is_terminal() {
        return Err(Failure::usage(anyhow!(
            "a page of HTML is for a browser: give -o FILE.html, or --markdown to read it here"
        )));
    }
    if let Some(directory) = &args.svg {
        let place = || format!("--svg {}", directory.display());
        let made = fs::create_dir_all(directory).with_context(place);
        made.map_err(Failure::usage)?;
    }
    let mut documents = Vec::new();
    for path in &args.files {
        let read = Opened::new(path).and_then(|opened| self::documents(opened, "report"));
        documents.extend(read.map_err(Failure::usage)?);
    }
    documents.iter_mut().for_each(|document| document.annotate());
    if let Some(directory) = &args.svg {
        pictures(directory, &documents).map_err(Failure::failed)?;
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
pub(crate) fn documents(opened: Opened, command: &str) -> anyhow::Result<Vec<StoredDocument>> {
    let name = opened.name.clone();
    if opened.is_capture() {
        bail!("{name}: a packet capture: linerate explain {name} --json --output FILE, then FILE");
    }
    if let Some((what, converted)) = opened.converted_by() {
        bail!("{name}: {what}: {converted} | linerate {command} -");
    }
    if !opened.may_be_a_document() {
        let other = match command {
            "explain" => "a packet capture (pcap, pcapng, snoop)",
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

fn markdown(documents: &[StoredDocument]) -> String {
    let style = Style { form: Form::Markdown, ..Style::default() };
    let parts: Vec<String> = documents.iter().map(|one| one.text(style)).collect();
    parts.join("\n---\n\n")
}

/// Writes each chart into a file, numbered in the order of the page.
fn pictures(directory: &Path, documents: &[StoredDocument]) -> anyhow::Result<()> {
    let charts = documents.iter().flat_map(|document| document.charts());
    for (number, chart) in (1..).zip(charts) {
        let path = directory.join(format!("{number:02}-{}.svg", chart.name));
        fs::write(&path, chart.svg(WIDTH)).with_context(|| format!("--svg {}", path.display()))?;
    }
    Ok(())
}

/// Width of a chart, in pixels.
const WIDTH: u32 = 900;
