#![forbid(unsafe_code)]
//! What linerate shows: pure functions of a record.
//!
//! This crate shows and does not touch. It asks no terminal for its width or colours
//! ([`text::Style`] is an argument), opens no file (CSV goes to the caller's writer) and measures
//! nothing: what a record does not have, it does not print. Text from a peer or a file is cleaned
//! of control characters on its way to a terminal.
//!
//! | module | what is in it |
//! |---|---|
//! | [`text`] | records, sweeps, checks and comparisons as one screen of a terminal; live lines |
//! | [`csv`] | one row for each record, the unit in each column's name |
//! | [`json`] | a document, pretty or on one line |
//! | [`svg`] | flame graphs |
//! | [`schema`] | the JSON Schemas of the documents, as checked in under `schemas/` |

pub mod csv;
pub mod json;
pub mod schema;
pub mod svg;
pub mod text;

/// How a unit variant is written in JSON: the one spelling of causes, kinds and protocols for
/// scripts.
fn key_of(variant: &impl serde::Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(key)) => key,
        other => unreachable!("only unit variants have keys, not {other:?}"),
    }
}
