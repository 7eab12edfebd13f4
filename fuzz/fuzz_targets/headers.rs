#![no_main]
//! The headers of a frame: a link type, and any bytes.

use std::io::Cursor;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((link, frame)) = bytes.split_at_checked(2) else {
        return;
    };
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535].map(u32::to_le_bytes).concat();
    file.extend(link);
    file.extend([0; 10]);
    file.extend([frame.len() as u32; 2].map(u32::to_le_bytes).concat());
    file.extend(frame);
    drop(linerate_capture::follow(Cursor::new(file), 100, |_| true));
});
