//! Offload features: which the driver has, and switching them.

use super::{Ethtool, ioctl};
use crate::CallError;

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

impl Ethtool {
    /// All features that this kernel knows, with their states.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn features(&self) -> Result<Vec<Feature>, CallError> {
        let fail = |source| self.error("read the offload features", source);
        let names = ioctl::feature_names(&self.socket, &self.link).map_err(fail)?;
        let blocks = ioctl::features(&self.socket, &self.link, names.len()).map_err(fail)?;
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
        let names = ioctl::feature_names(&self.socket, &self.link).map_err(fail)?;
        let mut blocks = vec![[0; 2]; names.len().div_ceil(BLOCK)];
        let current = ioctl::features(&self.socket, &self.link, names.len()).map_err(fail)?;
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
        ioctl::set_features(&self.socket, &self.link, &blocks).map_err(fail)?;
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
}

/// Features in one block.
const BLOCK: usize = u32::BITS as usize;
// The words of `struct ethtool_set_features_block`.
const VALID: usize = 0;
const REQUESTED: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::DriverSetting;
    use crate::netns::{Pair, pair_or_skip};

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
