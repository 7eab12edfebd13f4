//! CPUs that come and go while they are sampled.

use std::collections::{BTreeMap, BTreeSet};

use linerate_core::record::{Caveat, CaveatKind};

/// Which CPUs are sampled, and what became of others.
#[derive(Debug, Default)]
pub(super) struct Hotplug {
    present: BTreeSet<u32>,
    /// What has happened to each, last.
    changed: BTreeMap<u32, String>,
}

impl Hotplug {
    /// The CPUs that there were when it began.
    pub(super) fn begin(&mut self, cpus: impl Iterator<Item = u32>) {
        self.present = cpus.collect();
    }

    /// Compares them with the CPUs that are online now. The answer is those that have come; the
    /// caller reports on each with [`taken`](Self::taken).
    pub(super) fn follow(&mut self, online: &[u32]) -> Vec<u32> {
        let online: BTreeSet<u32> = online.iter().copied().collect();
        for cpu in self.present.difference(&online) {
            let words = format!("CPU {cpu} went offline: sampled until then");
            self.changed.insert(*cpu, words);
        }
        let came = online.difference(&self.present).copied().collect();
        self.present = online;
        came
    }

    /// Notes that a CPU has come and is sampled, or the error for which it is not.
    pub(super) fn taken(&mut self, cpu: u32, error: Option<String>) {
        let words = match error {
            None => format!("CPU {cpu} came online: sampled from then on"),
            Some(error) => format!("CPU {cpu} came online and is not sampled: {error}"),
        };
        self.changed.insert(cpu, words);
    }

    /// What the profile lacks because of them.
    pub(super) fn caveat(&self) -> Option<Caveat> {
        let words: Vec<&str> = self.changed.values().map(String::as_str).collect();
        let (named, more) = words.split_at(words.len().min(NAMED));
        if named.is_empty() {
            return None;
        }
        let more = match more.len() {
            0 => String::new(),
            more => format!("; and {more} more CPUs"),
        };
        Some(Caveat::new(
            CaveatKind::Partial,
            format!("{}{more}", named.join("; ")),
            "profile it while no CPUs come or go",
        ))
    }
}

/// CPUs that a caveat names.
const NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two() -> Hotplug {
        let mut hotplug = Hotplug::default();
        hotplug.begin(0..2);
        hotplug
    }

    #[test]
    fn an_unchanged_state_is_not_reported() {
        let mut hotplug = of_two();
        assert!(hotplug.follow(&[0, 1]).is_empty());
        assert_eq!(hotplug.caveat(), None);
    }

    #[test]
    fn added_and_removed_entries_are_marked() {
        let mut hotplug = of_two();
        assert_eq!(hotplug.follow(&[0, 2, 3]), [2, 3]);
        hotplug.taken(2, None);
        hotplug.taken(3, Some("no memory".to_owned()));
        assert!(hotplug.follow(&[0, 2, 3]).is_empty(), "each comes once");
        let caveat = hotplug.caveat().unwrap();
        assert_eq!(caveat.kind, CaveatKind::Partial);
        assert_eq!(
            caveat.message,
            "CPU 1 went offline: sampled until then; CPU 2 came online: sampled from then on; \
             CPU 3 came online and is not sampled: no memory"
        );
        assert_eq!(hotplug.follow(&[0, 1, 2, 3]), [1], "it is sampled anew");
    }

    #[test]
    fn a_host_whose_cpus_flap_has_one_caveat_of_bounded_length() {
        let mut hotplug = Hotplug::default();
        for cpus in [0..4000_u32, 0..0, 0..4000, 0..0] {
            hotplug.follow(&cpus.collect::<Vec<_>>());
        }
        let words = hotplug.caveat().unwrap().message;
        assert!(words.len() < 500 && words.contains("and 3992 more CPUs"), "{words}");
    }
}
