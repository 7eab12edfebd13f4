//! `mesh join`: the agent of a site, until a signal ends it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use linerate_engine::mesh::{Agent, AgentError, AgentOptions};
use linerate_mesh::OwnerLimits;

use super::bus;
use crate::args::MeshJoinArgs;
use crate::failure::Failure;
use crate::{files, keep, output, run};

/// Longest file of limits, bytes.
const MAX_LIMITS: u64 = 64 << 10;

/// Serves and takes tasks until a signal ends it.
///
/// # Errors
/// A file is wrong, the bus is not to be reached, or the port cannot be had.
pub(super) fn execute(args: MeshJoinArgs) -> Result<(), Failure> {
    let limits = limits(&args)?;
    let key = match &args.key_file {
        Some(path) => {
            let (key, warning) = files::read_key(path)?;
            warning.iter().for_each(|warning| output::note(warning));
            Some(key)
        }
        None => None,
    };
    let unsent = match args.unsent {
        Some(directory) => directory,
        None => keep::state_directory()
            .map_err(Failure::usage)?
            .join("mesh")
            .join(&args.site),
    };
    let stop = run::signals()?;
    let bus = bus::connect(&args.bus, &args.server, Some(&args.site))?;
    let options = AgentOptions {
        site: args.site.clone(),
        address: args.address.map(|address| address.to_string()),
        bind: args.bind,
        port: args.port,
        key,
        limits,
        unsent,
    };
    let agent = Agent::start(options, bus, None, Arc::new(output::note)).map_err(failure)?;
    output::note(&format!("{}: listening on {}", args.site, agent.address()));
    while !stop.is_requested() {
        thread::sleep(Duration::from_millis(100));
    }
    drop(agent);
    Ok(())
}

fn limits(args: &MeshJoinArgs) -> Result<OwnerLimits, Failure> {
    let Some(path) = &args.limits else {
        return Ok(OwnerLimits::default());
    };
    let read = || {
        let text = String::from_utf8(files::read_of("--limits", path, MAX_LIMITS)?)?;
        OwnerLimits::from_toml(&text).with_context(|| path.display().to_string())
    };
    read().map_err(Failure::usage)
}

/// With the exit status that it deserves.
pub(super) fn failure(error: AgentError) -> Failure {
    match error {
        AgentError::Endpoint(error) => error.into(),
        other => Failure::failed(anyhow!(other)),
    }
}
