//! The kernel and the machine under it: release, boot, load, hypervisor, memory.

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

// Memory of the host: `/proc/meminfo` and `/proc/slabinfo`.

/// Memory of the host, in bytes. A figure that this kernel does not give is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// All that the kernel manages.
    pub total: u64,
    /// Unused.
    pub free: u64,
    /// What a new program could have without swapping. Socket slabs are only partly taken off: see
    /// `slab`.
    pub available: Option<u64>,
    /// The kernel's own objects, sockets among them.
    pub slab: Option<u64>,
}

impl MemoryInfo {
    /// Reads `/proc/meminfo`.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown form.
    pub fn read() -> Result<Self, ProcError> {
        read_and_parse("/proc/meminfo", Self::parse)
    }

    /// Parses the text of `/proc/meminfo`.
    ///
    /// # Errors
    /// The total or the free memory is missing, or a figure of this struct is not a number of kB.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let figure = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(|rest| kibibytes(rest.trim()))
                .transpose()
        };
        Ok(Self {
            total: figure("MemTotal")?.ok_or_else(|| Malformed::new("MemTotal", text))?,
            free: figure("MemFree")?.ok_or_else(|| Malformed::new("MemFree", text))?,
            available: figure("MemAvailable")?,
            slab: figure("Slab")?,
        })
    }
}

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// What it has written itself: heap, stacks, data, whoever else runs the same program
    /// (`Anonymous`).
    pub anonymous: u64,
}

impl ProcessMemory {
    /// Reads `/proc/self/smaps_rollup`. The kernel walks all pages for it: some ms for each GB.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown form.
    pub fn read() -> Result<Self, ProcError> {
        read_and_parse("/proc/self/smaps_rollup", Self::parse)
    }

    /// Parses the text of `smaps_rollup`.
    ///
    /// # Errors
    /// A figure of this struct is missing or not a number of kB.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let figure = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            kibibytes(found.unwrap_or_default().trim())
        };
        Ok(Self { anonymous: figure("Anonymous")? })
    }
}

/// One cache of kernel objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabCache {
    /// Its name: `TCP`, `sock_inode_cache`, …; similar caches may be merged under one of their
    /// names.
    pub name: String,
    /// Objects in use.
    pub active_objects: u64,
    /// Objects that there is memory for.
    pub objects: u64,
    /// Pages that the cache holds.
    pub pages: u64,
}

/// Reads `/proc/slabinfo`, which only root can (mode 0400).
///
/// # Errors
/// The file cannot be read, or has an unknown form.
pub fn read_slab_caches() -> Result<Vec<SlabCache>, ProcError> {
    read_and_parse("/proc/slabinfo", parse_slab_caches)
}

/// Parses version 2 of `/proc/slabinfo`, the only one since Linux 2.6.10; two lines of heading come
/// first.
///
/// # Errors
/// The version is another, or a line lacks a figure.
pub(crate) fn parse_slab_caches(text: &str) -> Result<Vec<SlabCache>, Malformed> {
    if !text.starts_with("slabinfo - version: 2.") {
        return Err(Malformed::new("slabinfo of version 2", text));
    }
    text.lines().skip(2).map(parse_slab_cache).collect()
}

fn parse_slab_cache(line: &str) -> Result<SlabCache, Malformed> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().ok_or_else(|| Malformed::new("a cache's name", line))?.to_owned();
    let mut next = |skipped| field::<u64>(words.nth(skipped), "a figure of a slab cache");
    let (active_objects, objects) = (next(0)?, next(0)?);
    // The size of an object and the objects of a slab stand between.
    let pages_per_slab = next(2)?;
    // ": tunables L B S : slabdata active" stands between.
    let slabs = next(8)?;
    let pages = slabs
        .checked_mul(pages_per_slab)
        .ok_or_else(|| Malformed::new("a possible number of pages", line))?;
    Ok(SlabCache { name, active_objects, objects, pages })
}

/// Size of a page of this kernel, bytes: what counts of pages are to be multiplied by.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Reads "1234 kB" as bytes.
fn kibibytes(text: &str) -> Result<u64, Malformed> {
    const EXPECTED: &str = "a number of kB";
    let number: u64 = field(text.strip_suffix(" kB"), EXPECTED)?;
    number.checked_mul(1024).ok_or_else(|| Malformed::new(EXPECTED, text))
}

#[cfg(test)]
mod tests {
    use linerate_testkit::{Need, skip};

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

    const MEMINFO: &str = "MemTotal:       24684084 kB\nMemFree:        24420004 \
        kB\nMemAvailable:   24377388 kB\n\
        SwapCached:            0 kB\nSlab:              30000 kB\nSUnreclaim:        20000 \
        kB\nHugePages_Total:       0\n";
    const SLABINFO: &str = "slabinfo - version: 2.1\n\
        # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : \
        tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> \
        <sharedavail>\n\
        TCP                   10     13   2368   13    8 : tunables    0    0    0 : slabdata      \
        2      3      0\n";

    #[test]
    fn memory_is_in_bytes() {
        let memory = MemoryInfo::parse(MEMINFO).unwrap();
        assert_eq!(memory.total, 24_684_084 * 1024);
        assert_eq!(memory.slab, Some(30_000 * 1024));
        let old = MemoryInfo::parse("MemTotal: 2 kB\nMemFree: 1 kB\n").unwrap();
        assert_eq!((old.free, old.available), (1024, None));
    }

    #[test]
    fn a_processs_own_memory_is_understood() {
        let text = "5600-7ffc ---p 00000000 00:00 0    [rollup]\nRss:       2000 kB\nPss:       \
            1000 kB\n\
            Pss_Dirty:   1 kB\nPrivate_Clean:   2 kB\nAnonymous:   3 kB\nLazyFree:   9 kB\n";
        let memory = ProcessMemory::parse(text).unwrap();
        assert_eq!(memory.anonymous, 3 << 10);
        assert!(ProcessMemory::parse("Pss: 1 kB\n").is_err());
        let own = ProcessMemory::read().unwrap();
        assert!(own.anonymous > 0);
    }

    #[test]
    fn slab_caches_are_understood() {
        let expected =
            SlabCache { name: "TCP".to_owned(), active_objects: 10, objects: 13, pages: 24 };
        assert_eq!(parse_slab_caches(SLABINFO).unwrap(), [expected]);
    }

    #[test]
    fn odd_and_truncated_texts_are_errors_and_never_panics() {
        for text in [
            "",
            "MemTotal: 1 kB\n",
            "MemTotal: 1 MB\nMemFree: 1 kB\n",
            "MemTotal: 99999999999999999999 kB\n",
        ] {
            assert!(MemoryInfo::parse(text).is_err(), "{text:?}");
        }
        assert!(parse_slab_caches("slabinfo - version: 3.0\n").is_err());
        assert!(parse_slab_caches("slabinfo - version: 2.1\n#\nTCP 1 2\n").is_err());
        parse_every_prefix(MEMINFO, MemoryInfo::parse);
        parse_every_prefix(SLABINFO, parse_slab_caches);
    }

    #[test]
    fn the_running_kernel_is_understood() {
        let memory = MemoryInfo::read().unwrap();
        assert!(memory.free <= memory.total);
        match read_slab_caches() {
            Ok(caches) => assert!(!caches.is_empty()),
            Err(ProcError::Read { source, .. }) => {
                skip(Need::Procfs, format_args!("/proc/slabinfo: {source}"))
            }
            Err(error) => panic!("{error}"),
        }
    }
}
