//! Network drivers: what they are, which work they take off the CPU, and switching that.
//!
//! What a driver does not support is `None`, not an error.

mod feature;
mod ioctl;
mod tuning;

pub use feature::{Feature, Offload};
pub use tuning::DriverSetting;

use std::io;
use std::net::UdpSocket;

use crate::CallError;
use ioctl::EthtoolCommand;

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
        ioctl::read(&driver.socket, link, EthtoolCommand::FeatureCount).map_err(error)?;
        Ok(driver)
    }

    /// The name of the driver, such as `veth`, `virtio_net` or `ixgbe`.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn driver(&self) -> Result<Option<String>, CallError> {
        let words = ioctl::read(&self.socket, &self.link, EthtoolCommand::Driver);
        let answer = self.supported("read the driver", words)?;
        Ok(answer.map(|words| ioctl::text(&ioctl::bytes(&words)[4..36])))
    }

    /// The speed that the link has negotiated, Mbit/s; `None` if it is not known, as without
    /// carrier. Virtual devices name a nominal figure.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn speed_mbit(&self) -> Result<Option<u32>, CallError> {
        let settings = ioctl::link_settings(&self.socket, &self.link);
        let answer = self.supported("read the speed", settings)?;
        let speed = answer.map(|words| words[1]);
        Ok(speed.filter(|speed| !matches!(*speed, 0 | u32::MAX)))
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
