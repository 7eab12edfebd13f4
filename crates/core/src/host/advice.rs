//! What a host is needed for, the state that it is in, and the recommended value of each setting: a
//! pure function of both, and the document of `linerate host`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::setting::{DEVICE, Place, device_key, find, settings};
use crate::remedy::host_set;
use crate::units::{BitRate, Span, listed, words};

/// The input of a rule.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) need: &'a Need,
    pub(super) view: &'a HostView,
    /// The device, if the setting belongs to one.
    pub(super) device: Option<&'a DeviceView>,
    /// The current value.
    pub(super) now: &'a str,
}

/// The answer of a rule.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) state: SettingState,
    pub(super) right: Option<String>,
    pub(super) why: String,
    pub(super) inputs: Vec<(&'static str, f64)>,
}

/// The advice for every setting of the table, in its order; settings of devices once for each
/// device. If `keys` is not empty, only these are reported; they may be kernel settings without
/// advice.
pub fn advise(need: &Need, view: &HostView, keys: &[String]) -> Vec<SettingReport> {
    let wanted: Vec<&str> = match keys {
        [] => settings().iter().map(|setting| setting.key).collect(),
        keys => keys.iter().map(String::as_str).collect(),
    };
    let keys = wanted.iter().flat_map(|key| for_each_device(key, view));
    keys.filter_map(|key| report(need, view, &key)).collect()
}

fn for_each_device(key: &str, view: &HostView) -> Vec<String> {
    let rest = key.strip_prefix(DEVICE);
    let Some(name) = rest.and_then(|rest| rest.strip_prefix("*.")) else {
        return vec![key.to_owned()];
    };
    let key_of = |device: &DeviceView| format!("{DEVICE}{}.{name}", device.name);
    view.devices.iter().map(key_of).collect()
}

fn report(need: &Need, view: &HostView, key: &str) -> Option<SettingReport> {
    let setting = find(key).ok()?;
    let not_judged = |state: SettingState, why: &str| Advice {
        state,
        right: None,
        why: why.to_owned(),
        inputs: Vec::new(),
    };
    let (mut now, mut kept_by) = (None, None);
    let advice = match view.readings.get(key) {
        Some(Reading::Value { text, obstacle }) => {
            (now, kept_by) = (Some(text.clone()), obstacle.clone());
            (setting.rule)(&Question {
                need,
                view,
                device: device_key(key).and_then(|own| view.device(own.device)),
                now: text,
            })
        }
        Some(Reading::Unsupported(why)) => not_judged(SettingState::Unsupported, why),
        Some(Reading::Unknown(why)) => not_judged(SettingState::Unknown, why),
        None => not_judged(SettingState::Unknown, "it was not read"),
    };
    let inputs = advice.inputs.into_iter();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Some(SettingReport {
        key: key.to_owned(),
        place: setting.place,
        state: advice.state,
        now,
        right: advice.right,
        unit: some(setting.unit()),
        why: advice.why,
        formula: some(setting.formula),
        inputs: inputs.map(|(name, value)| (name.to_owned(), value)).collect(),
        range: setting.value.to_string(),
        means: setting.means.to_owned(),
        limits: setting.limits.to_owned(),
        source: setting.source.to_owned(),
        obstacle: kept_by,
        kept_from: None,
        persisted: false,
    })
}

// The need for a host: a path to fill, connections to hold, or the needs of a profile.

/// What a host is needed for.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Need {
    /// The path to fill.
    pub path: Option<NeededPath>,
    /// TCP connections at once.
    pub connections: Option<u64>,
    /// The host's use.
    pub profile: Option<Profile>,
}

/// A path to fill.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NeededPath {
    /// Rate wanted for one connection, bits per second.
    pub rate_bps: f64,
    /// Round-trip time, microseconds.
    pub rtt_us: f64,
    /// The origin of both figures.
    pub origin: NeedOrigin,
}

/// The origin of a path's rate and round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NeedOrigin {
    /// The user gave them.
    Given,
    /// They were measured to a host that the user named.
    Measured,
    /// They are the profile's defaults.
    Profile,
}

