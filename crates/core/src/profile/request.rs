//! What a client asks of an end's profiler.

use serde::{Deserialize, Serialize};

/// Samples a second of each CPU, unless asked otherwise. No multiple of a usual timer's rate, so that the samples do not
/// march in step with it. In a virtual machine whose timer interrupts cost 20 µs each they take 1 % of a busy CPU.
pub const DEFAULT_HZ: u32 = 499;
/// Fewest samples a second.
pub const MIN_HZ: u32 = 10;
/// Most samples a second: beyond it, the samples themselves are what is measured.
pub const MAX_HZ: u32 = 9999;

/// How an end is to be profiled while a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRequest {
    /// Samples a second of each CPU, [`MIN_HZ`] to [`MAX_HZ`].
    pub hz: u32,
}

impl Default for ProfileRequest {
    fn default() -> Self {
        Self { hz: DEFAULT_HZ }
    }
}

impl ProfileRequest {
    /// Checks the rate: an endpoint calls it on what a stranger sent.
    ///
    /// # Errors
    /// What is allowed.
    pub fn check(&self) -> Result<(), String> {
        if (MIN_HZ..=MAX_HZ).contains(&self.hz) {
            return Ok(());
        }
        Err(format!(
            "a profile at {} samples a second: it must be {MIN_HZ} to {MAX_HZ}",
            self.hz
        ))
    }
}
