//! The table of treatments. Those of sockets are options of a test, and come from their table
//! ([`options`]); the next one of a host is an entry here, with the engine's hand on it.

use std::sync::LazyLock;

use super::change::{DeviceSetting, RouteSetting};
use super::error::TreatmentError;
use crate::plan::{TestOption, options};
use crate::units::{shortened, suggestion};
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
    Socket(&'static TestOption),
    Device(DeviceSetting),
    Route(RouteSetting),
    Sysctl,
    Qos,
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
    &TABLE
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
    table()
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| TreatmentError::Unknown {
            name: shortened(name),
            hint: hint(name),
        })
}

/// The entry of a setting.
pub(super) fn entry_of(setting: Setting) -> &'static Entry {
    table()
        .iter()
        .find(|entry| entry.setting == setting)
        .expect("each setting has its entry, which a test holds")
}

fn hint(name: &str) -> String {
    if name.starts_with("net.") {
        return format!("did you mean `sysctl:{}`?", shortened(name));
    }
    let names: Vec<_> = table().iter().map(|entry| entry.name).collect();
    let listed = || format!("the treatments are {}", names.join(", "));
    suggestion(name, &names).unwrap_or_else(listed)
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

const WITH_SOCKET: &str = "it goes with the run's sockets";
const PUT_BACK: &str = "what was there before, where it is still what was set";
const ADMIN: &str = "CAP_NET_ADMIN in the network namespace of the device";
const COALESCING: &str = "CAP_NET_ADMIN in the network namespace of the device; a driver that holds interrupts back, which \
     loopback and veth do not";
const ROUTE_ADMIN: &str =
    "CAP_NET_ADMIN in the network namespace of the route; a peer that is not on this host";

fn socket(option: &'static TestOption) -> Option<Entry> {
    let treatment = option.treatment?;
    Some(Entry {
        name: option.name,
        scope: Scope::Socket,
        value: option.kind,
        means: treatment.means,
        needs: treatment.needs,
        applied: treatment.applied,
        read_back: treatment.read_back,
        undone: WITH_SOCKET,
        changes_also: None,
        setting: Setting::Socket(option),
    })
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

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let sockets = options().iter().filter_map(socket);
    sockets.chain(HOSTS.iter().copied()).collect()
});

/// What is no socket's. The bounds of routes' metrics are the kernel's: `ip_metrics_convert`
/// (net/ipv4/metrics.c).
static HOSTS: &[Entry] = &[
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
            Some(
                "of devices stacked on it, and MTUs of IPv6 alone: put back, too; below 1280 a device loses its IPv6 \
                 addresses and settings: refused where it has IPv6",
            ),
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
