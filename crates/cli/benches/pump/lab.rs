//! The pump's side: `linerate --lab`, and a lab in which several programs run.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::cases::{Figures, Missing};
use crate::process::{Ended, Listening, Process};

/// The program that is measured.
pub(crate) const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");
/// What takes longer hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// A saturating stream: 2 s after half a second.
pub(crate) const STREAM: &str =
    "stream -4 --json --quiet --time 2s --warm-up 500ms --interval 100ms";
/// A port that nothing else listens on in a namespace of our own.
pub(crate) const PORT: u16 = 5913;

/// What stands in the way of a lab.
///
/// # Errors
/// The program does not start, or fails for another reason.
pub(crate) fn missing() -> anyhow::Result<Option<Missing>> {
    let mut trial = Command::new(LINERATE);
    trial.args("rr --lab rtt=0s --count 1 --quiet".split_whitespace());
    let ended = Process::start(trial, None)?.wait(LIMIT)?;
    match ended.status.code() {
        Some(0) => Ok(None),
        Some(3) => Ok(Some(Missing(ended.output.trim().to_owned()))),
        _ => bail!("no lab ({}): {}", ended.status, ended.output),
    }
}

/// A stream over a path, with the rate that it is held to if it is.
pub(crate) fn stream(spec: &str, rate_mbps: Option<u32>) -> anyhow::Result<Figures> {
    let mut command = Command::new(LINERATE);
    command.args(STREAM.split_whitespace());
    command.args(["--lab", spec]);
    let ended = Process::start(command, None)?.wait(LIMIT)?;
    let record = json(&ended)?;
    let mut figures = stream_figures(&record, rate_mbps)?;
    if rate_mbps.is_none() {
        let both = ["up", "down"].map(|direction| {
            number(&record, &format!("/environment/lab/links/0/{direction}/delivered"))
        });
        let [up, down] = both;
        // Of the whole run, warm-up included.
        figures.push(("carried, thousand frames/s", (up? + down?) / 2.5 / 1e3));
    }
    Ok(figures)
}

/// What a stream's record says, the same on both sides. CPU time is not compared: a lab keeps its
/// CPUs awake with threads that run when nothing else does, and they count.
pub(crate) fn stream_figures(record: &Value, rate_mbps: Option<u32>) -> anyhow::Result<Figures> {
    let goodput = number(record, "/throughput_bps")?;
    Ok(match rate_mbps {
        None => vec![("goodput, Gbit/s", goodput / 1e9)],
        Some(rate) => {
            // A full packet has 1448 bytes of payload and takes 1514.
            let wire = goodput * 1514.0 / 1448.0;
            vec![("rate held, % of nominal", wire / f64::from(rate) / 1e4)]
        }
    })
}

/// Round trips over a delay and how late the pump was, beside a stream.
pub(crate) fn delay(rtt_ms: u32, load_mbps: u32) -> anyhow::Result<Figures> {
    let lab = Lab::up(&format!("rtt={rtt_ms}ms"))?;
    let command = |host: &str| lab.command(&["exec", host, "--", LINERATE]);
    let mut figures = round_trips(command, "server", rtt_ms, load_mbps)?;
    let status = json(&lab.run(&["status", "--json"])?)?;
    for (name, key) in
        [("one way late p50, µs", "lateness_p50_us"), ("one way late p99, µs", "lateness_p99_us")]
    {
        let place = format!("/labs/0/links/0/up/{key}");
        figures.push((name, number(&status, &place)?));
    }
    Ok(figures)
}

/// Round trips of a byte for 3 s, less the delay, beside a stream that begins before and ends after
/// them.
pub(crate) fn round_trips(
    command: impl Fn(&str) -> Command,
    server: &str,
    rtt_ms: u32,
    load_mbps: u32,
) -> anyhow::Result<Figures> {
    let mut endpoint = command("server");
    endpoint.args(["serve", "-4", "--quiet", "--port", &PORT.to_string()]);
    let mut endpoint = Process::start(endpoint, None)?;
    endpoint.wait_until_listening(Listening::Tcp(PORT))?;
    let target = format!("{server}:{PORT}");
    let load = (load_mbps > 0).then(|| {
        let mut load = command("client");
        load.args("stream -4 --quiet --protocol udp --time 4s --rate".split_whitespace());
        load.args([&format!("{load_mbps}mbit"), &target]);
        Process::start(load, None)
    });
    let load = load.transpose()?;
    if load.is_some() {
        std::thread::sleep(Duration::from_millis(500));
    }
    let mut client = command("client");
    client.args("rr -4 --json --quiet --warm-up 300ms --time 3s".split_whitespace());
    client.arg(&target);
    let record = json(&Process::start(client, None)?.wait(LIMIT)?)?;
    if let Some(load) = load {
        let ended = load.wait(LIMIT)?;
        if !ended.status.success() {
            bail!("the load failed ({}): {}", ended.status, ended.output);
        }
    }
    endpoint.end(Duration::ZERO)?;
    let nominal = f64::from(rtt_ms) * 1e3;
    let error = |quantile: &str| -> anyhow::Result<f64> {
        Ok(number(&record, &format!("/latency_us/{quantile}"))? - nominal)
    };
    Ok(vec![
        ("round trip error p50, µs", error("p50")?),
        ("round trip error p99, µs", error("p99")?),
    ])
}

/// A lab in the background, with its files in a directory of its own.
struct Lab {
    runtime: TempDir,
}

impl Lab {
    fn up(spec: &str) -> anyhow::Result<Self> {
        let runtime = tempfile::tempdir().context("cannot make a temporary directory")?;
        let lab = Self { runtime };
        let up = lab.run(&["up", "--lab", spec])?;
        if !up.status.success() {
            bail!("no lab ({}): {}", up.status, up.output);
        }
        Ok(lab)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(LINERATE);
        command.env("XDG_RUNTIME_DIR", self.runtime.path());
        command.arg("lab").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<Ended> {
        Process::start(self.command(arguments), None)?.wait(LIMIT)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down", "--all"]) {
            eprintln!("a lab may be left: {error:#}");
        }
    }
}

/// The document that a program printed.
///
/// # Errors
/// It failed, or printed none.
pub(crate) fn json(ended: &Ended) -> anyhow::Result<Value> {
    if !ended.status.success() {
        bail!("it failed ({}): {}", ended.status, ended.output);
    }
    // Warnings may stand before it.
    let begin = ended.output.find('{').unwrap_or(0);
    let mut documents = serde_json::Deserializer::from_str(&ended.output[begin..]).into_iter();
    let document: Option<Result<Value, _>> = documents.next();
    document.context("no document")?.with_context(|| format!("not JSON: {}", ended.output))
}

/// A number of a document.
///
/// # Errors
/// There is none at `path`.
pub(crate) fn number(document: &Value, path: &str) -> anyhow::Result<f64> {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("no number {path} in the document"))
}
