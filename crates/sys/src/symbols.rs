//! Names of functions by address: the kernel's, and this process's own.

use std::{fs, io};

use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Sym, Symbolizer};
use rustc_demangle::demangle;

// The kernel's functions: `/proc/kallsyms`.

/// The table could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KallsymsError {
    /// The file cannot be read, or this kernel was built without it.
    #[error("cannot read /proc/kallsyms")]
    Read(#[from] io::Error),
    /// All addresses are shown as zero: `kernel.kptr_restrict`, or a lack of CAP_SYSLOG.
    #[error("/proc/kallsyms shows no addresses here (kernel.kptr_restrict, or no CAP_SYSLOG)")]
    Hidden,
}

/// The kernel's functions, those of its modules and of loaded eBPF programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelSymbols {
    /// Ascending.
    addresses: Vec<u64>,
    /// Where the name of each begins in `names`, and one end more.
    offsets: Vec<u32>,
    names: String,
}

/// A function is hardly longer: an address that is further from the one before it is in none that
/// has a name.
const LONGEST_FUNCTION: u64 = 1 << 20;

impl KernelSymbols {
    /// Reads the running kernel's; takes some 50 ms.
    ///
    /// # Errors
    /// It cannot be read, or the addresses are hidden.
    pub fn read() -> Result<Self, KallsymsError> {
        let bytes = fs::read("/proc/kallsyms")?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses the text of `/proc/kallsyms`; lines of another form are passed over.
    ///
    /// # Errors
    /// There are functions, and the addresses of all are zero.
    pub fn parse(text: &str) -> Result<Self, KallsymsError> {
        let mut entries: Vec<(u64, &str)> = text.lines().filter_map(function).collect();
        let seen = !entries.is_empty();
        entries.retain(|(address, _)| *address != 0);
        if seen && entries.is_empty() {
            return Err(KallsymsError::Hidden);
        }
        // Of several names for one address the first stays, by a stable order.
        entries.sort_by_key(|(address, _)| *address);
        entries.dedup_by_key(|(address, _)| *address);
        let mut symbols = Self::default();
        for (address, name) in entries {
            symbols.addresses.push(address);
            symbols.offsets.push(symbols.names.len() as u32);
            symbols.names.push_str(name);
        }
        symbols.offsets.push(symbols.names.len() as u32);
        Ok(symbols)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// The function that an address is in.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.addresses.partition_point(|begin| *begin <= address);
        let index = after.checked_sub(1)?;
        if address - self.addresses[index] >= LONGEST_FUNCTION {
            return None;
        }
        let (begin, end) = (self.offsets[index], self.offsets[index + 1]);
        Some(&self.names[begin as usize..end as usize])
    }
}

/// Address and name of a line that is a function (`t`, `T`, `w`, `W`): `ffffffff81000000 T _stext`,
/// with a tab and the module behind it.
fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    if !matches!(kind, "t" | "T" | "w" | "W") {
        return None;
    }
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

// This process's own functions: the symbol tables of its program and libraries.

/// The function that each address is in: as it is written in Rust or C. `None` where no symbol
/// table knows, as in a program that was stripped.
pub fn own_names(addresses: &[u64]) -> Vec<Option<String>> {
    let mut process = Process::new(Pid::Slf);
    // Only symbol tables: nobody has asked for lines, and no other process's files are read.
    process.debug_syms = false;
    process.perf_map = false;
    // The paths of its own maps are right in its own mount namespace, and need no privilege.
    process.map_files = false;
    let symbolizer =
        Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
    match symbolizer.symbolize(&Source::Process(process), Input::AbsAddr(addresses)) {
        Ok(found) => found
            .iter()
            .map(|symbol| {
                // Without the hash at its end.
                let name = |symbol: &Sym<'_>| format!("{:#}", demangle(&symbol.name));
                symbol.as_sym().map(name)
            })
            .collect(),
        Err(_) => vec![None; addresses.len()],
    }
}

#[cfg(test)]
mod tests {
    use linerate_testkit::{Need, skip};

    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000010 t \
        tcp_sendmsg_locked\nffffffff81000010 t alias\n\
        ffffffff82000000 D some_data\nffffffffc0000000 t veth_xmit\t[veth]\nffffffffc0100000 t \
        bpf_prog_6deef7357e7b4530\t[bpf]\n\
        0000000000000000 A fixed_percpu_data\nnonsense\n";

    #[test]
    fn an_address_is_in_the_function_that_begins_before_it() {
        let symbols = KernelSymbols::parse(TEXT).unwrap();
        assert_eq!(symbols.len(), 4);
        for (address, name) in [
            (0xffff_ffff_8100_0000, Some("_stext")),
            (0xffff_ffff_8100_000f, Some("_stext")),
            (0xffff_ffff_8100_0fff, Some("tcp_sendmsg_locked")),
            (0xffff_ffff_c000_0001, Some("veth_xmit")),
            (0xffff_ffff_c010_0001, Some("bpf_prog_6deef7357e7b4530")),
            (0xffff_ffff_8200_0000, None),
            (0xffff_ffff_80ff_ffff, None),
            (0, None),
            (u64::MAX, None),
        ] {
            assert_eq!(symbols.name(address), name, "{address:x}");
        }
    }

    #[test]
    fn hidden_addresses_are_told_from_a_kernel_without_functions() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t tcp_sendmsg\n";
        assert!(matches!(KernelSymbols::parse(hidden), Err(KallsymsError::Hidden)));
        assert!(KernelSymbols::parse("").unwrap().is_empty());
        assert!(KernelSymbols::default().name(1).is_none());
    }

    #[test]
    fn the_running_kernel_knows_its_own_functions_or_hides_them() {
        match KernelSymbols::read() {
            Ok(symbols) => {
                let text = fs::read_to_string("/proc/kallsyms").unwrap();
                let line = text
                    .lines()
                    .find(|line| line.ends_with(" T tcp_sendmsg") || line.ends_with(" T vfs_read"));
                let (address, name) = function(line.unwrap()).unwrap();
                assert_eq!(symbols.name(address + 1), Some(name));
            }
            Err(error) => skip(Need::Symbols, error),
        }
    }

    #[inline(never)]
    fn a_function_of_this_test() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn own_functions_are_named_and_nonsense_is_not() {
        assert_eq!(a_function_of_this_test(), 7);
        let address = a_function_of_this_test as fn() -> u64 as usize as u64;
        let found = own_names(&[address, 1]);
        let name = found[0].as_deref().expect("tests are not stripped");
        assert!(name.ends_with("a_function_of_this_test"), "{name}");
        assert_eq!(found[1], None);
        assert!(own_names(&[]).is_empty());
    }
}
