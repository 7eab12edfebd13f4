//! What was run, as JSON lines: one that says where and with which programs, then one for each run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;
use linerate_core::units::format_rfc3339;
use linerate_sys::proc::{cpu, machine};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::limits::Limits;
use crate::measurement::Measurement;
use crate::pair::Pair;
use crate::programs::{Peer, Places};

/// The circumstances of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) seed: u64,
    pub(crate) started_at: String,
    pub(crate) linerate: String,
    /// The peers that are there, with their versions.
    pub(crate) peers: BTreeMap<String, String>,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// Tasks that ran or wanted to in the minute before.
    pub(crate) load: f64,
    pub(crate) limits: Limits,
}

impl About {
    pub(crate) fn new(seed: u64, places: &Places) -> anyhow::Result<Self> {
        let peers = Peer::ALL.into_iter().filter_map(|peer| {
            let version = peer.version(places)?;
            Some((peer.name().to_owned(), version))
        });
        let model = cpu::CpuInfo::read().ok().and_then(|info| info.model);
        Ok(Self {
            seed,
            started_at: format_rfc3339(SystemTime::now()),
            linerate: env!("CARGO_PKG_VERSION").to_owned(),
            peers: peers.collect(),
            cpu: model.unwrap_or_else(|| "unknown".to_owned()),
            cpus: cpu::online().map_or(0, |cpus| cpus.len()),
            kernel: machine::kernel_release().unwrap_or_default(),
            load: machine::LoadAverage::read()?.one_minute,
            limits: Limits::measure()?,
        })
    }
}

/// A file of JSON lines that is being written.
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn create(path: &Path, about: &About) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {path:?}"))?;
        let mut log = Self(file);
        log.line(&json!({ "about": about }))?;
        Ok(log)
    }

    /// The runs of a benchmark, in the order in which they ran.
    pub(crate) fn write(&mut self, title: &str, pairs: &[Pair]) -> anyhow::Result<()> {
        for (number, pair) in pairs.iter().enumerate() {
            let mut runs = vec![("linerate", &pair.linerate)];
            if let Some(peer) = &pair.peer {
                runs.insert(usize::from(pair.linerate_first), ("peer", peer));
            }
            for (side, run) in runs {
                self.line(&json!({
                    "benchmark": title, "pair": number, "side": side, "run": run,
                }))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &Value) -> anyhow::Result<()> {
        writeln!(self.0, "{line}").context("cannot write the JSON lines")
    }
}

/// A session as it was written.
pub(crate) struct Written {
    pub(crate) about: About,
    /// By title, in the order in which they ran.
    pub(crate) benchmarks: Vec<(String, Vec<Pair>)>,
}

#[derive(Deserialize)]
struct Line {
    benchmark: String,
    pair: usize,
    side: String,
    run: Measurement,
}

impl Written {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path:?}"))?;
        let mut lines = text.lines();
        let mut first: Value = serde_json::from_str(lines.next().unwrap_or_default())
            .with_context(|| format!("{path:?} has no lines of --json"))?;
        let about = serde_json::from_value(first["about"].take())
            .with_context(|| format!("{path:?} does not begin with what it is about"))?;
        let mut benchmarks: Vec<(String, Vec<Pair>)> = Vec::new();
        for line in lines {
            let line: Line = serde_json::from_str(line).with_context(|| format!("{path:?}"))?;
            if benchmarks.last().is_none_or(|(title, _)| *title != line.benchmark) {
                benchmarks.push((line.benchmark, Vec::new()));
            }
            let pairs = &mut benchmarks.last_mut().context("just pushed")?.1;
            if line.pair == pairs.len() {
                pairs.push(Pair {
                    linerate: Measurement::default(),
                    peer: None,
                    linerate_first: line.side == "linerate",
                });
            }
            let pair = pairs.get_mut(line.pair).context("a pair is missing")?;
            if line.side == "linerate" {
                pair.linerate = line.run;
            } else {
                pair.peer = Some(line.run);
            }
        }
        Ok(Self { about, benchmarks })
    }
}
