//! What bpf(2) refuses.

use std::io;

/// An operation that failed, and on what.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel refused it.
    #[error("cannot {operation} {object}")]
    Call {
        /// What was asked for, such as `create map`.
        operation: &'static str,
        /// Of what: a name, a path, an interface.
        object: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The verifier does not take the program.
    #[error("the kernel's verifier refuses program {name}")]
    Verifier {
        /// The program's name.
        name: String,
        /// What the verifier wrote, its end if it is long.
        log: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl BpfError {
    pub(super) fn new(
        operation: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> Self {
        let object = object.into();
        move |source| Self::Call {
            operation,
            object,
            source,
        }
    }

    /// The kernel's error number, such as `libc::EPERM`.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { source, .. } | Self::Verifier { source, .. } => source.raw_os_error(),
        }
    }

    /// What the verifier wrote, if it was the verifier who refused.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Verifier { log, .. } => Some(log),
            Self::Call { .. } => None,
        }
    }
}
