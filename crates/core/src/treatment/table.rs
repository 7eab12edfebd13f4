//! The table of treatments. Those of sockets are options of a test, and come from their table
//! ([`options`]); the next one of a host is an entry of `hosts.toml`, with the engine's hand on it.

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::change::{DeviceSetting, RouteSetting};
use super::error::TreatmentError;
use crate::plan::{Role, TestOption, options};
use crate::toml_reader;
use crate::units::{shortened, suggestion};
use crate::value::ValueKind;

/// What a treatment changes.
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

/// A treatment: its name, and all that is to be known of it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name; for kernel settings `sysctl`, after which come a colon and the key.
    pub name: &'static str,
    /// What it changes.
    pub scope: Scope,
    /// Which values it takes; those of `sysctl` are the key's own.
    pub value: ValueKind,
    /// What it is.
    pub means: &'static str,
    /// The end of the payload at which it acts, if that is one of them; of `sysctl` the key's own.
    pub acts: Option<Role>,
    /// Whether what it changes is above all CPU time.
    #[serde(default)]
    pub costs_cpu: bool,
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
    #[serde(skip)]
    pub(super) setting: Setting,
}

/// What an entry sets.
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
    /// Which values it takes, in words with their range.
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
    let hosts: Vec<Entry> = toml_reader::entries(include_str!("hosts.toml"));
    let hosts = hosts.into_iter().map(|entry| Entry {
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
