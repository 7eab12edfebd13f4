//! What a transfer costs the host: service demand, CPU time per KiB carried.
//!
//! The definition is netperf's (`calc_service_demand` in its `src/netlib.c`): the CPU time of the
//! *whole host*, all its processors together, for each 1024 bytes transferred. Two hosts that reach
//! the same throughput differ in what is left for the application; the service demand says by how
//! much, whatever the number of CPUs.

use std::num::NonZeroU32;
use std::time::Duration;

/// Why a service demand cannot be computed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum CostError {
    /// No byte was transferred, so there is nothing to divide the CPU time by.
    #[error("service demand: no bytes were transferred")]
    NoBytes,
    /// The utilisation is not a share of the host's CPU time.
    #[error("service demand: CPU utilisation {percent} % is not within 0..=100 %")]
    Utilisation {
        /// The refused value, in percent.
        percent: f64,
    },
}

/// Service demand in CPU µs per KiB: CPU time of the whole host ÷ (bytes ÷ 1024).
///
/// # Errors
/// [`CostError::NoBytes`] if `bytes` is 0.
pub fn service_demand(cpu_time: Duration, bytes: u64) -> Result<f64, CostError> {
    demand(cpu_time.as_secs_f64(), bytes)
}

/// Service demand in CPU µs per KiB from a mean utilisation: `percent` ÷ 100 × `cpus` × 10⁶ ×
/// seconds ÷ KiB.
///
/// `percent` is the share of all CPUs together, 0 to 100, as netperf prints it.
///
/// # Errors
/// [`CostError::NoBytes`] if `bytes` is 0, [`CostError::Utilisation`] if `percent` is not within
/// 0..=100.
pub fn service_demand_from_utilisation(
    percent: f64,
    cpus: NonZeroU32,
    elapsed: Duration,
    bytes: u64,
) -> Result<f64, CostError> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(CostError::Utilisation { percent });
    }
    demand(
        percent / 100.0 * f64::from(cpus.get()) * elapsed.as_secs_f64(),
        bytes,
    )
}

fn demand(cpu_seconds: f64, bytes: u64) -> Result<f64, CostError> {
    if bytes == 0 {
        return Err(CostError::NoBytes);
    }
    Ok(cpu_seconds * 1e6 / (bytes as f64 / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: NonZeroU32 = NonZeroU32::new(4).unwrap();

    #[test]
    fn utilisation_and_cpu_seconds_agree() {
        // Half of 4 CPUs for 10 s is 20 CPU seconds.
        let by_share =
            service_demand_from_utilisation(50.0, FOUR, Duration::from_secs(10), 1 << 30).unwrap();
        let by_time = service_demand(Duration::from_secs(20), 1 << 30).unwrap();
        assert_eq!(by_share, by_time);
        assert_eq!(by_time, 20e6 / 1_048_576.0);
    }

    #[test]
    fn impossible_inputs_are_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(service_demand(second, 0), Err(CostError::NoBytes));
        for percent in [-0.1, 100.1, f64::INFINITY] {
            assert_eq!(
                service_demand_from_utilisation(percent, FOUR, second, 1),
                Err(CostError::Utilisation { percent })
            );
        }
        assert!(service_demand_from_utilisation(f64::NAN, FOUR, second, 1).is_err());
    }
}
