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

/// Settings of a host, what they should be, and what was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostDocument {
    /// [`HOST_SCHEMA`].
    pub schema: String,
    /// The host.
    pub host: HostAbout,
    /// What is needed of it.
    pub need: Need,
    /// Settings, those of devices for each device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingReport>,
    /// What was set or undone, or would be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SettingChange>,
    /// Nothing was changed: `changes` is what would be.
    #[serde(default)]
    pub dry_run: bool,
    /// The file that keeps kernel settings over a reboot, where one was written, edited or taken
    /// away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What else there is to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The host that a document is of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostAbout {
    /// Version of linerate.
    pub linerate: String,
    /// The kernel's release.
    pub kernel: String,
    /// This boot of it.
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

/// One setting: what it is, and what it should be.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingReport {
    /// Its key.
    pub key: String,
    /// What it is of.
    pub place: Place,
    /// Whether it is right.
    pub state: SettingState,
    /// Its value.
    pub now: Option<String>,
    /// The value that it should have, where that is another.
    pub right: Option<String>,
    /// What its value counts.
    pub unit: Option<String>,
    /// Why it is right or not; what is missing where it cannot be told.
    pub why: String,
    /// The right value as a formula or a condition.
    pub formula: Option<String>,
    /// What the formula was given and came to; each name has its unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, f64>,
    /// Which values it takes.
    pub range: String,
    /// What it decides.
    pub means: String,
    /// What it holds back when it is wrong.
    pub limits: String,
    /// Where that is from: a file of the kernel's, an RFC.
    pub source: String,
    /// Why it cannot be changed here, if it cannot.
    pub obstacle: Option<String>,
    /// What it was before `host set` changed it; `host undo` brings that back.
    pub kept_from: Option<String>,
    /// Our file in sysctl.d sets it at each boot.
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
    /// It is fine.
    Fine,
    /// It depends on something that was not given.
    Open,
    /// Nothing is advised: it is shown.
    Shown,
    /// It could not be read.
    Unknown,
    /// The host, this namespace or the device does not have it.
    Unsupported,
}

/// One setting that was set or undone, or would be.
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
    /// What became of it.
    pub outcome: ChangeOutcome,
    /// Why it is to be changed, or was left alone.
    pub why: Option<String>,
}

/// What became of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// It would be set: a dry run.
    Planned,
    /// It was set and read back.
    Set,
    /// It had the value already.
    Already,
    /// It is what it was before `host set`.
    Restored,
    /// Somebody has changed it since: it was left alone.
    LeftAlone,
    /// What it was of is gone.
    Gone,
    /// It could not be put back; it stays in the journal.
    Failed,
}

impl HostDocument {
    /// A document of nothing yet.
    pub fn new(host: HostAbout) -> Self {
        Self {
            schema: HOST_SCHEMA.to_owned(),
            host,
            need: Need::default(),
            settings: Vec::new(),
            changes: Vec::new(),
            dry_run: false,
            file: None,
            notes: Vec::new(),
        }
    }
}

impl SettingReport {
    /// `linerate host set …` that makes it right; none where it is, or where it cannot be changed.
    pub fn command(&self) -> Option<String> {
        let right = self.right.as_deref().filter(|_| self.is_to_be_changed())?;
        Some(host_set([(self.key.as_str(), right)]))
    }

    /// It should be another value, and can be given it here.
    pub fn is_to_be_changed(&self) -> bool {
        self.state == SettingState::Change
            && self.obstacle.is_none()
            && self.place != Place::Process
    }
}
