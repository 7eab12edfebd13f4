//! The reason why there is no model, no projection, or no use for a run.

use thiserror::Error;

/// Why a run says nothing, a model cannot be fitted, or a change is not projected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct NotProjected {
    why: String,
    remedy: &'static str,
}

impl NotProjected {
    /// A reason without a remedy.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: "" }
    }

    /// The reason, with its remedy.
    pub(super) fn or(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }

    /// A figure that an older endpoint does not report, or that a test of this kind does not have.
    pub(super) fn lacks(what: &str) -> Self {
        Self::new(format!("the run has no {what}"))
            .or("use the same version of linerate at both ends")
    }

    /// `None` if the path carried packets of the size that was asked for, bytes.
    pub(super) fn unless_mtu(found: u32, asked: u32) -> Result<(), Self> {
        if found == asked {
            return Ok(());
        }
        let why = format!("the path carries packets of {found} bytes, not {asked}");
        Err(Self::new(why))
    }

    /// The remedy; empty where none is known.
    pub fn remedy(&self) -> &'static str {
        self.remedy
    }
}
