//! What there is on this host, read.

use std::collections::BTreeSet;
use std::net::IpAddr;

use linerate_core::host::{HostView, Reading, device_key, settings};
use linerate_sys::netlink::Link;
use linerate_sys::proc::sysctl::{self, SysctlError};
use linerate_sys::proc::{cpu, limits, machine, memory};

use super::device;
use crate::host;
use crate::treatment::{FileSetting, TreatError, check_sys, open_netlink};

/// The settings and what their right values depend on. `keys` are looked at, too, where the table
/// does not have them.
///
/// # Errors
/// The devices cannot be listed, or one that a key names is not there.
pub(super) fn view(peer: Option<IpAddr>, keys: &[String]) -> Result<HostView, TreatError> {
    let mut view = HostView {
        kernel: machine::kernel_release().unwrap_or_default(),
        cpus: cpus(),
        memory_bytes: memory::MemoryInfo::read().map_or(0, |memory| memory.total),
        page_bytes: memory::page_bytes(),
        congestion_controls: words_of("net.ipv4.tcp_available_congestion_control"),
        queueing_disciplines: host::disciplines().to_vec(),
        ..HostView::default()
    };
    let table = settings().iter().map(|setting| setting.key);
    let all: BTreeSet<&str> = table.chain(keys.iter().map(String::as_str)).chain(INPUTS).collect();
    for key in all.into_iter().filter(|key| is_sysctl(key)) {
        view.readings.insert(key.to_owned(), kernel_setting(key));
    }
    view.readings.insert("process.nofile".to_owned(), descriptors());
    view.readings.insert("cpu.governor".to_owned(), device::of_files(FileSetting::Governor));
    let sys = check_sys();
    for link in links(peer, keys)? {
        device::read(&mut view, &link, &sys);
    }
    Ok(view)
}

/// CPUs that are online.
pub(super) fn cpus() -> u32 {
    cpu::online().map_or(1, |cpus| cpus.len() as u32)
}

fn is_sysctl(key: &str) -> bool {
    ["net.", "fs."].iter().any(|begin| key.starts_with(begin)) && !key.contains('*')
}

fn words_of(key: &str) -> Vec<String> {
    let text = sysctl::read(key).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn kernel_setting(key: &str) -> Reading {
    match sysctl::read(key) {
        Ok(text) => Reading::Value {
            // The kernel writes some with several blanks.
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            obstacle: sysctl::check_writable(key).err().map(|error| obstacle(&error)),
        },
        Err(SysctlError::Missing { .. }) if key.starts_with("net.netfilter.") => {
            Reading::Unsupported(
                "connections are not tracked: nf_conntrack is not loaded".to_owned(),
            )
        }
        Err(SysctlError::Missing { .. }) => Reading::Unsupported(
            "this kernel does not have it, or not in this network namespace".to_owned(),
        ),
        Err(error) => Reading::Unknown(crate::words::chain(&error)),
    }
}

fn obstacle(error: &SysctlError) -> String {
    match error {
        SysctlError::ReadOnly { .. } => {
            "it is read-only here: a setting of the whole host, or a container".to_owned()
        }
        SysctlError::NotPermitted { .. } => {
            "not permitted: it needs root, or CAP_NET_ADMIN in the network namespace".to_owned()
        }
        error => crate::words::chain(error),
    }
}

fn descriptors() -> Reading {
    let limit = limits::descriptor_limit();
    Reading::Value { text: format!("{} {}", limit.soft, limit.hard), obstacle: None }
}

/// The device towards the peer, or those that are up; and those that keys name.
fn links(peer: Option<IpAddr>, keys: &[String]) -> Result<Vec<Link>, TreatError> {
    let mut netlink = open_netlink()?;
    let all = crate::treatment::links(&mut netlink)?;
    let named: BTreeSet<&str> =
        keys.iter().filter_map(|key| Some(device_key(key)?.device)).collect();
    if let Some(missing) = named.iter().find(|name| !all.iter().any(|link| link.name == **name)) {
        let why = "there is no such device in this network namespace";
        return Err(TreatError::unfit(format!("a setting of {missing}"), why));
    }
    let to_peer = match peer {
        Some(peer) => Some(crate::treatment::towards(&mut netlink, peer)?.index),
        None => None,
    };
    let is_looked_at = |link: &Link| match to_peer {
        Some(index) => link.index == index,
        None => link.up && !link.loopback && link.controller.is_none(),
    };
    let mut links: Vec<Link> = all.iter().filter(|link| is_looked_at(link)).cloned().collect();
    links.truncate(MAX_DEVICES);
    for link in all {
        if named.contains(link.name.as_str()) && !links.contains(&link) {
            links.push(link);
        }
    }
    Ok(links)
}

/// Inputs of rules that are no settings of the table.
const INPUTS: [&str; 1] = ["net.ipv4.tcp_no_ssthresh_metrics_save"];
/// A host of containers has hundreds; others are read by their keys.
const MAX_DEVICES: usize = 8;
