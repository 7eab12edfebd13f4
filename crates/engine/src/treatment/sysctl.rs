//! Kernel settings, for the time of a treatment or kept over a reboot by a file in sysctl.d.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linerate_core::host::SysctlFile;
use linerate_core::treatment::sysctls;
use linerate_sys::netns::Namespace;
use linerate_sys::proc::sysctl::{self, SysctlError};
use serde::{Deserialize, Serialize};

use super::device::{by_index, links, merge, merges, open_netlink};
use super::error::TreatError;
use super::step::{Reversible, Undone};
use crate::state_files::{StateError, read_file, remove_file, replace_file};

/// A kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SysctlStep {
    pub(super) key: String,
    pub(super) was: String,
    pub(super) set: String,
    #[serde(default)]
    beside: Beside,
}

/// What the kernel changes with a setting, and does not change back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Beside {
    /// `accept_redirects` of all devices, which `ip_forward` sets to its contrary
    /// (`inet_forward_change`, net/ipv4/devinet.c).
    redirects: Option<String>,
    /// Indices of the devices that were asked for LRO, which forwarding takes from them.
    lro: Vec<u32>,
    /// Algorithms that the whole host did not allow everybody, which the default one joins
    /// (`tcp_set_default_congestion_control`, net/ipv4/tcp_cong.c).
    allowed: Vec<String>,
}

impl SysctlStep {
    pub(super) fn prepare(key: &str, value: &str) -> Result<Self, TreatError> {
        let was = read(key)?;
        let step = Self {
            key: key.to_owned(),
            beside: Beside::new(key, [&was, value])?,
            was,
            set: value.to_owned(),
        };
        if step.changes() && key == FORWARD {
            step.check_devices()?;
        }
        Ok(step)
    }

    /// Writing it sets the forwarding of every device (`inet_forward_change`, net/ipv4/devinet.c),
    /// and writing it back would too.
    fn check_devices(&self) -> Result<(), TreatError> {
        // In a key a slash stands for the dot of a name.
        let links = links(&mut open_netlink()?)?;
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

    fn not_taken(&self, found: String) -> TreatError {
        let what = format!("sysctl:{}={}", self.key, self.set);
        TreatError::not_taken(what, found, "the kernel bounds it, or somebody else sets it")
    }

    /// Takes a later change of the same setting into this one, if they follow on each other.
    pub(super) fn join(&mut self, later: &Self) -> bool {
        let follows = self.key == later.key && self.set == later.was;
        if follows {
            self.set.clone_from(&later.set);
            let (own, later) = (&mut self.beside, &later.beside);
            own.lro.extend(&later.lro);
            own.allowed.extend_from_slice(&later.allowed);
        }
        follows
    }

    /// Whether the keys are the same, or one is a part of the other.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let is_part = |one: &str, other: &str| {
            one == FORWARD && other.starts_with(OF_DEVICES) && other.ends_with(".forwarding")
        };
        self.key == other.key || is_part(&self.key, &other.key) || is_part(&other.key, &self.key)
    }
}

impl Reversible for SysctlStep {
    fn changes(&self) -> bool {
        self.was != self.set
    }

    fn set(&self) -> Result<(), TreatError> {
        write(&self.key, &self.set)?;
        let found = read(&self.key)?;
        if found == self.set {
            return Ok(());
        }
        // What the kernel made of it is not what the journal says is ours.
        write(&self.key, &self.was)?;
        Err(self.not_taken(found))
    }

    fn check(&self) -> Result<String, TreatError> {
        let found = read(&self.key)?;
        if found != self.set {
            return Err(self.not_taken(found));
        }
        Ok(format!("{} = {}", self.key, self.set))
    }

    fn undo(&self) -> Result<Undone, TreatError> {
        match sysctl::read(&self.key) {
            Err(SysctlError::Missing { .. }) => Ok(Undone::Gone),
            Err(error) => Err(access(&self.key, error)),
            Ok(found) if found != self.set => Ok(Undone::NotOurs),
            Ok(_) => {
                let redirects = self.beside.redirects.as_ref();
                let made = if self.set == "0" { "1" } else { "0" };
                let is_ours = redirects.is_some() && read(REDIRECTS)? == made;
                write(&self.key, &self.was)?;
                if let Some(was) = redirects.filter(|_| is_ours) {
                    write(REDIRECTS, was)?;
                }
                self.beside.put_back()?;
                Ok(Undone::Restored)
            }
        }
    }

    /// None where there is no such setting.
    fn found(&self) -> Result<Option<String>, TreatError> {
        match sysctl::read(&self.key) {
            Err(SysctlError::Missing { .. }) => Ok(None),
            found => found.map(Some).map_err(|error| access(&self.key, error)),
        }
    }

    fn what(&self) -> String {
        self.key.clone()
    }

    fn values(&self) -> (String, String) {
        (self.was.clone(), self.set.clone())
    }
}

impl Beside {
    /// `values`: what it is and what it is to be.
    fn new(key: &str, values: [&str; 2]) -> Result<Self, TreatError> {
        let mut beside = Self::default();
        if key == FORWARD {
            beside.redirects = Some(read(REDIRECTS)?);
        }
        if key == FORWARD || (key.starts_with(OF_DEVICES) && key.ends_with(".forwarding")) {
            for link in links(&mut open_netlink()?)? {
                beside.lro.extend(merges(&link.name)?.then_some(link.index));
            }
        }
        if key == DEFAULT {
            let allowed = read(ALLOWED)?;
            let is_new = |name: &&str| !allowed.split(' ').any(|known| known == *name);
            beside.allowed = values.into_iter().filter(is_new).map(str::to_owned).collect();
        }
        Ok(beside)
    }

