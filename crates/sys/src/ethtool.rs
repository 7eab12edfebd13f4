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
use ioctl::Command;

/// The driver of one link, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Ethtool {
    /// Any socket: it stands for its namespace.
    socket: UdpSocket,
    link: String,
}

/// Which driver a link has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Driver {
    /// Its name, such as `veth`, `virtio_net` or `ixgbe`.
    pub name: String,
    /// Its version; in-tree drivers have the kernel's.
    pub version: String,
    /// Firmware version, empty where there is none.
    pub firmware: String,
    /// Place on the bus, such as a PCI address; empty for virtual devices.
    pub bus: String,
}

/// What a link has negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkMode {
    /// Mbit/s; none if it is not known, as without carrier. Virtual devices name a nominal figure.
    pub speed_mbit: Option<u32>,
    /// Full duplex; none if it is not known.
    pub full_duplex: Option<bool>,
    /// The speed is negotiated and not fixed.
    pub autonegotiation: bool,
}

/// Ring sizes in descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rings {
    /// In use for receiving.
    pub rx: u32,
    /// The most that the driver allows for receiving.
    pub rx_max: u32,
    /// In use for sending.
    pub tx: u32,
    /// The most that the driver allows for sending.
    pub tx_max: u32,
}

/// How long interrupts are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coalescing {
    /// Microseconds after a received frame.
    pub rx_us: u32,
    /// Received frames that raise an interrupt at once.
    pub rx_frames: u32,
    /// Microseconds after a sent frame.
    pub tx_us: u32,
    /// Sent frames that raise an interrupt at once.
    pub tx_frames: u32,
    /// The driver adapts the receiving values to the load.
    pub rx_adaptive: bool,
    /// The driver adapts the sending values to the load.
    pub tx_adaptive: bool,
}

/// Queues, each with an interrupt of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Channels {
    /// Queues for receiving only.
    pub rx: u32,
    /// Queues for sending only.
    pub tx: u32,
    /// Queues for both.
    pub combined: u32,
    /// The most combined queues that the driver allows.
    pub combined_max: u32,
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
        let driver = Self {
            socket,
            link: link.to_owned(),
        };
        // Every device has offload features, so that this fails only without the device.
        driver.fixed::<5>(Command::FeatureCount).map_err(error)?;
        Ok(driver)
    }

    /// Name and version of the driver.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn driver(&self) -> Result<Option<Driver>, CallError> {
        let answer = self.supported("read the driver", self.fixed::<49>(Command::Driver))?;
        Ok(answer.map(|words| {
            let text = ioctl::bytes(&words);
            Driver {
                name: ioctl::text(&text[4..36]),
                version: ioctl::text(&text[36..68]),
                firmware: ioctl::text(&text[68..100]),
                bus: ioctl::text(&text[100..132]),
            }
        }))
    }

    /// Speed and duplex.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn link_mode(&self) -> Result<Option<LinkMode>, CallError> {
        let answer = self.supported(
            "read the speed",
            ioctl::link_settings(&self.socket, &self.link),
        )?;
        Ok(answer.map(|words| {
            let [duplex, _port, _phy, autonegotiation] = words[2].to_ne_bytes();
            LinkMode {
                speed_mbit: Some(words[1]).filter(|speed| !matches!(*speed, 0 | u32::MAX)),
                full_duplex: Some(duplex == 1).filter(|_| duplex <= 1),
                autonegotiation: autonegotiation == 1,
            }
        }))
    }

    /// Ring sizes.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn rings(&self) -> Result<Option<Rings>, CallError> {
        let answer = self.supported("read the ring sizes", self.fixed::<9>(Command::Rings))?;
        Ok(answer.map(|[_, rx_max, _, _, tx_max, rx, _, _, tx]| Rings {
            rx,
            rx_max,
            tx,
            tx_max,
        }))
    }

    /// Interrupt coalescing.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn coalescing(&self) -> Result<Option<Coalescing>, CallError> {
        let answer =
            self.supported("read the coalescing", self.fixed::<23>(Command::Coalescing))?;
        Ok(answer.map(|words| Coalescing {
            rx_us: words[1],
            rx_frames: words[2],
            tx_us: words[5],
            tx_frames: words[6],
            rx_adaptive: words[10] != 0,
            tx_adaptive: words[11] != 0,
        }))
    }

    /// Numbers of queues.
    ///
    /// # Errors
    /// [`CallError`] if the link has gone.
    pub fn channels(&self) -> Result<Option<Channels>, CallError> {
        let answer = self.supported("read the channels", self.fixed::<9>(Command::Channels))?;
        Ok(
            answer.map(|[_, _, _, _, combined_max, rx, tx, _, combined]| Channels {
                rx,
                tx,
                combined,
                combined_max,
            }),
        )
    }

    fn fixed<const WORDS: usize>(&self, command: Command) -> io::Result<[u32; WORDS]> {
        ioctl::read(&self.socket, &self.link, command)
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
