//! What is said of a file: what is in it, and which of its filters takes a packet.

use std::collections::BTreeMap;

use linerate_core::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::explain::{Asked, Explanation, Packet};
use crate::policy::{Adapter, Family, PolicyFile};
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

/// Which filter takes a packet, and why not those asked before it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplanationReport {
    /// The packet, as it was understood.
    pub packet: String,
    /// The adapter that it leaves by.
    pub adapter: String,
    /// `ipv4`, `ipv6` or `other`.
    pub family: String,
    /// The filter that takes it; absent if none does.
    pub taken: Option<AskedReport>,
    /// The policy of that filter.
    pub policy: Option<String>,
    /// What that policy does to it, in words.
    pub effects: Vec<String>,
    /// The filters asked before, the first asked first.
    pub refused: Vec<RefusalReport>,
}

/// A filter that is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskedReport {
    /// Its name.
    pub filter: String,
    /// The line of the file in which it is defined.
    pub line: usize,
    /// Its priority.
    pub priority: u32,
}

/// A filter that does not take the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusalReport {
    /// Which.
    #[serde(flatten)]
    pub asked: AskedReport,
    /// Its first condition that does not hold, in words.
    pub why: String,
}

impl ExplanationReport {
    /// An explanation with the names of what it is about.
    pub fn new(
        file: &PolicyFile,
        adapter: &Adapter,
        packet: &Packet,
        explanation: &Explanation,
    ) -> Self {
        let refused = explanation.refused.iter().map(|refusal| RefusalReport {
            asked: (&refusal.asked).into(),
            why: refusal.why.clone(),
        });
        Self {
            packet: packet.with_length().to_string(),
            adapter: adapter.name.clone(),
            family: match explanation.family {
                Family::V4 => "ipv4".to_owned(),
                Family::V6 => "ipv6".to_owned(),
                Family::Other => "other".to_owned(),
            },
            taken: explanation.taken.as_ref().map(AskedReport::from),
            policy: (explanation.policy).map(|policy| file.policies[policy].name.clone()),
            effects: explanation.effects.clone(),
            refused: refused.collect(),
        }
    }
}

impl From<&Asked> for AskedReport {
    fn from(asked: &Asked) -> Self {
        Self {
            filter: asked.name.clone(),
            line: asked.place.line,
            priority: asked.priority,
        }
    }
}
