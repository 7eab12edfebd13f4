//! `mesh up`: the coordinator. Without a bus all agents run in this process, too.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use linerate_core::lab::Topology;
use linerate_core::monitor::MonitoredWork;
use linerate_core::units::{DEFAULT_PORT, rfc3339_fraction_ns};
use linerate_engine::mesh::{Agent, AgentOptions, Coordinator, LocalBus, MeshResult, RUN};
use linerate_engine::{Lab, LabError, LabOptions, prepare_for_lab, with_ending};
use linerate_history::{Filter, History, HistoryError};
use linerate_mesh::bus::Bus;
use linerate_mesh::{Mesh, OwnerLimits, Site};

use super::{bus, join};
use crate::args::MeshUpArgs;
use crate::failure::Failure;
use crate::monitor::{of_run, print_saved};
use crate::push::Push;
use crate::site::traces;
use crate::{files, keep, output, plan, run};

/// Most results that wait for a receiver of metrics.
const MAX_QUEUED: usize = 10_000;
/// Largest file of a topology, bytes.
const MAX_TOPOLOGY: u64 = 1 << 20;

/// Coordinates until a signal ends it, or with `--once` until all is measured.
///
/// # Errors
/// A file is wrong, the bus or the history cannot be had, or this host allows no lab.
pub(super) fn execute(args: &MeshUpArgs) -> Result<(), Failure> {
    let mut mesh = super::read(&args.file)?;
    check(&mesh)?;
    let db = args.place.db.as_ref();
    // Before any thread starts: the process may have to enter a user namespace.
    let lab = args.lab.as_deref().map(|file| lab(file, &mesh)).transpose()?;
    // After the lab: a client of PostgreSQL may start a thread.
    let place = super::place(&mesh, db);
    let place = keep::place(place.as_ref()).map_err(Failure::usage)?;
    let history = keep::open_at(keep::option(db), &place)?;
    let beside = keep::beside(&place).map_err(Failure::usage)?;
    let stop = run::signals()?;
    let is_shared = args.bus.is_some();
    let coordinate = |mesh, bus: &dyn Bus| {
        let own = (history, beside.as_path());
        let push = |to| Push::new(to, "linerate-mesh", MAX_QUEUED);
        let receiver = args.otlp.clone().map(push);
        let mut save = |history: &mut History, result: &MeshResult<'_>| {
            let MeshResult { said, record, labels, bytes } = result;
            let run = keep::save(history, *record, labels, Some(*bytes))?;
            if !args.quiet {
                print_saved(said, *record, run);
            }
            let sent = receiver.as_ref().map_or(Ok(()), |to| send_on(to, history, run, labels));
            if let Err(error) = sent {
                output::note(&format!("run {run} was saved, but not sent on: {error}"));
            }
            Ok(())
        };
        let (bus, say) = ((bus, is_shared), Arc::new(output::note));
        Coordinator::new(mesh, bus, own, &mut save, say, args.quiet)
            .and_then(|mut coordinator| coordinator.run(&stop, args.once))
            .map_err(join::failure)
    };
    match &args.bus {
        Some(url) => coordinate(mesh, &*bus::connect(url, &args.server, None)?),
        None => {
            let bus: Arc<dyn Bus> = Arc::new(LocalBus::default());
            // Dropped after the coordinator, when no agent runs a test any more.
            let agents = agents(&mesh, &bus, lab.as_ref(), &beside)?;
            for (site, agent) in mesh.sites.iter_mut().zip(&agents) {
                site.host = agent.address().to_string().parse().ok();
            }
            coordinate(mesh, &*bus)
        }
    }
}

/// Refuses a test that a mesh does not run.
fn check(mesh: &Mesh) -> Result<(), Failure> {
    let runs = |work: &MonitoredWork| matches!(work, MonitoredWork::Test(_));
    match mesh.tests.iter().find(|test| !runs(&test.work)) {
        None => Ok(()),
        Some(test) => Err(Failure::usage(anyhow!(
            "test {}: a mesh runs stream, rr and crr; load and check are for a monitor",
            test.name
        ))),
    }
}

