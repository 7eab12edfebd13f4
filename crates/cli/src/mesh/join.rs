//! `mesh join`: the agent of a site, until a signal ends it.

use std::sync::Arc;

use anyhow::anyhow;
use linerate_engine::mesh::{Agent, AgentOptions, MeshError};
use linerate_mesh::OwnerLimits;

use super::bus;
use crate::args::MeshJoinArgs;
use crate::failure::Failure;
use crate::{files, keep, output, run};

/// Largest file of limits, in bytes.
const MAX_LIMITS: u64 = 64 << 10;

/// Serves, and runs the coordinator's tasks, until a signal ends it.
///
/// # Errors
/// A file is wrong, the bus cannot be reached, or the port cannot be had.
pub(super) fn execute(args: MeshJoinArgs) -> Result<(), Failure> {
    let read = |path| files::parse("--limits", path, MAX_LIMITS, OwnerLimits::from_toml);
    let limits = args.limits.as_deref().map_or_else(|| Ok(OwnerLimits::default()), read)?;
    let key = files::read_key(args.key_file.as_deref(), output::note)?;
    let unsent = match args.unsent {
        Some(directory) => directory,
        None => {
            let state = keep::state_directory().map_err(Failure::usage)?;
            state.join("mesh").join(&args.site)
        }
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
    run::wait_for(&stop);
    drop(agent);
    Ok(())
}

/// The failure of an agent or a coordinator, with its exit status.
pub(super) fn failure(error: MeshError) -> Failure {
    match error {
        MeshError::Host(error) => error.into(),
        other => Failure::failed(anyhow!(other)),
    }
}
