//! The sum of the Internet checksum (RFC 1071), and a hash.

/// The sum of 16-bit words in one's complement, not yet folded; a byte left over is the high half
/// of a word.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    // 2³² words of 32 bits fit into 64 bits; a frame has 2¹⁴.
    let words = words.iter().map(|w| u64::from(u32::from_be_bytes(*w)));
    let mut total: u64 = words.sum();
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

/// Fowler, Noll and Vo's hash, version 1a, of 64 bits (RFC 9923): it tells texts apart that nobody
/// made alike on purpose.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_its_rfc() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
