//! Sockets and memory of this host, and its limits. Values that cannot be read are left out.

use std::collections::BTreeMap;
use std::time::Duration;

use linerate_core::capacity::{LimitReadings, MemoryReading, SlabUse};
use linerate_sys::proc::cgroup::{self, CgroupLimits};
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::proc::machine::{MemoryInfo, page_bytes, read_slab_caches};
use linerate_sys::proc::privilege::descriptor_limit;
use linerate_sys::proc::{counters, sysctl};

use crate::clock::now;

/// The sockets and memory in use at present.
pub(super) fn memory() -> MemoryReading {
    let sockets = counters::read_socket_counts().ok();
    let info = MemoryInfo::read().ok();
    MemoryReading {
        tcp_in_use: sockets.map(|sockets| sockets.tcp + sockets.tcp6),
        tcp_allocated: sockets.map(|sockets| sockets.tcp_allocated),
        tcp_orphans: sockets.map(|sockets| sockets.tcp_orphans),
        tcp_time_wait: sockets.map(|sockets| sockets.tcp_time_wait),
        tcp_memory_pages: sockets.map(|sockets| sockets.tcp_memory_pages),
        udp_in_use: sockets.map(|sockets| sockets.udp + sockets.udp6),
        udp_memory_pages: sockets.map(|sockets| sockets.udp_memory_pages),
        slab_bytes: info.and_then(|info| info.slab),
        available_bytes: info.and_then(|info| info.available),
        caches: caches(),
        files: numbers("fs.file-nr").first().copied(),
        conntrack: number("net.netfilter.nf_conntrack_count"),
        cgroup_bytes: cgroup::memory_in_use().value().copied(),
    }
}

/// The slab caches of sockets; a kernel may merge similar caches under one name.
fn caches() -> Vec<SlabUse> {
    let Ok(all) = read_slab_caches() else {
        return Vec::new();
    };
    let page = page_bytes();
    all.into_iter()
        .filter(|cache| CACHES.contains(&cache.name.as_str()))
        .map(|cache| SlabUse {
            bytes: cache.pages * page,
            name: cache.name,
            objects: cache.active_objects,
        })
        .collect()
}

/// The memory after the closed connections are gone, and with `udp` the closed UDP sockets, too:
/// the kernel closes the sockets of an ended process a little later. Only a client has as many UDP
/// sockets; an endpoint on the same host must not wait for those.
pub(super) fn memory_when_closed(before: &MemoryReading, udp: bool) -> MemoryReading {
    let until = now() + SETTLE;
    loop {
        let reading = memory();
        let left = |after: Option<u64>, before: Option<u64>| {
            after.zip(before).is_some_and(|(a, b)| a > b + STRAY)
        };
        let some_left = left(reading.tcp_in_use, before.tcp_in_use)
            || (udp && left(reading.udp_in_use, before.udp_in_use));
        if !some_left || now() >= until {
            return reading;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The limits of this host, for an end that starts this many workers at most.
pub(super) fn limits(workers: u64) -> LimitReadings {
    let page = page_bytes();
    LimitReadings {
        descriptors_each: Some(descriptor_limit().hard),
        workers_most: Some(workers),
        files: number("fs.file-max"),
        nr_open: number("fs.nr_open"),
        port_range: port_range(),
        somaxconn: number("net.core.somaxconn"),
        syn_backlog: number("net.ipv4.tcp_max_syn_backlog"),
        syncookies: number("net.ipv4.tcp_syncookies"),
        tcp_memory_pages: three("net.ipv4.tcp_mem"),
        udp_memory_pages: three("net.ipv4.udp_mem"),
        orphans: number("net.ipv4.tcp_max_orphans"),
        time_wait: number("net.ipv4.tcp_max_tw_buckets"),
        conntrack: number("net.netfilter.nf_conntrack_max"),
        epoll_watches: number("fs.epoll.max_user_watches"),
        owner_connections: None,
        cgroup_bytes: CgroupLimits::read()
            .ok()
            .and_then(|limits| limits.memory_bytes.value().copied().flatten()),
        memory_bytes: MemoryInfo::read().ok().map(|info| info.total),
        page_bytes: Some(page),
    }
}

/// First and last local port that the kernel chooses from.
pub(super) fn port_range() -> Option<(u16, u16)> {
    match numbers("net.ipv4.ip_local_port_range")[..] {
        [first, last] => Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?)),
        _ => None,
    }
}

/// The longest accept queue of a listener.
pub(super) fn somaxconn() -> u32 {
    let longest = number("net.core.somaxconn").and_then(|n| u32::try_from(n).ok());
    // Linux's default since 5.4.
    longest.unwrap_or(4096)
}

/// Counters that changed since the earlier reading.
pub(super) fn counters_since(earlier: Option<&ProtocolCounters>) -> BTreeMap<String, i64> {
    match (ProtocolCounters::read(), earlier) {
        (Ok(later), Some(earlier)) => later
            .delta(earlier)
            .into_iter()
            .filter(|(name, _)| COUNTERS.contains(&name.as_str()))
            .collect(),
        _ => BTreeMap::new(),
    }
}

fn number(key: &str) -> Option<u64> {
    numbers(key).first().copied()
}

fn three(key: &str) -> Option<(u64, u64, u64)> {
    match numbers(key)[..] {
        [low, pressure, high] => Some((low, pressure, high)),
        _ => None,
    }
}

fn numbers(key: &str) -> Vec<u64> {
    let text = sysctl::read(key).unwrap_or_default();
    let words = text.split_ascii_whitespace();
    words.map_while(|word| word.parse().ok()).collect()
}

/// Caches of /proc/slabinfo that grow with the number of sockets.
const CACHES: [&str; 12] = [
    "TCP",
    "TCPv6",
    "UDP",
    "UDPv6",
    "sock_inode_cache",
    "proc_inode_cache",
    "dentry",
    "filp",
    "eventpoll_epi",
    "eventpoll_pwq",
    "tcp_bind_bucket",
    "request_sock_TCP",
];

/// Counters that show why connections fail or are lost.
const COUNTERS: [&str; 22] = [
    "TcpActiveOpens",
    "TcpPassiveOpens",
    "TcpAttemptFails",
    "TcpEstabResets",
    "TcpOutRsts",
    "TcpRetransSegs",
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtTCPReqQFullDrop",
    "TcpExtSyncookiesSent",
    "TcpExtSyncookiesRecv",
    "TcpExtSyncookiesFailed",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPAbortOnTimeout",
    "TcpExtTCPTimeWaitOverflow",
    "TcpExtTCPMemoryPressures",
    "TcpExtTCPSynRetrans",
    "TcpExtTCPTimeouts",
    "TcpExtTW",
    "UdpRcvbufErrors",
    "UdpNoPorts",
];

/// Number of sockets that other programs may open meanwhile.
const STRAY: u64 = 8;
/// Longest wait for the kernel to close the sockets of an ended process.
const SETTLE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
