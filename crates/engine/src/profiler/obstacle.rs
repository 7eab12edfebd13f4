//! Caveats about what could not be sampled: the reason, and what would help.

use linerate_core::record::{Caveat, CaveatKind, CaveatRemedy};
use linerate_sys::perf::{Obstacle, PerfError, paranoid};

pub(super) fn too_many(most: u64) -> Caveat {
    not_readable(
        format!("no samples: this process takes {most} profiles already"),
        "profile when nobody else does",
    )
}

pub(super) fn slower(asked: u32, allowed: u32) -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        format!(
            "{asked} samples a second were asked for, this kernel allows {allowed} at the moment \
             (kernel.perf_event_max_sample_rate)"
        ),
        "raise it by sysctl: the kernel lowers it when sampling interrupts take long",
    )
}

pub(super) fn own_threads_only(error: &PerfError) -> Caveat {
    let what = "only the test's own threads could be sampled, not soft interrupts elsewhere";
    refused(what, error, "0")
}

pub(super) fn user_mode_only(error: &PerfError) -> Caveat {
    let what = "only user mode could be sampled; the kernel's part is its account of CPU time, \
                without layers";
    refused(what, error, "1")
}

pub(super) fn not_even_threads(error: &PerfError) -> Caveat {
    let what = "no samples, only the kernel's account of CPU time";
    refused(what, error, "2 or less")
}

/// `allowing` is the value of `kernel.perf_event_paranoid` that would have allowed it.
fn refused(what: &str, error: &PerfError, allowing: &str) -> Caveat {
    let message = format!("{what}: {error}{}", setting(error));
    not_readable(message, remedy(error, allowing))
}

pub(super) fn many_threads(sampled: usize, threads: usize) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        format!("only {sampled} of the test's {threads} threads were sampled"),
        "run as root, or with fewer streams",
    )
}

fn not_readable(message: String, remedy: impl Into<CaveatRemedy>) -> Caveat {
    Caveat::new(CaveatKind::NotReadable, message, remedy)
}

/// The value of `kernel.perf_event_paranoid`, where that is the obstacle.
fn setting(error: &PerfError) -> String {
    match paranoid() {
        Some(value) if error.obstacle() == Obstacle::Paranoid => {
            format!(" (kernel.perf_event_paranoid is {value})")
        }
        _ => String::new(),
    }
}

/// `allowing` is the value that the setting would need.
fn remedy(error: &PerfError, allowing: &str) -> String {
    match error.obstacle() {
        Obstacle::Paranoid => {
            return format!(
                "run as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to {allowing}"
            );
        }
        Obstacle::Filtered => {
            "allow perf_event_open in the filter of system calls (a container's seccomp profile); \
             a kernel under lockdown \
             has no perf events"
        }
        Obstacle::LockedMemory => {
            "raise the memory that may be locked (ulimit -l, kernel.perf_event_mlock_kb), or run \
             as root"
        }
        Obstacle::Memory => "leave memory for the samples: 1 MiB for each CPU",
        Obstacle::Descriptors => "raise the number of open files (ulimit -n, fs.file-max)",
        Obstacle::NotThere => "run it again when no CPUs or threads come and go",
        Obstacle::Unsupported => "use a kernel with perf events (CONFIG_PERF_EVENTS)",
        Obstacle::Other => "the kernel's log may say why",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use linerate_sys::errno;
    use linerate_sys::perf::Subject;

    use super::*;

    #[test]
    fn only_what_the_setting_forbids_is_mended_by_the_setting() {
        let subject = Subject::Thread(7);
        let answer = io::Error::from_raw_os_error;
        let forbidden = PerfError::Open { subject, source: answer(errno::EACCES) };
        for (caveat, value) in [
            (own_threads_only(&forbidden), "paranoid to 0"),
            (user_mode_only(&forbidden), "paranoid to 1"),
            (not_even_threads(&forbidden), "paranoid to 2"),
        ] {
            assert!(caveat.remedy.to_string().contains(value), "{caveat:?}");
        }
        let others = [
            (PerfError::Map { subject, source: answer(errno::EPERM) }, "ulimit -l"),
            (PerfError::Open { subject, source: answer(errno::EMFILE) }, "ulimit -n"),
            (PerfError::Open { subject, source: answer(errno::EPERM) }, "seccomp"),
            (PerfError::Map { subject, source: answer(errno::ENOMEM) }, "memory"),
            (PerfError::Open { subject, source: answer(errno::ENOENT) }, "CONFIG_PERF_EVENTS"),
        ];
        for (error, word) in others {
            let caveat = not_even_threads(&error);
            assert!(caveat.remedy.to_string().contains(word), "{caveat:?}");
            assert!(!format!("{caveat:?}").contains("paranoid"), "{caveat:?}");
        }
    }
}
