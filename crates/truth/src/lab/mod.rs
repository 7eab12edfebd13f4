//! Runs scenarios, each in a lab of its own.
//!
//! | module | what is in it |
//! |---|---|
//! | `beside` | kernel queues, other programs' traffic and servers beside a run |
//! | `programs` | the commands by which other programs make a scenario's traffic |
//! | `watched` | runs whose traffic other programs make, watched from both ends |

mod beside;
mod programs;
mod watched;

use std::hint::black_box;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Child;
use std::thread::{self, JoinHandle};

use linerate_core::foreign::Tool;
use linerate_core::link::{PathSpec, RateTrace};
use linerate_core::plan::Direction;
use linerate_core::proof::ProofBudget;
use linerate_core::record::{Caveat, CaveatKind, Record};
use linerate_core::treatment::{TreatmentError, Treatments};
use linerate_core::units::Family;
use linerate_engine::{
    Client, CpuQuota, LabEnds, LabError, LabOptions, LabPath, MeasureError, Partner, Stop, Target,
    prove_bottleneck, run_treated,
};
use linerate_sys::CallError;
use linerate_sys::ethtool::{Ethtool, Offload};
use linerate_sys::netns::NamespaceError;
use linerate_sys::thread::{affinity, set_affinity};
use thiserror::Error;

use crate::scenario::{CpuShare, HostSetup, Scenario};
use crate::trial::{Answer, Trial};

pub(crate) use watched::{
    Observations, WatchArgs, capture_file, explain_capture, try_other_program, watch,
};

