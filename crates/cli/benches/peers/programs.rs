//! The programs: how each is started for a workload, and where its report has the figures.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use crate::cases::{Copies, DATAGRAM, Workload};
use crate::measurement::Measurement;
use crate::place::{End, Place};
use crate::process::{Ended, Listening, Process};

/// A program that linerate is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Iperf3,
    Nuttcp,
    Sockperf,
    Netperf,
    Neper,
}

/// Where the programs of peers are that are not the installed ones.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<&'static str, PathBuf>);

/// A side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Linerate,
    Peer(Peer),
}

/// A run: what, where, for how long, and on which CPUs.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) workload: Workload,
    pub(crate) place: &'a Place,
    pub(crate) programs: &'a Places,
    /// Server to CPU 0 and client to CPU 1.
    pub(crate) pin: bool,
}

impl Peer {
    pub(crate) const ALL: [Self; 5] =
        [Self::Iperf3, Self::Nuttcp, Self::Sockperf, Self::Netperf, Self::Neper];

    /// Its name, which is that of its package too, if there is one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Nuttcp => "nuttcp",
            Self::Sockperf => "sockperf",
            Self::Netperf => "netperf",
            Self::Neper => "neper",
        }
    }

    /// What it says about its version, or `None` if it is not there.
    pub(crate) fn version(self, places: &Places) -> Option<String> {
        let (program, option) = match self {
            Self::Iperf3 | Self::Sockperf => (self.name(), "--version"),
            Self::Nuttcp | Self::Netperf => (self.name(), "-V"),
            Self::Neper => ("tcp_rr", "--version"),
        };
        // Neper leaves a log where it runs.
        let directory = tempfile::tempdir().ok()?;
        let mut command = Command::new(places.program(self, program));
        let output = command.arg(option).current_dir(&directory).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .find(|line| !line.trim().is_empty())
            .map(|line| line.trim().to_owned())
            // Some builds of neper's do not say any.
            .or_else(|| (self == Self::Neper).then(|| "neper".to_owned()))
    }
}

impl Places {
    /// Parses NAME=PATH of each peer that is not the installed one.
    ///
    /// # Errors
    /// No peer has that name, or there is nothing at the path.
    pub(crate) fn parse(given: &[String]) -> anyhow::Result<Self> {
        let mut places = BTreeMap::new();
        for one in given {
            let (name, path) =
                one.split_once('=').with_context(|| format!("--peer {one} is not NAME=PATH"))?;
            let peer = Peer::ALL.into_iter().find(|peer| peer.name() == name);
            let peer = peer.with_context(|| format!("--peer {one}: no peer is called {name}"))?;
            let path = PathBuf::from(path);
            let path = path.canonicalize().with_context(|| format!("--peer {one}"))?;
            places.insert(peer.name(), path);
        }
        Ok(Self(places))
    }

    /// Of a peer: the path is that of the program called like it, with the others beside it, or of
    /// a directory that has them all.
    fn program(&self, peer: Peer, program: &str) -> String {
        let path = match self.0.get(peer.name()) {
            None => PathBuf::from(program),
            Some(directory) if directory.is_dir() => directory.join(program),
            Some(path) => path.with_file_name(program),
        };
        path.to_string_lossy().into_owned()
    }
}

impl Run<'_> {
    fn command(&self, end: End, peer: Peer, program: &str) -> Command {
        self.place.command(end, &self.programs.program(peer, program))
    }
}

impl Program {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Linerate => "linerate",
            Self::Peer(peer) => peer.name(),
        }
    }

    /// Runs server and client once.
    ///
    /// # Errors
    /// One of them cannot be started, fails, hangs, or reports what is not understood.
    pub(crate) fn run(self, run: Run<'_>) -> anyhow::Result<Measurement> {
        let measured = match self {
            Self::Linerate => linerate(run),
            Self::Peer(Peer::Iperf3) => iperf3(run),
            Self::Peer(Peer::Nuttcp) => nuttcp(run),
            Self::Peer(Peer::Sockperf) => sockperf(run),
            Self::Peer(Peer::Netperf) => netperf(run),
            Self::Peer(Peer::Neper) => neper(run),
        };
        let name = self.name();
        let measurement = measured.with_context(|| format!("{name}, {:?}", run.workload))?;
        if measurement.units > 0.0 && measurement.seconds > 0.0 {
            Ok(measurement)
        } else {
            Err(anyhow!("{name} moved nothing: {measurement:?}"))
        }
    }
}