/// The use of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Bulk transfers over long paths.
    Wan,
    /// Low latency and high rates over short ones.
    Lan,
    /// Servers and clients with very many connections.
    ManyConnections,
}

impl NeededPath {
    /// The bytes that fill the path: rate × round-trip time.
    pub fn product_bytes(&self) -> f64 {
        self.rate_bps * self.rtt_us / 8e6
    }
}

impl fmt::Display for NeededPath {
    /// `10 Gbit/s over 80 ms`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = BitRate(self.rate_bps as u64);
        write!(f, "{rate} over {} ms", self.rtt_us.round() / 1e3)
    }
}

impl Need {
    /// A path with that rate and round-trip time.
    pub fn of_path(rate: BitRate, rtt: Span) -> Self {
        let path = NeededPath {
            rate_bps: rate.as_f64(),
            rtt_us: rtt.as_secs_f64() * 1e6,
            origin: NeedOrigin::Given,
        };
        Self { path: Some(path), ..Self::default() }
    }

    /// What a profile needs where the user gives nothing else. `speed` is the device's, bits per
    /// second.
    pub fn with_profile(mut self, profile: Profile, speed: Option<u64>) -> Self {
        let path = |rate: f64, rtt_us: f64| NeededPath {
            rate_bps: speed.map_or(rate, |bps| bps as f64),
            rtt_us,
            origin: NeedOrigin::Profile,
        };
        self.profile = Some(profile);
        match profile {
            Profile::Wan => self.path = self.path.or(Some(path(1e9, 100_000.0))),
            Profile::Lan => self.path = self.path.or(Some(path(10e9, 500.0))),
            Profile::ManyConnections => self.connections = self.connections.or(Some(100_000)),
        }
        self
    }
}

words! {
    Profile name { "wan" Wan, "lan" Lan, "many-connections" ManyConnections }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::from_word(text);
        known.ok_or_else(|| format!("it must be {}", listed(Self::WORDS, "or")))
    }
}

// The state of a host: its settings and resources, as the engine reads them.

/// A host's settings, and the facts on which their recommended values depend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostView {
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// Memory, bytes; 0 where it is not known.
    pub memory_bytes: u64,
    /// Bytes of a page of memory: what `tcp_mem` counts.
    pub page_bytes: u64,
    /// Congestion controls that the kernel has loaded.
    pub congestion_controls: Vec<String>,
    /// Queueing disciplines that the kernel is known to have.
    pub queueing_disciplines: Vec<String>,
    /// The settings by key; a device's key contains its name.
    pub readings: BTreeMap<String, Reading>,
    /// Devices whose settings were read.
    pub devices: Vec<DeviceView>,
}

/// The reading of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The setting exists, with this value.
    Value {
        /// The kernel's text, with one blank between numbers.
        text: String,
        /// Why it cannot be changed here, if it cannot.
        obstacle: Option<String>,
    },
    /// The host, this namespace or the device does not have it: what is missing.
    Unsupported(String),
    /// The setting could not be read, for this reason.
    Unknown(String),
}

/// The facts of a device on which recommended values depend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// Speed, bits per second, if the device reports it.
    pub speed_bps: Option<u64>,
    /// It has hardware, or a hypervisor's, behind it: it is no veth, bridge or tunnel.
    pub is_physical: bool,
    /// Number of receive queues.
    pub rx_queues: u32,
    /// Number of transmit queues.
    pub tx_queues: u32,
    /// Largest receive ring, descriptors.
    pub rx_ring_max: Option<u32>,
    /// Largest transmit ring, descriptors.
    pub tx_ring_max: Option<u32>,
    /// Whether the driver adapts its interrupt coalescing.
    pub adapts: bool,
}

impl HostView {
    /// The fastest device's speed, bits per second.
    pub fn speed_bps(&self) -> Option<u64> {
        let physical = self.devices.iter().filter(|device| device.is_physical);
        physical.filter_map(|device| device.speed_bps).max()
    }

    pub(super) fn device(&self, name: &str) -> Option<&DeviceView> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The value of another setting.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.readings.get(key)? {
            Reading::Value { text, .. } => Some(text),
            _ => None,
        }
    }
}

