#![forbid(unsafe_code)]
//! linerate-engine

mod campaign;
mod check;
mod client;
mod clock;
mod control;
mod endpoint;
mod error;
pub mod host;
mod measure;
mod options;
mod path;
mod signal;
mod stop;
mod words;

pub use campaign::{Campaign, Observer};
pub use check::{CheckOptions, check};
pub use client::{Client, Live, Outcome, Target};
pub use endpoint::{Endpoint, ServeEvent, ServeOptions};
pub use error::{Category, MeasureError};
pub use linerate_sys::inherit::listener as inherited_listener;
pub use signal::stop_on_signal;
pub use stop::Stop;
