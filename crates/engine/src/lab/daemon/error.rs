//! Why a lab in the background could not be made, found, entered or ended.

use std::io;

use linerate_sys::netns::{NamespaceError, UserNamespaceError};
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::lab::LabError;
use crate::state_files::StateError;

/// A lab in the background that could not be made, found, entered or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DaemonError {
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
        source: Box<UserNamespaceError>,
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
    /// The lab itself could not be made.
    #[error(transparent)]
    Lab(Box<LabError>),
}

impl From<LabError> for DaemonError {
    fn from(error: LabError) -> Self {
        Self::Lab(Box::new(error))
    }
}

impl Categorized for DaemonError {
    fn category(&self) -> Category {
        match self {
            Self::Name { .. } | Self::NotUp { .. } | Self::NoHost { .. } => Category::Usage,
            Self::Holder { category, .. } => *category,
            Self::Lab(error) => error.category(),
            Self::State(_) => Category::Missing,
            _ => Category::Failed,
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
