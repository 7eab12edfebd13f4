//! The JSON Schemas of linerate's documents.

use linerate_core::analyze::Analysis;
use linerate_core::capacity::CapacityDocument;
use linerate_core::compare::Comparison;
use linerate_core::experiment::ExperimentDocument;
use linerate_core::host::HostDocument;
use linerate_core::lab::LabsDocument;
use linerate_core::profile::ProfileDocument;
use linerate_core::record::{Check, Record, Sweep};
use linerate_core::trace::TraceDocument;
use linerate_core::truth::Score;
use linerate_qos::cost::QosCost;
use linerate_qos::document::QosDocument;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, schema_for};
use serde_json::Value;

/// Name and schema (JSON Schema 2020-12) of each document; `schemas/NAME.json` holds it in the
/// repository.
pub fn all() -> Vec<(&'static str, Schema)> {
    let mut schemas = documents();
    for (_, schema) in &mut schemas {
        RecursiveTransform(join_lines).transform(schema);
    }
    schemas
}

/// A paragraph of a description is one line: where the comment in the source wraps is not said.
fn join_lines(schema: &mut Schema) {
    let Some(Value::String(description)) = schema.get_mut("description") else {
        return;
    };
    let paragraphs: Vec<String> = description
        .split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "))
        .collect();
    *description = paragraphs.join("\n\n");
}

fn documents() -> Vec<(&'static str, Schema)> {
    vec![
        ("record", schema_for!(Record)),
        ("sweep", schema_for!(Sweep)),
        ("check", schema_for!(Check)),
        ("comparison", schema_for!(Comparison)),
        ("truth", schema_for!(Score)),
        ("experiment", schema_for!(ExperimentDocument)),
        ("analysis", schema_for!(Analysis)),
        ("profile", schema_for!(ProfileDocument)),
        ("trace", schema_for!(TraceDocument)),
        ("qos", schema_for!(QosDocument)),
        ("qos_cost", schema_for!(QosCost)),
        ("lab", schema_for!(LabsDocument)),
        ("host", schema_for!(HostDocument)),
        ("capacity", schema_for!(CapacityDocument)),
    ]
}
