//! Names of this process's own functions by address, from the symbol tables of its program and
//! libraries.

use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Sym, Symbolizer};
use rustc_demangle::demangle;

/// The function that each address is in: as it is written in Rust or C. `None` where no symbol
/// table knows, as in a program that was stripped.
pub fn names(addresses: &[u64]) -> Vec<Option<String>> {
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
    use super::*;

    #[inline(never)]
    fn a_function_of_this_test() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn own_functions_are_named_and_nonsense_is_not() {
        assert_eq!(a_function_of_this_test(), 7);
        let address = a_function_of_this_test as fn() -> u64 as usize as u64;
        let found = names(&[address, 1]);
        let name = found[0].as_deref().expect("tests are not stripped");
        assert!(name.ends_with("a_function_of_this_test"), "{name}");
        assert_eq!(found[1], None);
        assert!(names(&[]).is_empty());
    }
}
