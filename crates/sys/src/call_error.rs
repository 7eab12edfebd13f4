//! A system call, or a file of the kernel's, that failed.

use std::io;

/// What was attempted, on what, and what the kernel answered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}")]
pub struct CallError {
    operation: String,
    source: io::Error,
}

impl CallError {
    pub(crate) fn new(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { operation: operation.into(), source: source.into() }
    }

    /// What the kernel answered.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}
