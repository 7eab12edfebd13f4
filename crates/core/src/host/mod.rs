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
//! processors and `process.nofile` of a process.
//!
//! | module | what is in it |
//! |---|---|
//! | `setting` | the table of settings; `KEY=VALUE`, checked; the file in sysctl.d |
//! | `advice` | need, state and what should be; the document `linerate.host/1` |
//! | `rules` | the formulas |

mod advice;
mod rules;
mod setting;

#[cfg(test)]
mod tests;

pub use advice::{
    ChangeOutcome, DeviceView, HOST_SCHEMA, HostAbout, HostDocument, HostView, Need, NeedOrigin,
    NeededPath, Profile, Reading, SettingChange, SettingReport, SettingState, advise,
};
pub use setting::{
    Assignment, DeviceKey, HostError, Place, Setting, SysctlFile, assignments, check_keys,
    device_key, find, settings,
};
