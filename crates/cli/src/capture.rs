//! `explain FILE` of a packet capture.

use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use linerate_core::capture::{Capture, CaptureError, Selection, follow_selected};
use linerate_core::connection::ConnectionsDocument;
use linerate_core::units::format_rfc3339;

use crate::args::{CaptureOptions, ExplainArgs};
use crate::failure::Failure;
use crate::output::{Format, Output};
use crate::progress::Progress;
use crate::stored::Opened;
use crate::{connections, run};

/// Explains the connections of a capture.
///
/// # Errors
/// It is no capture of TCP, cannot be read, or has no connection that was asked for.
pub(crate) fn execute(args: &ExplainArgs, format: Format, opened: Opened) -> Result<(), Failure> {
    let output = Output::open(&args.document, format)?;
    let Opened { name, size, bytes, .. } = opened;
    let stop = run::signals()?;
    let mut progress = Progress::new(format, args.document.quiet);
    let CaptureOptions { port, peer, .. } = &args.capture;
    let peers = peer.as_deref().map(connections::peers).transpose().map_err(Failure::usage)?;
    let asked = Selection { ports: port.clone(), peers };
    let found = follow_selected(bytes, MAX_CONNECTIONS, asked.clone(), |read| {
        let share =
            size.map_or_else(String::new, |size| format!("{} %, ", read * 100 / size.max(1)));
        progress.live(&format!("{name}: {share}{} MB read", read / 1_000_000));
        !stop.is_requested()
    });
    drop(progress);
    let mut capture = found.map_err(|error| failure(&name, error))?;
    keep_asked(args, &asked, &name, &mut capture)?;
    let mut document = ConnectionsDocument::from_capture(&name, &capture);
    document.started_at =
        format_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_nanos(capture.began.0));
    document.asked = args.capture.asked();
    document.explained = !args.capture.flows;
    document.explain();
    output.write(&document)
}

fn failure(name: &str, error: CaptureError) -> Failure {
    Failure::usage(anyhow!(error).context(name.to_owned()))
}

/// Keeps the connections that were asked for.
fn keep_asked(
    args: &ExplainArgs,
    asked: &Selection,
    name: &str,
    capture: &mut Capture,
) -> Result<(), Failure> {
    let all = capture.flows.len();
    capture.flows.retain(|flow| asked.has(&flow.ends));
    if let Some(asked) = args.capture.asked().filter(|_| capture.flows.is_empty()) {
        return Err(Failure::usage(anyhow!(
            "{name}: none of its {all} TCP connections is one {asked}; --flows lists them"
        )));
    }
    Ok(())
}

impl CaptureOptions {
    /// The selection in words: `with port 80 or 443`; `None` for all.
    pub(crate) fn asked(&self) -> Option<String> {
        connections::in_words(&self.port, [self.peer.as_ref().map(|peer| format!("of {peer}"))])
    }
}

/// Most connections that are kept.
const MAX_CONNECTIONS: usize = 10_000;
