//! Why a policy could not be put in force or reported.

use std::error::Error;
use std::path::PathBuf;

use linerate_core::toml_reader::FileError;
use linerate_qos::classes::ClassError;
use linerate_qos::rules::RuleError;
use linerate_sys::bpf::BpfError;
use linerate_sys::errno::EPERM;
use linerate_sys::netlink::NetlinkError;
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::state_files::StateError;

/// A command that was not carried out. What was in force before is in force.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QosError {
    /// The file is wrong.
    #[error(transparent)]
    Policy(#[from] FileError),
    /// Its rules, or their program, cannot be made.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// Its classes cannot be made.
    #[error(transparent)]
    Classes(#[from] ClassError),
    /// Something that it names is not there.
    #[error("{what}: {why}")]
    Unknown {
        /// Kind and name of the object.
        what: String,
        /// Reason, in words.
        why: String,
    },
    /// No policy is known of an interface.
    #[error("no policy is known for {interface}: begin with `linerate qos apply FILE`")]
    NoPolicy {
        /// Its name.
        interface: String,
    },
    /// The state in force cannot be known.
    #[error(
        "{interface}: {why}: what is in force is not known any more; apply it again, or remove it"
    )]
    Lost {
        /// The interface.
        interface: String,
        /// Reason, in words.
        why: String,
    },
    /// The file and the options do not say which interface.
    #[error("which interface? {why}")]
    Which {
        /// What the file says.
        why: String,
    },
    /// Frames of this interface begin in an unknown way.
    #[error(
        "{interface} is of hardware type {hardware}: only Ethernet and plain IP (TUN, WireGuard, \
         PPP, IP tunnels) can be filtered"
    )]
    Hardware {
        /// Its name.
        interface: String,
        /// `ARPHRD_*`.
        hardware: u16,
    },
    /// Somebody else's things are there.
    #[error("{interface} has {what}, which is not linerate's: nothing is changed; {remedy}")]
    Foreign {
        /// The interface.
        interface: String,
        /// Program or discipline that is there.
        what: String,
        /// What `--force` would do.
        remedy: &'static str,
    },
    /// This process may not.
    #[error(
        "not permitted to {operation}: it needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN \
         of the host"
    )]
    NotPermitted {
        /// Operation that failed.
        operation: String,
    },
    /// This kernel cannot.
    #[error("this kernel cannot {what}")]
    Unsupported {
        /// What.
        what: &'static str,
        /// From the kernel.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The verifier does not take the program.
    #[error(
        "the kernel's verifier refuses the program for {interface}: {end}; its log is in \
         {}", log.display()
    )]
    Verifier {
        /// The interface.
        interface: String,
        /// The last lines of its log.
        end: String,
        /// The file with all of it.
        log: PathBuf,
    },
    /// The kernel refused something.
    #[error("cannot {operation}")]
    Kernel {
        /// Operation and its object.
        operation: String,
        /// From the kernel.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The state could not be read or kept.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Categorized for QosError {
    fn category(&self) -> Category {
        match self {
            Self::Policy(_)
            | Self::Rules(_)
            | Self::Classes(_)
            | Self::Unknown { .. }
            | Self::NoPolicy { .. }
            | Self::Which { .. } => Category::Usage,
            Self::Hardware { .. }
            | Self::Foreign { .. }
            | Self::NotPermitted { .. }
            | Self::Unsupported { .. }
            | Self::Verifier { .. } => Category::Missing,
            Self::State(error) if error.is_of_directory() => Category::Missing,
            Self::Kernel { .. } | Self::State(_) | Self::Lost { .. } => Category::Failed,
        }
    }
}

impl QosError {
    pub(super) fn kernel(
        operation: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::Kernel { operation: operation.into(), source: Box::new(source) }
    }
}

impl From<NetlinkError> for QosError {
    fn from(error: NetlinkError) -> Self {
        match error.errno() {
            Some(EPERM) => Self::NotPermitted {
                operation: error.to_string().trim_start_matches("cannot ").to_owned(),
            },
            _ => Self::kernel("configure the interface", error),
        }
    }
}

impl From<BpfError> for QosError {
    fn from(error: BpfError) -> Self {
        match error.errno() {
            Some(EPERM) => Self::NotPermitted {
                operation: error.to_string().trim_start_matches("cannot ").to_owned(),
            },
            _ => Self::kernel("use eBPF", error),
        }
    }
}
