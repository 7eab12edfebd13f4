//! The kernel settings that a treatment may change (`sysctls.toml`): those of `net.*` that decide
//! what a transfer gets or costs.
//!
//! Other settings are refused, at this host and at an endpoint: a setting that outlives its
//! comparison, opens the host to others or removes routes cannot be a treatment.

use std::sync::LazyLock;

use serde::Deserialize;

use super::error::TreatmentError;
use crate::plan::Role;
use crate::toml_reader;
use crate::units::{shortened, suggestion};
use crate::value::{Value, ValueKind};

/// A kernel setting.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Sysctl {
    /// The key; a `*` in it stands for the name of a device.
    pub key: &'static str,
    /// The accepted values.
    pub value: ValueKind,
    /// Its effect.
    pub means: &'static str,
    /// The end of the payload at which it acts, if it is only one.
    pub acts: Option<Role>,
    /// Whether it changes mainly CPU time.
    #[serde(default)]
    pub costs_cpu: bool,
    /// What else changes with it, if anything.
    pub changes_also: Option<&'static str>,
}

/// The kernel settings that a treatment may change, by key.
pub fn sysctls() -> &'static [Sysctl] {
    &SYSCTLS
}

/// The entry of a key; `None` if a treatment may not change it.
pub fn sysctl_of(key: &str) -> Option<&'static Sysctl> {
    SYSCTLS.iter().find(|entry| entry.matches(key))
}

/// The value that `text` is for a kernel setting.
///
/// # Errors
/// The key is not in the list; the value is of another kind or out of range.
pub(super) fn read(key: &str, text: &str) -> Result<Value, TreatmentError> {
    let entry = sysctl_of(key).ok_or_else(|| {
        let (key, hint) = (shortened(key), hint(key));
        TreatmentError::new(format!(
            "the kernel setting `{key}` is not among those that a treatment may change; {hint}"
        ))
    })?;
    let read = entry.value.read(text);
    read.map_err(|_| TreatmentError::value(key, text, entry.value))
}

impl Sysctl {
    fn matches(&self, key: &str) -> bool {
        match self.key.split_once('*') {
            None => self.key == key,
            Some((before, after)) => key
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after))
                .is_some_and(is_device),
        }
    }
}

/// The name of one device, and not `all` or `default`, which stand for others. In a key a slash
/// stands for the dot of a name (sysctl(8)).
fn is_device(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/@".contains(&byte);
    // IFNAMSIZ is 16 with the terminating zero.
    (1..16).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('/')
        && !["all", "default"].contains(&name)
}

fn hint(key: &str) -> String {
    let keys = SYSCTLS.iter().map(|entry| entry.key);
    suggestion(key, keys).unwrap_or_else(|| {
        let count = SYSCTLS.len();
        format!("there are {count} of net.core, net.ipv4, net.ipv6 and net.mptcp")
    })
}

static SYSCTLS: LazyLock<Vec<Sysctl>> =
    LazyLock::new(|| toml_reader::entries(include_str!("sysctls.toml")));
