//! The kernel and the machine under it: release, boot, load, hypervisor.

use super::cpu::CpuInfo;
use super::{Malformed, Probe, ProcError, field, read_and_parse, read_text};

/// Load averages and tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadAverage {
    /// Tasks running or in uninterruptible sleep, averaged over 1 minute.
    pub one_minute: f64,
    /// Load average over 5 minutes.
    pub five_minutes: f64,
    /// Load average over 15 minutes.
    pub fifteen_minutes: f64,
    /// Tasks that are running or want to, now.
    pub runnable: u64,
}

impl LoadAverage {
    /// Reads `/proc/loadavg`.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown form.
    pub fn read() -> Result<Self, ProcError> {
        read_and_parse("/proc/loadavg", Self::parse)
    }

    /// Parses the text of `/proc/loadavg`.
    ///
    /// # Errors
    /// A figure is missing or not a number.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut words = text.split_ascii_whitespace();
        let mut average = || field(words.next(), "a load average");
        let (one_minute, five_minutes, fifteen_minutes) = (average()?, average()?, average()?);
        let tasks = words.next().and_then(|word| word.split_once('/'));
        let runnable = field(tasks.map(|(runnable, _)| runnable), "a number of runnable tasks")?;
        Ok(Self { one_minute, five_minutes, fifteen_minutes, runnable })
    }
}

/// What runs this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Platform {
    /// Nothing says that there is a hypervisor. One that hides itself looks like this too.
    Hardware,
    /// A hypervisor, by the name that it or its virtual hardware gives, if any.
    Virtual(Option<String>),
}

/// The kernel's release, as `uname -r` prints it.
///
/// # Errors
/// The file cannot be read.
pub fn kernel_release() -> Result<String, ProcError> {
    read_line("/proc/sys/kernel/osrelease")
}

/// A random name of this boot: what was noted under another one is gone.
///
/// # Errors
/// The file cannot be read.
pub fn boot_id() -> Result<String, ProcError> {
    read_line("/proc/sys/kernel/random/boot_id")
}

/// Whether this kernel runs under a hypervisor, as far as the processor's flag, Xen's interface and
/// the firmware's tables tell. Unknown where none of them is there to say yes or no.
pub fn platform() -> Probe<Platform> {
    let xen = read_line("/sys/hypervisor/type").ok();
    let firmware = ["sys_vendor", "product_name"]
        .map(|name| read_line(&format!("/sys/class/dmi/id/{name}")).ok());
    judge_platform(CpuInfo::read().ok().and_then(|info| info.hypervisor), xen, firmware)
}

fn judge_platform(
    flag: Option<bool>,
    xen: Option<String>,
    firmware: [Option<String>; 2],
) -> Probe<Platform> {
    /// What hypervisors and clouds that run guests write into the firmware's tables.
    const VIRTUAL_HARDWARE: [&str; 8] = [
        "QEMU",
        "KVM",
        "VMware",
        "VirtualBox",
        "Virtual Machine",
        "Google Compute Engine",
        "Parallels",
        "Bochs",
    ];

    let names = firmware
        .iter()
        .flatten()
        .map(String::as_str)
        .filter(|name| !name.is_empty())
        .collect::<Vec<_>>();
    let firmware_name = (!names.is_empty()).then(|| names.join(" "));
    let virtual_hardware = firmware_name
        .as_ref()
        .is_some_and(|name| VIRTUAL_HARDWARE.iter().any(|word| name.contains(word)));
    if xen.is_some() {
        Probe::Supported(Platform::Virtual(xen))
    } else if flag == Some(true) || virtual_hardware {
        Probe::Supported(Platform::Virtual(firmware_name))
    } else if flag == Some(false) {
        Probe::Supported(Platform::Hardware)
    } else {
        // Guests of some clouds have firmware that names only the cloud.
        let firmware = firmware_name.unwrap_or_else(|| "nothing".to_owned());
        Probe::Unknown(format!(
            "the processor has no hypervisor flag, and the firmware says {firmware:?}"
        ))
    }
}

pub(crate) fn read_line(path: &str) -> Result<String, ProcError> {
    read_text(path).map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::tests::parse_every_prefix;

    #[test]
    fn load_is_understood() {
        const SAMPLE: &str = "0.06 0.12 1.08 3/87 7705\n";
        let load = LoadAverage::parse(SAMPLE).unwrap();
        assert_eq!((load.one_minute, load.fifteen_minutes, load.runnable), (0.06, 1.08, 3));
        assert!(LoadAverage::parse("0.06 0.12 1.08 3").is_err());
        parse_every_prefix(SAMPLE, LoadAverage::parse);
        LoadAverage::read().unwrap();
    }

    #[test]
    fn the_platform_is_known_from_any_sign_of_it() {
        let name = |text: &str| Some(text.to_owned());
        let virtual_as = |text: &str| Probe::Supported(Platform::Virtual(name(text)));
        assert_eq!(
            judge_platform(Some(false), None, [None, None]),
            Probe::Supported(Platform::Hardware)
        );
        assert_eq!(
            judge_platform(Some(true), None, [None, None]),
            Probe::Supported(Platform::Virtual(None))
        );
        assert_eq!(judge_platform(None, name("xen"), [None, None]), virtual_as("xen"));
        assert_eq!(
            judge_platform(None, None, [name("QEMU"), name("Standard PC")]),
            virtual_as("QEMU Standard PC")
        );
        assert!(matches!(judge_platform(None, None, [name("Amazon \
                EC2"), None]), Probe::Unknown(why) if why.contains("Amazon EC2")));
        assert!(matches!(judge_platform(None, None, [name(""), None]), Probe::Unknown(_)));
    }

    #[test]
    fn release_and_boot_are_known() {
        assert!(kernel_release().unwrap().contains('.'));
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
