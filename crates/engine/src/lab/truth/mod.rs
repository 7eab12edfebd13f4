//! Runs a scenario of the truth test in a lab of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Child;

use linerate_core::foreign::Tool;
use linerate_core::link::{PathSpec, RateTrace};
use linerate_core::plan::Direction;
use linerate_core::record::Record;
use linerate_core::treatment::{TreatmentError, Treatments};
use linerate_core::truth::{Answer, HostSetup, Scenario, Trial};
use linerate_core::units::Family;
use linerate_sys::CallError;
use linerate_sys::ethtool::{Ethtool, Offload};
use linerate_sys::netns::NamespaceError;
use thiserror::Error;

use super::cpu::{Allotment, CpuError};
use super::path::{CLIENT, Ends, LabPath, SERVER};
use super::{LabError, LabOptions};
use crate::client::Client;
use crate::error::MeasureError;
use crate::partner::Partner;
use crate::stop::Stop;
use crate::target::Target;
use crate::treated::run_treated;
use crate::words::chain;

mod around;
mod programs;
mod strangers;
mod traffic;

pub use strangers::{Looks, capture_file, explain_capture, try_stranger};

const IPERF3_PORT: u16 = 5201;

/// A scenario that could not be run as it was drawn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TruthError {
    /// Its path could not be made.
    #[error("cannot make the path")]
    Lab(#[from] LabError),
    /// The kernel refused to switch an offload off.
    #[error("cannot set up the sender's device")]
    Offload(#[from] CallError),
    /// A thread could not enter a host.
    #[error("cannot enter a host of the lab")]
    Namespace(#[from] NamespaceError),
    /// A CPU could not be shared out.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The scenario cannot be made here, or not at this moment.
    #[error("{0}")]
    LeftOut(String),
    /// Plain sockets could not find out what the host carries.
    #[error("cannot measure what plain sockets carry")]
    PlainSockets(#[source] std::io::Error),
    /// A treatment does not accept its policy.
    #[error(transparent)]
    Treatment(#[from] TreatmentError),
    /// A process that watched another program's traffic failed.
    #[error("the watcher said: {0}")]
    Watcher(String),
    /// The run failed.
    #[error("the run failed")]
    Measure(#[from] MeasureError),
}

/// Runs a scenario in a fresh lab, which is removed afterwards. The record has its verdict, which
/// was found before the lab was entered in the record. Where the narrowest link is to be found,
/// packet trains are sent before the run.
///
/// # Errors
/// [`TruthError`]: it could not be run to its end as it was drawn; or `stop` was requested.
pub fn run_scenario(
    scenario: &Scenario,
    sees_link: bool,
    stop: &Stop,
) -> Result<Record, TruthError> {
    if let Some(policy) = &scenario.around.policy {
        return run_treated_scenario(scenario, &at_sender(scenario, policy)?, stop);
    }
    in_lab(scenario, |path| {
        let outcome = if scenario.around.is_iperf3 {
            path.enter()?;
            let far = path.lab().address(SERVER, Some(scenario.ip));
            let far = SocketAddr::new(far.unwrap_or(IpAddr::from([0; 4])), IPERF3_PORT);
            let target = Target::at(SERVER, far);
            let mut partner = Partner::connect(target, Some(Tool::Iperf3), stop.clone())?;
            partner.run(&scenario.test, &mut |_| true)?
        } else {
            let mut client = connect(path, stop)?;
            if sees_link {
                client.find_link_rate(scenario.test.direction, scenario.test.seed);
            }
            client.run(&scenario.test, &mut |_| true)?
        };
        match outcome.error {
            None => Ok(outcome.record),
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
/// As of [`run_scenario`]; a treatment could not be applied, or did not take.
pub fn run_treated_scenario(
    scenario: &Scenario,
    treatments: &Treatments,
    stop: &Stop,
) -> Result<Record, TruthError> {
    in_lab(scenario, |path| {
        let mut client = connect(path, stop)?;
        Ok(run_treated(
            &mut client,
            &scenario.test,
            treatments,
            &mut (),
        )?)
    })
}

/// Makes the run on the client's host, in a lab like that of the scenario.
fn in_lab(
    scenario: &Scenario,
    run: impl FnOnce(&LabPath) -> Result<Record, TruthError> + Send,
) -> Result<Record, TruthError> {
    let server = Allotment::new(scenario.server.cpu)?;
    let client = Allotment::new(scenario.client.cpu)?;
    // The endpoint's threads inherit the CPUs of the one that starts it.
    let path = server.run(|| build(scenario))??;
    for (name, setup) in [(CLIENT, &scenario.client), (SERVER, &scenario.server)] {
        set_up_device(&path, name, setup)?;
    }
    let around = around::make(path.lab(), scenario)?;
    let mut record = client.run(|| run(&path))??;
    drop(around);
    path.describe([(&mut record.environment, &mut record.caveats)]);
    record.caveats.extend(
        [&server, &client]
            .into_iter()
            .filter_map(|cpu| cpu.caveat()),
    );
    Ok(record)
}

/// Runs a scenario and judges its verdict. The record is there if it ran to its end.
pub fn try_scenario(scenario: &Scenario, sees_link: bool, stop: &Stop) -> (Trial, Option<Record>) {
    let answer = match run_scenario(scenario, sees_link, stop) {
        Ok(record) => return (Trial::from_record(scenario, &record), Some(record)),
        Err(TruthError::LeftOut(reason)) => Answer::LeftOut { reason },
        Err(error) => Answer::Failed {
            reason: chain(&error),
        },
    };
    (Trial::new(scenario, answer, Vec::new()), None)
}

fn build(scenario: &Scenario) -> Result<LabPath, TruthError> {
    let plain = PathSpec::default();
    let spec = scenario.path.as_ref().unwrap_or(&plain);
    let mut options = LabOptions {
        seed: scenario.test.seed,
        ..LabOptions::default()
    };
    for (name, text) in &scenario.around.traces {
        let trace = RateTrace::parse(text)
            .map_err(|error| TruthError::LeftOut(format!("the recorded rate {name}: {error}")))?;
        options.traces.push((name.clone(), trace));
    }
    let topology = scenario.topology();
    let family = Some(scenario.ip);
    if scenario.around.is_loopback {
        return Ok(LabPath::between(
            topology,
            "loopback".to_owned(),
            loopback(scenario.ip),
            family,
            &options,
        )?);
    }
    Ok(LabPath::new(topology, spec, family, &options)?)
}

fn loopback(family: Family) -> Ends<'static> {
    Ends {
        client: SERVER,
        server: SERVER,
        address: Some(match family {
            Family::Ipv4 => Ipv4Addr::LOCALHOST.into(),
            Family::Ipv6 => Ipv6Addr::LOCALHOST.into(),
        }),
    }
}

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
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn connect(path: &LabPath, stop: &Stop) -> Result<Client, TruthError> {
    path.enter()?;
    Ok(Client::connect(path.target(), stop.clone())?)
}