/// How long a client may take over a run of [`SECONDS`].
const LIMIT: Duration = Duration::from_secs(20);

/// How long a server may take to see that its only client is gone.
const GRACE: Duration = Duration::from_secs(1);

/// Length of a run, the shortest that all peers know.
const SECONDS: &str = "1";

fn linerate(run: Run<'_>) -> anyhow::Result<Measurement> {
    let [port] = run.place.free_ports()?;
    let program = env!("CARGO_BIN_EXE_linerate");
    let mut server = run.place.command(End::Server, program);
    server.args(["serve", "--one-off", "--quiet", "-4", "--port"]);
    server.arg(port.to_string());
    if let Workload::Stock { udp, down } = run.workload {
        return stock(run, server, port, udp, down);
    }
    let mut client = run.place.command(End::Client, program);
    // No warm-up: the CPU time is that of the whole run, so the bytes must be, too. The peers have
    // none either.
    let common = ["--json", "--quiet", "--warm-up", "0s", "--time"];
    client.args(linerate_arguments(run.workload).split_whitespace());
    client.args(common).arg(format!("{SECONDS}s"));
    client.arg(format!("{}:{port}", run.place.server_address()));
    let (client, server) = both(run, server, Listening::Tcp(port), client)?;
    let record = json(&client)?;
    let (units, bytes) = match run.workload {
        Workload::Stream { message, .. } => {
            let bytes = number(&record, "/bytes")?;
            (bytes / message as f64, bytes)
        }
        Workload::Datagrams { bytes, .. } => {
            let received = number(&record, "/udp/received")?;
            (received, received * bytes as f64)
        }
        Workload::Requests { .. } | Workload::Connections { .. } => {
            let transactions = number(&record, "/transactions")?;
            (transactions, transactions)
        }
        Workload::Stock { .. } => bail!("has a client of its own"),
    };
    let optional = |path: &str| number(&record, path).ok();
    let share = |part: &str, whole: &str| Some(optional(part)? / optional(whole)?);
    Ok(Measurement {
        bytes,
        units,
        seconds: number(&record, "/seconds")?,
        p50_us: optional("/latency_us/p50"),
        p99_us: optional("/latency_us/p99"),
        loss_percent: share("/udp/lost", "/udp/sent").map(|share| share * 100.0),
        gap_spread: share("/udp/gaps_us/p99", "/udp/gaps_us/p50"),
        method: record.pointer("/sender/method").and_then(Value::as_str).map(str::to_owned),
        ..costs(&client, &server)
    })
}

/// The command and its options, none of which holds a blank.
fn linerate_arguments(workload: Workload) -> String {
    match workload {
        Workload::Stream { message, copies, flows, batch } => {
            let spared = match copies {
                Copies::Both => "",
                Copies::ReceiverOnly => "--zerocopy",
                Copies::None => "--zerocopy --discard",
            };
            let batch = if batch > 1 { format!("--batch {batch}") } else { String::new() };
            format!("stream --size {message} -P {flows} {spared} {batch}")
        }
        Workload::Datagrams { bytes, per_second, offload } => {
            let offload = if offload { "--offload" } else { "--no-offload" };
            let rate = per_second.map_or_else(String::new, |per_second| {
                format!("--rate {}bit", per_second * bytes * 8)
            });
            format!("stream --protocol udp --size {bytes} {offload} {rate}")
        }
        Workload::Requests { udp, spin, flows, depth } => {
            let protocol = if udp { "udp" } else { "tcp" };
            let spin = if spin { "--spin" } else { "" };
            format!(
                "rr --protocol {protocol} --request 1 --response 1 -P {flows} --depth {depth} \
                 {spin}"
            )
        }
        Workload::Connections { flows } => format!("crr --request 1 --response 1 -P {flows}"),
        // Its client is iperf3's.
        Workload::Stock { .. } => String::new(),
    }
}

