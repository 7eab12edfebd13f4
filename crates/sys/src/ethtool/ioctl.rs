//! `SIOCETHTOOL`: every structure of include/uapi/linux/ethtool.h as an array of 32-bit words whose
//! first is the command.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Commands that read a structure of fixed size.
#[derive(Debug, Clone, Copy)]
pub(super) enum EthtoolCommand {
    /// `struct ethtool_drvinfo`
    Driver,
    /// `struct ethtool_coalesce`
    Coalescing,
    /// `struct ethtool_ringparam`
    Rings,
    /// `struct ethtool_sset_info` with the bit of the feature names set
    FeatureCount,
}

impl EthtoolCommand {
    /// The first words to send, and the words of the structure.
    fn request(self) -> (&'static [u32], usize) {
        match self {
            Self::Driver => (&[0x03], 49),
            Self::Coalescing => (&[0x0e], 23),
            Self::Rings => (&[0x10], 9),
            // The mask of string sets is a 64-bit number after a reserved word; the count follows.
            Self::FeatureCount => (&FEATURE_COUNT_REQUEST, FEATURE_COUNT_WORDS),
        }
    }
}

/// Four flags of 32 features each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FeatureBlock {
    /// The user may switch it.
    pub(super) available: u32,
    /// It is to be on.
    pub(super) requested: u32,
    /// It is on.
    pub(super) active: u32,
    /// It belongs to the network stack and does not change.
    pub(super) never_changed: u32,
}

/// Reads the structure of `command`.
pub(super) fn read(
    socket: &UdpSocket,
    link: &str,
    command: EthtoolCommand,
) -> io::Result<Vec<u32>> {
    let (request, length) = command.request();
    let mut words = vec![0; length];
    words[..request.len()].copy_from_slice(request);
    // SAFETY: there are as many words as the structure has that the command reads and writes.
    unsafe { call(socket, link, &mut words) }?;
    Ok(words)
}

/// Writes a structure that [`read`] has read, with `code`, the command that sets it.
pub(super) fn write(
    socket: &UdpSocket,
    link: &str,
    code: u32,
    mut words: Vec<u32>,
) -> io::Result<()> {
    words[0] = code;
    // SAFETY: there are as many words as the structure has, which is that of the command that read
    // it.
    unsafe { call(socket, link, &mut words) }
}

/// The fixed part of `struct ethtool_link_settings`.
pub(super) fn link_settings(socket: &UdpSocket, link: &str) -> io::Result<Vec<u32>> {
    let mut words = vec![0; LINK_SETTINGS_WORDS];
    words[0] = GLINKSETTINGS;
    // SAFETY: asked with no room for masks, the kernel writes only the fixed part.
    unsafe { call(socket, link, &mut words) }?;
    // It answers with the negated number of words in one mask, and has to be asked again with it.
    let mask_words = words[3].to_ne_bytes()[3].cast_signed().unsigned_abs();
    words = vec![0; LINK_SETTINGS_WORDS + LINK_MODE_MASKS * usize::from(mask_words)];
    words[0] = GLINKSETTINGS;
    words[3] = u32::from_ne_bytes([0, 0, 0, mask_words]);
    // SAFETY: there is room for the fixed part and three masks of the length that is sent along.
    unsafe { call(socket, link, &mut words) }?;
    Ok(words)
}

/// The names of all features that this kernel knows.
pub(super) fn feature_names(socket: &UdpSocket, link: &str) -> io::Result<Vec<String>> {
    let count = read(socket, link, EthtoolCommand::FeatureCount)?[4];
    let mut words = vec![0; 3 + count as usize * NAME_BYTES / size_of::<u32>()];
    words[..3].copy_from_slice(&[GSTRINGS, FEATURES_SET, count]);
    // SAFETY: the number of feature names is a constant of the running kernel, so there is room for
    // as many as it has just said.
    unsafe { call(socket, link, &mut words) }?;
    Ok(bytes(&words[3..]).chunks_exact(NAME_BYTES).map(text).collect())
}

/// The states of `count` features.
pub(super) fn features(
    socket: &UdpSocket,
    link: &str,
    count: usize,
) -> io::Result<Vec<FeatureBlock>> {
    let blocks = count.div_ceil(u32::BITS as usize);
    let mut words = vec![0; 2 + 4 * blocks];
    words[..2].copy_from_slice(&[GFEATURES, blocks as u32]);
    // SAFETY: the second word says how many blocks of four words there is room for.
    unsafe { call(socket, link, &mut words) }?;
    let block = |chunk: &[u32; 4]| FeatureBlock {
        available: chunk[0],
        requested: chunk[1],
        active: chunk[2],
        never_changed: chunk[3],
    };
    Ok(words[2..].as_chunks().0.iter().map(block).collect())
}

/// Asks for features: for each 32 of them which to change, and to what.
pub(super) fn set_features(socket: &UdpSocket, link: &str, changes: &[[u32; 2]]) -> io::Result<()> {
    let mut words = vec![SFEATURES, changes.len() as u32];
    words.extend(changes.as_flattened());
    // SAFETY: the second word says how many blocks of two words follow; the kernel only reads them.
    unsafe { call(socket, link, &mut words) }
}

/// The bytes of consecutive words.
pub(super) fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A text that ends at the first NUL or the end of its field.
pub(super) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// # Safety
/// `words` must begin with an ethtool command and be as long as the structure that the kernel reads
/// and writes for it.
unsafe fn call(socket: &UdpSocket, link: &str, words: &mut [u32]) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = link.as_bytes();
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request is a live `ifreq` with a terminated name, and its data pointer leads to
    // memory of the size that the caller vouches for.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GLINKSETTINGS: u32 = 0x4c;
/// `ETH_SS_FEATURES`, the string set of feature names.
const FEATURES_SET: u32 = 4;
const FEATURE_MASK: [u8; 8] = (1u64 << FEATURES_SET).to_ne_bytes();
const FEATURE_COUNT_WORDS: usize = 5;
const FEATURE_COUNT_REQUEST: [u32; 4] = {
    let [a, b, c, d, e, f, g, h] = FEATURE_MASK;
    [GSSET_INFO, 0, u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
};
/// `ETH_GSTRING_LEN`
const NAME_BYTES: usize = 32;
const LINK_SETTINGS_WORDS: usize = 12;
/// Supported, advertised, and advertised by the partner.
const LINK_MODE_MASKS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_nul_or_at_the_field_s_end() {
        assert_eq!(text(b"veth\0junk"), "veth");
        assert_eq!(text(b"full"), "full");
        assert_eq!(text(b""), "");
    }

    #[test]
    fn overlong_link_name_is_no_device() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = feature_names(&socket, "a-name-of-16-byte").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
