//! The program's own pages.

use std::ffi::c_void;
use std::ops::Range;
use std::{fs, io};

use rustix::mm::{Advice, madvise};

/// Takes the program's code out of this process's memory. What is executed again is mapped again,
/// from the page cache: of what a program needs to start, one that waits needs little.
///
/// # Errors
/// `/proc/self/maps` cannot be read, or is not as proc(5) says.
pub fn unmap_code() -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let here = unmap_code as *const () as usize;
    let code = mapping(&maps, here).ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: the mapping is of the program's file, and nothing has ever been written to it: a page
    // that is touched is read from the file again.
    unsafe { madvise(code.start as *mut c_void, code.len(), Advice::LinuxDontNeed)? };
    Ok(())
}

/// The mapping of `maps` that has `address`, if it is one of a file that can be executed and not
/// written.
fn mapping(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let hexadecimal = |text| usize::from_str_radix(text, 16).ok();
        let range = hexadecimal(start)?..hexadecimal(end)?;
        let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
        (is_code && range.contains(&address)).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_told_from_writable_ones() {
        let maps = "\
55f1-5600 r--p 00000000 fe:00 42    /usr/bin/linerate
5600-5700 r-xp 00660000 fe:00 42    /usr/bin/linerate
5700-5800 rw-p 01853000 fe:00 42    /usr/bin/linerate
5800-5900 r-xp 00000000 00:00 0
";
        let of = |address| mapping(maps, address);
        assert_eq!(of(0x5650), Some(0x5600..0x5700));
        assert_eq!([of(0x55f1), of(0x5750), of(0x5850), of(0x9000)], [None, None, None, None]);
    }

    #[test]
    fn a_program_whose_code_is_unmapped_goes_on() {
        unmap_code().unwrap();
        assert_eq!(mapping("", 0), None);
    }
}
