//! The table of treatments. Treatments of sockets are options of a test and come from that table
//! ([`options`]); a new treatment of a host is an entry in `hosts.toml` and code in the engine.

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::change::{DeviceSetting, RouteSetting};
use super::error::TreatmentError;
use crate::plan::{Role, TestOption, options};
use crate::toml_reader;
use crate::units::{shortened, suggestion, words};
use crate::value::{Value, ValueKind};

/// The part of a host that a treatment changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// A treatment: its name and its description.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name. For kernel settings this is `sysctl`; a colon and the key follow.
    pub name: &'static str,
    /// The part of a host that it changes.
    pub scope: Scope,
    /// The accepted values; those of `sysctl` depend on its key.
    pub value: ValueKind,
    /// Its meaning.
    pub means: &'static str,
    /// The end of the payload at which it acts, if it acts at one end only. For `sysctl` each key
    /// has its own.
    pub acts: Option<Role>,
    /// Whether it changes mainly CPU time.
    #[serde(default)]
    pub costs_cpu: bool,
    /// Requirement of the host.
    pub needs: &'static str,
    /// Means by which it is applied.
    pub applied: &'static str,
    /// Means by which it is read back.
    pub read_back: &'static str,
    /// How the previous state is restored.
    pub undone: &'static str,
    /// What else changes with it, if anything.
    pub changes_also: Option<&'static str>,
    #[serde(skip)]
    pub(super) setting: Setting,
}

/// The setting of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Setting {
    Socket(&'static TestOption),
    Device(DeviceSetting),
    Route(RouteSetting),
    #[default]
    Sysctl,
    Qos,
}

impl Entry {
    /// The value that `text` is for this treatment.
    pub(super) fn read(&self, text: &str) -> Result<Value, TreatmentError> {
        let read = self.value.read(text);
        read.map_err(|_| TreatmentError::value(self.name, text, self.value))
    }

    /// The accepted values in words, with their range.
    pub fn range(&self) -> String {
        match self.setting {
            Setting::Sysctl => "what the key takes".to_owned(),
            _ => self.value.to_string(),
        }
    }
}

/// Where a treatment acts, in words.
pub fn acts_words(acts: Option<Role>) -> &'static str {
    match acts {
        Some(Role::Sender) => "where data is sent",
        Some(Role::Receiver) => "where data is received",
        None => "at both ends",
    }
}

words! {
    Scope name { "socket" Socket, "device" Device, "route" Route, "host" Host }
}

impl Scope {
    /// The ends to which the scope applies, and the prefix of the other end.
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

/// Names that users ask for but that are no treatments, each with the reason.
pub fn refused() -> &'static [(&'static str, &'static str)] {
    REFUSED
}

/// The entry of that name.
///
/// # Errors
/// There is no such treatment, or the name is refused.
pub(super) fn find(name: &str) -> Result<&'static Entry, TreatmentError> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(TreatmentError::refused(name, why));
    }
    let found = table().iter().find(|entry| entry.name == name);
    found.ok_or_else(|| {
        let (name, hint) = (shortened(name), hint(name));
        TreatmentError::new(format!("there is no treatment `{name}`; {hint}"))
    })
}

/// The entry of a setting.
pub(super) fn entry_of(setting: Setting) -> &'static Entry {
    let entry = table().iter().find(|entry| entry.setting == setting);
    entry.expect("each setting has its entry, which a test holds")
}

fn hint(name: &str) -> String {
    if name.starts_with("net.") {
        return format!("did you mean `sysctl:{}`?", shortened(name));
    }
    if let Some(entry) = table().iter().find(|entry| entry.is_also(name)) {
        return format!("did you mean `{}`?", entry.name);
    }
    let names: Vec<_> = table().iter().map(|entry| entry.name).collect();
    let listed = || format!("the treatments are {}", names.join(", "));
    suggestion(name, &names).unwrap_or_else(listed)
}

impl Entry {
    /// Whether iperf3, iproute2, ethtool or the kernel has it under that name.
    fn is_also(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        let aliases = match self.setting {
            Setting::Socket(option) => option.aliases,
            _ => &[],
        };
        aliases.iter().any(|alias| alias.replace('-', "_") == name)
            || elsewhere(self.name).split_whitespace().any(|own| own == name)
    }
}

/// The names of a treatment elsewhere, with `_` between words.
fn elsewhere(treatment: &str) -> &'static str {
    match treatment {
        "congestion" => "cc ca cong congctl congestion_control tcp_congestion",
        "receive_window" => "window rwnd rwin rcvbuf receive_buffer so_rcvbuf",
        "send_buffer" => "sndbuf sendbuf send_window so_sndbuf",
        "pacing" => "rate maxrate bitrate pacing_rate",
        "mss" => "segment_size maxseg",
        "nodelay" => "nagle tcp_nodelay",
        "dscp" => "tos dsfield",
        "checksum_offload" => "csum checksum tx rx",
        "rx_usecs" => "coalesce",
        "route_advmss" => "advmss",
        _ => "",
    }
}

/// Names that users ask for but that do not do what they say, each with the reason.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        "window_clamp",
        "TCP_WINDOW_CLAMP does not hold on Linux, the window grows past it; use `receive_window`",
    ),
    (
        "route_window",
        "Linux uses a route's window only for the scale in the SYN, the window grows past it; use \
         `receive_window`",
    ),
    (
        "sg",
        "without scatter-gather Linux switches tso, gso and checksum offload off too, and no \
         control can keep them on",
    ),
];

const WITH_SOCKET: &str = "it goes with the run's sockets";

fn socket(option: &'static TestOption) -> Option<Entry> {
    let treatment = option.treatment?;
    Some(Entry {
        name: option.name,
        scope: Scope::Socket,
        value: option.kind,
        means: treatment.means,
        acts: treatment.acts,
        costs_cpu: treatment.costs_cpu,
        needs: treatment.needs,
        applied: treatment.applied,
        read_back: treatment.read_back,
        undone: WITH_SOCKET,
        changes_also: None,
        setting: Setting::Socket(option),
    })
}

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let sockets = options().iter().filter_map(socket);
    let entries: Vec<Entry> = toml_reader::entries(include_str!("hosts.toml"));
    let hosts = entries.into_iter().map(|entry| Entry {
        setting: entry.host_setting().expect("a test reads all entries"),
        ..entry
    });
    sockets.chain(hosts).collect()
});

impl Entry {
    /// What an entry of `hosts.toml` sets, by its name.
    fn host_setting(&self) -> Option<Setting> {
        let name = |name: &'static str| IntoDeserializer::<Error>::into_deserializer(name);
        match (self.scope, self.name) {
            (Scope::Host, "sysctl") => Some(Setting::Sysctl),
            (Scope::Device, "qos") => Some(Setting::Qos),
            (Scope::Device, device) => {
                let setting = DeviceSetting::deserialize(name(device));
                setting.ok().map(Setting::Device)
            }
            (Scope::Route, route) => {
                let setting = RouteSetting::deserialize(name(route.strip_prefix("route_")?));
                setting.ok().map(Setting::Route)
            }
            _ => None,
        }
    }
}
