//! The kernel settings that a treatment may change: those of `net.*` that decide what a transfer
//! gets or costs.
//!
//! What is not here is refused, at this host as at an endpoint: a setting that outlives its
//! comparison, opens the host to others, or takes routes with it is no treatment.

use super::error::TreatmentError;
use crate::units::edit_distance;
use crate::units::shortened;
use crate::value::{Value, ValueKind};

/// A kernel setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sysctl {
    /// The key; a `*` in it stands for the name of a device.
    pub key: &'static str,
    /// Which values it takes.
    pub value: ValueKind,
    /// What it decides.
    pub means: &'static str,
    /// What else changes with it, if anything does.
    pub changes_also: Option<&'static str>,
}

/// The kernel settings that a treatment may change, by key.
pub fn sysctls() -> &'static [Sysctl] {
    SYSCTLS
}

/// The entry of a key; none if a treatment may not change it.
pub fn sysctl_of(key: &str) -> Option<&'static Sysctl> {
    SYSCTLS.iter().find(|entry| entry.matches(key))
}

/// The entry of a key, and the value that `text` is for it.
///
/// # Errors
/// The key is not in the list; the value is of another kind or out of range.
pub(super) fn read(key: &str, text: &str) -> Result<(&'static Sysctl, Value), TreatmentError> {
    let entry = sysctl_of(key).ok_or_else(|| TreatmentError::UnknownSysctl {
        key: shortened(key),
        hint: hint(key),
    })?;
    let value = entry.value.read(text).map_err(|_| TreatmentError::Value {
        name: key.to_owned(),
        value: shortened(text),
        wanted: entry.value.to_string(),
    })?;
    Ok((entry, value))
}

impl Sysctl {
    fn matches(&self, key: &str) -> bool {
        match self.key.split_once('*') {
            None => self.key == key,
            Some((before, after)) => key
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after))
                .is_some_and(is_device),
        }
    }
}

/// The name of one device, and not `all` or `default`, which stand for others. In a key a slash
/// stands for the dot of a name (sysctl(8)).
fn is_device(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/@".contains(&byte);
    // IFNAMSIZ is 16 with the terminating zero.
    (1..16).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('/')
        && !["all", "default"].contains(&name)
}

/// The key that looks like it; one that was written without its beginning, too.
fn hint(key: &str) -> String {
    let key = shortened(key);
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |known: &str| {
        if known.ends_with(&format!(".{key}")) {
            0
        } else {
            edit_distance(&key, known).min(if key.contains('.') {
                usize::MAX
            } else {
                edit_distance(&key, &last(known))
            })
        }
    };
    let nearest = SYSCTLS.iter().map(|entry| (distance(entry.key), entry.key));
    match nearest.min() {
        Some((0..=3, known)) => format!("did you mean `{known}`?"),
        _ => format!(
            "there are {} of net.core, net.ipv4, net.ipv6 and net.mptcp",
            SYSCTLS.len()
        ),
    }
}

const fn number(
    key: &'static str,
    least: u64,
    most: u64,
    unit: &'static str,
    means: &'static str,
) -> Sysctl {
    Sysctl {
        key,
        value: ValueKind::Number { least, most, unit },
        means,
        changes_also: None,
    }
}

const fn flag(key: &'static str, means: &'static str) -> Sysctl {
    number(key, 0, 1, "", means)
}

const fn three(key: &'static str, means: &'static str) -> Sysctl {
    Sysctl {
        key,
        value: ValueKind::Numbers {
            count: 3,
            least: 1,
            most: INT,
            unit: "bytes",
        },
        means,
        changes_also: None,
    }
}

const fn name(key: &'static str, means: &'static str) -> Sysctl {
    Sysctl {
        key,
        value: ValueKind::Name,
        means,
        changes_also: None,
    }
}

/// Most of these are a C int in the kernel.
const INT: u64 = i32::MAX as u64;

