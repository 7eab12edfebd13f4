//! Errors of bpf(2).

use std::io;

use crate::CallError;

/// An operation on an eBPF object that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel refused a call.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The verifier rejects the program.
    #[error("the kernel's verifier refuses program {name}")]
    Verifier {
        /// The program's name.
        name: String,
        /// The verifier's log, or its end if it is long.
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

    /// The verifier's log, if the verifier rejected a program.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Verifier { log, .. } => Some(log),
            Self::Call(_) => None,
        }
    }
}
