//! `KEY=VALUE`, checked against the table of settings before anything is changed.

use super::setting::{HostError, Place, find};
use crate::treatment::{Value, ValueKind};
use crate::units::shortened;

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
pub(super) fn is_sysctl(key: &str) -> bool {
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
