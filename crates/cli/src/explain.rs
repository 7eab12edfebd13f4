//! `explain` without a file: connections of other programs, watched for a while.

use std::path::Path;

use anyhow::{Context, anyhow};
use linerate_core::connection::{CONNECTIONS_SCHEMA, ConnectionsDocument};
use linerate_core::units::Span;
use linerate_engine::connections::explain_connections;
use linerate_engine::stop_on_signal;

use crate::args::{ExplainArgs, WhichOptions};
use crate::connections;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT};
use crate::output::{Format, Output};
use crate::progress::Progress;

/// Watches and explains the connections that were asked for.
///
/// # Errors
/// There is no such connection, process or namespace, or the earlier document is none.
pub(crate) fn execute(args: &ExplainArgs, format: Format) -> Result<(), Failure> {
    let before = args.watch.before.as_deref().map(earlier).transpose()?;
    let output = Output::open(&args.document, format)?;
    let mut document = watched(args)?;
    if let Some(before) = &before {
        document.compare_with(before);
    }
    output.write(&document)
}

fn watched(args: &ExplainArgs) -> Result<ConnectionsDocument, Failure> {
    let which = WhichOptions {
        port: args.capture.port.clone(),
        peer: args.capture.peer.map(|peer| peer.to_string()),
        owner: args.watch.owner.clone(),
    };
    let Some(asked) = connections::asked(&which) else {
        return Err(Failure::usage(anyhow!(
            "explain what? A FILE, or connections by --port, --peer or --process; \
             `linerate connections` lists them"
        )));
    };
    let selection = connections::which(&which).map_err(Failure::usage)?;
    let stop = stop_on_signal()
        .context("cannot catch signals")
        .map_err(Failure::unsupported)?;
    let mut progress = Progress::new(Format::Text, args.document.quiet);
    let Span(time) = args.watch.time;
    let found = explain_connections(&selection, time, &stop, || progress.takes([time; 2]));
    let found = found?;
    let mut document = found.ok_or_else(|| Failure::usage(anyhow!("no TCP connection {asked}")))?;
    document.asked = Some(asked);
    Ok(document)
}

/// An earlier document of connections.
fn earlier(path: &Path) -> Result<ConnectionsDocument, Failure> {
    let place = format!("--before {}", path.display());
    let bytes = files::read_of("--before", path, MAX_DOCUMENT).map_err(Failure::usage)?;
    let read = || {
        let schema = linerate_report::document::schema(&bytes)?;
        anyhow::ensure!(
            schema == CONNECTIONS_SCHEMA,
            "it is a {schema}; this takes a {CONNECTIONS_SCHEMA}, as this command writes it"
        );
        let mut document = ConnectionsDocument::parse(&bytes)?;
        document.explain();
        Ok(document)
    };
    read().context(place).map_err(Failure::usage)
}