/// Sorted by key. The ranges are the kernel's where it has one
/// (Documentation/networking/ip-sysctl.rst, Documentation/admin-guide/sysctl/net.rst,
/// net/ipv4/sysctl_net_ipv4.c, net/core/sysctl_net_core.c).
static SYSCTLS: &[Sysctl] = &[
    number(
        "net.core.busy_poll",
        0,
        1_000_000,
        "µs",
        "how long poll and select spin for packets",
    ),
    number(
        "net.core.busy_read",
        0,
        1_000_000,
        "µs",
        "how long a receiving call spins for packets",
    ),
    number(
        "net.core.dev_weight",
        1,
        65_535,
        "packets",
        "packets that one device is given in one turn of the backlog",
    ),
    number(
        "net.core.gro_normal_batch",
        1,
        65_535,
        "segments",
        "segments that GRO hands up together",
    ),
    flag(
        "net.core.high_order_alloc_disable",
        "send buffers of single pages instead of 32 KiB",
    ),
    number(
        "net.core.max_skb_frags",
        1,
        45,
        "pieces",
        "pieces of memory of one frame",
    ),
    number(
        "net.core.netdev_budget",
        1,
        65_535,
        "packets",
        "packets of one turn of the receiving softirq",
    ),
    number(
        "net.core.netdev_budget_usecs",
        1,
        1_000_000,
        "µs",
        "time of one turn of the receiving softirq",
    ),
    number(
        "net.core.netdev_max_backlog",
        1,
        INT,
        "packets",
        "queue of packets received on a CPU",
    ),
    flag(
        "net.core.netdev_tstamp_prequeue",
        "time stamps before the backlog's queue",
    ),
    number(
        "net.core.optmem_max",
        1,
        INT,
        "bytes",
        "memory for a socket's options and zero-copy notices",
    ),
    number(
        "net.core.rmem_default",
        2_304,
        INT,
        "bytes",
        "receive buffer of UDP sockets that set none",
    ),
    number(
        "net.core.rmem_max",
        2_304,
        INT,
        "bytes",
        "largest receive buffer that an application may ask for",
    ),
    number(
        "net.core.rps_sock_flow_entries",
        0,
        1 << 29,
        "flows",
        "flows that are followed to the CPU of their application",
    ),
    number(
        "net.core.skb_defer_max",
        0,
        65_535,
        "buffers",
        "buffers that are freed on the CPU that made them",
    ),
    number(
        "net.core.somaxconn",
        1,
        INT,
        "connections",
        "connections that may wait to be accepted",
    ),
    flag(
        "net.core.txrehash",
        "another flow hash, and so perhaps another path, after a timeout",
    ),
    number(
        "net.core.wmem_default",
        4_608,
        INT,
        "bytes",
        "send buffer of UDP sockets that set none",
    ),
    number(
        "net.core.wmem_max",
        4_608,
        INT,
        "bytes",
        "largest send buffer that an application may ask for",
    ),
    number(
        "net.ipv4.conf.*.forwarding",
        0,
        1,
        "",
        "forwarding of what a device receives",
    ),
    number(
        "net.ipv4.fib_multipath_hash_policy",
        0,
        3,
        "",
        "what decides among the ways of a multipath route",
    ),
    number(
        "net.ipv4.icmp_msgs_per_sec",
        0,
        INT,
        "messages",
        "ICMP errors in a second",
    ),
    number(
        "net.ipv4.icmp_ratelimit",
        0,
        INT,
        "ms",
        "least time between ICMP errors to one host",
    ),
    flag(
        "net.ipv4.ip_early_demux",
        "the socket is looked up before the route",
    ),
    Sysctl {
        key: "net.ipv4.ip_forward",
        value: ValueKind::Number {
            least: 0,
            most: 1,
            unit: "",
        },
        means: "forwarding of packets for other hosts",
        changes_also: Some("the forwarding of every device: refused where one of them differs"),
    },
    flag(
        "net.ipv4.ip_forward_use_pmtu",
        "forwarded packets obey path MTUs that this host learnt",
    ),
    Sysctl {
        key: "net.ipv4.ip_local_port_range",
        value: ValueKind::Numbers {
            count: 2,
            least: 1,
            most: 65_535,
            unit: "",
        },
        means: "ports of connections that name none",
        changes_also: None,
    },
    number(
        "net.ipv4.ip_no_pmtu_disc",
        0,
        3,
        "",
        "path MTU discovery off, or believed less",
    ),
    number(
        "net.ipv4.tcp_app_win",
        0,
        31,
        "",
        "share of the window kept back for the application, as a power of two",
    ),
    flag(
        "net.ipv4.tcp_autocorking",
        "small writes wait for the device to have sent earlier ones",
    ),
    flag(
        "net.ipv4.tcp_backlog_ack_defer",
        "one acknowledgement for all segments that waited for the socket's owner",
    ),
    number(
        "net.ipv4.tcp_base_mss",
        48,
        65_535,
        "bytes",
        "first segment size of MTU probing",
    ),
    number(
        "net.ipv4.tcp_comp_sack_delay_ns",
        0,
        1_000_000_000,
        "ns",
        "longest delay of compressed SACKs",
    ),
    number(
        "net.ipv4.tcp_comp_sack_nr",
        0,
        255,
        "SACKs",
        "SACKs that are compressed into one",
    ),
    number(
        "net.ipv4.tcp_comp_sack_slack_ns",
        0,
        1_000_000_000,
        "ns",
        "slack of the timer of compressed SACKs",
    ),
    name(
        "net.ipv4.tcp_congestion_control",
        "congestion control of new connections",
    ),
    flag(
        "net.ipv4.tcp_dsack",
        "duplicates are reported to the sender",
    ),
    flag(
        "net.ipv4.tcp_early_demux",
        "the TCP socket is looked up before the route",
    ),
    number("net.ipv4.tcp_early_retrans", 0, 4, "", "tail loss probes"),
    number(
        "net.ipv4.tcp_ecn",
        0,
        5,
        "",
        "explicit congestion notification",
    ),
    flag(
        "net.ipv4.tcp_ecn_fallback",
        "no ECN with a peer whose SYN/ACK is lost",
    ),
    number("net.ipv4.tcp_fastopen", 0, 4_095, "", "data in the SYN"),
    number(
        "net.ipv4.tcp_fin_timeout",
        1,
        86_400,
        "s",
        "how long a closed connection waits for the peer's end",
    ),
    number(
        "net.ipv4.tcp_frto",
        0,
        2,
        "",
        "detection of spurious timeouts",
    ),
    number(
        "net.ipv4.tcp_limit_output_bytes",
        1,
        INT,
        "bytes",
        "bytes of one connection that wait in the host's queues",
    ),
    number(
        "net.ipv4.tcp_max_reordering",
        1,
        INT,
        "segments",
        "reordering that a sender learns to expect, at most",
    ),
    number(
        "net.ipv4.tcp_max_syn_backlog",
        1,
        INT,
        "connections",
        "half-open connections of a listener",
    ),
    number(
        "net.ipv4.tcp_max_tw_buckets",
        1,
        INT,
        "connections",
        "connections in TIME_WAIT",
    ),
    number(
        "net.ipv4.tcp_min_rtt_wlen",
        0,
        86_400,
        "s",
        "over how long the least round-trip time is taken",
    ),
    number(
        "net.ipv4.tcp_min_snd_mss",
        48,
        65_535,
        "bytes",
        "least segment that a peer can ask for",
    ),
    number(
        "net.ipv4.tcp_min_tso_segs",
        1,
        255,
        "segments",
        "least segments of an offloaded frame",
    ),
    flag(
        "net.ipv4.tcp_moderate_rcvbuf",
        "receive buffers that the kernel tunes",
    ),
    number(
        "net.ipv4.tcp_mtu_probe_floor",
        48,
        65_535,
        "bytes",
        "least segment size of MTU probing",
    ),
    number(
        "net.ipv4.tcp_mtu_probing",
        0,
        2,
        "",
        "MTU probing by data packets",
    ),
    flag(
        "net.ipv4.tcp_no_metrics_save",
        "nothing is remembered of a destination when a connection ends",
    ),
    flag(
        "net.ipv4.tcp_no_ssthresh_metrics_save",
        "no slow-start threshold is remembered of a destination",
    ),
    number(
        "net.ipv4.tcp_notsent_lowat",
        0,
        u32::MAX as u64,
        "bytes",
        "unsent bytes above which a socket is not writable",
    ),
    number(
        "net.ipv4.tcp_pacing_ca_ratio",
        0,
        1_000,
        "%",
        "pacing rate over delivery rate in congestion avoidance",
    ),
    number(
        "net.ipv4.tcp_pacing_ss_ratio",
        0,
        1_000,
        "%",
        "pacing rate over delivery rate in slow start",
    ),
    number(
        "net.ipv4.tcp_pingpong_thresh",
        1,
        255,
        "exchanges",
        "after how many exchanges acknowledgements wait for the answer",
    ),
    number(
        "net.ipv4.tcp_probe_interval",
        0,
        INT,
        "s",
        "time between MTU probes",
    ),
    number(
        "net.ipv4.tcp_probe_threshold",
        0,
        INT,
        "bytes",
        "range at which MTU probing ends",
    ),
    number(
        "net.ipv4.tcp_recovery",
        0,
        255,
        "",
        "loss detection by time (RACK)",
    ),
    number(
        "net.ipv4.tcp_reordering",
        1,
        1_000,
        "segments",
        "reordering that a sender expects at first",
    ),
    number(
        "net.ipv4.tcp_retries2",
        1,
        255,
        "retransmissions",
        "how long a connection without answers lives",
    ),
    three(
        "net.ipv4.tcp_rmem",
        "receive buffer of TCP sockets: least, first, most",
    ),
    number(
        "net.ipv4.tcp_rto_max_ms",
        1_000,
        120_000,
        "ms",
        "longest retransmission timeout",
    ),
    number(
        "net.ipv4.tcp_rto_min_us",
        1,
        10_000_000,
        "µs",
        "shortest retransmission timeout",
    ),
    flag("net.ipv4.tcp_sack", "selective acknowledgements"),
    flag(
        "net.ipv4.tcp_shrink_window",
        "a window offered may be taken back",
    ),
    flag(
        "net.ipv4.tcp_slow_start_after_idle",
        "slow start again after a pause",
    ),
    number(
        "net.ipv4.tcp_syn_retries",
        1,
        127,
        "retransmissions",
        "how long a connection attempt goes on",
    ),
    flag(
        "net.ipv4.tcp_thin_linear_timeouts",
        "timeouts of thin streams do not double",
    ),
    number(
        "net.ipv4.tcp_timestamps",
        0,
        2,
        "",
        "time stamps, 12 bytes of each segment",
    ),
    number(
        "net.ipv4.tcp_tso_rtt_log",
        0,
        31,
        "",
        "round-trip time up to which offloaded frames are larger",
    ),
    number(
        "net.ipv4.tcp_tso_win_divisor",
        0,
        INT,
        "",
        "share of the window that one offloaded frame may take",
    ),
    number(
        "net.ipv4.tcp_tw_reuse",
        0,
        2,
        "",
        "ports in TIME_WAIT are used again",
    ),
    flag("net.ipv4.tcp_window_scaling", "windows above 64 KiB"),
    three(
        "net.ipv4.tcp_wmem",
        "send buffer of TCP sockets: least, first, most",
    ),
    flag(
        "net.ipv4.udp_early_demux",
        "the UDP socket is looked up before the route",
    ),
    number(
        "net.ipv4.udp_rmem_min",
        1,
        INT,
        "bytes",
        "receive buffer that a UDP socket keeps under memory pressure",
    ),
    number(
        "net.ipv4.udp_wmem_min",
        1,
        INT,
        "bytes",
        "send buffer that a UDP socket keeps under memory pressure",
    ),
    number(
        "net.ipv6.auto_flowlabels",
        0,
        3,
        "",
        "flow labels made from the flow's hash",
    ),
    number(
        "net.ipv6.fib_multipath_hash_policy",
        0,
        3,
        "",
        "what decides among the ways of a multipath route",
    ),
    flag("net.mptcp.checksum_enabled", "checksums of MPTCP's own"),
    flag("net.mptcp.enabled", "MPTCP sockets"),
    name(
        "net.mptcp.scheduler",
        "which subflow of an MPTCP connection sends",
    ),
];
