//! Network drivers: what they are, which work they take off the CPU, their rings and interrupts,
//! and setting both.
//!
//! What a driver does not support is `None`, not an error.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::CallError;

/// The driver of one link, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Ethtool {
    /// Any socket: it stands for its namespace.
    socket: UdpSocket,
    link: String,
}

impl Ethtool {
    /// Opens the driver of the link called `link`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`CallError`] with `ENODEV` if there is no such link.
    pub fn open(link: &str) -> Result<Self, CallError> {
        let error = |source| CallError::new(format!("open the driver of link {link}"), source);
        // The wildcard address can be bound where no address is configured and no link is up.
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(error)?;
        let driver = Self { socket, link: link.to_owned() };
        // Every device has offload features, so that this fails only without the device.
        read(&driver.socket, link, EthtoolCommand::FeatureCount).map_err(error)?;
        Ok(driver)
    }

    /// The name of the driver, such as `veth`, `virtio_net` or `ixgbe`.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn driver(&self) -> Result<Option<String>, CallError> {
        let words = read(&self.socket, &self.link, EthtoolCommand::Driver);
        let answer = self.supported("read the driver", words)?;
        Ok(answer.map(|words| text(&bytes(&words)[4..36])))
    }

    /// The speed that the link has negotiated, Mbit/s; `None` if it is not known, as without
    /// carrier. Virtual devices name a nominal figure.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn speed_mbit(&self) -> Result<Option<u32>, CallError> {
        let settings = link_settings(&self.socket, &self.link);
        let answer = self.supported("read the speed", settings)?;
        let speed = answer.map(|words| words[1]);
        Ok(speed.filter(|speed| !matches!(*speed, 0 | u32::MAX)))
    }

    /// The figure; none where the driver does not have it.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn driver_setting(&self, setting: DriverSetting) -> Result<Option<u32>, CallError> {
        let (command, word, _) = setting.place();
        let words = read(&self.socket, &self.link, command);
        self.supported(&format!("read {setting:?}"), words.map(|words| words[word]))
    }

    /// Sets the figure and leaves the others of its structure as they are. Drivers round some: read
    /// it again.
    ///
    /// # Errors
    /// [`CallError`] with `EOPNOTSUPP` if the driver does not have it, `EINVAL` if it does not
    /// take the value, `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_driver_setting(&self, setting: DriverSetting, figure: u32) -> Result<(), CallError> {
        let fail = |source| self.error(format!("set {setting:?} to {figure}"), source);
        let (command, word, set) = setting.place();
        let mut words = read(&self.socket, &self.link, command).map_err(fail)?;
        words[word] = figure;
        write(&self.socket, &self.link, set, words).map_err(fail)
    }

    /// All features that this kernel knows, with their states.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn features(&self) -> Result<Vec<Feature>, CallError> {
        let fail = |source| self.error("read the offload features", source);
        let names = feature_names(&self.socket, &self.link).map_err(fail)?;
        let blocks = features(&self.socket, &self.link, names.len()).map_err(fail)?;
        let feature = |(position, name): (usize, String)| {
            let (block, bit) = (blocks[position / BLOCK], 1 << (position % BLOCK));
            Feature {
                name,
                active: block.active & bit != 0,
                requested: block.requested & bit != 0,
                fixed: block.available & !block.never_changed & bit == 0,
            }
        };
        Ok(names
            .into_iter()
            .enumerate()
            .map(feature)
            .filter(|feature| !feature.name.is_empty())
            .collect())
    }

    /// The features of `offload` that this kernel knows.
    ///
    /// # Errors
    /// As for [`Ethtool::features`].
    pub fn offload(&self, offload: Offload) -> Result<Vec<Feature>, CallError> {
        self.features_of(&[offload])
    }

    /// The features of all these.
    ///
    /// # Errors
    /// As for [`Ethtool::features`].
    pub fn features_of(&self, offloads: &[Offload]) -> Result<Vec<Feature>, CallError> {
        let wanted = |feature: &Feature| {
            let mut offloads = offloads.iter();
            offloads.any(|offload| offload.features().contains(&feature.name.as_str()))
        };
        Ok(self.features()?.into_iter().filter(wanted).collect())
    }

    /// Asks for features by name and returns all as they are afterwards: a fixed feature keeps its
    /// state, and one feature may take others with it, which come back when it does. To undo, ask
    /// for the `requested` states that [`Ethtool::features`] gave before.
    ///
    /// # Errors
    /// [`CallError`] with `EINVAL` for a name that this kernel does not know, before anything is
    /// changed; `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_features(&self, changes: &[(&str, bool)]) -> Result<Vec<Feature>, CallError> {
        let fail = |source| self.error("set the offload features", source);
        let names = feature_names(&self.socket, &self.link).map_err(fail)?;
        let mut blocks = vec![[0; 2]; names.len().div_ceil(BLOCK)];
        let current = features(&self.socket, &self.link, names.len()).map_err(fail)?;
        for (name, on) in changes {
            let position = names.iter().position(|known| known == name).ok_or_else(|| {
                let unknown = std::io::Error::from_raw_os_error(libc::EINVAL);
                self.error(format!("find the offload feature {name}"), unknown)
            })?;
            let (block, bit) = (position / BLOCK, 1 << (position % BLOCK));
            // Over one that never changes the kernel refuses the whole request.
            if current[block].available & !current[block].never_changed & bit != 0 {
                blocks[block][VALID] |= bit;
                blocks[block][REQUESTED] |= if *on { bit } else { 0 };
            }
        }
        set_features(&self.socket, &self.link, &blocks).map_err(fail)?;
        self.features()
    }

    /// Turns an offload on or off and makes sure that it is: on when the first of its features that
    /// this device can switch is active, off when none is active. Other offloads may go or come
    /// with it, see [`Self::set_features`].
    ///
    /// # Errors
    /// [`CallError`] with `EOPNOTSUPP` if the device cannot switch it or another offload that is
    /// off forbids it,
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_offload(&self, offload: Offload, on: bool) -> Result<(), CallError> {
        let before = self.offload(offload)?;
        let changes: Vec<_> = before.iter().map(|feature| (feature.name.as_str(), on)).collect();
        self.set_features(&changes)?;
        let after = self.offload(offload)?;
        let done = if on {
            // Others may stay active of which the kernel makes no use without it.
            let main = after.iter().find(|feature| !feature.fixed);
            main.map_or(after.iter().any(|feature| feature.active), |main| main.active)
        } else {
            after.iter().all(|feature| !feature.active)
        };
        if done {
            return Ok(());
        }
        let state = if on { "on" } else { "off" };
        let refused = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        Err(self.error(format!("turn {state} the offload {offload:?}"), refused))
    }

    /// Turns "the driver has no such operation" into `None`.
    fn supported<T>(&self, operation: &str, result: io::Result<T>) -> Result<Option<T>, CallError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(source) => Err(self.error(operation, source)),
        }
    }

    fn error(&self, operation: impl std::fmt::Display, source: io::Error) -> CallError {
        CallError::new(format!("{operation} of link {}", self.link), source)
    }
}

