//! Treatments of this host: applied all or none, read back, and undone.
//!
//! [`Applied`] holds them. Before anything is set, its old and its new value are in a journal on
//! the disk or in `/run`, locked by this process for as long as it lives. What a killed process
//! left is undone by a [watch](watch_treatments) that was started beside it, or by the next start
//! ([`undo_leftovers`]); and only where the value is still ours. Two processes cannot treat the
//! same thing at once: the second one's undoing would bring back the first one's value.
//!
//! | module | what is in it |
//! |---|---|
//! | `applied` | [`Applied`] |
//! | `step` | one thing that is set: planned, set, checked, undone |
//! | `device`, `mtu`, `route`, `sysctl`, `qos` | the kinds of things |
//! | `driver`, `files` | two more, which only the owner of a host sets |
//! | `kept` | settings that stay until `linerate host undo`, and their journal |
//! | `sysctl_directory` | our file in sysctl.d |
//! | `journal` | the journals, and where they are |
//! | `place` | which boot and which network namespace a journal is of |
//! | `memory` | what TCP remembers of a host, forgotten |
//! | `leftovers` | what killed processes left; the watch |
//! | `error` | what can go wrong |

mod applied;
mod device;
mod driver;
mod error;
mod files;
mod journal;
mod kept;
mod leftovers;
mod memory;
mod mtu;
mod place;
mod qos;
mod route;
mod step;
mod sysctl;
mod sysctl_directory;

#[cfg(test)]
mod tests;

pub use applied::Applied;
pub(crate) use device::{OFFLOADS, links, offload_state, open_netlink, towards};
pub(crate) use driver::{DriverFigure, FIGURES, figure_words};
pub use error::TreatError;
pub(crate) use files::{FILES, FileSetting, check_sys, summary};
pub(crate) use kept::{existing_kept_directory, keep, kept, kept_directory, undo};
pub(crate) use memory::{endpoint_remembers, forget, remembers};
pub(crate) use sysctl_directory::SysctlDirectory;

pub use leftovers::{start_treatment_watch, undo_leftovers, watch_treatments};
