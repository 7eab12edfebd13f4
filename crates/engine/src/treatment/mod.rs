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
//! | `files` | two more, which only the owner of a host sets |
//! | `kept` | settings that stay until `linerate host undo`, and their journal |
//! | `journal` | the journals; what killed processes left; the watch |
//! | `place` | which boot and which network namespace a journal is of |
//! | `error` | what can go wrong |

mod applied;
mod device;
mod error;
mod files;
mod journal;
mod kept;
mod mtu;
mod place;
mod qos;
mod route;
mod step;
mod sysctl;

#[cfg(test)]
mod tests;

pub use applied::Applied;
pub(crate) use device::{
    DriverFigure, FIGURES, OFFLOADS, figure_words, links, offload_state, open_netlink, towards,
};
pub use error::TreatError;
pub(crate) use files::{FILES, FileSetting, check_sys, summary};
pub(crate) use kept::{existing_kept_directory, keep, kept, kept_directory, undo};
pub(crate) use route::{endpoint_remembers, forget, remembers};
pub(crate) use sysctl::SysctlDirectory;

pub use journal::{start_treatment_watch, undo_leftovers, watch_treatments};