fn iperf3(run: Run<'_>) -> anyhow::Result<Measurement> {
    let [port] = run.place.free_ports()?;
    let mut server = run.command(End::Server, Peer::Iperf3, "iperf3");
    server.args(["-s", "-1", "-4", "-p", &port.to_string()]);
    if let Workload::Stock { udp, down } = run.workload {
        return stock(run, server, port, udp, down);
    }
    let mut client = run.command(End::Client, Peer::Iperf3, "iperf3");
    client.args(["-J", "-t", SECONDS, "-p", &port.to_string()]);
    client.args(["-c", &run.place.server_address().to_string()]);
    let unit = match run.workload {
        Workload::Stream { message, copies, flows, .. } => {
            client.args(["-l", &message.to_string(), "-P", &flows.to_string()]);
            if copies != Copies::Both {
                client.arg("-Z");
            }
            message
        }
        Workload::Datagrams { bytes, per_second: None, offload } => {
            client.args(["-u", "-b", "0", "-l", &bytes.to_string()]);
            if offload && has_offload(run) {
                client.arg("--gsro");
            }
            bytes
        }
        other => bail!("has no {other:?}"),
    };
    let (client, server) = both(run, server, Listening::Tcp(port), client)?;
    let report = json(&client)?;
    let mut bytes = number(&report, "/end/sum_received/bytes")?;
    let mut loss_percent = None;
    if matches!(run.workload, Workload::Datagrams { .. }) {
        // What it calls received bytes includes some of the lost: datagrams are counted.
        let sent = number(&report, "/end/sum/packets")?;
        let lost = number(&report, "/end/sum/lost_packets")?;
        bytes = (sent - lost) * unit as f64;
        loss_percent = Some(lost / sent * 100.0);
    }
    Ok(Measurement {
        bytes,
        units: bytes / unit as f64,
        seconds: number(&report, "/end/sum_received/seconds")?,
        loss_percent,
        ..costs(&client, &server)
    })
}

/// Whether this iperf3 has UDP's segmentation offload.
fn has_offload(run: Run<'_>) -> bool {
    let program = run.programs.program(Peer::Iperf3, "iperf3");
    let help = Command::new(program).arg("--help").output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--gsro"))
}

/// A client of iperf3's with its defaults, against `server`.
fn stock(
    run: Run<'_>,
    server: Command,
    port: u16,
    udp: bool,
    down: bool,
) -> anyhow::Result<Measurement> {
    let mut client = run.command(End::Client, Peer::Iperf3, "iperf3");
    client.args(["-J", "-t", SECONDS, "-p", &port.to_string()]);
    client.args(["-c", &run.place.server_address().to_string()]);
    client.args(down.then_some("-R"));
    if udp {
        client.args(["-u", "-b", "0", "-l", &DATAGRAM.to_string()]);
    }
    let (client, server) = both(run, server, Listening::Tcp(port), client)?;
    let report = json(&client)?;
    let mut bytes = number(&report, "/end/sum_received/bytes")?;
    let mut loss_percent = None;
    if udp {
        let sent = number(&report, "/end/sum/packets")?;
        let lost = number(&report, "/end/sum/lost_packets")?;
        bytes = (sent - lost) * DATAGRAM as f64;
        loss_percent = Some(lost / sent * 100.0);
    }
    let (sender, receiver) = if down { (&server, &client) } else { (&client, &server) };
    Ok(Measurement {
        bytes,
        units: bytes,
        seconds: number(&report, "/end/sum_received/seconds")?,
        loss_percent,
        ..costs(sender, receiver)
    })
}

