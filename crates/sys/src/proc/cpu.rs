//! The processors: model, which are there, governor, thermal throttling, and which of them work for
//! a device.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Malformed, Probe, ProcError, cpu, field, read_and_parse, read_text};

/// What `/proc/cpuinfo` says. Its form differs between architectures, so that most of it is
/// optional.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuInfo {
    /// The model's name; ARM and others give none.
    pub model: Option<String>,
    /// The current frequency in MHz of each CPU that has one here (x86).
    pub frequencies_mhz: Vec<f64>,
    /// Whether the processor says that it runs under a hypervisor; `None` where it has no such flag
    /// (not x86).
    pub hypervisor: Option<bool>,
}

impl CpuInfo {
    /// Reads `/proc/cpuinfo`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read() -> Result<Self, ProcError> {
        read_text("/proc/cpuinfo").map(|text| Self::parse(&text))
    }

    /// Parses the text of `/proc/cpuinfo`; what is not understood is passed over.
    pub fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match key.trim() {
                "model name" | "cpu model" if info.model.is_none() => {
                    info.model = Some(value.to_owned())
                }
                "cpu MHz" => info.frequencies_mhz.extend(value.parse::<f64>().ok()),
                "flags" if info.hypervisor.is_none() => {
                    info.hypervisor =
                        Some(value.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
                }
                _ => {}
            }
        }
        info
    }
}

/// Times that a CPU was slowed down for its temperature, since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThermalThrottles {
    /// Events of the core.
    pub core: u64,
    /// Events of the whole package.
    pub package: u64,
}

/// The numbers of the CPUs that are online.
///
/// # Errors
/// The file cannot be read, or has an unknown form.
pub fn online() -> Result<Vec<u32>, ProcError> {
    read_and_parse("/sys/devices/system/cpu/online", parse_list)
}

/// The numbers of the CPUs that could ever be online.
///
/// # Errors
/// The file cannot be read, or has an unknown form.
pub fn possible() -> Result<Vec<u32>, ProcError> {
    read_and_parse("/sys/devices/system/cpu/possible", parse_list)
}

/// The frequency governor of one CPU. Unsupported where the host does not scale frequencies (most
/// guests).
pub fn governor(cpu: u32) -> Probe<String> {
    read_text(cpu_path(cpu, "cpufreq/scaling_governor")).map(|text| text.trim().to_owned()).into()
}

/// The highest frequency of one CPU, kHz. Unsupported where the host does not scale frequencies.
pub fn highest_khz(cpu: u32) -> Probe<u64> {
    read_and_parse(cpu_path(cpu, "cpufreq/cpuinfo_max_freq"), |text| {
        field(Some(text.trim()), "a frequency")
    })
    .into()
}

/// The thermal throttles of one CPU. Unsupported where neither processor nor hypervisor counts them
/// (only Intel does).
pub fn thermal_throttles(cpu: u32) -> Probe<ThermalThrottles> {
    let count = |name| {
        read_and_parse(cpu_path(cpu, name), |text| field(Some(text), "a number of throttles"))
    };
    count("thermal_throttle/core_throttle_count")
        .and_then(|core| {
            let package = count("thermal_throttle/package_throttle_count")?;
            Ok(ThermalThrottles { core, package })
        })
        .into()
}

/// Parses a list of CPUs as the kernel writes it: `0-3,8`.
///
/// # Errors
/// Something is not a number or a range, or a range is backwards or beyond 65,536 CPUs.
pub(crate) fn parse_list(text: &str) -> Result<Vec<u32>, Malformed> {
    const EXPECTED: &str = "a list of CPUs";
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) =
            (field(Some(first), EXPECTED)?, field(Some(last), EXPECTED)?);
        if first > last || last >= 1 << 16 {
            return Err(Malformed::new(EXPECTED, part));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

fn cpu_path(cpu: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/{name}"))
}

// CPUs that work for a device: RPS and XPS of its queues, its interrupts. `/sys/class/net` shows
// the devices of the network namespace that mounted it, not those of the calling thread:
// `shows_devices` tells whether they are the same.

/// A file of `/sys` or `/proc` that holds CPUs, as a mask or as a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuFile {
    path: PathBuf,
}

impl CpuFile {
    /// The file of that path: a list if it is called `…_list`, otherwise a mask.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The CPUs, in ascending order.
    ///
    /// # Errors
    /// The file is not there, cannot be read, or has an unknown form.
    pub fn read(&self) -> Result<Vec<u32>, ProcError> {
        if self.is_list() {
            read_and_parse(&self.path, cpu::parse_list)
        } else {
            read_and_parse(&self.path, parse_mask)
        }
    }

