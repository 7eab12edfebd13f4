//! Policy files: filters, policies and adapters as they are written, checked.
//!
//! Names of hosts and services are resolved when a file is read, by a [`Names`] that the engine gives.

mod model;

pub use model::{
    Adapter, AddressRange, CgroupPath, Conditions, Family, Filter, FlagTest, Fragments, Interface,
    Meter, MeterKind, Place, Policy, PolicyFile, Range, Share,
};
