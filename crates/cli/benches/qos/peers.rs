//! The same rules beside nftables, on UDP datagrams over a veth pair: the sender's time for each,
//! over that without any rules.

use linerate_core::units::SplitMix64;
use std::io::Write;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use linerate_qos::rules::Field;
use linerate_sys::bpf::{Attach, TcxLink};
use linerate_sys::netns::Pair;

use crate::loaded::Loaded;
use crate::median;
use crate::rules;

const DATAGRAMS: u32 = 100_000;
const BATCHES: u32 = 20;
const PORT: u16 = 5201;

type Conditions = Vec<Vec<(Field, (u32, u32))>>;

/// One way to have the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Nothing,
    Linerate,
    Linear,
    VerdictMap,
    IntervalMap,
}

/// Prints the table; whether all goals are met.
pub(crate) fn measure(runs: u32, seed: u64) -> anyhow::Result<bool> {
    if Command::new("nft").arg("--version").output().is_err() {
        eprintln!("SKIPPED: beside nftables: there is no nft (package `nftables`)");
        return Ok(true);
    }
    println!(
        "ns that a datagram costs its sender over a veth pair with no rules, median of {runs} \
         (range)\n"
    );
    let ranges = ranges(seed);
    let one =
        compare("1 rule", &rules::one(), &[Side::Linerate, Side::Linear, Side::VerdictMap], runs)?;
    let many =
        compare("1,000 ranges", &ranges, &[Side::Linerate, Side::Linear, Side::IntervalMap], runs)?;
    println!();
    // No more than half of nft's cost with one rule, than a twentieth of its best form with a
    // thousand.
    Ok(one <= 0.5 && many <= 0.05)
}

/// A thousand ranges of ports and destinations, the last of which takes what is sent.
fn ranges(seed: u64) -> Conditions {
    let mut dice = SplitMix64::new(seed);
    let range = |number: u32, dice: &mut SplitMix64| {
        let first = 0xc613_0000 + number * 32;
        let port = dice.below(60_000) as u32;
        vec![
            (Field::Destination, (first + 3, first + 3 + dice.below(20) as u32)),
            (Field::Protocol, (17, 17)),
            (Field::DestinationPort, (port, port + 77)),
        ]
    };
    let mut all: Conditions = (0..999).map(|number| range(number, &mut dice)).collect();
    all.push(vec![
        (Field::Destination, (0xc612_0002, 0xc612_0005)),
        (Field::Protocol, (17, 17)),
        (Field::DestinationPort, (5000, 5300)),
    ]);
    all
}

/// The ratio of linerate's added cost to the best of the others, all in turn over one pair of
/// hosts.
fn compare(title: &str, conditions: &Conditions, sides: &[Side], runs: u32) -> anyhow::Result<f64> {
    let pair = Pair::create()?;
    let bound = || UdpSocket::bind((pair.b.ipv4, PORT));
    let _receiver = pair.b.namespace.run(bound)??;
    let mut added = vec![Vec::new(); sides.len()];
    for _ in 0..runs {
        let nothing = once(&pair, Side::Nothing, conditions)?;
        for (side, figures) in sides.iter().zip(&mut added) {
            figures.push(once(&pair, *side, conditions)? - nothing);
        }
    }
    let mut medians = Vec::new();
    for (side, figures) in sides.iter().zip(added) {
        let (middle, least, most) = median(figures);
        println!("{title:14} {:>12} {middle:>8.0} ({least:.0} … {most:.0})", format!("{side:?}"));
        medians.push(middle);
    }
    let best = medians[1..].iter().copied().fold(f64::INFINITY, f64::min);
    let ratio = medians[0] / best;
    println!("{title:14} {:>12} {ratio:>8.2}", "ratio");
    Ok(ratio)
}