fn nuttcp(run: Run<'_>) -> anyhow::Result<Measurement> {
    let Workload::Stream { message, copies: Copies::Both, flows: 1, .. } = run.workload else {
        bail!("has no {:?}", run.workload);
    };
    let [control, data] = run.place.free_ports()?;
    let ports = [format!("-P{control}"), format!("-p{data}")];
    let mut server = run.command(End::Server, Peer::Nuttcp, "nuttcp");
    server.args(["-Sf", "--nofork"]).args(&ports);
    let mut client = run.command(End::Client, Peer::Nuttcp, "nuttcp");
    client.args(["-t", "-fparse", &format!("-T{SECONDS}")]);
    client.args(&ports).arg(format!("-l{message}"));
    client.arg(run.place.server_address().to_string());
    let server = start_server(run, server, Listening::Tcp(control))?;
    let client = run_client(run, client)?;
    // It would serve others for ever.
    let server = server.end(Duration::ZERO)?;
    let value = |key: &str| -> anyhow::Result<f64> {
        let mut words = client.output.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let value = value.with_context(|| format!("no {key} in {}", client.output))?;
        value.parse().with_context(|| format!("{key}={value}"))
    };
    let bytes = value("megabytes")? * f64::from(1 << 20);
    Ok(Measurement {
        bytes,
        units: bytes / message as f64,
        // Its seconds have two decimals, its rate has four.
        seconds: bytes * 8.0 / 1e6 / value("rate_Mbps")?,
        ..costs(&client, &server)
    })
}

fn sockperf(run: Run<'_>) -> anyhow::Result<Measurement> {
    let Workload::Requests { udp, spin, flows: 1, depth: 1 } = run.workload else {
        bail!("has no {:?}", run.workload);
    };
    let [port] = run.place.free_ports()?;
    let address = run.place.server_address().to_string();
    let options = |end, mode: &str| {
        let mut command = run.command(end, Peer::Sockperf, "sockperf");
        command.args([mode, "-i", &address, "-p", &port.to_string()]);
        command.args((!udp).then_some("--tcp"));
        command.args(spin.then_some("--nonblocked"));
        command
    };
    let server = options(End::Server, "server");
    let mut client = options(End::Client, "ping-pong");
    client.args(["--full-rtt", "-t", SECONDS]);
    // Its messages have a header of 14 bytes, which is the least that it sends.
    let listening = if udp { Listening::Udp } else { Listening::Tcp };
    let server = start_server(run, server, listening(port))?;
    let client = run_client(run, client)?;
    let server = server.end(Duration::ZERO)?;
    let text = &client.output;
    let after = |line: &str, key: &str| -> anyhow::Result<f64> {
        let line = text.lines().find(|candidate| candidate.contains(line));
        let rest = line.and_then(|line| line.split_once(key));
        let (_, rest) = rest.with_context(|| format!("no {key} in {text}"))?;
        let value = rest.trim_start_matches([' ', '=']);
        let end = value.find(|c: char| !c.is_ascii_digit() && c != '.');
        let value = &value[..end.unwrap_or(value.len())];
        value.parse().with_context(|| format!("{key} {value}"))
    };
    let transactions = after("[Valid Duration]", "ReceivedMessages")?;
    Ok(Measurement {
        bytes: transactions,
        units: transactions,
        seconds: after("[Valid Duration]", "RunTime")?,
        p50_us: Some(after("percentile 50.000", "50.000")?),
        p99_us: Some(after("percentile 99.000", "99.000")?),
        ..costs(&client, &server)
    })
}

fn netperf(run: Run<'_>) -> anyhow::Result<Measurement> {
    let [port] = run.place.free_ports()?;
    let mut server = run.command(End::Server, Peer::Netperf, "netserver");
    server.args(["-D", "-f", "-4", "-p", &port.to_string()]);
    let mut client = run.command(End::Client, Peer::Netperf, "netperf");
    client.args(["-4", "-P", "0", "-l", SECONDS, "-p", &port.to_string()]);
    client.args(["-H", &run.place.server_address().to_string(), "-t"]);
    let message = match run.workload {
        Workload::Stream { message, copies: Copies::Both, flows: 1, .. } => {
            client.args(["TCP_STREAM", "--", "-m", &message.to_string()]);
            Some(message)
        }
        Workload::Requests { udp: false, spin: false, flows: 1, depth } => {
            client.args(["TCP_RR", "--", "-D", "-r", "1,1"]);
            if depth > 1 {
                client.args(["-b", &(depth - 1).to_string()]);
            }
            None
        }
        Workload::Connections { flows: 1 } => {
            client.args(["TCP_CRR", "--", "-r", "1,1"]);
            None
        }
        other => bail!("has no {other:?}"),
    };
    let server = start_server(run, server, Listening::Tcp(port))?;
    let client = run_client(run, client)?;
    let server = server.end(Duration::ZERO)?;
    // Sizes first, then for TCP_STREAM seconds and Mbit/s, for the others seconds and
    // transactions/s.
    let skipped = if message.is_some() { 3 } else { 4 };
    let words: Vec<f64> =
        client.output.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [seconds, rate, ..] = words.get(skipped..).unwrap_or_default() else {
        bail!("what it says is not understood: {}", client.output);
    };
    let bytes = match message {
        Some(_) => rate * 1e6 / 8.0 * seconds,
        None => rate * seconds,
    };
    Ok(Measurement {
        bytes,
        units: bytes / message.unwrap_or(1) as f64,
        seconds: *seconds,
        ..costs(&client, &server)
    })
}

