//! `explain`: a stored document or a packet capture, or connections of other programs, which are
//! watched for a while.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use linerate_core::connection::{CONNECTIONS_SCHEMA, ConnectionsDocument};
use linerate_core::units::Span;
use linerate_engine::connections::{Watch, explain_connections, prove_path};
use linerate_history::Place;
use linerate_report::document::{StoredDocument, schema};

use crate::args::{ExplainArgs, WhichOptions};
use crate::capture;
use crate::failure::Failure;
use crate::files::{self, MAX_DOCUMENT};
use crate::output::{self, Format, Output};
use crate::progress::Progress;
use crate::stored::{self, Opened};
use crate::{connections, plan, run};

/// Explains what the arguments name.
///
/// # Errors
/// The file cannot be read or is neither a document nor a capture; there is no such connection,
/// process or namespace.
pub(crate) fn execute(args: &ExplainArgs) -> Result<(), Failure> {
    let format = output::format(args.document.json, &args.csv, false);
    let Some(file) = &args.file else {
        return other_programs(args, format);
    };
    let found = Opened::new("", file, args.document.keep.db.as_ref());
    let opened = found.map_err(|failure| no_file(file, failure))?;
    if opened.is_capture() {
        return capture::execute(args, format, opened);
    }
    let mut document = stored(args, opened).map_err(Failure::usage)?;
    document.annotate();
    let output = Output::open(&args.document, format)?;
    output.read_by(files::explaining(file), document.command.clone()).write(&*document)
}

/// Why a file cannot be opened. Where its name is a number, a port or a process may be meant.
fn no_file(file: &Path, failure: Failure) -> Failure {
    let number = file.to_str().and_then(|name| name.parse::<u32>().ok());
    let Some(number) = number.filter(|_| !file.exists()) else {
        return failure;
    };
    let port =
        if number > u32::from(u16::MAX) { String::new() } else { format!("--port {number} or ") };
    Failure::usage(anyhow!(
        "{number}: there is no such file and no such saved run; connections are chosen by \
         {port}--pid {number}"
    ))
}

/// The document that a file holds.
fn stored(args: &ExplainArgs, opened: Opened) -> anyhow::Result<StoredDocument> {
    let name = &opened.name;
    ensure!(
        args.capture.asked().is_none() && !args.capture.flows,
        "{name}: --port, --peer and --flows are for packet captures, and this file is none"
    );
    opened.document("explain")
}

/// Watches and explains connections of other programs on this host.
fn other_programs(args: &ExplainArgs, format: Format) -> Result<(), Failure> {
    if matches!(format, Format::Csv(_)) {
        let why = "--csv: connections that are watched have no records; give --json";
        return Err(Failure::usage(anyhow!(why)));
    }
    let db = args.document.keep.db.as_ref();
    let before = args.watch.before.as_deref().map(|path| earlier(path, db)).transpose()?;
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
        peer: args.capture.peer.clone(),
        owner: args.watch.owner.clone(),
    };
    let Some(asked) = connections::asked(&which) else {
        return Err(Failure::usage(anyhow!(
            "explain what? A FILE, or connections by --port, --peer or --process; \
             `linerate connections` lists them"
        )));
    };
    let selection = connections::which(&which).map_err(Failure::usage)?;
    let stop = run::signals()?;
    let mut progress = Progress::new(Format::Text, args.document.quiet);
    let key = files::read_key(args.watch.key_file.as_deref(), |warning| progress.warn(warning))?;
    if args.watch.prove.is_some() {
        let now = Watch::open(&selection).map_err(connections::failure)?.document();
        one_peer(&now).map_err(Failure::usage)?;
    }
    let Span(time) = args.watch.time;
    let found = explain_connections(&selection, time, &stop, || progress.takes([time; 2]));
    let found = found.map_err(connections::failure)?;
    let mut document = found.ok_or_else(|| Failure::usage(anyhow!("no TCP connection {asked}")))?;
    document.asked = Some(asked);
    if let Some(port) = args.watch.prove {
        let (seed, mut shown) = (plan::fresh_seed(), progress.keeps(true));
        prove_path(&mut document, port, key, seed, &stop, &mut shown);
    }
    Ok(document)
}

/// Refuses connections to several hosts: a path is to one.
fn one_peer(document: &ConnectionsDocument) -> anyhow::Result<()> {
    let remotes = document.connections.iter().filter_map(|one| one.remote.parse().ok());
    let peers: BTreeSet<IpAddr> = remotes.map(|remote: SocketAddr| remote.ip()).collect();
    ensure!(
        peers.len() <= 1,
        "--prove: these connections go to {} hosts; choose one with --peer ADDRESS",
        peers.len()
    );
    Ok(())
}

/// An earlier document of connections.
fn earlier(path: &Path, db: Option<&Place>) -> Result<ConnectionsDocument, Failure> {
    let bytes = stored::read("--before", path, db, MAX_DOCUMENT)?;
    let parse = || {
        let schema = schema(&bytes)?;
        ensure!(
            schema == CONNECTIONS_SCHEMA,
            "it is a {schema}; this takes a {CONNECTIONS_SCHEMA}, as this command writes it"
        );
        let mut document = ConnectionsDocument::parse(&bytes)?;
        document.explain();
        anyhow::Ok(document)
    };
    parse().with_context(|| files::named("--before", path)).map_err(Failure::usage)
}