/// A figure of a driver that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverSetting {
    /// Descriptors of each receive ring.
    RxRing,
    /// Descriptors of each transmit ring.
    TxRing,
    /// The most descriptors that a receive ring can have; only to be read.
    RxRingMax,
    /// The most descriptors that a transmit ring can have; only to be read.
    TxRingMax,
    /// Microseconds that an interrupt is held back after a received frame.
    RxMicroseconds,
    /// Received frames that raise an interrupt at once.
    RxFrames,
    /// Microseconds that an interrupt is held back after a sent frame.
    TxMicroseconds,
    /// 1 where the driver adapts the receiving figures to the load.
    RxAdaptive,
}

impl DriverSetting {
    /// The structure that the figure is in, the place in it (include/uapi/linux/ethtool.h), and the
    /// command that sets it.
    fn place(self) -> (EthtoolCommand, usize, u32) {
        match self {
            Self::RxRing => (EthtoolCommand::Rings, 5, SRINGPARAM),
            Self::TxRing => (EthtoolCommand::Rings, 8, SRINGPARAM),
            Self::RxRingMax => (EthtoolCommand::Rings, 1, SRINGPARAM),
            Self::TxRingMax => (EthtoolCommand::Rings, 4, SRINGPARAM),
            Self::RxMicroseconds => (EthtoolCommand::Coalescing, 1, SCOALESCE),
            Self::RxFrames => (EthtoolCommand::Coalescing, 2, SCOALESCE),
            Self::TxMicroseconds => (EthtoolCommand::Coalescing, 5, SCOALESCE),
            Self::RxAdaptive => (EthtoolCommand::Coalescing, 10, SCOALESCE),
        }
    }
}