/// Nanoseconds of a datagram with these rules, which are gone afterwards.
fn once(pair: &Pair, side: Side, conditions: &Conditions) -> anyhow::Result<f64> {
    let index = pair.a.namespace.configure(|netlink| netlink.link(Pair::LINK))?.index;
    let place = Attach::TcxEgress;
    let _link = match side {
        Side::Linerate => {
            let loaded = Loaded::new(&rules::of(conditions.clone()), Some(place), None)?;
            let attach = || TcxLink::attach(&loaded.program, index, place);
            Some(pair.a.namespace.run(attach)??)
        }
        _ => None,
    };
    let script = script(side, conditions);
    if let Some(script) = &script {
        nft(pair, script)?;
    }
    let ns = pair.a.namespace.run(|| send(pair))??;
    if script.is_some() {
        nft(pair, "delete table netdev linerate\n")?;
    }
    Ok(ns)
}

/// The least of the batches: whatever disturbs one only adds to it.
fn send(pair: &Pair) -> anyhow::Result<f64> {
    let socket = UdpSocket::bind((pair.a.ipv4, 0))?;
    socket.connect((pair.b.ipv4, PORT))?;
    let message = [0; 18];
    let mut least = f64::INFINITY;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..DATAGRAMS / BATCHES {
            socket.send(&message)?;
        }
        let ns = begun.elapsed().as_nanos() as f64;
        least = least.min(ns / f64::from(DATAGRAMS / BATCHES));
    }
    Ok(least)
}

fn nft(pair: &Pair, script: &str) -> anyhow::Result<()> {
    let mut command = pair.a.namespace.command("nft");
    let mut child =
        command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("its input is a pipe")?;
    input.write_all(script.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nft: {errors}");
    Ok(())
}

/// The rules in nftables' language, at the same place.
fn script(side: Side, conditions: &Conditions) -> Option<String> {
    let chain = "type filter hook egress device \"veth0\" priority 0;";
    let marks: String = (0..8)
        .map(|number| format!("chain m{number} {{ counter ip dscp set {}; }}\n", 8 + number))
        .collect();
    let key = "ip daddr . udp dport";
    let body = match side {
        Side::Nothing | Side::Linerate => return None,
        Side::Linear => {
            let lines = conditions.iter().enumerate().map(|(number, rule)| {
                let dscp = 8 + number % 8;
                format!("{} counter ip dscp set {dscp} return\n", matches(rule))
            });
            format!("chain out {{ {chain}\n{} }}", lines.collect::<String>())
        }
        Side::VerdictMap | Side::IntervalMap => {
            let interval = if side == Side::IntervalMap { "flags interval;" } else { "" };
            let elements: Vec<_> = (conditions.iter().enumerate())
                .map(|(number, rule)| {
                    let destination = range_of(rule, Field::Destination, address);
                    let port = range_of(rule, Field::DestinationPort, |port| port.to_string());
                    format!("{destination} . {port} : goto m{}", number % 8)
                })
                .collect();
            format!(
                "{marks}map v {{ typeof {key} : verdict; {interval} elements = {{ {} }}; }}\n\
                 chain out {{ {chain}\n{key} vmap @v\n}}",
                elements.join(", ")
            )
        }
    };
    Some(format!("table netdev linerate {{\n{body}\n}}\n"))
}

fn matches(rule: &[(Field, (u32, u32))]) -> String {
    let part = |(field, _): &(Field, (u32, u32))| match field {
        Field::Source => format!("ip saddr {}", range_of(rule, *field, address)),
        Field::Destination => format!("ip daddr {}", range_of(rule, *field, address)),
        Field::DestinationPort => {
            format!("udp dport {}", range_of(rule, *field, |p| p.to_string()))
        }
        _ => String::new(),
    };
    rule.iter().map(part).collect::<Vec<_>>().join(" ")
}

fn range_of(rule: &[(Field, (u32, u32))], field: Field, written: impl Fn(u32) -> String) -> String {
    let range = rule.iter().find(|(of, _)| *of == field).map(|(_, range)| range);
    match range {
        None => String::new(),
        Some((first, last)) if first == last => written(*first),
        Some((first, last)) => format!("{}-{}", written(*first), written(*last)),
    }
}

fn address(number: u32) -> String {
    std::net::Ipv4Addr::from(number).to_string()
}
