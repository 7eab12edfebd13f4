//! The sum of the Internet checksum (RFC 1071).

/// The sum of 16-bit words in one's complement, not yet folded; a byte left over is the high half
/// of a word.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    // 2³² words of 32 bits fit into 64 bits; a frame has 2¹⁴.
    let mut total: u64 = words
        .iter()
        .map(|w| u64::from(u32::from_be_bytes(*w)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_be_bytes(last));
    total
}

/// A sum as 16 bits.
pub fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}
