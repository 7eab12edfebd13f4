//! Limits the CPU time of a host's threads by affinity, busy neighbours or a control group's quota.
//! A host of the lab has no CPUs of its own: the share is that of the threads that serve or measure
//! there.

use std::hint::black_box;
use std::io;
use std::thread::{self, JoinHandle};

use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::truth::CpuShare;
use linerate_sys::thread::{affinity, set_affinity};
use thiserror::Error;

use super::quota::QuotaGroup;
use crate::join::joined;
use crate::stop::Stop;

/// A CPU could not be shared out.
#[derive(Debug, Error)]
#[error("cannot {what}")]
pub struct CpuError {
    what: &'static str,
    source: io::Error,
}

/// A share of a CPU, held until it is dropped.
pub(crate) struct Allotment {
    cpus: Option<Vec<u32>>,
    quota: Option<QuotaGroup>,
    _neighbours: Neighbours,
    caveat: Option<Caveat>,
}

impl Allotment {
    /// Takes a share. Where no control group can be made, neighbours take the rest of the CPU
    /// instead, and the caveat says so.
    pub(crate) fn new(share: CpuShare) -> Result<Self, CpuError> {
        let CpuShare::Quota { percent } = share else {
            return Self::exact(share);
        };
        Self::quota(percent).or_else(|why| {
            let neighbours = (100 / percent.max(1)).saturating_sub(1);
            Ok(Self {
                caveat: Some(instead(neighbours, &why)),
                ..shared(0, neighbours)?
            })
        })
    }

    /// Takes exactly the share that is asked for; without control groups that is an error.
    pub(crate) fn exact(share: CpuShare) -> Result<Self, CpuError> {
        match share {
            CpuShare::Any => Ok(Self::held(None, Neighbours::default())),
            CpuShare::Own { cpu } => Ok(Self::held(Some(number(cpu)?), Neighbours::default())),
            CpuShare::Shared { cpu, neighbours } => shared(cpu, neighbours),
            CpuShare::Quota { percent } => Self::quota(percent).map_err(cannot(QUOTA)),
        }
    }

    fn quota(percent: u32) -> io::Result<Self> {
        Ok(Self {
            quota: Some(QuotaGroup::create(percent)?),
            ..Self::held(None, Neighbours::default())
        })
    }

    fn held(cpu: Option<u32>, neighbours: Neighbours) -> Self {
        Self {
            cpus: cpu.map(|cpu| vec![cpu]),
            quota: None,
            _neighbours: neighbours,
            caveat: None,
        }
    }

    /// Runs `work` on a thread with this share; threads that it starts have it, too.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, CpuError> {
        thread::scope(|scope| {
            let helper = scope.spawn(|| {
                if let Some(cpus) = &self.cpus {
                    set_affinity(cpus).map_err(cannot("confine a thread to a CPU"))?;
                }
                if let Some(group) = &self.quota {
                    group
                        .join()
                        .map_err(cannot("put a thread into a control group"))?;
                }
                Ok(work())
            });
            joined(helper)
        })
    }

    /// How the share differs from what was asked for.
    pub(crate) fn caveat(&self) -> Option<Caveat> {
        self.caveat.clone()
    }
}

fn shared(cpu: u32, neighbours: u32) -> Result<Allotment, CpuError> {
    let cpu = number(cpu)?;
    let busy = Neighbours::start(cpu, neighbours).map_err(cannot("start a busy neighbour"))?;
    Ok(Allotment::held(Some(cpu), busy))
}

fn instead(neighbours: u32, why: &io::Error) -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        format!("{neighbours} busy neighbours instead of a CPU quota: {why}"),
        "run it as root, or by `systemd-run --scope -p Delegate=cpu`",
    )
}

/// The number of the `index`th CPU that this process may use, counted around.
fn number(index: u32) -> Result<u32, CpuError> {
    let allowed = affinity().map_err(cannot("read the CPUs of this process"))?;
    match allowed.len() {
        0 => Ok(index),
        count => Ok(allowed[index as usize % count]),
    }
}

fn cannot<E: std::error::Error + Send + Sync + 'static>(
    what: &'static str,
) -> impl FnOnce(E) -> CpuError {
    move |error| CpuError {
        what,
        source: io::Error::other(error),
    }
}

/// An error with the remedy in its text.
const QUOTA: &str = "make a control group with a quota of CPU time; run as root, or by \
    `systemd-run --scope -p \
                     Delegate=cpu`, so that the controller cpu is there and groups can be made";

/// Threads that keep a CPU busy until this is dropped.
#[derive(Default)]
struct Neighbours {
    over: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    fn start(cpu: u32, count: u32) -> io::Result<Self> {
        let mut made = Self::default();
        for _ in 0..count {
            let over = made.over.clone();
            let spawned = thread::Builder::new()
                .name("neighbour".into())
                .spawn(move || {
                    // If it cannot be bound to that CPU it does not disturb, and the verdict will
                    // say so.
                    let _ = set_affinity(&[cpu]);
                    // Without a pause instruction, for which a hypervisor might take the CPU away.
                    let mut n = 0_u64;
                    while !over.is_requested() {
                        for _ in 0..10_000 {
                            n = black_box(n.wrapping_add(1));
                        }
                    }
                })?;
            made.threads.push(spawned);
        }
        Ok(made)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.over.request();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_testkit::{Need, skip};

    use super::*;

    #[test]
    fn a_quota_holds_back_a_thread_that_never_rests() {
        let allotment = Allotment::new(CpuShare::Quota { percent: 20 }).unwrap();
        if let Some(caveat) = allotment.caveat() {
            skip(Need::Cgroup, caveat.message);
            return;
        }
        let used = allotment.run(|| {
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_secs(1) {
                black_box(0);
            }
            linerate_sys::thread::CpuUsage::of_thread().user
        });
        // A fifth of a second, and up to a period of 100 ms more where it began.
        assert!(used.unwrap() < Duration::from_millis(400));
    }

    #[test]
    fn neighbours_end_with_their_allotment() {
        let allotment = Allotment::new(CpuShare::Shared {
            cpu: 0,
            neighbours: 2,
        })
        .unwrap();
        assert_eq!(allotment.run(|| affinity().unwrap().len()).unwrap(), 1);
        drop(allotment);
    }
}
