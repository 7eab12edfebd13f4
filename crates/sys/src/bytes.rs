//! Numbers in the host's byte order, as the kernel's structures hold them. `None` past the end.

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*number))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*number))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let number = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*number))
}
