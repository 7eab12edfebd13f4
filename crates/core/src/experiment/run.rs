//! One run of a cell, as it is kept in the file of records and in the document.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::record::Record;

/// What a run of a cell left.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Of each factor the level, by their names.
    pub levels: BTreeMap<String, String>,
    /// Which repeat of the cell it is, from 1.
    pub repeat: u32,
    /// Which attempt at that repeat it is, from 1: a run with a validity fault is made again.
    pub attempt: u32,
    /// The treatments that it ran under; `none` for nothing.
    pub treatments: String,
    /// Validity faults, in words with their figures. A run with one counts for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Why it failed. A run that failed counts for nothing.
    pub error: Option<String>,
    /// Figures of a workload that is no network test, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// The record of a network test.
    pub record: Option<Box<Record>>,
}

impl Run {
    /// Reads what [`Self::to_json`] wrote. Here, because the code of a record is large, and each
    /// crate that reads one by itself has it again.
    ///
    /// # Errors
    /// It is no JSON, or no run.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// The run as JSON on one line, without a newline.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("runs have string keys")
    }

    /// Whether its figures count.
    pub fn counts(&self) -> bool {
        self.faults.is_empty() && self.error.is_none()
    }
}
