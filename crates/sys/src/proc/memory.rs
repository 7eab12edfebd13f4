//! Memory of the host: `/proc/meminfo` and `/proc/slabinfo`.

use super::{Malformed, ProcError, field, read_and_parse};

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
    use super::*;
    use crate::proc::tests::parse_every_prefix;
    use linerate_testkit::{Need, skip};

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
