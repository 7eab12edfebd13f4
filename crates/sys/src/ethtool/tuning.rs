//! Ring sizes and interrupt coalescing, one figure at a time.

use super::Ethtool;
use super::ioctl::{self, EthtoolCommand};
use crate::CallError;

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

impl Ethtool {
    /// The figure; none where the driver does not have it.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn driver_setting(&self, setting: DriverSetting) -> Result<Option<u32>, CallError> {
        let (command, word, _) = setting.place();
        let words = ioctl::read(&self.socket, &self.link, command);
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
        let mut words = ioctl::read(&self.socket, &self.link, command).map_err(fail)?;
        words[word] = figure;
        ioctl::write(&self.socket, &self.link, set, words).map_err(fail)
    }
}

// include/uapi/linux/ethtool.h
const SCOALESCE: u32 = 0x0f;
const SRINGPARAM: u32 = 0x11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{Pair, pair_or_skip};
    use linerate_testkit::{Need, skip};

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
            let words = || ioctl::read(&ethtool.socket, &ethtool.link, EthtoolCommand::Coalescing);
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
}
