#![forbid(unsafe_code)]
//! What linerate shows: pure functions of a record.
//!
//! This crate shows and does not touch. It asks no terminal for its width or colours
//! ([`text::Style`] is an argument), opens no file and measures
//! nothing: what a record does not have, it does not print. Text from a peer or a file is cleaned
//! of control characters on its way to a terminal.
//!
//! | module | what is in it |
//! |---|---|
//! | [`document`] | what every document has; the one list of them |
//! | [`text`] | each document as a page of a terminal; live lines |
//! | [`csv`] | one row for each record, the unit in each column's name |
//! | [`json`] | a document, pretty or on one line |
//! | [`html`] | documents as one page for a browser, with their charts |
//! | `charts` | which charts a document has |
//! | [`metrics`] | figures as Prometheus reads them, and collectors of OpenTelemetry |
//! | [`svg`] | charts and flame graphs, drawn |

mod charts;
pub mod csv;
pub mod document;
pub mod html;
pub mod json;
pub mod metrics;
mod number;
mod style;
pub mod svg;
pub mod text;

pub use document::Document;

/// How a unit variant is written in JSON: the one spelling of causes, kinds and protocols for
/// scripts.
fn key_of(variant: &impl serde::Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(key)) => key,
        other => unreachable!("only unit variants have keys, not {other:?}"),
    }
}
