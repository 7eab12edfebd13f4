//! Works of which it is known in which layer they are done.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, bail};
use linerate_core::profile::Layer;
use linerate_sys::ethtool::{Ethtool, Offload};
use linerate_sys::netns::{Host, Pair};

/// A work, and the transfer that it is added to.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) layer: Layer,
    /// MTU of the link, bytes: a large one leaves little but what is done with each byte.
    pub(crate) mtu: u32,
    /// Options of `profile`, with the work and without it.
    pub(crate) options: fn(bool) -> &'static [&'static str],
    /// What is done to the hosts before the run, with the work and without it.
    pub(crate) prepare: fn(&Pair, bool) -> anyhow::Result<()>,
    /// What this machine lacks for it.
    pub(crate) missing: fn() -> Option<String>,
}

/// Works that are large beside what else a transfer takes, so that what they displace elsewhere,
/// and the noise, are small beside them.
pub(crate) const WORKS: [Work; 4] = [
    Work {
        name: "checksum",
        what: "checksums by the CPU; segments are cut by the stack and not gathered on both sides",
        layer: Layer::Checksum,
        mtu: 65_535,
        options: |_| &[],
        prepare: |pair, with| {
            for host in [&pair.a, &pair.b] {
                offloads(
                    host,
                    &[
                        (Offload::TcpSegmentation, false),
                        (Offload::ScatterGather, false),
                        (Offload::TxChecksum, !with),
                    ],
                )?;
            }
            Ok(())
        },
        missing: || None,
    },
    Work {
        name: "filters",
        what: "1,000 filters of u32 in a row that no packet matches, before one class of HTB",
        layer: Layer::Queueing,
        mtu: 1500,
        options: |_| &[],
        prepare: |pair, with| {
            one_segment_each(&pair.a)?;
            let filters = if with { filters(1000) } else { String::new() };
            tc(&pair.a, &format!("{CLASS}{filters}"))
        },
        missing: || {
            let found = std::process::Command::new("tc").arg("-V").output();
            found.err().map(|error| format!("tc: {error}"))
        },
    },
    Work {
        name: "application",
        what: "the sender writes a pattern into every message and the receiver holds every byte \
            against it",
        layer: Layer::Application,
        mtu: 65_535,
        options: |with| if with { &["--verify"] } else { &[] },
        prepare: |_, _| Ok(()),
        missing: || None,
    },
    Work {
        name: "copy",
        what: "the receiver reads what came, against dropping it unread in as many calls \
            (--discard)",
        layer: Layer::Copy,
        mtu: 9000,
        options: |with| {
            if with { &["--size", "1MiB"] } else { &["--size", "1MiB", "--discard"] }
        },
        prepare: |_, _| Ok(()),
        missing: || None,
    },
];

fn offloads(host: &Host, settings: &[(Offload, bool)]) -> anyhow::Result<()> {
    host.namespace.run(|| {
        let device = Ethtool::open(Pair::LINK)?;
        settings.iter().try_for_each(|&(offload, on)| device.set_offload(offload, on))
    })??;
    Ok(())
}

/// A class that is never out of tokens: a watchdog would set a timer for each packet then, and in a
/// virtual machine interrupts that wait, those of the samples among them, are taken where it does
/// that.
const CLASS: &str = "qdisc add dev veth0 root handle 1: htb default 10\n\
    class add dev veth0 parent 1: classid 1:10 htb rate 100gbit burst 64mb cburst 64mb quantum \
    60000\n";

/// Each segment passes the filters by itself: TCP's segments are cut below them otherwise, whatever
/// the device can.
fn one_segment_each(host: &Host) -> anyhow::Result<()> {
    let mut command = host.namespace.command("ip");
    command.args(["link", "set", Pair::LINK, "gso_max_segs", "1"]);
    match command.status().context("ip")? {
        status if status.success() => Ok(()),
        status => bail!("ip: {status}"),
    }
}

fn filters(number: usize) -> String {
    let filter = |at: usize| {
        format!(
            "filter add dev veth0 parent 1: protocol ip prio 1 u32 match ip dst 198.19.{}.{}/32 \
             flowid 1:10\n",
            at / 250,
            at % 250 + 1
        )
    };
    (0..number).map(filter).collect()
}

fn tc(host: &Host, lines: &str) -> anyhow::Result<()> {
    let mut command = host.namespace.command("tc");
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn().context("tc")?;
    let mut input = child.stdin.take().context("tc takes no input")?;
    input.write_all(lines.as_bytes())?;
    drop(input);
    match child.wait()? {
        status if status.success() => Ok(()),
        status => bail!("tc: {status}"),
    }
}
