//! The table of a host's settings, how a setting is found by its key, the values that settings are
//! to get, and the file in sysctl.d that keeps them.

use std::borrow::Cow;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::advice::{Advice, Question};
use super::rules;
use crate::toml_reader;
use crate::treatment::{Value, ValueKind, sysctl_of};
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

// `KEY=VALUE`, checked against the table of settings before anything is changed.

/// A setting and the value it is to get, within its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    key: String,
    place: Place,
    value: Value,
}

/// Largest number of settings that are set at once.
pub(super) const MAX_ASSIGNMENTS: usize = 200;

impl Assignment {
    /// Checks one.
    ///
    /// # Errors
    /// There is no such setting, it is not to be set, or the value is out of range.
    pub fn new(key: &str, value: &str) -> Result<Self, HostError> {
        let setting = find(key)?;
        let not_settable = |why| Err(HostError(format!("`{key}` cannot be set here: {why}")));
        if key.contains('*') {
            return not_settable("a `*` is not one device: name it");
        }
        if setting.place == Place::Process {
            return not_settable(OF_PROCESS);
        }
        let kind = setting.value;
        let wrong = |wanted: String| {
            let value = shortened(value);
            HostError(format!("{key}={value}: it must be {wanted}"))
        };
        let read = kind.read(value).map_err(|_| wrong(kind.to_string()))?;
        if let (Value::Numbers(numbers), ValueKind::Numbers { .. }) = (&read, kind)
            && !numbers.is_sorted()
        {
            return Err(wrong(format!("{kind}, none less than the one before it")));
        }
        Ok(Self { key: key.to_owned(), place: setting.place, value: read })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The value as the kernel writes it.
    pub fn text(&self) -> String {
        self.value.to_string()
    }

    /// Whether a file of sysctl.d can hold it.
    ///
    /// # Errors
    /// Such a file holds kernel settings alone, and this is none.
    pub fn check_persistent(&self) -> Result<(), HostError> {
        if is_sysctl(&self.key) {
            return Ok(());
        }
        Err(HostError(format!(
            "`{}` cannot be kept over a reboot by a file of sysctl.d, which holds kernel settings \
             alone: use a udev rule, a systemd.link file or the service that brings the device up",
            self.key
        )))
    }
}

/// Whether a key is one of sysctl(8).
fn is_sysctl(key: &str) -> bool {
    ["fs.", "kernel.", "net.", "vm."].iter().any(|begin| key.starts_with(begin))
}

/// Reads several `KEY=VALUE`.
///
/// # Errors
/// As [`Assignment::new`]; one is not of that form, or a key is there twice.
pub fn assignments<S: AsRef<str>>(words: &[S]) -> Result<Vec<Assignment>, HostError> {
    if words.len() > MAX_ASSIGNMENTS {
        let count = words.len();
        let message = format!("{count} settings are given; at most {MAX_ASSIGNMENTS} may be");
        return Err(HostError(message));
    }
    let mut all: Vec<Assignment> = Vec::new();
    for word in words.iter().map(AsRef::as_ref) {
        let (key, value) = word.split_once('=').ok_or_else(|| {
            let word = shortened(word);
            HostError(format!("{word}: it must be KEY=VALUE, such as net.ipv4.tcp_sack=1"))
        })?;
        let one = Assignment::new(key.trim(), value)?;
        if all.iter().any(|other| other.key == one.key) {
            return Err(HostError(format!("`{}` is given twice", one.key)));
        }
        all.push(one);
    }
    Ok(all)
}

/// Whether there are settings of these keys; of a device, `*` may stand for its name.
///
/// # Errors
/// There is none of one of them.
pub fn check_keys<S: AsRef<str>>(keys: &[S]) -> Result<(), HostError> {
    keys.iter().try_for_each(|key| find(key.as_ref()).map(drop))
}

const OF_PROCESS: &str = "each process has it from what started it: `ulimit -n` in a shell, \
    LimitNOFILE= in a systemd unit, /etc/security/limits.conf for logins";

// The file in sysctl.d.

/// The one file in sysctl.d that is ours, parsed: lines `KEY = VALUE` under a header. Lines that
/// others have put into it are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlFile {
    lines: Vec<String>,
}

impl SysctlFile {
    /// Its name. `systemd-sysctl` and sysctl(8) read the files of all directories in the order of
    /// their names: those of distributions come before it, `99-sysctl.conf` after it.
    pub const NAME: &'static str = "90-linerate.conf";

    /// Parses the file; an empty text stands for a missing file.
    pub fn parse(text: &str) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect() }
    }

    /// The value of a key: the last one in the file, as in sysctl.d(5).
    pub fn value(&self, key: &str) -> Option<String> {
        let mut lines = self.lines.iter().rev();
        lines.find_map(|line| {
            let (own, value) = assignment(line)?;
            (own == key).then_some(value)
        })
    }

    /// Sets a key, in its present place or at the end.
    pub fn set(&mut self, key: &str, value: &str) {
        let line = format!("{key} = {value}");
        if self.lines.is_empty() {
            self.lines.extend(HEADER.iter().map(|&line| line.to_owned()));
        }
        let is_its = |line: &&mut String| assignment(line).is_some_and(|(own, _)| own == key);
        match self.lines.iter_mut().rev().find(is_its) {
            Some(own) => *own = line,
            None => self.lines.push(line),
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.lines.retain(|line| assignment(line).is_none_or(|(own, _)| own != key));
    }

    /// Whether the file has nothing but the header.
    pub fn is_empty(&self) -> bool {
        let is_ours = |line: &String| line.trim().is_empty() || HEADER.contains(&line.as_str());
        self.lines.iter().all(is_ours)
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Key and value of a line; none of a comment. A minus before the key means that a failure is
/// passed over.
fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (key, value) = line.split_once('=')?;
    let key = key.trim().trim_start_matches('-').trim();
    // `net/ipv4/tcp_sack` is the same key (sysctl.d(5)).
    let is_slashed = key.find(['.', '/']).is_some_and(|at| key[at..].starts_with('/'));
    let key = if is_slashed { key.chars().map(swapped).collect() } else { key.to_owned() };
    let words: Vec<&str> = value.split_whitespace().collect();
    Some((key, words.join(" ")))
}

fn swapped(c: char) -> char {
    match c {
        '/' => '.',
        '.' => '/',
        other => other,
    }
}

const HEADER: [&str; 2] = [
    "# Written by `linerate host set --persist`; `linerate host undo` takes its lines out again.",
    "# Put settings of your own into another file.",
];
