//! What this host is like.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::sync::OnceLock;

use linerate_core::record::{CpuFacts, DeviceFacts, HostFacts};
use linerate_sys::clock::clock_source;
use linerate_sys::ethtool::{Ethtool, Offload};
use linerate_sys::netlink::{Netlink, Qdisc};
use linerate_sys::proc::{Probe, cgroup, cpu, machine, sysctl};
use linerate_sys::thread;

use crate::path;

/// Settings that decide what a path gives; those that a kernel does not have are left out.
const SYSCTLS: [&str; 28] = [
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.mptcp.enabled",
];

/// Offloads that a throughput figure depends on, by ethtool's names.
const OFFLOADS: [Offload; 8] = [
    Offload::RxChecksum,
    Offload::TxChecksum,
    Offload::ScatterGather,
    Offload::TcpSegmentation,
    Offload::UdpSegmentation,
    Offload::GenericSegmentation,
    Offload::GenericReceive,
    Offload::LargeReceive,
];

/// This host, with the interface by which `peer` is reached. What cannot be read is left out.
pub(crate) fn facts(peer: Option<IpAddr>) -> HostFacts {
    facts_by(peer, None)
}

/// The same where packets leave by the interface that was asked for.
pub(crate) fn facts_by(peer: Option<IpAddr>, device: Option<&str>) -> HostFacts {
    let sysctls: BTreeMap<String, String> = SYSCTLS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), sysctl::read(key).ok()?)))
        .collect();
    let read_only = sysctls.keys().filter(|key| sysctl::is_read_only(key));
    let read_only_sysctls = read_only.cloned().collect();
    HostFacts {
        linerate: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: machine::kernel_release().unwrap_or_default(),
        boot_id: machine::boot_id().unwrap_or_default(),
        hostname: sysctl::read("kernel.hostname").unwrap_or_default(),
        cpu: cpu_facts(),
        device: peer.and_then(|peer| device_to(peer, device)),
        congestion: sysctls.get("net.ipv4.tcp_congestion_control").cloned(),
        sysctls,
        read_only_sysctls,
        clock_source: clock_source().ok(),
        memory_bytes: machine::MemoryInfo::read().ok().map(|memory| memory.total),
        disciplines: disciplines().to_vec(),
    }
}

/// Those that the kernel's list of modules names; none are known where there is no such list.
pub(crate) fn disciplines() -> &'static [String] {
    static KNOWN: OnceLock<Vec<String>> = OnceLock::new();
    KNOWN.get_or_init(read_disciplines)
}

fn read_disciplines() -> Vec<String> {
    let release = machine::kernel_release().unwrap_or_default();
    let list = |name: &str| {
        fs::read_to_string(format!("/lib/modules/{release}/{name}")).unwrap_or_default()
    };
    let modules = list("modules.builtin") + &list("modules.dep");
    let has = |name: &&str| modules.contains(&format!("/sch_{name}.ko"));
    ["fq", "fq_codel", "cake"]
        .iter()
        .filter(|name| has(name))
        .map(|&name| name.to_owned())
        .collect()
}

fn cpu_facts() -> CpuFacts {
    let info = cpu::CpuInfo::read().ok();
    let count = cpu::online().map_or(0, |cpus| cpus.len());
    let allowed = thread::affinity().map_or(count, |cpus| cpus.len());
    let quota = cgroup::CgroupLimits::read()
        .ok()
        .and_then(|limits| limits.cpu.value().and_then(|cpu| cpu.cpus));
    let virtualisation = match machine::platform() {
        Probe::Supported(machine::Platform::Virtual(name)) => {
            Some(name.unwrap_or_else(|| "unknown".to_owned()))
        }
        _ => None,
    };
    CpuFacts {
        count: count as u32,
        usable: quota.map_or(allowed as f64, |quota| quota.min(allowed as f64)),
        model: info.and_then(|info| info.model),
        governor: cpu::governor(0).value().cloned(),
        virtualisation,
    }
}

/// The interface by which `peer` is reached.
fn device_to(peer: IpAddr, asked: Option<&str>) -> Option<DeviceFacts> {
    let mut netlink = Netlink::open().ok()?;
    let link = path::device_to(&mut netlink, peer, asked)?;
    // Of several queues each has its own `fq`.
    let disciplines = match link.qdisc.as_deref() {
        Some("fq" | "mq") => netlink.qdiscs(&link.name).unwrap_or_default(),
        _ => Vec::new(),
    };
    let flow_rates = disciplines.iter().filter_map(Qdisc::flow_max_rate);
    let mut device = DeviceFacts {
        flow_max_rate_bps: flow_rates.min().map(|bytes| u64::from(bytes) * 8),
        driver: link.kind,
        mtu_bytes: link.mtu,
        qdisc: link.qdisc,
        name: link.name,
        ..DeviceFacts::default()
    };
    if let Ok(ethtool) = Ethtool::open(&device.name) {
        if let Ok(Some(driver)) = ethtool.driver() {
            device.driver = Some(driver);
        }
        let speed = ethtool.speed_mbit().ok().flatten();
        device.speed_bps = speed.map(|mbit| u64::from(mbit) * 1_000_000);
        // All at once: each call waits for whoever else changes the host's devices just now.
        let features = ethtool.features_of(&OFFLOADS).unwrap_or_default();
        device.offloads.extend(features.into_iter().map(|f| (f.name, f.active)));
    }
    Some(device)
}
