//! Settings that are several files of `/sys` and `/proc` with one value: CPUs of queues and
//! interrupts, the governor.

use std::path::{Path, PathBuf};
use std::{fs, io};

use linerate_core::treatment::{Value, ValueKind};
use linerate_sys::proc::{Probe, ProcError, cpu};
use serde::{Deserialize, Serialize};

use super::device::{by_index, links, named, open_netlink};
use super::error::TreatError;
use super::step::{Reversible, Undone};

/// Which files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSetting<'a> {
    /// RPS of the device's receive queues.
    Receive(&'a str),
    /// XPS of the device's transmit queues.
    Transmit(&'a str),
    /// Its interrupts.
    Interrupts(&'a str),
    /// The governor of all CPUs.
    Governor,
}

/// A setting whose files get one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilesStep {
    pub(super) key: String,
    /// The index of the device that they are of.
    device: Option<u32>,
    files: Vec<FileState>,
    pub(super) set: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    path: PathBuf,
    was: String,
}

/// Names of a device's settings that are files.
pub(crate) const FILES: [&str; 3] = ["rps_cpus", "xps_cpus", "irq_cpus"];

impl<'a> FileSetting<'a> {
    /// The file of a device that has one of the names [`FILES`].
    pub(crate) fn new(device: &'a str, name: &str) -> Option<Self> {
        match name {
            "rps_cpus" => Some(Self::Receive(device)),
            "xps_cpus" => Some(Self::Transmit(device)),
            "irq_cpus" => Some(Self::Interrupts(device)),
            _ => None,
        }
    }

    fn device(&self) -> Option<&str> {
        match self {
            Self::Receive(device) | Self::Transmit(device) | Self::Interrupts(device) => {
                Some(device)
            }
            Self::Governor => None,
        }
    }

    /// Its files.
    fn paths(self) -> Probe<Vec<PathBuf>> {
        let files = match self {
            Self::Receive(device) => cpu::receive_steering(device),
            Self::Transmit(device) => cpu::transmit_steering(device),
            Self::Interrupts(device) => cpu::interrupts(device),
            Self::Governor => return governors(),
        };
        let path = |file: &cpu::CpuFile| file.path().to_owned();
        files.and_then(|files| Probe::Supported(files.iter().map(path).collect()))
    }

    /// The files with their values; what is missing where there are none.
    pub(crate) fn read(self) -> Probe<Vec<(PathBuf, String)>> {
        self.paths().and_then(|paths| {
            if paths.is_empty() {
                return Probe::Unsupported("the device has no such queue or interrupt".to_owned());
            }
            let read = paths.into_iter().map(|path| {
                let value = read(&path)?;
                Ok((path, value))
            });
            read.collect::<Result<_, ProcError>>().into()
        })
    }
}

/// Each CPU has one, or several share it.
fn governors() -> Probe<Vec<PathBuf>> {
    let cpus = match cpu::online() {
        Ok(cpus) => cpus,
        Err(error) => return Err(error).into(),
    };
    match cpus.first().map(|first| cpu::governor(*first)) {
        Some(Probe::Unsupported(_)) | None => {
            let why =
                "the host does not scale frequencies, or its hypervisor does (no cpufreq in /sys)";
            Probe::Unsupported(why.to_owned())
        }
        Some(Probe::Unknown(why)) => Probe::Unknown(why),
        Some(Probe::Supported(_)) => {
            let path =
                |cpu| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{GOVERNOR}"));
            Probe::Supported(cpus.into_iter().map(path).collect())
        }
    }
}

impl FilesStep {
    pub(super) fn prepare(
        key: &str,
        setting: FileSetting<'_>,
        value: &str,
    ) -> Result<Self, TreatError> {
        let device = match setting.device() {
            Some(name) => {
                check_sys()?;
                Some(named(key, name)?.index)
            }
            None => None,
        };
        let files = match setting.read() {
            Probe::Supported(files) => files,
            Probe::Unsupported(why) | Probe::Unknown(why) => {
                return Err(TreatError::unfit(key, why));
            }
        };
        if matches!(setting, FileSetting::Interrupts(_)) && value == NO_CPUS {
            return Err(TreatError::unfit(key, "some CPU has to take the interrupts"));
        }
        let files = files.into_iter().map(|(path, was)| FileState { path, was });
        Ok(Self { key: key.to_owned(), device, files: files.collect(), set: value.to_owned() })
    }

    /// One value, or that of each file.
    fn now(&self) -> Result<String, TreatError> {
        let values: Result<Vec<_>, _> =
            self.files.iter().map(|file| self.read(&file.path)).collect();
        Ok(summary(values?.iter().map(String::as_str)))
    }

    fn read(&self, path: &Path) -> Result<String, TreatError> {
        read(path).map_err(|error| TreatError::kernel(format!("read {}", self.key), error))
    }

    fn put(&self, path: &Path, value: &str) -> Result<(), TreatError> {
        // The path is the journal's, which another user may have owned once.
        let is_under = |above: &&str| path.starts_with(above);
        if !SETTINGS.iter().any(is_under) || path.components().any(|part| part.as_os_str() == "..")
        {
            let why = format!("{} is no setting of the kernel's", path.display());
            return Err(TreatError::unfit(&self.key, why));
        }
        write(path, value).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => TreatError::NotPermitted {
                what: self.key.clone(),
                needs: "root of the host itself, not of a container or namespace",
            },
            io::ErrorKind::ReadOnlyFilesystem => {
                TreatError::unfit(&self.key, "/sys or /proc is read-only here: a container")
            }
            _ => TreatError::kernel(format!("set {} to {value}", self.key), error),
        })
    }

    fn not_taken(&self, found: String) -> TreatError {
        TreatError::not_taken(
            format!("{}={}", self.key, self.set),
            found,
            "the host does not have all of these CPUs, or the kernel manages it",
        )
    }
}