/// One feature of a link, by the kernel's name (net/ethtool/common.c, `netdev_features_strings`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Feature {
    /// Such as `tx-tcp-segmentation` or `rx-gro`.
    pub name: String,
    /// It is on.
    pub active: bool,
    /// It was asked for. On but not active means that another feature it depends on is off.
    pub requested: bool,
    /// It cannot be switched on this device.
    pub fixed: bool,
}

/// Features that people switch together, named as `ethtool -K` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// `rx`: the device verifies checksums of what it receives.
    RxChecksum,
    /// `tx`: the device computes checksums of what it sends. Off, it takes `tso` and `uso` with it.
    TxChecksum,
    /// `sg`: the device gathers a frame from several pieces of memory.
    ScatterGather,
    /// `tso`: the device cuts TCP data into segments.
    TcpSegmentation,
    /// The device cuts UDP data into datagrams.
    UdpSegmentation,
    /// `gso`: the stack cuts just above the driver what the device cannot.
    GenericSegmentation,
    /// `gro`: the stack merges received segments.
    GenericReceive,
    /// `lro`: the device merges received segments.
    LargeReceive,
}

impl Offload {
    /// The names of its features. A kernel or a device may lack some of them.
    pub fn features(self) -> &'static [&'static str] {
        match self {
            Self::RxChecksum => &["rx-checksum"],
            Self::TxChecksum => &["tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6"],
            Self::ScatterGather => &["tx-scatter-gather"],
            Self::TcpSegmentation => &[
                "tx-tcp-segmentation",
                "tx-tcp-ecn-segmentation",
                "tx-tcp-mangleid-segmentation",
                "tx-tcp6-segmentation",
                "tx-tcp-accecn-segmentation",
            ],
            Self::UdpSegmentation => &["tx-udp-segmentation"],
            Self::GenericSegmentation => &["tx-generic-segmentation"],
            Self::GenericReceive => &["rx-gro"],
            Self::LargeReceive => &["rx-lro"],
        }
    }
}

// `SIOCETHTOOL`: every structure of include/uapi/linux/ethtool.h as an array of 32-bit words whose
// first is the command.

