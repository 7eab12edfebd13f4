//! One run of a cell: its path, its quotas of CPU time, its treatments.

use std::collections::BTreeMap;

use linerate_core::ceilings;
use linerate_core::compare::Fault;
use linerate_core::experiment::{
    Cell, Experiment, ExperimentPath, Measure, Place, QOS_PACKET_NS, Run, Slot, Work,
};
use linerate_core::plan::{End, Protocol, Test};
use linerate_core::record::{Interval, Record};
use linerate_core::treatment::HostChange;
use linerate_core::units::Family;

use super::{ExperimentError, ExperimentObserver, ExperimentSite, special};
use crate::campaign::Observer;
use crate::client::Client;
use crate::lab::{CpuQuota, LabEnds, LabOptions, LabPath};
use crate::load::load;
use crate::qos::packet_ns;
use crate::stop::Stop;
use crate::target::Target;
use crate::treated::run_treated;

/// Makes the run; one with a validity fault says so.
///
/// # Errors
/// It could not be made, or not to its end.
pub(super) fn run(
    experiment: &Experiment,
    slot: Slot,
    site: &ExperimentSite<'_>,
    stop: &Stop,
    observer: &mut dyn ExperimentObserver,
) -> Result<Run, ExperimentError> {
    let cell = &experiment.cells[slot.cell];
    let mut run = empty(experiment, slot);
    match &cell.work {
        Work::Special(special) => run.figures = special::run(special, site.directory, stop)?,
        Work::Load(mix) => {
            let seed = experiment.seed_of(slot);
            let mut act = |target: &Target, _: Option<&LabPath>| {
                let (document, error) =
                    load(std::slice::from_ref(target), mix, seed, stop, &mut ())?;
                error.map_or(Ok(document.figures()), |error| Err(error.into()))
            };
            run.figures = in_place(cell, seed, site, &mut act)?;
        }
        Work::Test(test) => {
            let test = Test { seed: experiment.seed_of(slot), ..test.as_ref().clone() };
            let record = measure(cell, &test, site, stop, observer)?;
            run.faults = faults(experiment, &record);
            if experiment.shows(&Measure::Special(QOS_PACKET_NS)) {
                let cost = packet_cost(cell, &record)?;
                run.figures.extend(cost.map(|ns| (QOS_PACKET_NS.to_owned(), ns)));
            }
            run.record = Some(Box::new(record));
        }
    }
    Ok(run)
}

/// A run that has left nothing yet.
pub(super) fn empty(experiment: &Experiment, slot: Slot) -> Run {
    let treatments = &experiment.cells[slot.cell].treatments;
    Run {
        levels: experiment.level_names(slot.cell),
        repeat: slot.repeat,
        attempt: slot.attempt,
        treatments: if treatments.is_empty() { "none".to_owned() } else { treatments.to_string() },
        faults: Vec::new(),
        error: None,
        figures: BTreeMap::new(),
        record: None,
    }
}

/// What the client's policy costs a packet like those of the run, ns.
fn packet_cost(cell: &Cell, record: &Record) -> Result<Option<f64>, ExperimentError> {
    let mut changes = cell.treatments.host_changes(End::Client).into_iter();
    let policy = changes.find_map(|change| match change {
        HostChange::Qos(policy) => Some(policy),
        _ => None,
    });
    let Some(policy) = policy else {
        return Ok(None);
    };
    let protocol = match record.protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp | Protocol::Mptcp => "tcp",
    };
    // From one address of a lab to another.
    let ends = match record.family {
        Family::Ipv4 => "198.18.0.1:40000 > 198.18.0.2:5201",
        Family::Ipv6 => "[2001:2::1]:40000 > [2001:2::2]:5201",
    };
    let packet = format!("{protocol} {ends}").parse();
    Ok(packet_ns(&policy, &packet.expect("it is a packet"))?)
}

fn faults(experiment: &Experiment, record: &Record) -> Vec<String> {
    let declared = experiment.forbid.iter().copied().chain([Fault::Incomplete]);
    declared.filter_map(|fault| fault.seen_in(record)).collect()
}

fn measure(
    cell: &Cell,
    test: &Test,
    site: &ExperimentSite<'_>,
    stop: &Stop,
    observer: &mut dyn ExperimentObserver,
) -> Result<Record, ExperimentError> {
    let mut act = |target: &Target, path: Option<&LabPath>| {
        let mut client = Client::connect(target.clone(), stop.clone())?;
        let mut intervals = Intervals(observer);
        let mut record = run_treated(&mut client, test, &cell.treatments, &mut intervals)?;
        if let Some(path) = path {
            path.describe([(&mut record.environment, &mut record.caveats)]);
            // Once more: the remedies are to name the path, not a host that is gone with it.
            ceilings::annotate(&mut record);
        }
        Ok(record)
    };
    in_place(cell, test.seed, site, &mut act)
}

/// What is done with an endpoint, on the lab's path if it is one.
type Act<'a, T> =
    &'a mut (dyn FnMut(&Target, Option<&LabPath>) -> Result<T, ExperimentError> + Send);

/// Acts where the cell is, with its quotas of CPU time.
fn in_place<T: Send>(
    cell: &Cell,
    seed: u64,
    site: &ExperimentSite<'_>,
    act: Act<'_, T>,
) -> Result<T, ExperimentError> {
    let client = CpuQuota::new(cell.place.client_cpu).map_err(ExperimentError::Cpu)?;
    let ExperimentPath::Lab { .. } = &cell.place.path else {
        let target = site.target.ok_or(ExperimentError::NoTarget)?;
        return client.run(|| act(target, None)).map_err(ExperimentError::Cpu)?;
    };
    let mut on_path = |path: &LabPath| {
        path.enter()?;
        act(&path.target(), Some(path))
    };
    let server = CpuQuota::new(cell.place.server_cpu).map_err(ExperimentError::Cpu)?;
    // The endpoint's threads inherit the quota of the one that starts it.
    let path = server.run(|| build(&cell.place, seed, site)).map_err(ExperimentError::Cpu)??;
    client.run(|| on_path(&path)).map_err(ExperimentError::Cpu)?
}

fn build(place: &Place, seed: u64, site: &ExperimentSite<'_>) -> Result<LabPath, ExperimentError> {
    let ExperimentPath::Lab { topology, name, spec: _, client, server, address } = &place.path
    else {
        return Err(ExperimentError::NoTarget);
    };
    let traces = site.traces.to_vec();
    let options = LabOptions { seed, traces };
    let address = *address;
    let ends = LabEnds { client, server, address };
    let (topology, name) = (topology.as_ref().clone(), name.clone());
    let path = LabPath::between(topology, name, ends, place.family, &options)?;
    Ok(path)
}

/// Of a run only its intervals are news: what it is was said as it began.
struct Intervals<'a>(&'a mut dyn ExperimentObserver);

impl Observer for Intervals<'_> {
    fn phase(&mut self, _: &str) {}

    fn interval(&mut self, interval: &Interval) -> bool {
        self.0.interval(interval)
    }
}