/// A scenario that could not be run as it was drawn.
#[derive(Debug, Error)]
pub(crate) enum TruthError {
    /// The path could not be made.
    #[error("cannot make the path")]
    Lab(#[from] LabError),
    /// The kernel refused to switch an offload off.
    #[error("cannot set up the sender's device")]
    Offload(#[from] CallError),
    /// A thread could not enter a host.
    #[error("cannot enter a host of the lab")]
    Namespace(#[from] NamespaceError),
    /// No quota of CPU time could be given.
    #[error(transparent)]
    Quota(LabError),
    /// A CPU could not be shared out.
    #[error("cannot {what}")]
    Cpu {
        /// The attempt, as a verb.
        what: &'static str,
        /// The error of the call.
        source: io::Error,
    },
    /// The scenario cannot be made here, or not at this moment.
    #[error("{0}")]
    LeftOut(String),
    /// Plain sockets could not find out what the host carries.
    #[error("cannot measure what plain sockets carry")]
    PlainSockets(#[source] io::Error),
    /// A treatment does not accept its policy.
    #[error(transparent)]
    Treatment(#[from] TreatmentError),
    /// A process that watched another program's traffic failed.
    #[error("a watcher failed: {0}")]
    Watcher(String),
    /// The run failed.
    #[error("the run failed")]
    Measure(#[from] MeasureError),
}

/// How a scenario's verdict is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// From one run.
    OneRun,
    /// From one run after packet trains, which find the narrowest link.
    OneRunAfterTrains,
    /// From plain and changed runs after packet trains.
    Proof,
}

/// Runs a scenario in a fresh lab, which is removed afterwards. The record has its verdict, which
/// was found before the lab was entered in the record. Where the narrowest link is to be found,
/// packet trains are sent before the run.
///
/// # Errors
/// [`TruthError`]: it could not be run to its end as it was drawn; or `stop` was requested.
fn run_scenario(scenario: &Scenario, method: Method, stop: &Stop) -> Result<Record, TruthError> {
    if let Some(policy) = &scenario.around.policy {
        return run_treated_scenario(scenario, &at_sender(scenario, policy)?, stop);
    }
    in_lab(scenario, |path| {
        let mut partner = if scenario.around.is_iperf3 {
            path.enter()?;
            let far = path.lab().address(SERVER, Some(scenario.ip));
            let far = SocketAddr::new(far.unwrap_or(IpAddr::from([0; 4])), IPERF3_PORT);
            let target = Target::at(SERVER, far);
            Partner::connect(target, Some(Tool::Iperf3), stop.clone())?
        } else {
            let mut client = connect(path, stop)?;
            if method != Method::OneRun {
                client.find_link_rate(scenario.test.direction, scenario.test.seed);
            }
            Partner::Own(Box::new(client))
        };
        let (record, error) = match method {
            Method::Proof => {
                prove_bottleneck(&mut partner, &scenario.test, ProofBudget::default(), &mut ())?
            }
            Method::OneRun | Method::OneRunAfterTrains => {
                let outcome = partner.run(&scenario.test, &mut |_| true)?;
                (outcome.record, outcome.error)
            }
        };
        match error {
            None => Ok(record),
            Some(error) => Err(error.into()),
        }
    })
}

/// The policy as a treatment of the host that sends.
fn at_sender(scenario: &Scenario, policy: &str) -> Result<Treatments, TruthError> {
    let whose = match scenario.test.direction {
        Direction::Down => "server.",
        Direction::Up | Direction::Both => "",
    };
    let mut treatments: Treatments = format!("{whose}qos=drawn.toml").parse()?;
    treatments.load(&|_| Ok(policy.to_owned()))?;
    Ok(treatments)
}

/// Runs a scenario in a fresh lab under treatments, which are applied to its hosts, read back and
/// undone as those of a comparison are.
///
/// # Errors
/// [`TruthError`] as of [`run_scenario`]; a treatment could not be applied, or did not take.
pub(crate) fn run_treated_scenario(
    scenario: &Scenario,
    treatments: &Treatments,
    stop: &Stop,
) -> Result<Record, TruthError> {
    in_lab(scenario, |path| {
        let mut client = connect(path, stop)?;
        Ok(run_treated(&mut client, &scenario.test, treatments, &mut ())?)
    })
}

/// Makes the run on the client's host, in a lab like that of the scenario.
fn in_lab(
    scenario: &Scenario,
    run: impl FnOnce(&LabPath) -> Result<Record, TruthError> + Send,
) -> Result<Record, TruthError> {
    let server = CpuAllotment::new(scenario.server.cpu)?;
    let client = CpuAllotment::new(scenario.client.cpu)?;
    // The endpoint's threads inherit the CPUs of the one that starts it.
    let path = server.run(|| build(scenario))??;
    for (name, setup) in [(CLIENT, &scenario.client), (SERVER, &scenario.server)] {
        set_up_device(&path, name, setup)?;
    }
    let background = beside::start(path.lab(), scenario)?;
    let mut record = client.run(|| run(&path))??;
    drop(background);
    path.describe([(&mut record.environment, &mut record.caveats)]);
    let caveats = [server, client].into_iter().filter_map(|share| share.caveat);
    record.caveats.extend(caveats);
    Ok(record)
}

/// Runs a scenario and judges its verdict. The record is there if it ran to its end.
pub(crate) fn try_scenario(
    scenario: &Scenario,
    method: Method,
    stop: &Stop,
) -> (Trial, Option<Record>) {
    let answer = match run_scenario(scenario, method, stop) {
        Ok(record) => return (Trial::from_record(scenario, &record), Some(record)),
        Err(TruthError::LeftOut(reason)) => Answer::LeftOut { reason },
        Err(error) => Answer::Failed { reason: reason(error) },
    };
    (Trial::new(scenario, answer, Vec::new()), None)
}

/// The scenario's path, with an endpoint at its far end.
fn build(scenario: &Scenario) -> Result<LabPath, TruthError> {
    let plain = PathSpec::default();
    let spec = scenario.path.as_ref().unwrap_or(&plain);
    let mut options = LabOptions { seed: scenario.test.seed, ..LabOptions::default() };
    for (name, text) in &scenario.around.traces {
        let trace = RateTrace::parse(text)
            .map_err(|error| TruthError::LeftOut(format!("the recorded rate {name}: {error}")))?;
        options.traces.push((name.clone(), trace));
    }
    let topology = scenario.topology();
    let (name, ends) = if scenario.around.is_loopback {
        ("loopback".to_owned(), loopback(scenario.ip))
    } else {
        let ends = LabEnds { client: CLIENT, server: SERVER, address: None };
        (spec.to_string(), ends)
    };
    let family = Some(scenario.ip);
    Ok(LabPath::between(topology, name, ends, family, &options)?)
}

/// Both ends on the server's host.
fn loopback(family: Family) -> LabEnds<'static> {
    LabEnds {
        client: SERVER,
        server: SERVER,
        address: Some(match family {
            Family::Ipv4 => Ipv4Addr::LOCALHOST.into(),
            Family::Ipv6 => Ipv6Addr::LOCALHOST.into(),
        }),
    }
}

/// Switches a host's segmentation offload off, if the scenario says so.
fn set_up_device(path: &LabPath, host: &str, setup: &HostSetup) -> Result<(), TruthError> {
    let node = path.lab().topology().node(host);
    let interface = node.and_then(|node| node.interfaces.first());
    let (Some(namespace), Some(interface), true) =
        (path.lab().namespace(host), interface, setup.offload_off)
    else {
        return Ok(());
    };
    Ok(namespace.run(|| {
        let driver = Ethtool::open(&interface.name)?;
        driver.set_offload(Offload::TcpSegmentation, false)?;
        driver.set_offload(Offload::GenericSegmentation, false)
    })??)
}

/// A process that is killed when this is dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A session with the endpoint, from the client's host.
fn connect(path: &LabPath, stop: &Stop) -> Result<Client, TruthError> {
    path.enter()?;
    Ok(Client::connect(path.target(), stop.clone())?)
}

/// An error that leaves a trial without a verdict, with its causes.
fn reason(error: TruthError) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// A share of a CPU for the threads of a host, held until it is dropped.
struct CpuAllotment {
    cpu: Option<u32>,
    quota: CpuQuota,
    _neighbours: Neighbours,
    /// The difference of the share from what was asked for.
    caveat: Option<Caveat>,
}

impl CpuAllotment {
    /// Takes a share. Where no control group can be made, neighbours take the rest of the CPU
    /// instead, and the caveat says so.
    fn new(share: CpuShare) -> Result<Self, TruthError> {
        match share {
            CpuShare::Any => Self::held(None, None, 0),
            CpuShare::Own { cpu } => Self::held(None, Some(cpu), 0),
            CpuShare::Shared { cpu, neighbours } => Self::held(None, Some(cpu), neighbours),
            CpuShare::Quota { percent } => Self::held(Some(percent), None, 0).or_else(|why| {
                let neighbours = (100 / percent.max(1)).saturating_sub(1);
                let caveat = Caveat::new(
                    CaveatKind::SettingNotTaken,
                    format!("{neighbours} busy neighbours instead of a CPU quota: {}", reason(why)),
                    "run it as root, or by `systemd-run --scope -p Delegate=cpu`",
                );
                Ok(Self { caveat: Some(caveat), ..Self::held(None, Some(0), neighbours)? })
            }),
        }
    }

    fn held(quota: Option<u32>, cpu: Option<u32>, neighbours: u32) -> Result<Self, TruthError> {
        let cpu = cpu.map(allowed_cpu).transpose()?;
        Ok(Self {
            cpu,
            quota: CpuQuota::new(quota).map_err(TruthError::Quota)?,
            _neighbours: Neighbours::start(cpu.unwrap_or(0), neighbours)
                .map_err(cpu_error("start a busy neighbour"))?,
            caveat: None,
        })
    }

    /// Runs `work` on a thread with this share; threads that it starts have it, too.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TruthError> {
        let confined = || {
            if let Some(cpu) = self.cpu {
                set_affinity(&[cpu]).map_err(cpu_error("confine a thread to a CPU"))?;
            }
            Ok(work())
        };
        self.quota.run(confined).map_err(TruthError::Quota)?
    }
}

/// The number of the `index`th CPU that this process may use, counted around.
fn allowed_cpu(index: u32) -> Result<u32, TruthError> {
    let allowed = affinity().map_err(cpu_error("read the CPUs of this process"))?;
    match allowed.len() {
        0 => Ok(index),
        count => Ok(allowed[index as usize % count]),
    }
}

fn cpu_error<E: std::error::Error + Send + Sync + 'static>(
    what: &'static str,
) -> impl FnOnce(E) -> TruthError {
    move |error| TruthError::Cpu { what, source: io::Error::other(error) }
}

/// Threads that keep a CPU busy until this is dropped.
struct Neighbours {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    fn start(cpu: u32, count: u32) -> io::Result<Self> {
        let mut started = Self { stop: Stop::new(), threads: Vec::new() };
        for _ in 0..count {
            let stop = started.stop.clone();
            let thread = thread::Builder::new().name("neighbour".into()).spawn(move || {
                // If it cannot be bound to that CPU it does not disturb, and the verdict will
                // say so.
                let _ = set_affinity(&[cpu]);
                // Without a pause instruction, for which a hypervisor might take the CPU away.
                let mut n = 0_u64;
                while !stop.is_requested() {
                    for _ in 0..10_000 {
                        n = black_box(n.wrapping_add(1));
                    }
                }
            })?;
            started.threads.push(thread);
        }
        Ok(started)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop.request();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The host of the client, as topologies call it.
const CLIENT: &str = "client";
/// The host of the endpoint.
const SERVER: &str = "server";
const IPERF3_PORT: u16 = 5201;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_end_with_their_allotment() {
        let allotment = CpuAllotment::new(CpuShare::Shared { cpu: 0, neighbours: 2 }).unwrap();
        assert_eq!(allotment.run(|| affinity().unwrap().len()).unwrap(), 1);
        drop(allotment);
    }
}
