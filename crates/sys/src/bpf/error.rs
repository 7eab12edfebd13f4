//! What bpf(2) refuses.

use std::io;

use crate::CallError;

/// An operation that failed, and on what.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel refused a call.
    #[error(transparent)]
    Call(#[from] CallError),
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
        object: impl std::fmt::Display,
    ) -> impl FnOnce(io::Error) -> Self {
        let operation = format!("{operation} {object}");
        move |source| CallError::new(operation, source).into()
    }

    /// The kernel's error number, such as `libc::EPERM`.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call(error) => error.errno(),
            Self::Verifier { source, .. } => source.raw_os_error(),
        }
    }

    /// What the verifier wrote, if it was the verifier who refused.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Verifier { log, .. } => Some(log),
            Self::Call(_) => None,
        }
    }
}