/// Sends the figures and the verdict of a saved run to the receiver of metrics.
fn send_on(
    receiver: &Push,
    history: &History,
    run: i64,
    labels: &[(String, String)],
) -> Result<(), HistoryError> {
    // A label of its own would make each run a series.
    let labels: Vec<_> = labels.iter().filter(|(key, _)| key != RUN).cloned().collect();
    let figures = history.figures(run)?;
    for saved in history.list(&Filter { id: Some(run), ..Filter::default() })? {
        let metrics = of_run(&labels, &figures, saved.cause.as_deref());
        let at_ns = saved.at_s.saturating_mul(1_000_000_000);
        receiver.send_at(&metrics, at_ns.saturating_add(rfc3339_fraction_ns(&saved.started_at)));
    }
    Ok(())
}

/// Builds the lab of a file, whose hosts are the sites.
fn lab(file: &Path, mesh: &Mesh) -> Result<Lab, Failure> {
    let topology = files::parse("--lab", file, MAX_TOPOLOGY, |text| {
        let topology = Topology::from_toml(text)?;
        for site in &mesh.sites {
            let node = topology.node(&site.name);
            node.with_context(|| format!("it has no host called {}", site.name))?;
        }
        anyhow::Ok(topology)
    })?;
    let links = topology.links.iter().flat_map(|link| [&link.up, &link.down]);
    let options = LabOptions {
        seed: plan::fresh_seed(),
        traces: traces(links, file.parent().unwrap_or(Path::new("")))?,
    };
    let failure = |error: LabError| Failure::from(error).at(files::named("--lab", file));
    prepare_for_lab().map_err(failure)?;
    Lab::build(topology, &options).map_err(failure)
}

/// Starts an agent for each site, in the lab or on this host.
fn agents(
    mesh: &Mesh,
    bus: &Arc<dyn Bus>,
    lab: Option<&Lab>,
    history: &Path,
) -> Result<Vec<Agent>, Failure> {
    let key = linerate_engine::mesh::new_key()?;
    let found = mesh.sites.iter().map(|site| place(site, lab));
    let places: Vec<_> = found.collect::<Result<_, _>>().map_err(Failure::usage)?;
    let mut agents = Vec::new();
    for (site, (bind, port)) in mesh.sites.iter().zip(places) {
        let options = AgentOptions {
            site: site.name.clone(),
            address: None,
            bind: Some(bind),
            port,
            key: Some(key.clone()),
            limits: OwnerLimits::default(),
            unsent: unsent(history, &site.name),
        };
        let namespace = lab.and_then(|lab| lab.namespace(&site.name));
        let agent = Agent::start(options, bus.clone(), namespace, Arc::new(output::note));
        agents.push(agent.map_err(join::failure)?);
    }
    Ok(agents)
}

/// The address and port at which the endpoint of a site listens.
fn place(site: &Site, lab: Option<&Lab>) -> anyhow::Result<(IpAddr, u16)> {
    if let Some(lab) = lab {
        let address = lab.address(&site.name, None).map(|address| (address, DEFAULT_PORT));
        return address.with_context(|| format!("host {} has no address", site.name));
    }
    let host = site.host.as_ref().with_context(|| {
        format!(
            "site {}: without --bus and --lab its `host` must be one of this host's addresses",
            site.name
        )
    })?;
    let found = (host.host.as_str(), host.port.unwrap_or(DEFAULT_PORT)).to_socket_addrs();
    let first: Option<SocketAddr> = found.with_context(|| host.to_string())?.next();
    let address = first.with_context(|| format!("{host}: the host has no address"))?;
    Ok((address.ip(), address.port()))
}

/// The directory of a site's unsent results, beside the history of the mesh.
fn unsent(history: &Path, site: &str) -> PathBuf {
    with_ending(history, ".unsent").join(site)
}
