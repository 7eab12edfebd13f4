//! How a name finds its entry of the table.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::table::{Meaning, PAYLOAD, TABLE};

/// What the table says of a function, by its plain name; `None` if no pattern fits.
pub(super) fn meaning(name: &str) -> Option<Meaning> {
    static INDEX: LazyLock<Index<Meaning>> = LazyLock::new(|| {
        let entries = TABLE.iter();
        entries
            .flat_map(|&(meaning, patterns)| patterns.iter().map(move |&one| (one, meaning)))
            .collect()
    });
    INDEX.find(name)
}

/// Whether what this function moves is payload.
pub(super) fn handles_payload(name: &str) -> bool {
    static INDEX: LazyLock<Index<()>> =
        LazyLock::new(|| PAYLOAD.iter().map(|&pattern| (pattern, ())).collect());
    INDEX.find(name).is_some()
}

/// Patterns by what they begin with.
pub(super) struct Index<T> {
    whole: HashMap<&'static str, T>,
    beginnings: HashMap<&'static str, T>,
    longest: usize,
}

impl<T: Copy> Index<T> {
    /// The longest pattern that fits; a whole name before a beginning.
    pub(super) fn find(&self, name: &str) -> Option<T> {
        if let Some(&found) = self.whole.get(name) {
            return Some(found);
        }
        let most = name.len().min(self.longest);
        let mut parts = (1..=most).rev().filter_map(|length| name.get(..length));
        parts.find_map(|part| self.beginnings.get(part).copied())
    }
}

impl<T: Copy> FromIterator<(&'static str, T)> for Index<T> {
    fn from_iter<I: IntoIterator<Item = (&'static str, T)>>(patterns: I) -> Self {
        let mut index = Self {
            whole: HashMap::new(),
            beginnings: HashMap::new(),
            longest: 0,
        };
        for (pattern, value) in patterns {
            match pattern.strip_suffix('*') {
                Some(beginning) => {
                    index.longest = index.longest.max(beginning.len());
                    index.beginnings.insert(beginning, value);
                }
                None => {
                    index.whole.insert(pattern, value);
                }
            }
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::Layer;
    use super::*;

    #[test]
    fn no_pattern_stands_twice() {
        let mut seen = HashSet::new();
        for pattern in TABLE.iter().flat_map(|(_, patterns)| patterns.iter()) {
            assert!(seen.insert(pattern), "{pattern} stands twice");
        }
    }

    #[test]
    fn patterns_are_names_with_a_star_at_most_at_their_end() {
        let all = TABLE.iter().flat_map(|(_, patterns)| patterns.iter());
        for pattern in all.chain(PAYLOAD) {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            let sound = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            assert!(name.len() >= 2 && name.chars().all(sound), "{pattern}");
        }
    }

    #[test]
    fn every_pattern_is_found_by_its_own_name() {
        for &(meaning_of, patterns) in TABLE {
            for pattern in patterns.iter().filter(|pattern| !pattern.ends_with('*')) {
                assert_eq!(meaning(pattern), Some(meaning_of), "{pattern}");
            }
        }
    }

    #[test]
    fn the_longest_pattern_decides() {
        for (name, says) in [
            ("tcp_sendmsg_locked", Meaning::Of(Layer::Tcp)),
            ("tcp_gro_receive", Meaning::Of(Layer::Offload)),
            ("tcp_v4_send_check", Meaning::Of(Layer::Checksum)),
            ("skb_release_data", Meaning::Of(Layer::PacketMemory)),
            ("skb_copy_bits", Meaning::Of(Layer::Copy)),
            ("skb_segment", Meaning::Of(Layer::Offload)),
            ("__raw_spin_lock", Meaning::Callers),
            ("schedule_idle", Meaning::Door(Layer::Idle)),
            ("ip_fast_csum", Meaning::Of(Layer::Checksum)),
        ] {
            assert_eq!(meaning(name), Some(says), "{name}");
        }
        assert_eq!(meaning("ext4_finish_bio"), None);
        assert_eq!(meaning(""), None);
        assert_eq!(meaning("größe"), None);
    }
}
