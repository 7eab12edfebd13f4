//! The kernel's side: a veth pair between two namespaces, with a queueing discipline of `tc` on it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use linerate_sys::netns::{Host, Pair};

use crate::cases::{Figures, Missing};
use crate::lab::{LIMIT, LINERATE, PORT, STREAM, json, round_trips, stream_figures};
use crate::process::{Listening, Process};

/// What stands on the interfaces.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shaper {
    /// Nothing: what the pair carries by itself.
    None,
    /// tc-tbf(8) at the client, with the queue of a lab without a delay, 100 full packets.
    Tbf { rate_mbps: u32 },
    /// tc-htb(8) at the client, with such a queue below it.
    Htb { rate_mbps: u32 },
    /// tc-netem(8), half of the round trip at each end.
    Netem { rtt_ms: u32 },
}

impl Shaper {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "veth",
            Self::Tbf { .. } => "tbf",
            Self::Htb { .. } => "htb",
            Self::Netem { .. } => "netem",
        }
    }

    /// The commands that set it up, and whether at both ends.
    fn commands(self) -> (Vec<String>, bool) {
        let root = format!("qdisc add dev {} root", Pair::LINK);
        match self {
            Self::None => (Vec::new(), false),
            Self::Tbf { rate_mbps } => {
                // The least burst with which the timer's slack costs nothing: 1 ms, and a frame of
                // offload.
                let burst = (rate_mbps * 125).max(65_536);
                let limit = 151_400;
                let tbf = format!("{root} tbf rate {rate_mbps}mbit burst {burst} limit {limit}");
                (vec![tbf], false)
            }
            Self::Htb { rate_mbps } => {
                let class = format!("class add dev {} parent 1: classid 1:1", Pair::LINK);
                let leaf = format!("qdisc add dev {} parent 1:1 pfifo limit 100", Pair::LINK);
                let commands = vec![
                    format!("{root} handle 1: htb default 1"),
                    format!("{class} htb rate {rate_mbps}mbit"),
                    leaf,
                ];
                (commands, false)
            }
            Self::Netem { rtt_ms } => {
                let half_us = rtt_ms * 500;
                (vec![format!("{root} netem delay {half_us}us limit 10000")], true)
            }
        }
    }
}

/// What this host lacks for it.
///
/// # Errors
/// It cannot be found out.
pub(crate) fn missing(shaper: Shaper) -> anyhow::Result<Option<Missing>> {
    if matches!(shaper, Shaper::None) {
        return Ok(None);
    }
    if Command::new("tc").arg("-V").output().is_err() {
        return Ok(Some(Missing("tc is not installed: the package is iproute2".to_owned())));
    }
    match pair(shaper) {
        Ok(_) => Ok(None),
        Err(error) if error.to_string().contains("unknown") => {
            let name = shaper.name();
            Ok(Some(Missing(format!("this kernel has no {name}"))))
        }
        Err(error) => Err(error),
    }
}

/// A stream from one namespace to the other.
pub(crate) fn stream(shaper: Shaper, rate_mbps: Option<u32>) -> anyhow::Result<Figures> {
    let pair = pair(shaper)?;
    let mut server = pair.b.namespace.command(LINERATE);
    server.args(["serve", "--one-off", "--quiet", "-4", "--port"]);
    server.arg(PORT.to_string());
    let mut server = Process::start(server, None)?;
    server.wait_until_listening(Listening::Tcp(PORT))?;
    let mut client = pair.a.namespace.command(LINERATE);
    client.args(STREAM.split_whitespace());
    client.arg(format!("{}:{PORT}", pair.b.ipv4));
    let client = Process::start(client, None)?.wait(LIMIT)?;
    server.end(Duration::from_secs(1))?;
    stream_figures(&json(&client)?, rate_mbps)
}

/// Round trips from one namespace to the other, beside a stream.
pub(crate) fn delay(shaper: Shaper, rtt_ms: u32, load_mbps: u32) -> anyhow::Result<Figures> {
    let pair = pair(shaper)?;
    let command = |host: &str| {
        let host = if host == "server" { &pair.b } else { &pair.a };
        host.namespace.command(LINERATE)
    };
    round_trips(command, &pair.b.ipv4.to_string(), rtt_ms, load_mbps)
}

/// Two namespaces with the discipline between them; it goes with them.
fn pair(shaper: Shaper) -> anyhow::Result<Pair> {
    let pair = Pair::create().context("cannot make namespaces")?;
    let (commands, is_for_both) = shaper.commands();
    for command in commands {
        tc(&pair.a, &command)?;
        if is_for_both {
            tc(&pair.b, &command)?;
        }
    }
    Ok(pair)
}

fn tc(host: &Host, arguments: &str) -> anyhow::Result<()> {
    let mut command = host.namespace.command("tc");
    command.args(arguments.split_whitespace());
    let output = command.output().context("cannot start tc")?;
    if !output.status.success() {
        bail!("tc {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
