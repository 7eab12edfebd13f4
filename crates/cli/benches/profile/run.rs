//! One profiled transfer in fresh namespaces.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use linerate_core::profile::{Layer, ProfileDocument};
use linerate_core::record::EndReport;
use linerate_sys::netns::Pair;

use crate::works::Work;

/// What a transfer took of both ends together, ns for each byte of payload.
pub(crate) struct Cost {
    /// CPU time of the ends' threads by the kernel's account; over veth, soft interrupts run in them.
    pub(crate) accounted: f64,
    /// By the profile.
    pub(crate) layers: BTreeMap<Layer, f64>,
}

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");
const PORT: u16 = 5201;

/// Profiles one transfer with or without the work.
pub(crate) fn run(work: &Work, with: bool, seconds: u32) -> anyhow::Result<Cost> {
    let pair = Pair::create()?;
    (work.prepare)(&pair, with)?;
    let _endpoint = Endpoint::start(&pair)?;
    let mut command = pair.a.namespace.command(LINERATE);
    command
        .args([
            "profile",
            &pair.b.ipv4.to_string(),
            "--json",
            "--quiet",
            "--time",
        ])
        .arg(format!("{seconds}s"))
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

fn cost(document: &ProfileDocument) -> anyhow::Result<Cost> {
    let bytes = document.record.bytes as f64;
    let cpu = |end: &Option<EndReport>| {
        let end = end.as_ref().context("an end gave no report")?;
        anyhow::Ok(end.cpu_seconds.user + end.cpu_seconds.system)
    };
    let seconds = cpu(&document.record.sender)? + cpu(&document.record.receiver)?;
    let mut layers = BTreeMap::new();
    for end in [&document.sender, &document.receiver] {
        let end = end.as_ref().context("an end gave no profile")?;
        for cost in end.layers.iter().filter(|cost| cost.layer != Layer::Idle) {
            *layers.entry(cost.layer).or_insert(0.0) += cost.cpu_seconds * 1e9 / bytes;
        }
    }
    Ok(Cost {
        accounted: seconds * 1e9 / bytes,
        layers,
    })
}

/// An endpoint that ends with the run.
struct Endpoint(Child);

impl Endpoint {
    fn start(pair: &Pair) -> anyhow::Result<Self> {
        let mut command = pair.b.namespace.command(LINERATE);
        command.args(["serve", "--quiet"]).stderr(Stdio::null());
        let endpoint = Self(command.spawn()?);
        let address: Ipv4Addr = pair.b.ipv4;
        let deadline = Instant::now() + Duration::from_secs(10);
        while pair
            .a
            .namespace
            .run(|| TcpStream::connect((address, PORT)))?
            .is_err()
        {
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
