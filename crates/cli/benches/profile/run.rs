//! One profiled transfer in fresh namespaces.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use linerate_core::profile::attribution::attribute;
use linerate_core::profile::{Layer, ProfileDocument, TaskClass};
use linerate_sys::netns::Pair;

use crate::works::Work;

/// What a transfer took of both ends together, ns for each byte of payload.
pub(crate) struct Cost {
    /// CPU time of the ends' threads by the kernel's account; over veth, soft interrupts run in
    /// them.
    pub(crate) accounted: f64,
    /// By the samples that met these threads.
    pub(crate) layers: BTreeMap<Layer, f64>,
    /// What the profile's own table adds up to: with soft interrupts that met other threads, for
    /// whomever they were.
    pub(crate) printed: f64,
    pub(crate) gbit_per_s: f64,
}

impl Cost {
    pub(crate) fn of(&self, layer: Layer) -> f64 {
        self.layers.get(&layer).copied().unwrap_or(0.0)
    }

    pub(crate) fn in_layers(&self) -> f64 {
        self.layers.values().sum()
    }
}

/// How each run is made.
pub(crate) struct Settings<'a> {
    pub(crate) seconds: u32,
    pub(crate) hz: u32,
    pub(crate) program: &'a Path,
}

const PORT: u16 = 5201;

/// Profiles one transfer with or without the work.
pub(crate) fn run(work: &Work, with: bool, settings: &Settings<'_>) -> anyhow::Result<Cost> {
    let pair = Pair::with_mtu(work.mtu)?;
    (work.prepare)(&pair, with)?;
    let _endpoint = Endpoint::start(&pair, settings.program)?;
    let mut command = pair.a.namespace.command(settings.program);
    command
        .args(["profile", &pair.b.ipv4.to_string(), "--json", "--quiet", "--time"])
        .arg(format!("{}s", settings.seconds))
        .args(["--hz", &settings.hz.to_string()])
        // Pacing timers (BBR) would run more or less often with the rate, and with the work.
        .args(["--congestion", "cubic"])
        .args((work.options)(with));
    let output = command.stderr(Stdio::piped()).output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let document: ProfileDocument = serde_json::from_slice(&output.stdout)?;
    cost(&document)
}

/// Account and layers of the same threads: what met others is on a busy host anybody's.
fn cost(document: &ProfileDocument) -> anyhow::Result<Cost> {
    let bytes = document.record.bytes() as f64;
    let reports = [&document.record.legs[0].sender, &document.record.legs[0].receiver];
    let profiles = [&document.sender, &document.receiver];
    let mut cost = Cost {
        accounted: 0.0,
        layers: BTreeMap::new(),
        printed: 0.0,
        gbit_per_s: document.record.throughput_bps().unwrap_or(0.0) / 1e9,
    };
    for (report, end) in reports.into_iter().zip(profiles) {
        let report = report.as_ref().context("an end gave no report")?;
        let end = end.as_ref().context("an end gave no profile")?;
        cost.accounted += report.cpu_seconds.total() * 1e9 / bytes;
        cost.printed += end.cpu_seconds * 1e9 / bytes;
        let each = 1e9 / f64::from(end.profile.hz.max(1)) / bytes;
        let stacks = end.profile.folded.iter();
        for stack in stacks.filter(|stack| stack.task == TaskClass::Flow) {
            for (layer, samples) in attribute(stack).share(stack.count) {
                *cost.layers.entry(layer).or_insert(0.0) += samples as f64 * each;
            }
        }
    }
    Ok(cost)
}

/// An endpoint that ends with the run.
struct Endpoint(Child);

impl Endpoint {
    fn start(pair: &Pair, program: &Path) -> anyhow::Result<Self> {
        let mut command = pair.b.namespace.command(program);
        command.args(["serve", "--quiet"]).stderr(Stdio::null());
        let endpoint = Self(command.spawn()?);
        let address: Ipv4Addr = pair.b.ipv4;
        let deadline = Instant::now() + Duration::from_secs(10);
        while pair.a.namespace.run(|| TcpStream::connect((address, PORT)))?.is_err() {
            if Instant::now() > deadline {
                bail!("the endpoint does not listen");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(endpoint)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