/// Commands that read a structure of fixed size.
#[derive(Debug, Clone, Copy)]
enum EthtoolCommand {
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
struct FeatureBlock {
    /// The user may switch it.
    available: u32,
    /// It is to be on.
    requested: u32,
    /// It is on.
    active: u32,
    /// It belongs to the network stack and does not change.
    never_changed: u32,
}

/// Reads the structure of `command`.
fn read(socket: &UdpSocket, link: &str, command: EthtoolCommand) -> io::Result<Vec<u32>> {
    let (request, length) = command.request();
    let mut words = vec![0; length];
    words[..request.len()].copy_from_slice(request);
    // SAFETY: there are as many words as the structure has that the command reads and writes.
    unsafe { call(socket, link, &mut words) }?;
    Ok(words)
}

/// Writes a structure that [`read`] has read, with `code`, the command that sets it.
fn write(socket: &UdpSocket, link: &str, code: u32, mut words: Vec<u32>) -> io::Result<()> {
    words[0] = code;
    // SAFETY: there are as many words as the structure has, which is that of the command that read
    // it.
    unsafe { call(socket, link, &mut words) }
}

/// The fixed part of `struct ethtool_link_settings`.
fn link_settings(socket: &UdpSocket, link: &str) -> io::Result<Vec<u32>> {
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
fn feature_names(socket: &UdpSocket, link: &str) -> io::Result<Vec<String>> {
    let count = read(socket, link, EthtoolCommand::FeatureCount)?[4];
    let mut words = vec![0; 3 + count as usize * NAME_BYTES / size_of::<u32>()];
    words[..3].copy_from_slice(&[GSTRINGS, FEATURES_SET, count]);
    // SAFETY: the number of feature names is a constant of the running kernel, so there is room for
    // as many as it has just said.
    unsafe { call(socket, link, &mut words) }?;
    Ok(bytes(&words[3..]).chunks_exact(NAME_BYTES).map(text).collect())
}

/// The states of `count` features.
fn features(socket: &UdpSocket, link: &str, count: usize) -> io::Result<Vec<FeatureBlock>> {
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
fn set_features(socket: &UdpSocket, link: &str, changes: &[[u32; 2]]) -> io::Result<()> {
    let mut words = vec![SFEATURES, changes.len() as u32];
    words.extend(changes.as_flattened());
    // SAFETY: the second word says how many blocks of two words follow; the kernel only reads them.
    unsafe { call(socket, link, &mut words) }
}

/// The bytes of consecutive words.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A text that ends at the first NUL or the end of its field.
fn text(field: &[u8]) -> String {
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
const SCOALESCE: u32 = 0x0f;
const SRINGPARAM: u32 = 0x11;
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

/// Features in one block.
const BLOCK: usize = u32::BITS as usize;

// The words of `struct ethtool_set_features_block`.
const VALID: usize = 0;
const REQUESTED: usize = 1;

#[cfg(test)]
mod tests {
    use linerate_testkit::{Need, skip};

    use super::*;
    use crate::netns::{Pair, pair_or_skip};

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

    #[test]
    fn settings_that_a_driver_lacks_are_none_and_cannot_be_set() {
        let Some(pair) = pair_or_skip() else { return };
        pair.a
            .namespace
            .run(|| {
                let ethtool = Ethtool::open(Pair::LINK).unwrap();
                for setting in [
                    DriverSetting::RxRing,
                    DriverSetting::TxRing,
                    DriverSetting::RxMicroseconds,
                    DriverSetting::RxAdaptive,
                ] {
                    assert_eq!(ethtool.driver_setting(setting).unwrap(), None, "{setting:?}");
                    let error = ethtool.set_driver_setting(setting, 1).unwrap_err();
                    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{setting:?}");
                }
            })
            .unwrap();
    }

    /// A TAP device holds back received frames (drivers/net/tun.c, `tun_set_coalesce`): the one
    /// driver that a test can make.
    #[test]
    fn a_figure_is_set_and_the_others_stay() {
        let Some(pair) = pair_or_skip() else { return };
        let made = pair.a.namespace.run(|| {
            let made = std::process::Command::new("ip")
                .args(["tuntap", "add", "dev", "tap0", "mode", "tap"])
                .output();
            if !made.is_ok_and(|made| made.status.success()) {
                return false;
            }
            let ethtool = Ethtool::open("tap0").unwrap();
            let words = || super::read(&ethtool.socket, &ethtool.link, EthtoolCommand::Coalescing);
            let before = words().unwrap();
            ethtool.set_driver_setting(DriverSetting::RxFrames, 17).unwrap();
            assert_eq!(ethtool.driver_setting(DriverSetting::RxFrames).unwrap(), Some(17));
            let mut after = words().unwrap();
            after[2] = 0;
            assert_eq!(after, before);
            true
        });
        if !made.unwrap() {
            skip(Need::Iproute2, "needs `ip tuntap add`, that is /dev/net/tun and iproute2");
        }
    }

    fn active(features: &[Feature], name: &str) -> bool {
        features.iter().find(|feature| feature.name == name).unwrap().active
    }

    fn open(pair: &Pair) -> Ethtool {
        pair.a.namespace.run(|| Ethtool::open(Pair::LINK)).unwrap().unwrap()
    }

    fn switches(offload: Offload, ethtool: &Ethtool, on: bool) -> Vec<(String, bool)> {
        ethtool.offload(offload).unwrap().into_iter().map(|feature| (feature.name, on)).collect()
    }

    fn set(ethtool: &Ethtool, changes: &[(String, bool)]) -> Vec<Feature> {
        let changes: Vec<_> = changes.iter().map(|(name, on)| (name.as_str(), *on)).collect();
        ethtool.set_features(&changes).unwrap()
    }

    #[test]
    fn offloads_switch_off_and_on_and_read_back() {
        let Some(pair) = pair_or_skip() else { return };
        let ethtool = open(&pair);
        for offload in [
            Offload::RxChecksum,
            Offload::TcpSegmentation,
            Offload::UdpSegmentation,
            Offload::GenericSegmentation,
            Offload::GenericReceive,
        ] {
            let before = ethtool.features().unwrap();
            let main = offload.features()[0];
            for on in [false, true] {
                let after = set(&ethtool, &switches(offload, &ethtool, on));
                assert_eq!(active(&after, main), on, "{main}");
            }
            let undo: Vec<_> =
                before.iter().map(|feature| (feature.name.clone(), feature.requested)).collect();
            assert_eq!(set(&ethtool, &undo), before);
        }
    }

    #[test]
    fn checksum_off_takes_segmentation_with_it_and_gives_it_back() {
        let Some(pair) = pair_or_skip() else { return };
        let ethtool = open(&pair);
        let before = ethtool.features().unwrap();
        assert!(
            active(&before, "tx-checksum-ip-generic") && active(&before, "tx-tcp-segmentation")
        );
        let off = set(&ethtool, &switches(Offload::TxChecksum, &ethtool, false));
        let segmentation =
            off.iter().find(|feature| feature.name == "tx-tcp-segmentation").unwrap();
        assert_eq!((segmentation.active, segmentation.requested), (false, true));
        assert!(!active(&off, "tx-checksum-ip-generic") && !active(&off, "tx-udp-segmentation"));
        let undo = before.iter().map(|feature| (feature.name.clone(), feature.requested));
        assert_eq!(set(&ethtool, &undo.collect::<Vec<_>>()), before);
    }

    #[test]
    fn offload_that_does_not_switch_is_an_error() {
        let Some(pair) = pair_or_skip() else { return };
        let ethtool = open(&pair);
        let is_on = |offload: Offload| ethtool.offload(offload).unwrap()[0].active;
        let tso = Offload::TcpSegmentation;
        for on in [false, true] {
            ethtool.set_offload(tso, on).unwrap();
            assert_eq!(is_on(tso), on);
        }
        ethtool.set_offload(Offload::TxChecksum, false).unwrap();
        // Segmentation needs checksums.
        let error = ethtool.set_offload(tso, true).unwrap_err();
        assert_eq!(
            (error.errno(), error.to_string().as_str()),
            (Some(libc::EOPNOTSUPP), "cannot turn on the offload TcpSegmentation of link veth0")
        );
        assert!(ethtool.set_offload(Offload::LargeReceive, true).is_err());
        ethtool.set_offload(Offload::TxChecksum, true).unwrap();
        assert!(is_on(tso));
    }

    #[test]
    fn fixed_feature_keeps_its_state_and_unknown_one_is_refused() {
        let Some(pair) = pair_or_skip() else { return };
        let ethtool = open(&pair);
        let before = ethtool.features().unwrap();
        let fixed = before.iter().find(|feature| feature.fixed).unwrap();
        let after = ethtool.set_features(&[(&fixed.name, !fixed.active)]).unwrap();
        assert_eq!(after, before);
        let error =
            ethtool.set_features(&[("rx-gro", false), ("no-such-feature", true)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot find the offload feature no-such-feature of link veth0"
        );
        assert_eq!(ethtool.features().unwrap(), before);
    }

    #[test]
    fn veth_tells_its_driver_and_speed_and_what_it_lacks() {
        let Some(pair) = pair_or_skip() else { return };
        let ethtool = open(&pair);
        assert_eq!(ethtool.driver().unwrap().as_deref(), Some("veth"));
        // drivers/net/veth.c, `veth_get_link_ksettings`
        assert_eq!(ethtool.speed_mbit().unwrap(), Some(10_000));
        assert_eq!(ethtool.driver_setting(DriverSetting::RxRingMax).unwrap(), None);
    }

    #[test]
    fn loopback_lacks_rings_and_missing_link_is_an_error() {
        let loopback = Ethtool::open("lo").unwrap();
        for setting in [DriverSetting::RxRingMax, DriverSetting::RxAdaptive] {
            assert_eq!(loopback.driver_setting(setting).unwrap(), None);
        }
        assert_eq!(Ethtool::open("nosuch").unwrap_err().errno(), Some(libc::ENODEV));
    }
}
