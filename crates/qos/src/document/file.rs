//! The report on a file: its content and warnings.

use std::collections::BTreeMap;

use linerate_core::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::PolicyFile;
use crate::rules::{Bindings, RuleError, RuleSet};
use crate::warnings::{Warning, warnings};

/// The content of a valid policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileReport {
    /// Name of the file, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of filters.
    pub filters: usize,
    /// Number of policies.
    pub policies: usize,
    /// The adapters.
    pub adapters: Vec<AdapterRules>,
    /// Warnings about what the author may not have meant.
    pub warnings: Vec<WarningReport>,
}

/// A warning about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WarningReport {
    /// The line in which it is defined.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// The warning in words.
    pub text: String,
    /// Whether `apply` refuses the file because of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

impl From<&Warning> for WarningReport {
    fn from(warning: &Warning) -> Self {
        Self {
            line: warning.place.line,
            column: warning.place.column,
            text: warning.doubt.to_string(),
            refused: warning.doubt.is_refused(),
        }
    }
}

/// The number of rules that an adapter's filters become: two for `address`, two for `port`, one for
/// each family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterRules {
    /// The adapter's name.
    pub name: String,
    /// Rules for IPv4.
    pub v4_rules: usize,
    /// Rules for IPv6.
    pub v6_rules: usize,
    /// Rules for all other packets.
    pub other_rules: usize,
}

impl FileReport {
    /// Reports on `file`. `speeds` are the speeds that drivers report of adapters without a `rate`.
    ///
    /// # Errors
    /// [`RuleError`], if its filters make too many rules.
    pub fn new(file: &PolicyFile, speeds: &BTreeMap<String, BitRate>) -> Result<Self, RuleError> {
        let bindings = Bindings::stand_in(file);
        let adapters = file.adapters.iter().map(|adapter| {
            let rules = RuleSet::new(file, adapter, &bindings)?;
            Ok(AdapterRules {
                name: adapter.name.clone(),
                v4_rules: rules.v4.len(),
                v6_rules: rules.v6.len(),
                other_rules: rules.other.len(),
            })
        });
        Ok(Self {
            name: None,
            filters: file.filters.len(),
            policies: file.policies.len(),
            adapters: adapters.collect::<Result<_, RuleError>>()?,
            warnings: warnings(file, speeds)?.iter().map(WarningReport::from).collect(),
        })
    }
}
