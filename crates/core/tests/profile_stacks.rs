//! The table of functions against stacks of real transfers.
//!
//! Each file of `data/stacks/` is a call tree: 700 samples, drawn without bias from 2 s at 1,999
//! samples a second of each of two CPUs (Linux 6.18, x86-64, a virtual machine; congestion control
//! BBR unless the name says otherwise). A line is the depth, the function and how many samples were
//! taken in it; depth 0 is whose thread it was. Idle time, other processes and kernel threads that
//! have nothing to do with the network were left out. The names say what was sent: over loopback or
//! veth, with segmentation offload (`no_tso`, `no_gso`) or checksum offload (`no_checksum`) off,
//! GRO on, through HTB, TBF, 1,000 filters or eBPF programs.

use std::collections::BTreeMap;
use std::path::Path;

use linerate_core::profile::attribution::{Owner, Place, Role, attribute, owner};
use linerate_core::profile::{FoldedStack, Layer, TaskClass};

/// A stack of a run: whose thread, frames from leaf to root, samples.
type Stack = (String, Vec<String>, u64);

/// Depth-first lines of a tree.
fn read(text: &str) -> Vec<Stack> {
    let mut path: Vec<String> = Vec::new();
    let mut stacks = Vec::new();
    for line in text.lines() {
        let mut fields = line.split(' ');
        let depth: usize = fields
            .next()
            .and_then(|field| field.parse().ok())
            .expect("each line begins with its depth");
        path.truncate(depth);
        path.push(fields.next().expect("a name follows").to_owned());
        if let Some(count) = fields.next() {
            let leaf_first: Vec<String> = path[1..].iter().rev().cloned().collect();
            let count = count.parse().expect("the last field is a count");
            stacks.push((path[0].clone(), leaf_first, count));
        }
    }
    stacks
}

/// A run, as the profiler of one end sees it.
fn seen_by(role: Role, tree: &[Stack]) -> Vec<FoldedStack> {
    let own = match role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    };
    tree.iter()
        .map(|(thread, frames, count)| {
            let entered = frames.iter().position(|name| name == "handle_softirqs");
            let kernel = frames.iter().filter(|name| *name != "[user]").count();
            FoldedStack {
                frames: frames.clone(),
                softirq_frames: entered.map_or(0, |at| at as u32 + 1),
                kernel_frames: kernel as u32,
                task: match thread.as_str() {
                    name if name == own => TaskClass::Flow,
                    "kernel" => TaskClass::Kernel,
                    "idle" => TaskClass::Idle,
                    _ => TaskClass::Other,
                },
                count: *count,
            }
        })
        .collect()
}

fn runs() -> BTreeMap<String, Vec<Stack>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stacks");
    let entries = std::fs::read_dir(directory).expect("the stacks are there");
    entries
        .map(|entry| {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_stem().expect("it has a name").to_string_lossy();
            let text = std::fs::read_to_string(&path).expect("it is text");
            (name.into_owned(), read(&text))
        })
        .collect()
}

/// Shares of the layers in what one end owns, percent; and its samples.
fn layers(role: Role, tree: &[Stack]) -> (BTreeMap<Layer, f64>, u64) {
    let mut counts: BTreeMap<Layer, u64> = BTreeMap::new();
    for stack in seen_by(role, tree) {
        if owner(&stack, role, Place::Here) == Owner::This {
            for (layer, part) in attribute(&stack).share(stack.count) {
                *counts.entry(layer).or_default() += part;
            }
        }
    }
    let total: u64 = counts.values().sum();
    let shares = counts
        .into_iter()
        .map(|(layer, count)| (layer, count as f64 / total as f64 * 100.0))
        .collect();
    (shares, total)
}

#[test]
fn the_table_knows_98_percent_of_every_transfers_samples() {
    let runs = runs();
    assert!(runs.len() >= 24, "{} runs", runs.len());
    for (name, tree) in &runs {
        for role in [Role::Sender, Role::Receiver] {
            let (shares, total) = layers(role, tree);
            let unknown = shares.get(&Layer::Unattributed).copied().unwrap_or(0.0);
            assert!(total >= 50, "{name}, {role:?}: {total} samples");
            assert!(unknown <= 2.0, "{name}, {role:?}: {unknown:.1} % of {total} unknown");
        }
    }
}

#[test]
fn no_sample_is_both_ends_and_hardly_any_neithers() {
    for (name, tree) in &runs() {
        let mut neither = 0;
        let mut total = 0;
        let views = [Role::Sender, Role::Receiver].map(|role| seen_by(role, tree));
        for (sender, receiver) in views[0].iter().zip(&views[1]) {
            let by_sender = owner(sender, Role::Sender, Place::Here) == Owner::This;
            let by_receiver = owner(receiver, Role::Receiver, Place::Here) == Owner::This;
            assert!(!(by_sender && by_receiver), "{name}: {:?}", sender.frames);
            total += sender.count;
            neither += if by_sender || by_receiver { 0 } else { sender.count };
        }
        assert!(neither * 10 <= total, "{name}: {neither} of {total} are neither's");
    }
}

/// What an end does with a layer, in percent of its samples.
fn share(runs: &BTreeMap<String, Vec<Stack>>, run: &str, role: Role, layer: Layer) -> f64 {
    let tree = runs.get(run).expect("the run is there");
    layers(role, tree).0.get(&layer).copied().unwrap_or(0.0)
}

#[test]
fn added_work_shows_in_its_own_layer_at_its_own_end() {
    let runs = runs();
    // Run with the work, run without it, end, layer.
    for (with, without, role, layer) in [
        ("tcp4_veth_no_checksum", "tcp4_veth", Role::Sender, Layer::Checksum),
        ("udp4_veth_no_checksum", "udp4_veth_offload", Role::Receiver, Layer::Checksum),
        ("tcp4_veth_gro_no_tso", "tcp4_veth", Role::Sender, Layer::Offload),
        ("tcp4_veth_gro_no_tso", "tcp4_veth_no_gso", Role::Receiver, Layer::Offload),
        ("tcp4_veth_filters", "tcp4_veth_htb", Role::Sender, Layer::Queueing),
        ("udp4_veth_tbf", "udp4_veth_small", Role::Sender, Layer::Queueing),
        ("tcp4_veth_programs", "tcp4_veth", Role::Sender, Layer::Queueing),
        ("tcp4_loopback", "tcp4_loopback_zerocopy", Role::Sender, Layer::Copy),
        ("tcp4_loopback_small", "tcp4_loopback", Role::Sender, Layer::Socket),
    ] {
        let more = share(&runs, with, role, layer);
        let less = share(&runs, without, role, layer);
        assert!(
            more > 1.0 && more > 1.5 * less,
            "{layer:?} of the {role:?}: {with} {more:.1} %, {without} {less:.1} %"
        );
    }
}

#[test]
fn receiving_in_the_senders_thread_is_not_the_senders() {
    // One sender's thread over loopback does most of the receiver's IP and TCP in its own soft
    // interrupts.
    let runs = runs();
    for run in ["udp4_loopback", "udp6_veth", "tcp4_veth_no_gso"] {
        let tree = runs.get(run).expect("the run is there");
        let moved: u64 = seen_by(Role::Sender, tree)
            .iter()
            .filter(|stack| stack.task == TaskClass::Flow)
            .filter(|stack| owner(stack, Role::Sender, Place::Here) == Owner::Other)
            .map(|stack| stack.count)
            .sum();
        assert!(moved > 70, "{run}: {moved}");
    }
}
