//! The processors: model, which are there, governor, thermal throttling.

use std::path::PathBuf;

use super::{Malformed, Probe, ProcError, field, read_and_parse, read_text};

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

#[cfg(test)]
mod tests {
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
}
