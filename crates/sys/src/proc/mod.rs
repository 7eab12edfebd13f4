//! What the kernel says about this host in `/proc` and `/sys`.
//!
//! Each module has pure parsers (text in, struct out) and, apart from them, the functions that read
//! the files. Files of a network namespace are read through `/proc/thread-self/net`, so they are
//! those of the *calling thread*, also after `setns`; `/proc/net` and `/proc/self/net` would be
//! those of the thread group's leader.
//!
//! | module | what it reads |
//! |---|---|
//! | [`stat`] | CPU time by kind, per CPU |
//! | [`counters`] | protocols, sockets and their memory, the network's receive soft interrupt |
//! | [`softnet`] | packets that each CPU's network softirq took, dropped, left for later |
//! | [`sysctl`] | kernel settings, by key; writes, too |
//! | [`cpu`] | processors; which of them work for a device; writes that, too |
//! | [`machine`] | kernel, hypervisor, memory and slab |
//! | [`processes`] | which process holds a socket; CPU time of other processes' threads |
//! | [`cgroup`], [`privilege`] | what this process may use and do |

pub mod cgroup;
pub mod counters;
pub mod cpu;
pub mod machine;
pub mod privilege;
pub mod processes;
pub mod softnet;
pub mod stat;
pub mod sysctl;

mod source;

pub use source::{Malformed, Probe, ProcError};
pub(crate) use source::{SampledFile, field, net_path, read_and_parse, read_text};

#[cfg(test)]
pub(crate) mod tests {
    /// Runs `parse` over every prefix of `sample`: what a file may look like must never make a
    /// parser panic.
    pub(crate) fn parse_every_prefix<T>(sample: &str, mut parse: impl FnMut(&str) -> T) {
        for (end, _) in sample.char_indices() {
            parse(&sample[..end]);
        }
    }
}
