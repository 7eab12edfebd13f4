//! `host`: the limits and settings of this host.

use std::net::IpAddr;

use anyhow::{Context, anyhow};
use linerate_core::host::{
    ChangeOutcome, HostDocument, Need, NeedOrigin, NeededPath, assignments, check_keys,
};
use linerate_core::record::Check;
use linerate_core::units::EndpointName;
use linerate_engine::host_settings::{self, HostScope};
use linerate_engine::{BulkOptions, CheckOptions};

use crate::args::{
    HostCommand, HostProfileArgs, HostSetArgs, HostShowArgs, HostUndoArgs, NeedOptions, PathOptions,
};
use crate::failure::Failure;
use crate::output::{self, Format, Output};
use crate::progress::Progress;
use crate::target::look_up;
use crate::{plan, run};

/// Does what the command line says.
///
/// # Errors
/// With the kind that decides the exit status.
pub(crate) fn execute(command: HostCommand) -> Result<(), Failure> {
    match command {
        HostCommand::Show(args) => show(&args),
        HostCommand::Set(args) => set(&args),
        HostCommand::Undo(args) => undo(&args),
        HostCommand::Profile(args) => profile(&args),
    }
}

fn show(args: &HostShowArgs) -> Result<(), Failure> {
    check_keys(&args.keys).map_err(Failure::usage)?;
    let has_all = args.all || !args.keys.is_empty();
    let format = match (args.document.json, has_all) {
        (true, _) => Format::Json,
        (false, true) => Format::Details,
        (false, false) => Format::Text,
    };
    let output = Output::open(&args.document, format)?;
    let scope = HostScope { keys: args.keys.clone(), ..scope(&args.need, args.document.quiet)? };
    let document = host_settings::show(&scope)?;
    output.write(&document)
}

fn set(args: &HostSetArgs) -> Result<(), Failure> {
    let wanted = assignments(&args.assignments).map_err(Failure::usage)?;
    if args.persist {
        let checked = wanted.iter().try_for_each(|one| one.check_persistent());
        checked.map_err(Failure::usage)?;
    }
    let document = host_settings::set(&wanted, args.persist)?;
    print(&document, args.json)
}

fn undo(args: &HostUndoArgs) -> Result<(), Failure> {
    check_keys(&args.keys).map_err(Failure::usage)?;
    let document = host_settings::undo(&args.keys)?;
    print(&document, args.json)?;
    let is_failed = |outcome| outcome == ChangeOutcome::Failed;
    match document.changes.iter().find(|change| is_failed(change.outcome)) {
        Some(change) => Err(Failure::failed(anyhow!(
            "{} could not be put back; it is still in the journal",
            change.key
        ))),
        None => Ok(()),
    }
}

fn profile(args: &HostProfileArgs) -> Result<(), Failure> {
    let format = output::json_or_text(args.document.json);
    let output = Output::open(&args.document, format)?;
    let scope = scope(&args.need, args.document.quiet)?;
    let document = host_settings::profile(args.profile, &scope, args.apply, args.persist);
    output.write(&document?)
}

fn print(document: &HostDocument, as_json: bool) -> Result<(), Failure> {
    let output = Output::to(None, output::json_or_text(as_json))?;
    output.write(document)
}

/// What the host is needed for: as the options say, or as a check of the path measures.
fn scope(options: &NeedOptions, quiet: bool) -> Result<HostScope, Failure> {
    let (path, peer) = match (&options.host, options.rate, options.rtt) {
        (Some(host), ..) => {
            let (path, peer) = measured(host, quiet)?;
            (Some(path), Some(peer))
        }
        (None, Some(rate), Some(rtt)) => (Need::of_path(rate, rtt).path, None),
        _ => (None, None),
    };
    Ok(HostScope {
        need: Need { path, connections: options.connections, profile: None },
        peer,
        keys: Vec::new(),
    })
}

/// A quick check of the path: the rate of its narrowest link if packet trains show it, else the
/// highest rate that was reached.
fn measured(host: &EndpointName, quiet: bool) -> Result<(NeededPath, IpAddr), Failure> {
    let mut progress = Progress::new(Format::Text, quiet);
    let target = look_up(host.clone(), &PathOptions::default(), &mut progress)?;
    let peer = target.addresses.first().map(|address| address.ip());
    let examination = CheckOptions {
        target: Some(target),
        family: None,
        via: None,
        quick: true,
        prove: false,
        max_bytes: None,
        seed: plan::fresh_seed(),
        bulk: BulkOptions::default(),
    };
    let (check, error) = run::check(&examination, progress)?;
    if let Some(error) = error {
        return Err(error);
    }
    path_of(&check)
        .zip(peer)
        .with_context(|| {
            format!("{host}: no rate or round-trip time could be measured: give --rate and --rtt")
        })
        .map_err(Failure::failed)
}

fn path_of(check: &Check) -> Option<NeededPath> {
    let records = [&check.up, &check.down].map(Option::as_ref);
    let reached = records.iter().flatten().filter_map(|record| record.throughput_bps());
    let trains = records.iter().flatten().filter_map(|record| Some(record.path_train?.link_bps));
    let rate_bps = reached.chain(trains).fold(0.0, f64::max);
    let rtt_us = check.idle_latency_us.as_ref()?.p50;
    (rate_bps > 0.0 && rtt_us > 0.0).then_some(NeededPath {
        rate_bps,
        rtt_us,
        origin: NeedOrigin::Measured,
    })
}