fn neper(run: Run<'_>) -> anyhow::Result<Measurement> {
    let (program, flows) = match run.workload {
        Workload::Requests { udp: false, spin: false, flows, depth: 1 } => ("tcp_rr", flows),
        Workload::Connections { flows } => ("tcp_crr", flows),
        other => bail!("has no {other:?}"),
    };
    let [control, data] = run.place.free_ports()?;
    // It leaves logs where it runs.
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    // More threads than CPUs only slow it down.
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let command = |end| {
        let mut command = run.command(end, Peer::Neper, program);
        command.current_dir(&directory);
        command.args(["-4", "--nolog", "-l", SECONDS, "-F", &flows.to_string()]);
        command.args(["-T", &flows.min(cpus).to_string()]);
        command.args(["-C", &control.to_string(), "-P", &data.to_string()]);
        // Connections end as all others', not by a reset.
        command.args((program == "tcp_crr").then_some("--time-wait"));
        command
    };
    let server = command(End::Server);
    let mut client = command(End::Client);
    client.args(["-c", "-H", &run.place.server_address().to_string()]);
    let (client, server) = both(run, server, Listening::Tcp(control), client)?;
    let value = |key: &str| -> anyhow::Result<f64> {
        let mut lines = client.output.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let value = value.with_context(|| format!("no {key} in {}", client.output))?;
        value.parse().with_context(|| format!("{key}={value}"))
    };
    let (transactions, rate) = (value("num_transactions")?, value("throughput")?);
    Ok(Measurement {
        bytes: transactions,
        units: transactions,
        seconds: transactions / rate,
        ..costs(&client, &server)
    })
}

/// Runs a client against a server that ends with its first client.
fn both(
    run: Run<'_>,
    server: Command,
    listening: Listening,
    client: Command,
) -> anyhow::Result<(Ended, Ended)> {
    let server = start_server(run, server, listening)?;
    let client = run_client(run, client)?;
    Ok((client, server.end(GRACE)?))
}

fn start_server(run: Run<'_>, server: Command, listening: Listening) -> anyhow::Result<Process> {
    let mut server = Process::start(server, run.pin.then_some(0))?;
    server.wait_until_listening(listening)?;
    Ok(server)
}

fn run_client(run: Run<'_>, client: Command) -> anyhow::Result<Ended> {
    let client = Process::start(client, run.pin.then_some(1))?.wait(LIMIT)?;
    if !client.status.success() {
        bail!("the client failed ({}): {}", client.status, client.output);
    }
    Ok(client)
}

/// The client sends in all workloads but one.
fn costs(sender: &Ended, receiver: &Ended) -> Measurement {
    Measurement {
        sender_cpu_s: sender.cpu.as_secs_f64(),
        receiver_cpu_s: receiver.cpu.as_secs_f64(),
        ..Measurement::default()
    }
}

fn json(client: &Ended) -> anyhow::Result<Value> {
    serde_json::from_str(&client.output).with_context(|| format!("not JSON: {}", client.output))
}

fn number(document: &Value, path: &str) -> anyhow::Result<f64> {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("no number {path} in the report"))
}
