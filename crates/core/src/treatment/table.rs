//! The table of treatments. The next one is an entry here, and its setting's own place: a field of
//! [`SocketOptions`](crate::plan::SocketOptions), or the engine's hand on a device or a route.

use super::change::{DeviceSetting, RouteSetting};
use super::error::TreatmentError;
use crate::units::edit_distance;
use crate::units::shortened;
use crate::value::ValueKind;

/// What a treatment changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The data sockets of a run.
    Socket,
    /// The network device that leads to the peer.
    Device,
    /// The route to the peer.
    Route,
    /// A kernel setting of the host, or of its network namespace.
    Host,
}

/// A treatment: its name, and all that is to be known of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Its name; for kernel settings `sysctl`, after which come a colon and the key.
    pub name: &'static str,
    /// What it changes.
    pub scope: Scope,
    /// Which values it takes; those of `sysctl` are the key's own.
    pub value: ValueKind,
    /// What it is.
    pub means: &'static str,
    /// What it needs of the host.
    pub needs: &'static str,
    /// How it is put in force.
    pub applied: &'static str,
    /// How it is made sure that it took.
    pub read_back: &'static str,
    /// How what was there before comes back.
    pub undone: &'static str,
    /// What else changes with it, if anything does.
    pub changes_also: Option<&'static str>,
    pub(super) setting: Setting,
}

/// What an entry sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    Socket(SocketSetting),
    Device(DeviceSetting),
    Route(RouteSetting),
    Sysctl,
    Qos,
}

/// An option of the data sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketSetting {
    /// The window that a receiver may advertise.
    ReceiveWindow,
    /// `SO_SNDBUF`.
    SendBuffer,
    /// `TCP_MAXSEG`.
    Mss,
    /// `SO_MAX_PACING_RATE`.
    Pacing,
    /// `TCP_CONGESTION`.
    Congestion,
    /// `TCP_NODELAY`.
    Nodelay,
    /// `TCP_QUICKACK`.
    QuickAck,
    /// `IP_TOS`, `IPV6_TCLASS`.
    Dscp,
    /// Sending without a copy.
    ZeroCopy,
    /// Receiving without a copy: the bytes are dropped in the kernel.
    Discard,
    /// `SO_BUSY_POLL`.
    BusyPoll,
    /// The address to send from.
    Source,
}

impl Entry {
    /// Which values it takes, in words with their range.
    pub fn range(&self) -> String {
        match self.setting {
            Setting::Sysctl => "what the key takes".to_owned(),
            _ => self.value.to_string(),
        }
    }
}

impl Scope {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Device => "device",
            Self::Route => "route",
            Self::Host => "host",
        }
    }

    /// Whose it is, and how the other end is named.
    pub fn ends(self) -> &'static str {
        match self {
            Self::Socket => {
                "at both ends, each of which takes what concerns it (source: the client's)"
            }
            Self::Device | Self::Route | Self::Host => {
                "of this host, or with server. before the name of the endpoint's"
            }
        }
    }
}

/// All treatments, in the order of their scopes.
pub fn table() -> &'static [Entry] {
    TABLE
}

/// What people ask for and no treatment does, and why.
pub fn refused() -> &'static [(&'static str, &'static str)] {
    REFUSED
}

/// The entry of that name.
///
/// # Errors
/// There is none, or what has that name is refused.
pub(super) fn find(name: &str) -> Result<&'static Entry, TreatmentError> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        let name = name.to_owned();
        return Err(TreatmentError::Refused { name, why });
    }
    TABLE
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| TreatmentError::Unknown {
            name: shortened(name),
            hint: hint(name),
        })
}

/// The entry of a setting.
pub(super) fn entry_of(setting: Setting) -> &'static Entry {
    TABLE
        .iter()
        .find(|entry| entry.setting == setting)
        .expect("each setting has its entry, which a test holds")
}

fn hint(name: &str) -> String {
    let name = shortened(name);
    let distances = TABLE
        .iter()
        .map(|entry| (edit_distance(&name, entry.name), entry.name));
    match distances.min() {
        _ if name.starts_with("net.") => format!("did you mean `sysctl:{name}`?"),
        Some((0..=2, near)) => format!("did you mean `{near}`?"),
        _ => {
            let names: Vec<_> = TABLE.iter().map(|entry| entry.name).collect();
            format!("the treatments are {}", names.join(", "))
        }
    }
}

/// What people ask for and what does not do what its name says, and why.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        "window_clamp",
        "TCP_WINDOW_CLAMP does not hold on Linux, the window grows past it; use `receive_window`",
    ),
    (
        "route_window",
        "Linux uses a route's window only for the scale in the SYN, the window grows past it; use `receive_window`",
    ),
    (
        "sg",
        "without scatter-gather Linux switches tso, gso and checksum offload off too, and no control can keep them on",
    ),
];

