//! Why a host could not be treated, or not put back.

use std::error::Error;

use linerate_core::treatment::TreatmentError;
use linerate_sys::CallError;
use linerate_sys::errno::EPERM;
use linerate_sys::netlink::NetlinkError;
use linerate_sys::netns::NamespaceError;
use linerate_sys::proc::sysctl::SysctlError;
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::qos::QosError;
use crate::state_files::StateError;

/// A treatment that did not take, or could not be undone. After one of applying, nothing is
/// changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TreatError {
    /// The table does not have it, or not with that value.
    #[error(transparent)]
    Change(#[from] TreatmentError),
    /// This process may not.
    #[error("not permitted to set {what}: it needs {needs}")]
    NotPermitted {
        /// Setting that was to be made.
        what: String,
        /// The privilege.
        needs: &'static str,
    },
    /// This host, device or route does not have it.
    #[error("cannot set {what}: {why}")]
    Unfit {
        /// Setting that was to be made.
        what: String,
        /// Why.
        why: String,
    },
    /// It was set, and what is in force is something else.
    #[error("{what} did not take, it is {found}: {why}")]
    NotTaken {
        /// Setting that was made.
        what: String,
        /// Setting that is in force.
        found: String,
        /// What may be the reason.
        why: &'static str,
    },
    /// Another treats the same thing.
    #[error("process {pid} treats {what} just now")]
    Busy {
        /// The thing.
        what: String,
        /// The process; it may be this one.
        pid: u32,
    },
    /// The kernel refused.
    #[error("cannot {operation}")]
    Kernel {
        /// Operation and its object.
        operation: String,
        /// From the kernel.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A policy could not be put in force, or taken away.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// A journal or its directory, or the file of kernel settings in sysctl.d, cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Something could not be put back; the next start tries again.
    #[error("cannot undo {what}")]
    Undo {
        /// The thing.
        what: String,
        /// Why.
        source: Box<TreatError>,
    },
}

impl Categorized for TreatError {
    fn category(&self) -> Category {
        match self {
            // Known only from the run: it is this host, its kernel or the path that does not do it.
            Self::Change(TreatmentError::NotTaken { .. }) => Category::Missing,
            Self::Change(_) => Category::Usage,
            Self::Qos(error) => error.category(),
            Self::Busy { .. } | Self::Undo { .. } => Category::Failed,
            _ => Category::Missing,
        }
    }
}

impl TreatError {
    pub(crate) fn kernel(
        operation: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::Kernel { operation: operation.into(), source: Box::new(source) }
    }

    pub(super) fn not_taken(
        what: String,
        found: impl Into<Option<String>>,
        why: &'static str,
    ) -> Self {
        Self::NotTaken { what, found: found.into().unwrap_or_else(|| "gone".to_owned()), why }
    }

    /// A setting that the kernel refused, `what` being as a treatment is written.
    pub(super) fn set(what: impl Into<String>, source: impl TreatmentRefusal) -> Self {
        let what = what.into();
        if source.is_for_privilege() {
            Self::NotPermitted { what, needs: "root, or CAP_NET_ADMIN in the network namespace" }
        } else {
            Self::kernel(format!("set {what}"), source)
        }
    }

    pub(crate) fn unfit(what: impl ToString, why: impl Into<String>) -> Self {
        Self::Unfit { what: what.to_string(), why: why.into() }
    }
}

/// What the kernel says no with.
pub(super) trait TreatmentRefusal: Error + Send + Sync + 'static {
    /// Another process might have been allowed it.
    fn is_for_privilege(&self) -> bool;
}

impl TreatmentRefusal for NetlinkError {
    fn is_for_privilege(&self) -> bool {
        self.errno() == Some(EPERM)
    }
}

impl TreatmentRefusal for CallError {
    fn is_for_privilege(&self) -> bool {
        self.errno() == Some(EPERM)
    }
}

impl TreatmentRefusal for SysctlError {
    fn is_for_privilege(&self) -> bool {
        matches!(self, Self::NotPermitted { .. })
    }
}

impl From<NamespaceError> for TreatError {
    fn from(source: NamespaceError) -> Self {
        Self::kernel("enter the network namespace to be treated", source)
    }
}
