//! A client's request to an end's profiler.

use serde::{Deserialize, Serialize};

/// Samples a second of each CPU, unless asked otherwise, over both ends if they run on one kernel.
/// No multiple of a usual timer's rate, so that the samples do not march in step with it. In a
/// virtual machine whose timer interrupts cost 20 µs each they take 1 % of a busy CPU.
const DEFAULT_HZ: u32 = 499;
/// Fewest samples a second.
pub const MIN_HZ: u32 = 10;
/// Most samples a second: beyond it, the samples themselves are what is measured.
pub const MAX_HZ: u32 = 9999;

/// How an end is to be profiled while a test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRequest {
    /// Samples a second of each CPU that an end takes, [`MIN_HZ`] to [`MAX_HZ`].
    pub hz: u32,
}

impl Default for ProfileRequest {
    fn default() -> Self {
        Self { hz: DEFAULT_HZ }
    }
}

impl ProfileRequest {
    /// What is asked of each of two ends. On one kernel each of them has all CPUs interrupted: each
    /// takes half of the samples, so that both together cost no more than one.
    #[must_use]
    pub fn of_each_end(self, on_one_kernel: bool) -> Self {
        if on_one_kernel { Self { hz: (self.hz / 2).max(MIN_HZ) } } else { self }
    }

    /// Checks the rate: an endpoint calls it on what a stranger sent.
    ///
    /// # Errors
    /// Checks the request against what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if (MIN_HZ..=MAX_HZ).contains(&self.hz) {
            return Ok(());
        }
        Err(format!("a profile at {} samples a second: they must be {MIN_HZ} to {MAX_HZ}", self.hz))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_on_one_kernel_share_the_samples() {
        let asked = ProfileRequest::default();
        assert_eq!(asked.of_each_end(false), asked);
        assert_eq!(asked.of_each_end(true).hz, 249);
        let few = ProfileRequest { hz: MIN_HZ };
        assert_eq!(few.of_each_end(true), few);
        assert_eq!(few.of_each_end(true).check(), Ok(()));
    }
}