// The document of `linerate host`.

/// Name and version of the document.
pub const HOST_SCHEMA: &str = "linerate.host/1";

/// The settings of a host, their recommended values, and what was changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostDocument {
    /// [`HOST_SCHEMA`].
    pub schema: String,
    /// The host.
    pub host: HostAbout,
    /// What the host is needed for.
    pub need: Need,
    /// The settings; those of devices once for each device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingReport>,
    /// The settings that were set or undone, or would be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SettingChange>,
    /// Whether it was a dry run: `changes` then lists what would be changed.
    #[serde(default)]
    pub dry_run: bool,
    /// The file that keeps kernel settings over a reboot, where one was written, edited or taken
    /// away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Further notes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The host that a document describes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostAbout {
    /// Version of linerate.
    pub linerate: String,
    /// The kernel's release.
    pub kernel: String,
    /// Identifier of the current boot.
    pub boot_id: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// Memory, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Network devices whose settings were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}

/// A setting, its value and its recommended value.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingReport {
    /// Its key.
    pub key: String,
    /// The part of the host that it configures.
    pub place: Place,
    /// Whether the value is right.
    pub state: SettingState,
    /// Its value.
    pub now: Option<String>,
    /// The recommended value, where it differs.
    pub right: Option<String>,
    /// The unit of the value.
    pub unit: Option<String>,
    /// Why the value is right or wrong, or which information is missing to tell.
    pub why: String,
    /// The recommended value as a formula or a condition.
    pub formula: Option<String>,
    /// Inputs and results of the formula; each name has its unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, f64>,
    /// The accepted values.
    pub range: String,
    /// The setting's effect.
    pub means: String,
    /// What suffers when it is wrong.
    pub limits: String,
    /// The source of the formula: a file of the kernel, an RFC.
    pub source: String,
    /// Why it cannot be changed here, if it cannot.
    pub obstacle: Option<String>,
    /// The value before `host set`, which `host undo` restores.
    pub kept_from: Option<String>,
    /// Whether linerate's file in sysctl.d sets it at each boot.
    #[serde(default)]
    pub persisted: bool,
}

/// Whether a setting is right.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SettingState {
    /// It should have another value.
    Change,
    /// The value needs no change.
    Fine,
    /// The right value depends on information that was not given.
    Open,
    /// Nothing is advised: the value is only shown.
    Shown,
    /// It could not be read.
    Unknown,
    /// The host, this namespace or the device does not have it.
    Unsupported,
}

/// A setting that was set or undone, or would be.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingChange {
    /// Its key.
    pub key: String,
    /// The value before `host set`.
    pub was: String,
    /// The value that `host set` gave it, or would.
    pub set: String,
    /// The value that it has now; absent where it is gone.
    pub now: Option<String>,
    /// The outcome.
    pub outcome: ChangeOutcome,
    /// Why it is changed, or was left alone.
    pub why: Option<String>,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// It would be set: a dry run.
    Planned,
    /// It was set and read back.
    Set,
    /// It had the value already.
    Already,
    /// The value is the one from before `host set`.
    Restored,
    /// Somebody has changed it since: it was left alone.
    LeftAlone,
    /// Its device or process no longer exists.
    Gone,
    /// It could not be put back; it stays in the journal.
    Failed,
}

impl HostDocument {
    /// An empty document of a host.
    pub fn new(host: HostAbout) -> Self {
        Self { schema: HOST_SCHEMA.to_owned(), host, ..Self::default() }
    }
}

impl SettingReport {
    /// `linerate host set …` that makes it right; none where it is, or where it cannot be changed.
    pub fn command(&self) -> Option<String> {
        let right = self.right.as_deref().filter(|_| self.is_to_be_changed())?;
        Some(host_set([(self.key.as_str(), right)]))
    }

    /// Whether the value should change and can be changed here.
    pub fn is_to_be_changed(&self) -> bool {
        self.state == SettingState::Change
            && self.obstacle.is_none()
            && self.place != Place::Process
    }
}
