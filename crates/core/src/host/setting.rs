//! The table of a host's settings, and how a setting is found by its key.

use std::borrow::Cow;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::advice::{Advice, Question};
use super::rules;
use crate::toml_reader;
use crate::treatment::{ValueKind, sysctl_of};
use crate::units::{shortened, suggestion};

/// The part of a host that a setting configures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Each network namespace has its own.
    Namespace,
    /// The whole host; containers see it and cannot change it.
    Host,
    /// One network device.
    Device,
    /// Each process has its own, which its parent or service manager gave it.
    Process,
}

/// A setting and its description.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The key; a `*` in it stands for the name of a device.
    pub key: &'static str,
    /// The part of the host that it configures.
    pub place: Place,
    /// The accepted values.
    pub value: ValueKind,
    /// The setting's effect.
    pub means: &'static str,
    /// What suffers when it is wrong.
    pub limits: &'static str,
    /// The recommended value as a formula or a condition.
    pub formula: &'static str,
    /// The source of the formula.
    pub source: &'static str,
    pub(super) rule: fn(&Question<'_>) -> Advice,
}

impl Setting {
    /// The unit, such as `bytes`; empty for a plain number or a name.
    pub fn unit(&self) -> &'static str {
        match self.value {
            ValueKind::Number { unit, .. } | ValueKind::Numbers { unit, .. } => unit,
            ValueKind::Bytes { .. } => "bytes",
            _ => "",
        }
    }

    /// Whether a key is one of this setting's.
    pub(super) fn matches(&self, key: &str) -> bool {
        match self.key.strip_prefix(DEVICE) {
            None => self.key == key,
            Some(pattern) => {
                device_key(key).is_some_and(|own| pattern.strip_prefix("*.") == Some(own.name))
            }
        }
    }
}

/// The two parts of a key of a device: `device.eth0.rx_ring`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceKey<'a> {
    /// `eth0`; it may have dots.
    pub device: &'a str,
    /// `rx_ring`.
    pub name: &'a str,
}

/// The parts of the key of a device; none if it is not one.
pub fn device_key(key: &str) -> Option<DeviceKey<'_>> {
    let (device, name) = key.strip_prefix(DEVICE)?.rsplit_once('.')?;
    // IFNAMSIZ is 16 with the terminating zero; dev_valid_name (net/core/dev.c).
    let allowed = |byte: u8| byte.is_ascii_graphic() && !b"/:*".contains(&byte);
    let is_name = (1..16).contains(&device.len())
        && device.bytes().all(allowed)
        && !matches!(device, "." | "..");
    is_name.then_some(DeviceKey { device, name })
}

/// What a key is of: an entry of the table, or a kernel setting that the treatments know and of
/// which nothing is advised.
///
/// # Errors
/// There is no such setting; with one that looks like it.
pub fn find(key: &str) -> Result<Cow<'static, Setting>, HostError> {
    let is_it = |setting: &&Setting| setting.key == key || setting.matches(key);
    if let Some(setting) = settings().iter().find(is_it) {
        return Ok(Cow::Borrowed(setting));
    }
    match sysctl_of(key) {
        Some(entry) => Ok(Cow::Owned(Setting {
            key: entry.key,
            place: Place::Namespace,
            limits: entry.means,
            formula: "",
            source: "Documentation/networking/ip-sysctl.rst, \
                Documentation/admin-guide/sysctl/net.rst",
            value: entry.value,
            means: entry.means,
            rule: super::rules::not_judged,
        })),
        None => {
            let hint = suggestion(key, settings().iter().map(|setting| setting.key))
                .unwrap_or_else(|| "`linerate host show --all` lists them".to_owned());
            let key = shortened(key);
            Err(HostError(format!("there is no setting `{key}`; {hint}")))
        }
    }
}

/// The prefix of a device's keys.
pub(super) const DEVICE: &str = "device.";

/// All settings of which something is advised, in the order in which they are shown.
pub fn settings() -> &'static [Setting] {
    &TABLE
}

static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let entries: Vec<SettingEntry> = toml_reader::entries(include_str!("settings.toml"));
    entries.into_iter().map(Setting::from).collect()
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingEntry {
    key: &'static str,
    place: Place,
    value: Option<ValueKind>,
    means: Option<&'static str>,
    limits: &'static str,
    formula: &'static str,
    source: &'static str,
    rule: &'static str,
}

impl From<SettingEntry> for Setting {
    fn from(entry: SettingEntry) -> Self {
        let treatment = || sysctl_of(entry.key).expect("a treatment has what an entry lacks");
        Self {
            key: entry.key,
            place: entry.place,
            value: entry.value.unwrap_or_else(|| treatment().value),
            means: entry.means.unwrap_or_else(|| treatment().means),
            limits: entry.limits,
            formula: entry.formula,
            source: entry.source,
            rule: rules::named(entry.rule).expect("each entry's rule is in `rules`"),
        }
    }
}

/// A setting that there is not, or that cannot be given that value. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct HostError(pub(super) String);
