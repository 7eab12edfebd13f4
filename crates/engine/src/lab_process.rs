//! How a program in a lab finds the process that holds it.

use std::sync::Once;

use linerate_sys::idle;

/// Environment variable that tells a program in a lab the number of the process that holds it.
pub const LAB_PROCESS: &str = "LINERATE_LAB_PROCESS";

/// Environment variable that tells a program in a lab how it was started: `PROCESS COMMAND -- `.
/// What that process starts itself has another number, and needs no such command.
pub const LAB_EXEC: &str = "LINERATE_LAB_EXEC";

/// In a program that runs in a lab's host: the time that the lab keeps CPUs awake is nobody's load.
pub(crate) fn mind_lab_process() {
    static MINDED: Once = Once::new();
    MINDED.call_once(|| {
        let process = std::env::var(LAB_PROCESS).ok();
        if let Some(process) = process.and_then(|number| number.parse().ok()) {
            idle::watch(process);
        }
    });
}
