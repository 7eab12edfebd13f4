//! From a file to the rules of one adapter.

use crate::policy::{Adapter, PolicyFile};

use super::form::{Bindings, RuleSet};

/// Why there are no rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Too many.
    #[error("the filters make {rules} rules; there may be at most {most}")]
    TooMany {
        /// How many there would be.
        rules: usize,
        /// The most.
        most: usize,
    },
}

impl RuleSet {
    /// The rules of `adapter`, in the order in which they are asked.
    ///
    /// # Errors
    /// [`RuleError`].
    pub fn of(
        file: &PolicyFile,
        adapter: &Adapter,
        bindings: &Bindings,
    ) -> Result<Self, RuleError> {
        let _ = (file, adapter, bindings);
        todo!()
    }
}
