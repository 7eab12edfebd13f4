//! What a change would bring, computed from what was measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one change would bring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Projection {
    /// The change, by its name in the table.
    pub what_if: String,
}
