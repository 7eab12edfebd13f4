//! What can go wrong in a trace, in words for the person at the terminal.

use std::io;
use std::net::IpAddr;

use linerate_core::trace::ConfigError;
use thiserror::Error;

use crate::category::{Categorized, Category};

/// A trace that could not be made, or not to its end.
#[derive(Debug, Error)]
pub enum TraceError {
    /// Something is out of its range, or contradicts something else.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The source address is of another family than the target.
    #[error("cannot send from {source_address} to {target}: they are of different families")]
    Families {
        /// Where from.
        source_address: IpAddr,
        /// Where to.
        target: IpAddr,
    },
    /// This host has no way to the target.
    #[error("no route to {target}{}", through(device))]
    NoRoute {
        /// Where to.
        target: IpAddr,
        /// The interface asked for.
        device: Option<String>,
        /// From the kernel.
        source: io::Error,
    },
    /// This host makes no socket that could send such probes.
    #[error("cannot send {what} probes from {address}: {needs}")]
    NoSocket {
        /// Their kind.
        what: &'static str,
        /// The address to send from.
        address: IpAddr,
        /// Privilege or kernel feature that is missing.
        needs: String,
        /// From the kernel.
        source: io::Error,
    },
    /// The interface to send through cannot be used.
    #[error("cannot send through interface {device}")]
    Device {
        /// Its name.
        device: String,
        /// From the kernel.
        source: io::Error,
    },
    /// A probe is larger than what the first link carries.
    #[error(
        "a probe of {size} bytes does not fit the interface it leaves by; give a smaller --size"
    )]
    TooLarge {
        /// Bytes from the IP header on.
        size: u16,
    },
    /// The kernel would not send or receive.
    #[error("cannot {what}")]
    Kernel {
        /// Operation that the kernel refused.
        what: String,
        /// From the kernel.
        source: io::Error,
    },
}

fn through(device: &Option<String>) -> String {
    device.as_ref().map_or_else(String::new, |device| format!(" through interface {device}"))
}

impl Categorized for TraceError {
    fn category(&self) -> Category {
        match self {
            Self::Config(_) | Self::Families { .. } | Self::TooLarge { .. } => Category::Usage,
            Self::Device { .. } => Category::Usage,
            Self::NoRoute { .. } | Self::NoSocket { .. } => Category::Missing,
            Self::Kernel { .. } => Category::Failed,
        }
    }
}