const SOCKET_ONLY: &str = "nothing";
const SETSOCKOPT: &str = "setsockopt on each data socket of the end that it concerns";
const WITH_SOCKET: &str = "it goes with the run's sockets";
const PUT_BACK: &str = "what was there before, where it is still what was set";
const ADMIN: &str = "CAP_NET_ADMIN in the network namespace of the device";
const COALESCING: &str = "CAP_NET_ADMIN in the network namespace of the device; a driver that holds interrupts back, which \
     loopback and veth do not";
const ROUTE_ADMIN: &str =
    "CAP_NET_ADMIN in the network namespace of the route; a peer that is not on this host";

const BUFFER: ValueKind = ValueKind::Bytes {
    least: 1,
    most: 1 << 30,
};

const fn socket(
    name: &'static str,
    setting: SocketSetting,
    value: ValueKind,
    means: &'static str,
    needs: &'static str,
    applied: &'static str,
    read_back: &'static str,
) -> Entry {
    Entry {
        name,
        scope: Scope::Socket,
        value,
        means,
        needs,
        applied,
        read_back,
        undone: WITH_SOCKET,
        changes_also: None,
        setting: Setting::Socket(setting),
    }
}

const fn device(
    name: &'static str,
    setting: DeviceSetting,
    means: &'static str,
    changes_also: Option<&'static str>,
) -> Entry {
    Entry {
        name,
        scope: Scope::Device,
        value: ValueKind::Switch,
        means,
        needs: ADMIN,
        applied: "ETHTOOL_SFEATURES, the features of that name that the device can change",
        read_back: "the device's features that are active, each by itself",
        undone: PUT_BACK,
        changes_also,
        setting: Setting::Device(setting),
    }
}

const fn route(
    name: &'static str,
    setting: RouteSetting,
    value: ValueKind,
    means: &'static str,
    changes_also: Option<&'static str>,
) -> Entry {
    Entry {
        name,
        scope: Scope::Route,
        value,
        means,
        needs: ROUTE_ADMIN,
        applied: "a host route to the peer, like the route in force; or the host route that is there, changed",
        undone: "the host route deleted; of one that was there its metrics put back, where they are still those set",
        read_back: "the route that a packet to the peer takes then",
        changes_also,
        setting: Setting::Route(setting),
    }
}