    /// Writes CPUs; read them again, the kernel drops those that it does not have.
    ///
    /// # Errors
    /// Not permitted, or the kernel does not take them: interrupts that it manages itself are
    /// `EIO`.
    pub fn write(&self, cpus: &[u32]) -> io::Result<()> {
        let text = if self.is_list() {
            cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
        } else {
            mask(cpus)
        };
        fs::write(&self.path, text)
    }

    fn is_list(&self) -> bool {
        let name = self.path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.ends_with("_list"))
    }
}

/// Whether `/sys/class/net` has these devices, by name and index, and no others.
pub fn shows_devices(devices: &[(&str, u32)]) -> bool {
    let Ok(shown) = fs::read_dir("/sys/class/net") else {
        return false;
    };
    // It also has files that are no devices, such as that of the bonds.
    let is_device = |entry: &fs::DirEntry| entry.path().join("ifindex").exists();
    let count = shown.filter_map(Result::ok).filter(is_device).count();
    let is_shown = |(name, index): &(&str, u32)| {
        let text = read_text(class(name).join("ifindex"));
        text.is_ok_and(|text| text.trim() == index.to_string())
    };
    count == devices.len() && devices.iter().all(is_shown)
}

/// Whether hardware, or a hypervisor's device, is behind a network device.
pub fn has_hardware(device: &str) -> bool {
    class(device).join("device").exists()
}

/// Receive and transmit queues of a device.
///
/// # Errors
/// There is no such device here.
pub fn queue_counts(device: &str) -> Result<(u32, u32), ProcError> {
    let names = names(&class(device).join("queues"))?;
    let count = |begin: &str| names.iter().filter(|name| name.starts_with(begin)).count() as u32;
    Ok((count("rx-"), count("tx-")))
}

/// RPS of each receive queue (Documentation/networking/scaling.rst).
pub fn receive_steering(device: &str) -> Probe<Vec<CpuFile>> {
    steering(device, "rx-", "rps_cpus").into()
}

/// XPS of each transmit queue; unsupported where there is one queue.
pub fn transmit_steering(device: &str) -> Probe<Vec<CpuFile>> {
    if queue_counts(device).is_ok_and(|(_, transmit)| transmit <= 1) {
        return Probe::Unsupported(format!(
            "{device} has one transmit queue, and XPS is for several"
        ));
    }
    steering(device, "tx-", "xps_cpus").into()
}

/// Which CPUs may take each interrupt of a device. Unsupported where the device has none of its
/// own, as virtual ones.
pub fn interrupts(device: &str) -> Probe<Vec<CpuFile>> {
    let hardware = class(device).join("device");
    // Those of virtio belong to the bus device above.
    let own = names(&hardware.join("msi_irqs"));
    let numbers = own.or_else(|_| names(&hardware.join("../msi_irqs")));
    let file = |number: &String| CpuFile::at(format!("/proc/irq/{number}/smp_affinity_list"));
    numbers
        .map(|numbers| {
            let files = numbers.iter().map(file);
            files.filter(|file| file.path.exists()).collect()
        })
        .into()
}

fn steering(device: &str, begin: &str, name: &str) -> Result<Vec<CpuFile>, ProcError> {
    let queues = class(device).join("queues");
    let names = names(&queues)?;
    let own = names.iter().filter(|queue| queue.starts_with(begin));
    let files: Vec<CpuFile> = own.map(|queue| CpuFile::at(queues.join(queue).join(name))).collect();
    // The first says for all whether this kernel and device have it.
    if let Some(first) = files.first() {
        first.read()?;
    }
    Ok(files)
}

