//! Limits the CPU time of a host's threads by a control group's quota. A host of the lab has no CPUs
//! of its own: the quota is that of the threads that serve or measure there.

use std::io;
use std::thread;

use super::error::LabError;
use super::quota::QuotaGroup;
use crate::join::joined;

/// A quota of CPU time, or none, held until it is dropped.
pub struct CpuQuota(Option<QuotaGroup>);

impl CpuQuota {
    /// Takes a quota of `percent` of one CPU, if there is to be one.
    ///
    /// # Errors
    /// No control group can be made here.
    pub fn new(percent: Option<u32>) -> Result<Self, LabError> {
        let group = percent.map(QuotaGroup::create).transpose();
        Ok(Self(group.map_err(cannot(QUOTA))?))
    }

    /// Runs `work` on a thread with this quota; threads that it starts have it, too.
    ///
    /// # Errors
    /// The thread cannot be put into the control group.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        thread::scope(|scope| {
            let helper = scope.spawn(|| {
                if let Some(group) = &self.0 {
                    group.join().map_err(cannot("put a thread into a control group"))?;
                }
                Ok(work())
            });
            joined(helper.join())
        })
    }
}

fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> LabError {
    move |source| LabError::Host { what, source }
}

/// An error with the remedy in its text.
const QUOTA: &str = "make a control group with a quota of CPU time; run as root, or by \
    `systemd-run --scope -p \
                     Delegate=cpu`, so that the controller cpu is there and groups can be made";

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use linerate_sys::thread::CpuUsage;
    use linerate_testkit::{Need, skip};

    use super::*;

    #[test]
    fn a_quota_holds_back_a_thread_that_never_rests() {
        let quota = match CpuQuota::new(Some(20)) {
            Ok(quota) => quota,
            Err(error) => {
                skip(Need::Cgroup, crate::words::chain(&error));
                return;
            }
        };
        let used = quota.run(|| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                black_box(0);
            }
            CpuUsage::of_thread().user
        });
        // A fifth of a second, and up to a period of 100 ms more where it began.
        assert!(used.unwrap() < Duration::from_millis(400));
    }
}
