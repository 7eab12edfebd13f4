//! Why connections cannot be watched, in words for the person at the terminal.

use std::io;

use linerate_core::units::quoted;
use linerate_sys::errno::{ENOENT, EPROTONOSUPPORT};
use linerate_sys::netlink::NetlinkError;
use linerate_sys::netns::NamespaceError;
use thiserror::Error;

use crate::category::{Categorized, Category};

/// Connections that cannot be watched.
#[derive(Debug, Error)]
pub enum ConnectionsError {
    /// No namespace of that name.
    #[error("--netns {name}: no such network namespace{}", known_names(.known))]
    NoNamespace {
        /// As the user wrote it.
        name: String,
        /// Namespaces that have a name on this host.
        known: Vec<String>,
    },
    /// A file that is something else.
    #[error("--netns {name}: not a network namespace")]
    NotANamespace {
        /// As the user wrote it.
        name: String,
    },
    /// No process of that number.
    #[error("process {pid}: there is none of that number")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// No process of that name.
    #[error(
        "--process {}: no process has that name (as `ps -o comm` shows it) or number",
        quoted(name)
    )]
    NoProcessCalled {
        /// The name.
        name: String,
    },
    /// The namespace or the process belongs to somebody else.
    #[error(
        "cannot look into {what}: it is another user's, or the kernel protects it; it takes root \
         with \
         CAP_SYS_PTRACE"
    )]
    NotPermitted {
        /// The object.
        what: String,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(NamespaceError),
    /// This kernel does not show its sockets.
    #[error(
        "this kernel does not show its TCP sockets: load the module tcp_diag (modprobe tcp_diag)"
    )]
    NoDiag(#[source] NetlinkError),
    /// The kernel would not tell.
    #[error(transparent)]
    Kernel(NetlinkError),
    /// `/proc` cannot be read.
    #[error("cannot read /proc")]
    Proc(#[source] io::Error),
}

fn known_names(known: &[String]) -> String {
    match known {
        [] => "; none has a name here (ip netns list)".to_owned(),
        known => format!("; there are {}", known.join(", ")),
    }
}

impl From<NetlinkError> for ConnectionsError {
    fn from(error: NetlinkError) -> Self {
        // A kernel without it knows neither the protocol nor the message.
        match error.errno() {
            Some(ENOENT | EPROTONOSUPPORT) => Self::NoDiag(error),
            _ => Self::Kernel(error),
        }
    }
}

impl Categorized for ConnectionsError {
    fn category(&self) -> Category {
        match self {
            Self::NoNamespace { .. }
            | Self::NotANamespace { .. }
            | Self::NoProcess { .. }
            | Self::NoProcessCalled { .. } => Category::Usage,
            Self::NotPermitted { .. } | Self::NoDiag(_) => Category::Missing,
            Self::Namespace(_) | Self::Kernel(_) | Self::Proc(_) => Category::Failed,
        }
    }
}
