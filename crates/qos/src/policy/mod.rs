//! Policy files: filters, policies and adapters as they are written, checked.
//!
//! Names of hosts and services are resolved when a file is read, by the [`Names`] of the engine.

mod check;
mod hpux;
mod model;
mod toml;
mod values;
pub(crate) mod words;
mod write;

pub(crate) use model::DEFAULT_PRIORITY;
pub use model::{
    Adapter, AddressRange, CgroupPath, Conditions, Family, Filter, FlagTest, Fragments, Interface,
    Mac, MarkRange, Meter, MeterKind, Place, Policy, PolicyFile, Range, Share,
};
pub use words::{Names, NoNames};
pub(crate) use write::written;
