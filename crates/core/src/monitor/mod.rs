//! Repeated measurement: the file of a monitor, and the schedule of its tests.
//!
//! [`Monitor::from_toml`] reads the file: paths, tests, budgets, alarms. [`Schedule`] says what
//! runs when, in whole seconds since 1970; it is told the time and what came of each run. One test
//! runs at a time: two would share this host's way out, and disturb each other.

mod file;
pub mod keys;
mod schedule;
#[cfg(test)]
mod tests;

pub use file::{
    Alarm, CheckWork, HttpUrl, Monitor, MonitoredPath, MonitoredTest, MonitoredWork, work,
};
pub use keys::QuietHours;
pub use schedule::{Next, Outcome, Schedule, Task};
