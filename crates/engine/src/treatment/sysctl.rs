//! Kernel settings.

use linerate_core::treatment::sysctls;
use linerate_sys::proc::sysctl::{self, SysctlError};
use serde::{Deserialize, Serialize};

use super::device::open_netlink;
use super::error::TreatError;
use super::step::Undone;

/// A kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SysctlStep {
    pub(super) key: String,
    pub(super) was: String,
    pub(super) set: String,
}

impl SysctlStep {
    pub(super) fn prepare(key: &str, value: &str) -> Result<Self, TreatError> {
        let was = read(key)?;
        let step = Self {
            key: key.to_owned(),
            was,
            set: value.to_owned(),
        };
        if step.changes() && key == FORWARD {
            step.check_devices()?;
        }
        Ok(step)
    }

    pub(super) fn changes(&self) -> bool {
        self.was != self.set
    }

    /// Writing it sets the forwarding of every device (`inet_forward_change`, net/ipv4/devinet.c),
    /// and writing it back would too.
    fn check_devices(&self) -> Result<(), TreatError> {
        let links = open_netlink()?
            .links()
            .map_err(|error| TreatError::kernel("list the devices", error))?;
        // In a key a slash stands for the dot of a name.
        let names = links.iter().map(|link| link.name.replace('.', "/"));
        for name in names.chain(["default".to_owned()]) {
            let key = format!("net.ipv4.conf.{name}.forwarding");
            if read(&key)? != self.was {
                let why = format!("it would change {key} too, and not be able to put it back");
                return Err(TreatError::unfit(&self.key, why));
            }
        }
        Ok(())
    }

    pub(super) fn set(&self) -> Result<(), TreatError> {
        write(&self.key, &self.set)?;
        let found = read(&self.key)?;
        if found == self.set {
            return Ok(());
        }
        // What the kernel made of it is not what the journal says is ours.
        write(&self.key, &self.was)?;
        Err(self.not_taken(found))
    }

    pub(super) fn check(&self) -> Result<String, TreatError> {
        let found = read(&self.key)?;
        if found != self.set {
            return Err(self.not_taken(found));
        }
        Ok(format!("{} = {}", self.key, self.set))
    }

    fn not_taken(&self, found: String) -> TreatError {
        TreatError::NotTaken {
            what: format!("sysctl:{}={}", self.key, self.set),
            found,
            why: "the kernel bounds it, or somebody else sets it",
        }
    }

    pub(super) fn undo(&self) -> Result<Undone, TreatError> {
        match sysctl::read(&self.key) {
            Err(SysctlError::Missing { .. }) => Ok(Undone::Gone),
            Err(error) => Err(access(&self.key, error)),
            Ok(found) if found != self.set => Ok(Undone::NotOurs),
            Ok(_) => {
                write(&self.key, &self.was)?;
                Ok(Undone::Restored)
            }
        }
    }

    /// None where there is no such setting.
    pub(super) fn found(&self) -> Result<Option<String>, TreatError> {
        match sysctl::read(&self.key) {
            Err(SysctlError::Missing { .. }) => Ok(None),
            found => found.map(Some).map_err(|error| access(&self.key, error)),
        }
    }

    /// The same key, or one of which the other is a part.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let is_part = |one: &str, other: &str| {
            one == FORWARD && other.starts_with(OF_DEVICES) && other.ends_with(".forwarding")
        };
        self.key == other.key || is_part(&self.key, &other.key) || is_part(&other.key, &self.key)
    }
}

const FORWARD: &str = "net.ipv4.ip_forward";
const OF_DEVICES: &str = "net.ipv4.conf.";

fn read(key: &str) -> Result<String, TreatError> {
    sysctl::read(key).map_err(|error| access(key, error))
}

fn write(key: &str, value: &str) -> Result<(), TreatError> {
    sysctl::write(key, value).map_err(|error| access(key, error))
}

fn access(key: &str, error: SysctlError) -> TreatError {
    let what = format!("sysctl:{key}");
    match error {
        SysctlError::Missing { .. } => {
            let is_listed = sysctls().iter().any(|entry| entry.key == key);
            let why = if is_listed {
                "this kernel does not have it, or not in this network namespace"
            } else {
                "there is no such setting here"
            };
            TreatError::unfit(what, why)
        }
        SysctlError::ReadOnly { .. } => TreatError::unfit(
            what,
            "it is read-only here: a setting of the whole host, or a container",
        ),
        error => TreatError::set(what, error),
    }
}
