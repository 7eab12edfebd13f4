//! Which thread a sample belongs to.

use std::collections::HashMap;
use std::fs;

/// Owner of a thread, found by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ThreadOwner {
    /// It carries this end's data.
    Flow,
    /// Another of this end's process.
    Tool,
    /// Of this process, and none of this end's work: the other end's flows, the lab's emulator.
    Neighbour,
    /// Keeps a CPU awake where there is nothing to do.
    Spinner,
    /// Not of this process: another one's, the kernel's, or the idle task. Its call chain tells.
    Foreign,
}

/// Remembers what threads are.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    process: u32,
    flows: Vec<u32>,
    known: HashMap<u32, ThreadOwner>,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self { process: std::process::id(), ..Self::default() }
    }

    /// The threads that carry this end's data, as far as they have begun.
    pub(super) fn set_flows(&mut self, flows: Vec<u32>) {
        if self.flows != flows {
            self.flows = flows;
            self.known.clear();
        }
    }

    pub(super) fn owner(&mut self, process: u32, thread: u32) -> ThreadOwner {
        if process != self.process {
            return ThreadOwner::Foreign;
        }
        if self.flows.contains(&thread) {
            return ThreadOwner::Flow;
        }
        *self.known.entry(thread).or_insert_with(|| {
            let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
            by_name(name.unwrap_or_default().trim_end())
        })
    }
}

/// By the names that threads of linerate have.
fn by_name(name: &str) -> ThreadOwner {
    match name {
        "pump" | "neighbour" => ThreadOwner::Neighbour,
        _ if name.starts_with("flow-") => ThreadOwner::Neighbour,
        _ if name.starts_with(linerate_sys::idle::THREAD_NAME) => ThreadOwner::Spinner,
        _ => ThreadOwner::Tool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_this_process_are_told_apart() {
        let own = linerate_sys::thread::thread_id();
        let mut tasks = Tasks::new();
        let process = std::process::id();
        assert_eq!(tasks.owner(process, own), ThreadOwner::Tool);
        assert_eq!(tasks.owner(process + 1, own), ThreadOwner::Foreign);
        tasks.set_flows(vec![own]);
        assert_eq!(tasks.owner(process, own), ThreadOwner::Flow);
        std::thread::Builder::new()
            .name("pump".to_owned())
            .spawn(move || {
                let own = linerate_sys::thread::thread_id();
                assert_eq!(Tasks::new().owner(process, own), ThreadOwner::Neighbour);
            })
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(by_name("flow-3"), ThreadOwner::Neighbour);
        assert_eq!(by_name("sampler"), ThreadOwner::Tool);
    }
}
