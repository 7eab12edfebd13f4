#![no_main]
//! A packet capture: any file.

use std::io::Cursor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drop(linerate_capture::follow(Cursor::new(bytes.to_vec()), 100, |_| true));
});