/// The names in a directory, in order.
fn names(path: &Path) -> Result<Vec<String>, ProcError> {
    let entries =
        fs::read_dir(path).map_err(|source| ProcError::Read { path: path.to_owned(), source })?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// The directory of a device. A name has no slash (`dev_valid_name`, net/core/dev.c).
fn class(device: &str) -> PathBuf {
    Path::new("/sys/class/net").join(device.replace('/', "."))
}

/// Parses a mask of CPUs as the kernel writes it: groups of 32 in hexadecimal, the highest first.
///
/// # Errors
/// A group is not hexadecimal, or there are more than 65,536 CPUs.
pub(crate) fn parse_mask(text: &str) -> Result<Vec<u32>, Malformed> {
    const EXPECTED: &str = "a mask of CPUs";
    let groups: Vec<&str> = text.trim().split(',').collect();
    if groups.len() > 2_048 {
        return Err(Malformed::new(EXPECTED, text));
    }
    let mut cpus = Vec::new();
    for (number, group) in groups.iter().rev().enumerate() {
        let plain = group.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u32::from_str_radix(group, 16)
            .ok()
            .filter(|_| plain)
            .ok_or_else(|| Malformed::new(EXPECTED, group))?;
        let own = (0..u32::BITS).filter(|bit| bits & (1 << bit) != 0);
        cpus.extend(own.map(|bit| number as u32 * u32::BITS + bit));
    }
    Ok(cpus)
}

/// A mask as the kernel reads it.
fn mask(cpus: &[u32]) -> String {
    let groups = cpus.iter().max().map_or(1, |last| last / u32::BITS + 1);
    let group = |number: u32| {
        let own = cpus.iter().filter(|cpu| **cpu / u32::BITS == number);
        let bits = own.fold(0u32, |bits, cpu| bits | 1 << (cpu % u32::BITS));
        format!("{bits:08x}")
    };
    (0..groups).rev().map(group).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use linerate_testkit::{Need, skip};

    use super::*;
    use crate::proc::tests::parse_every_prefix;

    const X86: &str = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\ncpu MHz\t\t: \
        2596.142\nflags\t\t: fpu tsc hypervisor\n\n\
        processor\t: 1\nmodel name\t: AMD EPYC\ncpu MHz\t\t: 2600.000\nflags\t\t: fpu tsc \
        hypervisor\n";

    #[test]
    fn x86_is_understood() {
        let info = CpuInfo::parse(X86);
        assert_eq!(info.model.as_deref(), Some("AMD EPYC"));
        assert_eq!(info.frequencies_mhz, [2596.142, 2600.0]);
        assert_eq!(info.hypervisor, Some(true));
        assert_eq!(CpuInfo::parse("flags : fpu\n").hypervisor, Some(false));
        parse_every_prefix(X86, CpuInfo::parse);
    }

    #[test]
    fn other_architectures_leave_fields_unknown() {
        let info = CpuInfo::parse(
            "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n",
        );
        assert_eq!(info, CpuInfo::default());
    }

    #[test]
    fn lists_of_cpus_are_ranges_and_numbers() {
        assert_eq!(parse_list("0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("\n").unwrap(), [0_u32; 0]);
        for text in ["3-1", "0-99999999", "a", "1-", "-"] {
            assert!(parse_list(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn online_cpus_are_possible_ones() {
        let possible = possible().unwrap();
        let online = online().unwrap();
        assert!(!online.is_empty() && online.iter().all(|cpu| possible.contains(cpu)));
        assert!(CpuInfo::read().unwrap().frequencies_mhz.len() <= online.len());
    }

    #[test]
    fn probes_of_a_cpu_that_is_not_there_say_what_is_missing() {
        assert!(matches!(governor(65_000), Probe::Unsupported(why) if why.contains("cpu65000")));
        assert!(matches!(highest_khz(65_000), Probe::Unsupported(why) if why.contains("cpufreq")));
        assert!(matches!(thermal_throttles(65_000),
                Probe::Unsupported(why) if why.contains("thermal_throttle")));
    }

    #[test]
    fn masks_are_groups_of_32() {
        for (text, cpus) in [
            ("3", vec![0, 1]),
            ("00000000", vec![]),
            ("1,00000001", vec![0, 32]),
            ("80000000,00000000", vec![63]),
        ] {
            assert_eq!(parse_mask(text).unwrap(), cpus, "{text}");
            assert_eq!(parse_mask(&mask(&cpus)).unwrap(), cpus, "{text}");
        }
        parse_every_prefix("ffffffff,0000000f\n", parse_mask);
        for text in ["", "x", "-1", "+1", "1,,1", "100000000"] {
            assert!(parse_mask(text).is_err(), "{text}");
        }
        assert!(parse_mask(&"0,".repeat(5_000)).is_err());
    }

    #[test]
    fn queues_of_loopback_can_be_read() {
        if !Path::new("/sys/class/net/lo/queues").exists() {
            skip(Need::Procfs, "needs /sys/class/net");
            return;
        }
        assert_eq!(queue_counts("lo").unwrap(), (1, 1));
        let steering = receive_steering("lo");
        let files = steering.value().expect("kernels of distributions have RPS");
        assert_eq!(files.len(), 1);
        assert!(files[0].read().is_ok());
        // One queue has no XPS, and loopback no interrupts.
        assert!(matches!(transmit_steering("lo"), Probe::Unsupported(_)));
        assert!(matches!(interrupts("lo"), Probe::Unsupported(_)));
        assert!(!has_hardware("lo"));
        assert!(queue_counts("no/such").is_err());
    }

    #[test]
    fn another_namespaces_devices_are_not_shown() {
        assert!(!shows_devices(&[("lo", 1), ("nosuch", 2)]));
        assert!(!shows_devices(&[]));
    }
}
