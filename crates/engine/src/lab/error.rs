//! Why a lab could not be made, found, entered or ended.

use std::io;

use linerate_sys::CallError;
use linerate_sys::netlink::NetlinkError;
use linerate_sys::netns::NamespaceError;
use linerate_sys::proc::sysctl::SysctlError;
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::error::MeasureError;
use crate::state_files::StateError;

/// A lab that could not be made, found, entered or ended. Nothing is left of one that could not be
/// made.
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
    UserNamespace(#[source] NamespaceError),
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
        source: CallError,
    },
    /// The CPUs could not be kept awake.
    #[error("cannot keep the lab's delays exact")]
    Idle(#[source] CallError),
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
    /// The text is not a valid name.
    #[error("{name:?} is no name of a lab; it has 1 to 32 lower-case letters, digits and hyphens")]
    Name {
        /// As given.
        name: String,
    },
    /// A file or socket of a lab, or the directory of all, could not be made or read.
    #[error(transparent)]
    State(#[from] StateError),
    /// There is one of that name.
    #[error(
        "a lab named {name} is up; `linerate lab down --name {name}` ends it, or give another \
         --name"
    )]
    IsUp {
        /// Its name.
        name: String,
    },
    /// There is none of that name.
    #[error("{}", none_words(name.as_deref(), others))]
    NotUp {
        /// The name that was asked for.
        name: Option<String>,
        /// Names of the labs that are up.
        others: Vec<String>,
    },
    /// No host of the lab has that name.
    #[error("lab {lab} has no host {host}; it has {}", hosts.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// As given.
        host: String,
        /// Names of the lab's hosts.
        hosts: Vec<String>,
    },
    /// The process that was to hold the lab said why it cannot.
    #[error("{message}")]
    Holder {
        /// The message of that process.
        message: String,
        /// The exit status for it.
        category: Category,
    },
    /// The process that holds a lab does not answer, or not sensibly.
    #[error("lab {lab} (process {pid}) does not answer: {reason}")]
    NoAnswer {
        /// The lab.
        lab: String,
        /// Its process.
        pid: u32,
        /// What happened instead.
        reason: String,
    },
    /// A process could not be started, or ended.
    #[error("cannot {what}")]
    Process {
        /// What.
        what: &'static str,
        /// From the kernel.
        source: io::Error,
    },
    /// The user namespace of the lab cannot be joined.
    #[error("cannot join lab {lab}")]
    Join {
        /// The lab.
        lab: String,
        /// From the kernel.
        source: Box<NamespaceError>,
    },
    /// A host of the lab cannot be entered.
    #[error("cannot enter host {host} of lab {lab}")]
    Enter {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
        /// From the kernel.
        source: Box<NamespaceError>,
    },
}

impl Categorized for LabError {
    fn category(&self) -> Category {
        match self {
            Self::Sysctl { is_own: false, .. }
            | Self::NoTrace { .. }
            | Self::Name { .. }
            | Self::NotUp { .. }
            | Self::NoHost { .. } => Category::Usage,
            Self::Holder { category, .. } => *category,
            Self::IsUp { .. }
            | Self::NoAnswer { .. }
            | Self::Process { .. }
            | Self::Join { .. }
            | Self::Enter { .. } => Category::Failed,
            _ => Category::Missing,
        }
    }
}

fn none_words(name: Option<&str>, others: &[String]) -> String {
    let which = name.map_or(String::new(), |name| format!(" named {name}"));
    match others {
        [] => format!("no lab{which} is up; `linerate lab up FILE` makes one"),
        others if name.is_some() => format!("no lab{which} is up; there is {}", others.join(", ")),
        others => format!("several labs are up; say which with --name: {}", others.join(", ")),
    }
}
