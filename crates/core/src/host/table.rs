//! The table of settings. The next one is an entry here, with its rule in `rules`; a kernel setting
//! that a treatment may change takes its range and meaning from the treatments' table, and what is
//! read and set in another way than by sysctl(8) has its hand in the engine.

use super::advice::{Advice, Question};
use super::rules;
use super::setting::{Place, Setting, Words};
use crate::treatment::ValueKind;

/// All settings of which something is advised, in the order in which they are shown.
pub fn settings() -> &'static [Setting] {
    TABLE
}

type Rule = fn(&Question<'_>) -> Advice;

/// A kernel setting that the treatments know.
const fn shared(
    key: &'static str,
    limits: &'static str,
    formula: &'static str,
    source: &'static str,
    rule: Rule,
) -> Setting {
    Setting {
        key,
        place: Place::Namespace,
        limits,
        formula,
        source,
        words: Words::OfTreatment,
        rule,
    }
}

/// What only the owner of a host may change.
const fn own(key: &'static str, place: Place, value: ValueKind, means: &'static str) -> Setting {
    Setting {
        key,
        place,
        limits: "",
        formula: "",
        source: "",
        words: Words::Own { value, means },
        rule: rules::not_judged,
    }
}

const fn number(least: u64, most: u64, unit: &'static str) -> ValueKind {
    ValueKind::Number { least, most, unit }
}

const fn pages() -> ValueKind {
    ValueKind::Numbers {
        count: 3,
        least: 0,
        most: i64::MAX as u64,
        unit: "pages",
    }
}

/// An offload of a device.
const fn offload(key: &'static str, means: &'static str, limits: &'static str) -> Setting {
    Setting {
        limits,
        formula: "on",
        source: "Documentation/networking/segmentation-offloads.rst, netdev-features.rst",
        rule: rules::offload,
        ..own(key, Place::Device, ValueKind::Switch, means)
    }
}

const IP_SYSCTL: &str = "Documentation/networking/ip-sysctl.rst";
const NET_SYSCTL: &str = "Documentation/admin-guide/sysctl/net.rst";
const FS_SYSCTL: &str = "Documentation/admin-guide/sysctl/fs.rst";
const CONNTRACK: &str = "Documentation/networking/nf_conntrack-sysctl.rst";
const SCALING: &str = "Documentation/networking/scaling.rst";
/// Most of these are a C int in the kernel.
const INT: u64 = i32::MAX as u64;

static TABLE: &[Setting] = &[
    shared(
        "net.ipv4.tcp_rmem",
        "what one TCP connection receives: receive window ÷ round-trip time",
        "last ≥ 2 · rate · rtt ÷ 8",
        "Documentation/networking/ip-sysctl.rst; tcp_win_from_space, include/net/tcp.h",
        rules::receive_buffer,
    ),
    shared(
        "net.ipv4.tcp_wmem",
        "what one TCP connection sends: send buffer ÷ round-trip time",
        "last ≥ 2 · rate · rtt ÷ 8",
        "Documentation/networking/ip-sysctl.rst; tcp_sndbuf_expand, net/ipv4/tcp_input.c",
        rules::send_buffer,
    ),
    shared(
        "net.core.rmem_max",
        "receivers that set SO_RCVBUF; UDP receivers",
        "≥ rate · rtt ÷ 8, which the kernel doubles",
        "Documentation/admin-guide/sysctl/net.rst; sk_setsockopt, net/core/sock.c",
        rules::asked_buffer,
    ),
    shared(
        "net.core.wmem_max",
        "senders that set SO_SNDBUF; UDP senders",
        "≥ rate · rtt ÷ 8, which the kernel doubles",
        "Documentation/admin-guide/sysctl/net.rst; sk_setsockopt, net/core/sock.c",
        rules::asked_buffer,
    ),
    Setting {
        limits: "the windows of all TCP connections together",
        formula: "middle ≥ 4 · rate · rtt ÷ 8 ÷ page + 2 · connections; last at most half of the memory",
        source: IP_SYSCTL,
        rule: rules::pages,
        ..own(
            "net.ipv4.tcp_mem",
            Place::Host,
            pages(),
            "memory of all TCP sockets: no pressure below, pressure, most",
        )
    },
    Setting {
        limits: "datagrams that wait in all UDP sockets together",
        formula: "as the kernel has it: an eighth, a sixth and a quarter of the memory",
        source: IP_SYSCTL,
        rule: rules::not_judged,
        ..own(
            "net.ipv4.udp_mem",
            Place::Host,
            pages(),
            "memory of all UDP sockets: no pressure below, pressure, most",
        )
    },
    shared(
        "net.ipv4.tcp_moderate_rcvbuf",
        "receive windows: without it each stays at the middle of tcp_rmem",
        "1",
        IP_SYSCTL,
        rules::on,
    ),
    shared(
        "net.ipv4.tcp_window_scaling",
        "every connection: 65,535 bytes for each round trip without it",
        "1",
        "RFC 7323, section 2",
        rules::scaling,
    ),
    shared(
        "net.ipv4.tcp_timestamps",
        "round-trip times of retransmitted segments, wrapped sequence numbers, reuse of ports",
        "≥ 1",
        "RFC 7323, sections 4 and 5",
        rules::on,
    ),
    shared(
        "net.ipv4.tcp_sack",
        "recovery: without it one segment for each round trip",
        "1",
        "RFC 2018, RFC 6675",
        rules::on,
    ),
    shared(
        "net.ipv4.tcp_congestion_control",
        "the rate over paths that lose packets",
        "bbr for the profile wan where the kernel has it; not reno",
        "RFC 9438; draft-ietf-ccwg-bbr",
        rules::congestion,
    ),
    Setting {
        limits: "the delay that flows of this host add to each other; pacing of others than TCP",
        formula: "fq, or fq_codel, where the kernel has it",
        source: "Documentation/admin-guide/sysctl/net.rst; RFC 8290",
        rule: rules::discipline,
        ..own(
            "net.core.default_qdisc",
            Place::Host,
            ValueKind::Name,
            "queueing discipline that new devices are given",
        )
    },
    shared(
        "net.ipv4.tcp_mtu_probing",
        "connections over paths that swallow \"packet too big\"",
        "1 for the profile wan",
        "RFC 4821; Documentation/networking/ip-sysctl.rst",
        rules::probing,
    ),
    shared(
        "net.ipv4.tcp_no_metrics_save",
        "the start of a connection to a host that was talked to before",
        "1 where tcp_no_ssthresh_metrics_save is 0",
        "RFC 9040; Documentation/networking/ip-sysctl.rst",
        rules::metrics,
    ),
    shared(
        "net.ipv4.tcp_slow_start_after_idle",
        "connections that pause",
        "0 for the profile wan",
        "RFC 2861; Documentation/networking/ip-sysctl.rst",
        rules::after_idle,
    ),
    Setting {
        limits: "descriptors of all processes together",
        formula: "≥ 2 · connections + 65536",
        source: FS_SYSCTL,
        rule: rules::files,
        ..own(
            "fs.file-max",
            Place::Host,
            number(1, i64::MAX as u64, "files"),
            "files that may be open on the host",
        )
    },
    Setting {
        limits: "what RLIMIT_NOFILE can be raised to",
        formula: "≥ connections + 1024",
        source: "Documentation/admin-guide/sysctl/fs.rst; sysctl_nr_open_min, sysctl_nr_open_max, fs/file.c",
        rule: rules::files_of_process,
        ..own(
            "fs.nr_open",
            Place::Host,
            number(64, 2_147_483_584, "files"),
            "files that one process may be allowed",
        )
    },
    Setting {
        limits: "connections of one process",
        formula: "first ≥ connections + 1024",
        source: "getrlimit(2)",
        rule: rules::descriptors,
        ..own(
            "process.nofile",
            Place::Process,
            ValueKind::Numbers {
                count: 2,
                least: 1,
                most: 2_147_483_584,
                unit: "files",
            },
            "files that this process may have open, and may raise that to",
        )
    },
    shared(
        "net.ipv4.ip_local_port_range",
        "connections from one address to one address and port",
        "≥ 2 · connections ports, at most 1024 65535",
        "Documentation/networking/ip-sysctl.rst; __inet_hash_connect, net/ipv4/inet_hashtables.c",
        rules::ports,
    ),
    shared(
        "net.core.somaxconn",
        "connections that arrive faster than a program accepts",
        "≥ connections ÷ 10 s · 0.1 s, 4096 to 65535",
        "listen(2); Documentation/networking/ip-sysctl.rst",
        rules::accept_queue,
    ),
    shared(
        "net.ipv4.tcp_max_syn_backlog",
        "half-open connections of a listener, where SYN cookies are off",
        "≥ connections ÷ 10 s · 0.1 s, 4096 to 65535",
        "Documentation/networking/ip-sysctl.rst; tcp_conn_request, net/ipv4/tcp_input.c",
        rules::syn_queue,
    ),
    Setting {
        limits: "connection requests in a burst",
        formula: "1",
        source: "RFC 4987; Documentation/networking/ip-sysctl.rst",
        rule: rules::cookies,
        ..own(
            "net.ipv4.tcp_syncookies",
            Place::Namespace,
            number(0, 2, ""),
            "connections from cookies: never, where the queue is full, always",
        )
    },
    shared(
        "net.ipv4.tcp_tw_reuse",
        "clients that connect to one address again and again",
        "1 where time stamps are on",
        "RFC 6191; Documentation/networking/ip-sysctl.rst",
        rules::reuse,
    ),
    shared(
        "net.ipv4.tcp_max_tw_buckets",
        "connections that this end closes within a minute",
        "≥ connections",
        IP_SYSCTL,
        rules::closing,
    ),
    Setting {
        limits: "connections that programs close with data still to be sent",
        formula: "≥ connections; each may hold 64 KiB that cannot be swapped",
        source: IP_SYSCTL,
        rule: rules::closing,
        ..own(
            "net.ipv4.tcp_max_orphans",
            Place::Host,
            number(0, INT, "connections"),
            "TCP connections without a process",
        )
    },
    shared(
        "net.ipv4.tcp_fin_timeout",
        "memory of closed connections whose peer does not close",
        "≤ 60",
        IP_SYSCTL,
        rules::fin_timeout,
    ),
    Setting {
        limits: "new connections through a host that tracks them",
        formula: "≥ 1.25 · connections",
        source: CONNTRACK,
        rule: rules::tracked,
        ..own(
            "net.netfilter.nf_conntrack_max",
            Place::Host,
            number(1, INT, "connections"),
            "connections that are tracked",
        )
    },
    Setting {
        limits: "packets of each tracked connection",
        formula: "≥ connections ÷ 4",
        source: CONNTRACK,
        rule: rules::tracking_buckets,
        ..own(
            "net.netfilter.nf_conntrack_buckets",
            Place::Host,
            number(1, INT, "buckets"),
            "size of the hash table of tracked connections",
        )
    },
    Setting {
        limits: "the table of tracked connections",
        formula: "≤ 86400",
        source: CONNTRACK,
        rule: rules::tracking_timeout,
        ..own(
            "net.netfilter.nf_conntrack_tcp_timeout_established",
            Place::Namespace,
            number(1, INT, "s"),
            "how long a silent TCP connection is tracked",
        )
    },
    Setting {
        limits: "the table of tracked connections",
        formula: "≤ 120",
        source: CONNTRACK,
        rule: rules::tracking_wait,
        ..own(
            "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
            Place::Namespace,
            number(1, INT, "s"),
            "how long a closed TCP connection is tracked",
        )
    },
    Setting {
        place: Place::Host,
        ..shared(
            "net.core.netdev_max_backlog",
            "packets of RPS, loopback, veth and tunnels",
            "≥ packets of 1514 bytes in 4 ms, at least 1000",
            NET_SYSCTL,
            rules::backlog,
        )
    },
    Setting {
        place: Place::Host,
        ..shared(
            "net.core.busy_poll",
            "latency of poll and select",
            "50 for the profile lan",
            NET_SYSCTL,
            rules::polling,
        )
    },
    Setting {
        place: Place::Host,
        ..shared(
            "net.core.busy_read",
            "latency of receiving calls",
            "50 for the profile lan",
            NET_SYSCTL,
            rules::polling,
        )
    },
    Setting {
        limits: "packets of a fast link while the CPU is late",
        formula: "≥ packets of 1514 bytes in 1 ms, 256 to the device's most",
        source: "Documentation/networking/ethtool-netlink.rst, RINGS_GET",
        rule: rules::rx_ring,
        ..own(
            "device.*.rx_ring",
            Place::Device,
            number(1, 1 << 20, "packets"),
            "descriptors of each receive ring",
        )
    },
    Setting {
        limits: "packets of a fast link while the CPU is late",
        formula: "≥ packets of 1514 bytes in 1 ms, 256 to the device's most",
        source: "Documentation/networking/ethtool-netlink.rst, RINGS_GET",
        rule: rules::tx_ring,
        ..own(
            "device.*.tx_ring",
            Place::Device,
            number(1, 1 << 20, "packets"),
            "descriptors of each transmit ring",
        )
    },
    Setting {
        limits: "latency; CPU time where it is too short",
        formula: "≤ rtt ÷ 4, unless the driver adapts it",
        source: "Documentation/networking/ethtool-netlink.rst, COALESCE_GET",
        rule: rules::coalescing,
        ..own(
            "device.*.rx_usecs",
            Place::Device,
            number(0, 1_000_000, "µs"),
            "how long an interrupt for received packets is held back",
        )
    },
    Setting {
        limits: "latency; CPU time where it is too short",
        formula: "≤ rtt ÷ 4, unless the driver adapts it",
        source: "Documentation/networking/ethtool-netlink.rst, COALESCE_GET",
        rule: rules::coalescing,
        ..own(
            "device.*.tx_usecs",
            Place::Device,
            number(0, 1_000_000, "µs"),
            "how long an interrupt for sent packets is held back",
        )
    },
    Setting {
        limits: "latency; CPU time where they are few",
        formula: "as the driver has it",
        source: "Documentation/networking/ethtool-netlink.rst, COALESCE_GET",
        rule: rules::adaptive,
        ..own(
            "device.*.rx_frames",
            Place::Device,
            number(0, 1 << 20, "packets"),
            "received packets that raise an interrupt at once",
        )
    },
    Setting {
        limits: "latency at low load, CPU time at high load",
        formula: "as the driver has it",
        source: "Documentation/networking/net_dim.rst",
        rule: rules::adaptive,
        ..own(
            "device.*.adaptive_rx",
            Place::Device,
            ValueKind::Switch,
            "the driver adapts rx_usecs to the load",
        )
    },
    offload(
        "device.*.checksum_offload",
        "the device computes the checksums of what it sends",
        "CPU time; tso and uso, which need it",
    ),
    offload(
        "device.*.tso",
        "the device cuts TCP data into segments",
        "the rate of TCP senders, whose CPU works once for each 64 KiB with it",
    ),
    offload(
        "device.*.gso",
        "the stack cuts just above the driver what the device cannot",
        "the rate of senders where the device cannot cut",
    ),
    offload(
        "device.*.gro",
        "the stack merges received segments",
        "the rate of TCP receivers",
    ),
    Setting {
        limits: "bursts that leave faster than the link",
        formula: "≥ packets of 1514 bytes in 1 ms, at least 1000; 0 where there is no queue",
        source: "ip-link(8); net/sched/sch_generic.c",
        rule: rules::queue_length,
        ..own(
            "device.*.txqueuelen",
            Place::Device,
            number(0, INT, "packets"),
            "packets that wait in pfifo_fast and other plain queueing disciplines",
        )
    },
    Setting {
        limits: "packets a second of a device with one queue",
        formula: "all CPUs where there is one queue and the rate is 5 Gbit/s or more",
        source: SCALING,
        rule: rules::receive_steering,
        ..own(
            "device.*.rps_cpus",
            Place::Device,
            ValueKind::Cpus,
            "CPUs that the packets of each receive queue are spread over",
        )
    },
    Setting {
        limits: "senders on many CPUs that share a transmit queue",
        formula: "as the driver has it",
        source: SCALING,
        rule: rules::send_steering,
        ..own(
            "device.*.xps_cpus",
            Place::Device,
            ValueKind::Cpus,
            "CPUs that use a transmit queue; the same for all queues when it is set",
        )
    },
    Setting {
        limits: "packets a second of all queues whose interrupts one CPU takes",
        formula: "all CPUs where there are several queues",
        source: "Documentation/core-api/irq/irq-affinity.rst, Documentation/networking/scaling.rst",
        rule: rules::interrupts,
        ..own(
            "device.*.irq_cpus",
            Place::Device,
            ValueKind::Cpus,
            "CPUs that may take the interrupts of the device",
        )
    },
    Setting {
        limits: "one connection on one core; latency after a pause",
        formula: "performance for the profile lan, and from 10 Gbit/s on",
        source: "Documentation/admin-guide/pm/cpufreq.rst",
        rule: rules::governor,
        ..own(
            "cpu.governor",
            Place::Host,
            ValueKind::Name,
            "what chooses the frequency of the CPUs",
        )
    },
];
