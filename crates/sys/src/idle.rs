//! Keeping the CPUs from going to sleep while delays are measured or emulated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use crate::thread::{self, ThreadError};

/// The spinners could not be started.
#[derive(Debug, thiserror::Error)]
pub enum IdleError {
    /// The CPUs are not known, or a spinner could not be bound to its CPU and given way to all
    /// others.
    #[error("cannot keep the CPUs awake")]
    Schedule(#[from] ThreadError),
    /// A thread could not be started.
    #[error("cannot start a thread to keep CPU {cpu} awake")]
    Spawn {
        /// The CPU.
        cpu: u32,
        /// What the system answered.
        source: std::io::Error,
    },
}

/// One busy thread of policy SCHED_IDLE for each CPU that the process may use: a CPU that has
/// something to run, however unimportant, need not be woken up, which takes tens to hundreds of
/// microseconds in a guest.
///
/// The threads give way to all others at once and need no privilege, but the CPUs are never idle:
/// no profile and no measure of CPU load is to be taken meanwhile, other guests and sibling
/// hyper-threads feel it, and so does a cgroup's CPU quota. They end when this is dropped.
#[derive(Debug)]
#[must_use = "the spinners end when this is dropped"]
pub struct IdleSpinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl IdleSpinners {
    /// Starts the spinners, on the CPUs that the calling thread may run on. They spin when this
    /// returns.
    ///
    /// # Errors
    /// A thread cannot be started, bound to its CPU or given the policy; none is left behind then.
    pub fn start() -> Result<Self, IdleError> {
        let mut spinners = Self {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let (report, reports) = mpsc::channel();
        for cpu in thread::affinity()? {
            let (stop, report) = (Arc::clone(&spinners.stop), report.clone());
            let thread = Builder::new()
                .name(format!("idle-spinner-{cpu}"))
                .spawn(move || {
                    let prepared = prepare(cpu);
                    let ready = prepared.is_ok();
                    // The receiver is gone only if another spinner failed, and then all are told to
                    // stop.
                    let _ = report.send(prepared);
                    if ready {
                        spin(&stop);
                    }
                })
                .map_err(|source| IdleError::Spawn { cpu, source })?;
            spinners.threads.push(thread);
        }
        for prepared in reports.iter().take(spinners.cpus()) {
            prepared?;
        }
        Ok(spinners)
    }

    /// How many CPUs are kept awake.
    pub fn cpus(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for IdleSpinners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A spinner has nothing in it that could panic, and nothing is lost if one did.
            let _ = thread.join();
        }
    }
}

/// Never spins at an ordinary priority: the policy comes before the loop, and its failure prevents
/// it.
fn prepare(cpu: u32) -> Result<(), ThreadError> {
    thread::set_idle_policy()?;
    thread::set_affinity(&[cpu])
}

fn spin(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The policy (field 41 of proc(5)) of each thread of this process by that name.
    fn spinner_policies() -> Vec<String> {
        let stats = fs::read_dir("/proc/self/task").unwrap().flatten();
        stats
            .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
            .filter(|stat| stat.contains("(idle-spinner-"))
            .map(|stat| {
                stat.rsplit_once(") ")
                    .unwrap()
                    .1
                    .split(' ')
                    .nth(41 - 3)
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn spinners_are_idle_threads_on_every_cpu_and_end_when_dropped() {
        let spinners = IdleSpinners::start().unwrap();
        assert_eq!(spinners.cpus(), thread::affinity().unwrap().len());
        let policies = spinner_policies();
        assert_eq!(
            policies,
            vec![libc::SCHED_IDLE.to_string(); spinners.cpus()]
        );

        drop(spinners);
        // A thread that was joined may be listed for a moment longer.
        while !spinner_policies().is_empty() {
            std::thread::yield_now();
        }
    }
}
