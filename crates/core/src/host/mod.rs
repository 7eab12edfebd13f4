//! The limits and settings of a host that decide what its network gives: what each is, what it
//! should be, and why.
//!
//! There is one [`settings`] table, the treatments' own with what only the owner of a host may
//! change. A [`Setting`] says its range, what it limits, and by which formula its right value
//! follows from what is [needed](Need): a path's rate and round-trip time, a number of connections,
//! or a [`Profile`]. [`advise`] is a pure function of that and of a [`HostView`], which the engine
//! reads.
//!
//! Keys are those of sysctl(8); `device.eth0.rx_ring` is of a network device, `cpu.governor` of the
//! processors and
//! `process.nofile` of a process.
//!
//! | module | what is in it |
//! |---|---|
//! | `setting` | what a setting is, the table of them, finding one by its key; `setting` | `KEY=VALUE`, checked; `setting` | the file in sysctl.d |
//! | `advice` | what is needed of a host, and the profiles; `advice` | what should be, from both; `advice` | what is there; `advice` | the document `linerate.host/1` |
//! | `rules` | the formulas |

mod advice;
mod rules;
mod setting;

#[cfg(test)]
mod tests;

pub use advice::advise;
pub use advice::{
    ChangeOutcome, HOST_SCHEMA, HostAbout, HostDocument, SettingChange, SettingReport, SettingState,
};
pub use advice::{DeviceView, HostView, Reading};
pub use advice::{Need, NeedOrigin, NeededPath, Profile};
pub use setting::SysctlFile;
pub use setting::{Assignment, assignments, check_keys};
pub use setting::{DeviceKey, HostError, Place, Setting, device_key, find, settings};
