#![forbid(unsafe_code)]
//! Pages, charts and exports of linerate's documents: pure functions of a record.
//!
//! The crate asks no terminal for its width or colours ([`text::Style`] is an argument), opens no
//! file and measures nothing. A figure that a record does not have is not printed. Text from a peer
//! or a file is cleaned of control characters before it reaches a terminal.
//!
//! | module | what is in it |
//! |---|---|
//! | [`document`] | what every document has; the one list of them |
//! | `page` | a page's blocks, laid out as text, HTML or Markdown |
//! | [`text`] | each document as a page of a terminal; live lines |
//! | [`csv`] | one row for each record, the unit in each column's name |
//! | [`json`] | a document, pretty or on one line |
//! | [`html`] | documents as one page for a browser, with their charts |
//! | `charts` | which charts a document has |
//! | [`metrics`] | figures as Prometheus reads them, and collectors of OpenTelemetry |
//! | [`svg`] | charts and flame graphs, drawn |
//! | `number`, `style` | figures and their units as text; colours and widths |

mod charts;
pub mod csv;
pub mod document;
pub mod html;
pub mod json;
pub mod metrics;
mod number;
mod page;
mod style;
pub mod svg;
pub mod text;

pub use document::Document;

/// The JSON name of a unit variant: the key of a cause, a kind or a protocol for scripts.
fn key_of(variant: &impl serde::Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(key)) => key,
        other => unreachable!("only unit variants have keys, not {other:?}"),
    }
}