    fn put_back(&self) -> Result<(), TreatError> {
        for index in &self.lro {
            if let Some(link) = by_index(&mut open_netlink()?, *index)?
                && !merges(&link.name)?
            {
                merge(&link.name)?;
            }
        }
        if !self.allowed.is_empty() {
            let now = read(ALLOWED)?;
            let is_own = |name: &&str| self.allowed.iter().any(|own| own == name);
            let others = now.split(' ').filter(|name| !is_own(name)).collect::<Vec<_>>().join(" ");
            if others != now {
                write(ALLOWED, &others)?;
            }
        }
        Ok(())
    }
}

const FORWARD: &str = "net.ipv4.ip_forward";
const OF_DEVICES: &str = "net.ipv4.conf.";
const REDIRECTS: &str = "net.ipv4.conf.all.accept_redirects";
const DEFAULT: &str = "net.ipv4.tcp_congestion_control";
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

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

// linerate's file in sysctl.d.

/// The directory whose files are kernel settings that the host is given at each boot (sysctl.d(5)).
#[derive(Debug, Clone)]
pub(crate) struct SysctlDirectory {
    file: PathBuf,
    is_moved: bool,
}

impl SysctlDirectory {
    /// `/etc/sysctl.d`, or the directory of `LINERATE_SYSCTL_DIRECTORY`.
    pub(crate) fn of_host() -> Self {
        let moved = std::env::var_os("LINERATE_SYSCTL_DIRECTORY").map(PathBuf::from);
        let is_moved = moved.is_some();
        let directory = moved.unwrap_or_else(|| PathBuf::from("/etc/sysctl.d"));
        Self { file: directory.join(SysctlFile::NAME), is_moved }
    }

    /// For tests: any directory.
    #[cfg(test)]
    pub(crate) fn at(directory: &Path) -> Self {
        Self { file: directory.join(SysctlFile::NAME), is_moved: true }
    }

    /// Our file.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Whether what is in it would be of the calling thread's network namespace.
    ///
    /// # Errors
    /// It would be of another.
    pub(crate) fn check_namespace(&self) -> Result<(), TreatError> {
        let Ok(first) = fs::metadata("/proc/1/ns/net") else {
            return Ok(());
        };
        if self.is_moved || first.ino() == Namespace::current()?.inode()? {
            Ok(())
        } else {
            let why = "a boot sets the host's first network namespace, and this is another";
            Err(TreatError::unfit(self.file.display(), why))
        }
    }

    /// Gives keys values.
    pub(crate) fn set(&self, lines: &[(String, String)]) -> Result<(), StateError> {
        let mut file = self.read()?;
        lines.iter().for_each(|(key, value)| file.set(key, value));
        self.write(&file)
    }

    /// Takes keys out where they have the values that we gave them. Says whether it changed the
    /// file, and which keys have other values in it.
    pub(crate) fn remove(
        &self,
        lines: &BTreeSet<(String, String)>,
    ) -> Result<(bool, Vec<String>), StateError> {
        let before = self.read()?;
        let mut file = before.clone();
        let mut foreign = Vec::new();
        let keys: BTreeSet<&String> = lines.iter().map(|(key, _)| key).collect();
        for key in keys {
            match file.value(key) {
                Some(value) if lines.contains(&(key.clone(), value.clone())) => file.remove(key),
                Some(_) => foreign.push(key.clone()),
                None => {}
            }
        }
        if file == before {
            return Ok((false, foreign));
        }
        if file.is_empty() {
            remove_file(&self.file)?
        } else {
            self.write(&file)?
        }
        Ok((true, foreign))
    }

    /// Files of the same directory that come later and give one of these keys a value: then that is
    /// what a boot sets.
    pub(crate) fn overridden(&self, keys: &[String]) -> Vec<String> {
        let Some(entries) = self.file.parent().and_then(|path| fs::read_dir(path).ok()) else {
            return Vec::new();
        };
        let mut later: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "conf") && *path > self.file)
            .collect();
        later.sort();
        let mut notes = Vec::new();
        for path in later {
            // Links are usual here: `99-sysctl.conf` is one to /etc/sysctl.conf.
            let text = fs::read_to_string(&path).unwrap_or_default();
            let file = SysctlFile::parse(&text);
            for key in keys {
                if let Some(value) = file.value(key) {
                    notes.push(format!(
                        "at the next boot {} sets {key} to {value} after our file",
                        path.display()
                    ));
                }
            }
        }
        notes
    }

    fn read(&self) -> Result<SysctlFile, StateError> {
        let text = read_file(&self.file, MAX_BYTES)?.unwrap_or_default();
        Ok(SysctlFile::parse(&text))
    }

    fn write(&self, file: &SysctlFile) -> Result<(), StateError> {
        replace_file(&self.file, file.text().as_bytes(), 0o644)
    }
}

/// Largest size of our file, bytes.
const MAX_BYTES: u64 = 1 << 20;