/// Bounds of the kernel: TCP_MIN_MSS and MAX_TCP_WINDOW (net/ipv4/tcp.c) for `mss`,
/// `ip_metrics_convert` (net/ipv4/metrics.c) for the metrics of routes.
static TABLE: &[Entry] = &[
    socket(
        "receive_window",
        SocketSetting::ReceiveWindow,
        BUFFER,
        "the window that a receiver may advertise; its buffer is steered to it",
        "net.core.rmem_max of half of it",
        "SO_RCVBUF before the connection, and again through the run until the window that is offered stays there",
        "the window that the receiver offers, through the run",
    ),
    socket(
        "send_buffer",
        SocketSetting::SendBuffer,
        BUFFER,
        "SO_SNDBUF of a sender, as an application asks; the kernel doubles it",
        "net.core.wmem_max of as much",
        SETSOCKOPT,
        "SO_SNDBUF",
    ),
    socket(
        "mss",
        SocketSetting::Mss,
        ValueKind::Bytes {
            least: 88,
            most: 32_767,
        },
        "TCP_MAXSEG of the client, TCP options included; what it offers binds both ends",
        SOCKET_ONLY,
        "TCP_MAXSEG before the connection",
        "the record's mss_bytes, 12 less with time stamps",
    ),
    socket(
        "pacing",
        SocketSetting::Pacing,
        ValueKind::Rate {
            least: 8_000,
            most: 8_000_000_000_000,
        },
        "SO_MAX_PACING_RATE of each flow of a TCP sender",
        SOCKET_ONLY,
        SETSOCKOPT,
        "SO_MAX_PACING_RATE",
    ),
    socket(
        "congestion",
        SocketSetting::Congestion,
        ValueKind::Name,
        "TCP_CONGESTION of the sender",
        "a kernel that has it; CAP_NET_ADMIN if net.ipv4.tcp_allowed_congestion_control does not name it",
        SETSOCKOPT,
        "TCP_CONGESTION, and the record's congestion",
    ),
    socket(
        "nodelay",
        SocketSetting::Nodelay,
        ValueKind::Switch,
        "TCP_NODELAY; rr and crr have it on",
        SOCKET_ONLY,
        SETSOCKOPT,
        "TCP_NODELAY",
    ),
    socket(
        "quickack",
        SocketSetting::QuickAck,
        ValueKind::Switch,
        "TCP_QUICKACK, set again before each receiving call, since the kernel changes it by itself",
        SOCKET_ONLY,
        "setsockopt before each receiving call",
        "TCP_QUICKACK, once",
    ),
    socket(
        "dscp",
        SocketSetting::Dscp,
        ValueKind::Dscp,
        "the code point of the packets of both ends",
        SOCKET_ONLY,
        SETSOCKOPT,
        "IP_TOS or IPV6_TCLASS",
    ),
    socket(
        "zerocopy",
        SocketSetting::ZeroCopy,
        ValueKind::Switch,
        "sending without a copy, by vmsplice or sendfile; off is write",
        SOCKET_ONLY,
        "another call to send by",
        "the record's sender.method",
    ),
    socket(
        "discard",
        SocketSetting::Discard,
        ValueKind::Switch,
        "receiving without a copy: the bytes are dropped in the kernel (MSG_TRUNC), as no application would; off is read",
        SOCKET_ONLY,
        "another flag of the receiving call",
        "the record's receiver.method",
    ),
    socket(
        "busy_poll",
        SocketSetting::BusyPoll,
        ValueKind::Number {
            least: 0,
            most: 1_000_000,
            unit: "µs",
        },
        "SO_BUSY_POLL: how long a receiving call spins for packets",
        "CAP_NET_ADMIN for more than net.core.busy_read; a driver that can be polled, which loopback and veth cannot",
        SETSOCKOPT,
        "SO_BUSY_POLL",
    ),
    socket(
        "source",
        SocketSetting::Source,
        ValueKind::Address,
        "the client's address that its TCP connections come from",
        "the address, on this host",
        "bind, before the connection",
        "the record's flows",
    ),
    device(
        "checksum_offload",
        DeviceSetting::ChecksumOffload,
        "the device computes the checksums of what it sends, and verifies those of what it receives where that can be told",
        Some("off takes tso and uso with it: a comparison has tso, uso and gso off on both sides"),
    ),
    device(
        "tso",
        DeviceSetting::Tso,
        "the device cuts TCP data into segments",
        None,
    ),
    device(
        "uso",
        DeviceSetting::Uso,
        "the device cuts UDP data into datagrams",
        None,
    ),
    device(
        "gso",
        DeviceSetting::Gso,
        "the stack cuts just above the driver what the device cannot; nothing for TCP while tso is on",
        None,
    ),
    device(
        "gro",
        DeviceSetting::Gro,
        "the stack merges received segments",
        None,
    ),
    Entry {
        value: ValueKind::Number {
            least: 576,
            most: 65_535,
            unit: "bytes",
        },
        applied: "the link's MTU, by netlink",
        read_back: "the device's MTU",
        ..device(
            "mtu",
            DeviceSetting::Mtu,
            "the largest IP packet of the device; not of loopback",
            Some("below 1280 a device loses its IPv6 addresses: refused where it has any"),
        )
    },
    Entry {
        value: ValueKind::Number {
            least: 0,
            most: 1_000_000,
            unit: "µs",
        },
        needs: COALESCING,
        applied: "ETHTOOL_SCOALESCE, that one figure of the device's",
        read_back: "the driver's own figure, which it must not round",
        ..device(
            "rx_usecs",
            DeviceSetting::RxUsecs,
            "how long the device holds back the interrupt of a received packet",
            None,
        )
    },
    Entry {
        needs: COALESCING,
        applied: "ETHTOOL_SCOALESCE, that one figure of the device's",
        read_back: "the driver's own word",
        ..device(
            "adaptive_rx",
            DeviceSetting::AdaptiveRx,
            "the driver adapts rx_usecs to the load",
            None,
        )
    },
    Entry {
        name: "qos",
        scope: Scope::Device,
        value: ValueKind::Policy,
        means: "the DiffServ policy of a file, with its adapter `*` or the device; `passthrough`: a program without rules",
        needs: "root, or CAP_BPF and CAP_NET_ADMIN, and a kernel with eBPF",
        applied: "as by `linerate qos apply`: the program attached to the device, and its classes made",
        read_back: "the program in force on the device, and its classes",
        undone: "the policy that was there put back, or none",
        changes_also: Some(
            "a policy that reserves or limits has HTB in place of the root queueing discipline",
        ),
        setting: Setting::Qos,
    },
    route(
        "route_mtu",
        RouteSetting::Mtu,
        ValueKind::Number {
            least: 256,
            most: 65_520,
            unit: "bytes",
        },
        "the largest IP packet to the peer; at most the device's, and 1280 or more over IPv6",
        None,
    ),
    route(
        "route_advmss",
        RouteSetting::Advmss,
        ValueKind::Number {
            least: 88,
            most: 65_495,
            unit: "bytes",
        },
        "the MSS advertised to the peer: it binds what the peer sends, not what this end does",
        None,
    ),
    route(
        "route_quickack",
        RouteSetting::Quickack,
        ValueKind::Switch,
        "every segment is acknowledged at once",
        None,
    ),
    route(
        "route_source",
        RouteSetting::Source,
        ValueKind::Address,
        "the source address that the client's route to the peer prefers",
        Some(
            "the data connections are bound to it, since an endpoint takes them only from an address that the test names",
        ),
    ),
    Entry {
        name: "sysctl",
        scope: Scope::Host,
        value: ValueKind::Name,
        means: "a kernel setting of the list, such as sysctl:net.ipv4.tcp_sack=0",
        needs: "root of the network namespace that has the setting",
        applied: "written to /proc/sys in that namespace",
        read_back: "the setting itself",
        undone: PUT_BACK,
        changes_also: None,
        setting: Setting::Sysctl,
    },
];
