//! What is said of a file: what is in it, and what is doubtful.

use std::collections::BTreeMap;

use linerate_core::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::PolicyFile;
use crate::rules::{Bindings, RuleError, RuleSet};
use crate::warnings::{Warning, warnings};

/// A policy file that is right, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileReport {
    /// Its name, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many filters it has.
    pub filters: usize,
    /// How many policies.
    pub policies: usize,
    /// Its adapters.
    pub adapters: Vec<AdapterRules>,
    /// What its author may not mean.
    pub warnings: Vec<WarningReport>,
}

/// Something doubtful in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WarningReport {
    /// The line in which it is defined.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// What, in words.
    pub text: String,
    /// `apply` refuses the file for it.
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

/// How many rules an adapter's filters make: two for `address`, two for `port`, one for each
/// family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterRules {
    /// The adapter's name.
    pub name: String,
    /// Of IPv4.
    pub v4_rules: usize,
    /// Of IPv6.
    pub v6_rules: usize,
    /// Of everything else.
    pub other_rules: usize,
}

impl FileReport {
    /// What is in `file`, and what is doubtful in it. `speeds` are what drivers tell of adapters
    /// without a `rate`.
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
            warnings: warnings(file, speeds)?
                .iter()
                .map(WarningReport::from)
                .collect(),
        })
    }
}
