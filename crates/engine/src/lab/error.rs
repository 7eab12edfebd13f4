//! Why a lab could not be made.

use std::io;

use linerate_sys::idle::IdleError;
use linerate_sys::netlink::NetlinkError;
use linerate_sys::netns::{NamespaceError, UserNamespaceError};
use linerate_sys::packet::PacketError;
use linerate_sys::proc::sysctl::SysctlError;
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::error::MeasureError;

/// A lab that could not be made. Nothing of it is left.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The process is not root and may not have a user namespace.
    #[error("a lab needs network namespaces, which this process may not make: {reason}")]
    NotAllowed {
        /// What stands in the way, and what the administrator can do.
        reason: String,
    },
    /// The process could not become root of a user namespace.
    #[error("cannot enter a user namespace for the lab")]
    UserNamespace(#[from] UserNamespaceError),
    /// A namespace could not be made or entered.
    #[error("cannot make a host of the lab")]
    Namespace(#[from] NamespaceError),
    /// A link, address or route was refused.
    #[error("cannot set up {what}")]
    Netlink {
        /// The object and its host.
        what: String,
        /// From the kernel.
        source: NetlinkError,
    },
    /// A setting was refused.
    #[error("cannot set {key} = {value:?} on {node}")]
    Sysctl {
        /// The host or router.
        node: String,
        /// The setting.
        key: String,
        /// The value that it was to get.
        value: String,
        /// From the kernel.
        source: Box<SysctlError>,
        /// The lab needs the setting; the user did not ask for it.
        is_own: bool,
    },
    /// A link names a recorded rate that was not given.
    #[error("the recorded rate {name} was not given")]
    NoTrace {
        /// As the link's spec names it.
        name: String,
    },
    /// The pump's end of a link could not be opened.
    #[error("cannot open a packet socket on link {link}")]
    Packet {
        /// The link.
        link: String,
        /// From the kernel.
        source: PacketError,
    },
    /// The CPUs could not be kept awake.
    #[error("cannot keep the lab's delays exact")]
    Idle(#[from] IdleError),
    /// A thread or descriptor was refused.
    #[error("cannot {what}")]
    Host {
        /// What.
        what: &'static str,
        /// From the kernel.
        source: io::Error,
    },
    /// The endpoint inside it could not be started.
    #[error("cannot start the endpoint in the lab")]
    Endpoint(#[source] Box<MeasureError>),
}

impl Categorized for LabError {
    fn category(&self) -> Category {
        match self {
            Self::Sysctl { is_own: false, .. } | Self::NoTrace { .. } => Category::Usage,
            _ => Category::Missing,
        }
    }
}
