//! `KEY=VALUE`, checked against the table before anything is touched.

use super::error::HostError;
use super::setting::{Place, find};
use crate::treatment::{Value, ValueKind};
use crate::units::shortened;

/// One setting that is to get a value of its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    key: String,
    place: Place,
    value: Value,
}

/// Most that are set at once.
pub const MAX_ASSIGNMENTS: usize = 200;

impl Assignment {
    /// Checks one.
    ///
    /// # Errors
    /// There is no such setting, it is not to be set, or the value is out of range.
    pub fn new(key: &str, value: &str) -> Result<Self, HostError> {
        let setting = find(key)?;
        if key.contains('*') {
            let why = "a `*` is not one device: name it";
            let key = key.to_owned();
            return Err(HostError::NotSettable { key, why });
        }
        if setting.place == Place::Process {
            let key = key.to_owned();
            return Err(HostError::NotSettable {
                key,
                why: OF_PROCESS,
            });
        }
        let kind = setting.value;
        let wrong = |wanted: String| HostError::Value {
            key: key.to_owned(),
            value: shortened(value),
            wanted,
        };
        let read = kind.read(value).map_err(|_| wrong(kind.to_string()))?;
        if let (Value::Numbers(numbers), ValueKind::Numbers { .. }) = (&read, kind)
            && !numbers.is_sorted()
        {
            return Err(wrong(format!("{kind}, none less than the one before it")));
        }
        Ok(Self {
            key: key.to_owned(),
            place: setting.place,
            value: read,
        })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// As the kernel writes it.
    pub fn text(&self) -> String {
        self.value.to_string()
    }

    /// Whether a file of sysctl.d can hold it.
    ///
    /// # Errors
    /// [`HostError::NotPersistent`].
    pub fn check_persistent(&self) -> Result<(), HostError> {
        if is_sysctl(&self.key) {
            Ok(())
        } else {
            Err(HostError::NotPersistent {
                key: self.key.clone(),
            })
        }
    }
}

/// Whether a key is one of sysctl(8).
pub(super) fn is_sysctl(key: &str) -> bool {
    ["fs.", "kernel.", "net.", "vm."]
        .iter()
        .any(|begin| key.starts_with(begin))
}

/// Reads several `KEY=VALUE`.
///
/// # Errors
/// As [`Assignment::new`]; one is not of that form, or a key is there twice.
pub fn assignments<S: AsRef<str>>(words: &[S]) -> Result<Vec<Assignment>, HostError> {
    if words.len() > MAX_ASSIGNMENTS {
        return Err(HostError::TooMany { count: words.len() });
    }
    let mut all: Vec<Assignment> = Vec::new();
    for word in words.iter().map(AsRef::as_ref) {
        let (key, value) = word.split_once('=').ok_or_else(|| HostError::Malformed {
            text: shortened(word),
        })?;
        let one = Assignment::new(key.trim(), value)?;
        if all.iter().any(|other| other.key == one.key) {
            return Err(HostError::Repeated { key: one.key });
        }
        all.push(one);
    }
    Ok(all)
}

/// Whether there are settings of these keys; of a device, `*` may stand for its name.
///
/// # Errors
/// [`HostError::Unknown`].
pub fn check_keys<S: AsRef<str>>(keys: &[S]) -> Result<(), HostError> {
    keys.iter().try_for_each(|key| find(key.as_ref()).map(drop))
}

const OF_PROCESS: &str = "each process has it from what started it: `ulimit -n` in a shell, \
    LimitNOFILE= in a systemd unit, \
                          /etc/security/limits.conf for logins";
