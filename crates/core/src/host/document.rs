//! The document of `linerate host`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::need::Need;
use super::setting::Place;
use crate::remedy::host_set;

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