impl Reversible for FilesStep {
    fn changes(&self) -> bool {
        self.files.iter().any(|file| file.was != self.set)
    }

    fn set(&self) -> Result<(), TreatError> {
        for file in self.files.iter().filter(|file| file.was != self.set) {
            self.put(&file.path, &self.set)?;
            let found = self.read(&file.path)?;
            if found != self.set {
                // What the kernel made of it is not what the journal says is ours.
                self.put(&file.path, &file.was)?;
                return Err(self.not_taken(found));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<String, TreatError> {
        let found = self.now()?;
        if found != self.set {
            return Err(self.not_taken(found));
        }
        Ok(format!("{} = {}", self.key, self.set))
    }

    fn undo(&self) -> Result<Undone, TreatError> {
        if let Some(index) = self.device {
            if by_index(&mut open_netlink()?, index)?.is_none() {
                return Ok(Undone::Gone);
            }
            check_sys()?;
        }
        let mut undone = Undone::Gone;
        for file in self.files.iter().rev().filter(|file| file.path.exists()) {
            if self.read(&file.path)? != self.set {
                undone = undone.or(Undone::NotOurs);
                continue;
            }
            if file.was != self.set {
                self.put(&file.path, &file.was)?;
            }
            undone = Undone::Restored;
        }
        Ok(undone)
    }

    fn what(&self) -> String {
        self.key.clone()
    }

    fn values(&self) -> (String, String) {
        let was = summary(self.files.iter().map(|file| file.was.as_str()));
        (was, self.set.clone())
    }

    fn found(&self) -> Result<Option<String>, TreatError> {
        self.now().map(Some)
    }
}

fn read(path: &Path) -> Result<String, ProcError> {
    if path.ends_with(GOVERNOR) {
        let name = fs::read_to_string(path)
            .map_err(|source| ProcError::Read { path: path.to_owned(), source })?;
        return Ok(name.trim().to_owned());
    }
    let cpus = cpu::CpuFile::at(path).read()?;
    Ok(Value::Cpus(cpus).to_string())
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    if path.ends_with(GOVERNOR) {
        return fs::write(path, value);
    }
    match ValueKind::Cpus.read(value) {
        Ok(Value::Cpus(cpus)) => cpu::CpuFile::at(path).write(&cpus),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// One value, or all of them where they differ.
pub(crate) fn summary<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut all: Vec<&str> = values.collect();
    all.dedup();
    all.join("; ")
}

/// Whether `/sys` shows the devices of this network namespace.
///
/// # Errors
/// It shows those of another.
pub(crate) fn check_sys() -> Result<(), TreatError> {
    let links = links(&mut open_netlink()?)?;
    let names = links.iter().map(|link| (link.name.as_str(), link.index));
    if cpu::shows_devices(&names.collect::<Vec<_>>()) {
        Ok(())
    } else {
        let why = "/sys shows the devices of another network namespace (`ip netns exec` mounts \
            that of its own)";
        Err(TreatError::unfit("CPUs of queues and interrupts", why))
    }
}

/// Where the files are.
const SETTINGS: [&str; 3] = ["/sys/class/net", "/sys/devices/system/cpu", "/proc/irq"];
const GOVERNOR: &str = "scaling_governor";
const NO_CPUS: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_leads_to_no_file_but_settings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(GOVERNOR);
        fs::write(&path, "powersave").unwrap();
        let around = Path::new("/sys/class/net/../../..").join(path.strip_prefix("/").unwrap());
        for path in [&path, &around] {
            let file = FileState { path: path.clone(), was: "performance".to_owned() };
            let step = FilesStep {
                key: "cpu.governor".to_owned(),
                device: None,
                files: vec![file],
                set: "powersave".to_owned(),
            };
            assert!(step.undo().is_err());
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "powersave");
    }
}
