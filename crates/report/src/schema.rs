//! The JSON Schemas of linerate's documents.

use linerate_core::analyze::Analysis;
use linerate_core::record::{Check, Record, Sweep};
use linerate_core::truth::Score;
use schemars::{Schema, schema_for};

/// Name and schema (JSON Schema 2020-12) of each document; `schemas/NAME.json` holds it in the repository.
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("record", schema_for!(Record)),
        ("sweep", schema_for!(Sweep)),
        ("check", schema_for!(Check)),
        ("truth", schema_for!(Score)),
        ("analysis", schema_for!(Analysis)),
    ]
}
