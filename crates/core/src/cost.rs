//! Service demand: the CPU time that a transfer costs a host for each KiB carried.
//!
//! The definition is netperf's (`calc_service_demand` in its `src/netlib.c`): the CPU time of the
//! *whole host*, all its processors together, for each 1024 bytes transferred. Two hosts that reach
//! the same throughput differ in what is left for the application; the service demand says by how
//! much, whatever the number of CPUs.

use std::time::Duration;

/// Service demand in CPU µs per KiB: CPU time of the whole host ÷ (bytes ÷ 1024); none where
/// nothing was transferred.
pub fn service_demand(cpu_time: Duration, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| cpu_time.as_secs_f64() * 1e6 / (bytes as f64 / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_demand_is_cpu_time_per_kib_and_needs_bytes() {
        let demand = service_demand(Duration::from_secs(20), 1 << 30);
        assert_eq!(demand, Some(20e6 / 1_048_576.0));
        assert_eq!(service_demand(Duration::from_secs(1), 0), None);
    }
}
