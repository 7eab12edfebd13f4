//! The table of functions and their layers: reads `functions.txt`, which explains its format.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::super::Layer;
use crate::plan::Role;

/// The meaning of a function in a call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It and whatever it calls belongs to this layer, unless what it calls says something else.
    Of(Layer),
    /// It does the work of two layers in one pass.
    Both(Layer, Layer),
    /// The entry to a part of the kernel: it says where its own time belongs and that of helpers
    /// that it calls, but nothing of functions that the table does not know.
    Entry(Layer),
    /// A general helper: it belongs to its caller.
    Callers,
    /// It moves bytes: a copy where its caller handles payload, otherwise its caller's.
    Moves,
}

/// What the table says of a function, by its plain name; `None` if no pattern fits.
pub(super) fn meaning(name: &str) -> Option<Meaning> {
    TABLE.meanings.find(name)
}

/// Whether what this function moves is payload.
pub(super) fn handles_payload(name: &str) -> bool {
    TABLE.payload.find(name).is_some()
}

/// The end of the data that alone calls this function.
pub(super) fn data_end(name: &str) -> Option<Role> {
    TABLE.ends.find(name)
}

#[derive(Default)]
struct FunctionTable {
    meanings: Index<Meaning>,
    payload: Index<()>,
    ends: Index<Role>,
}

static TABLE: LazyLock<FunctionTable> = LazyLock::new(|| {
    let mut table = FunctionTable::default();
    for line in patterns(include_str!("functions.txt")) {
        match line.expect("a test reads every line") {
            (pattern, Heading::Meaning(meaning)) => table.meanings.insert(pattern, meaning),
            (pattern, Heading::Payload) => table.payload.insert(pattern, ()),
            (pattern, Heading::End(side)) => table.ends.insert(pattern, side),
        }
    }
    table
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heading {
    Meaning(Meaning),
    Payload,
    End(Role),
}

/// The patterns, each with its heading. An error is a line that cannot be read.
fn patterns(text: &str) -> impl Iterator<Item = Result<(&str, Heading), String>> {
    let mut heading = Err("a pattern without a heading".to_owned());
    let is_pattern = |line: &&str| !line.is_empty() && !line.starts_with('#');
    text.lines().filter(is_pattern).filter_map(move |line| {
        let words = line.strip_prefix('[');
        match words.and_then(|words| words.strip_suffix(']')) {
            Some(words) => {
                heading = read_heading(words).ok_or_else(|| format!("the heading [{words}]"));
                None
            }
            None => Some(heading.clone().map(|heading| (line, heading))),
        }
    })
}

fn read_heading(words: &str) -> Option<Heading> {
    let layer = |word: &str| {
        let word = IntoDeserializer::<Error>::into_deserializer(word);
        Layer::deserialize(word).ok()
    };
    let words: Vec<&str> = words.split(' ').collect();
    Some(Heading::Meaning(match words[..] {
        ["of", one] => Meaning::Of(layer(one)?),
        ["both", one, other] => Meaning::Both(layer(one)?, layer(other)?),
        ["entry", one] => Meaning::Entry(layer(one)?),
        ["callers"] => Meaning::Callers,
        ["moves"] => Meaning::Moves,
        ["payload"] => return Some(Heading::Payload),
        ["sender"] => return Some(Heading::End(Role::Sender)),
        ["receiver"] => return Some(Heading::End(Role::Receiver)),
        _ => return None,
    }))
}

/// Patterns, sorted by prefix.
struct Index<T> {
    whole: HashMap<&'static str, T>,
    beginnings: HashMap<&'static str, T>,
    longest: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { whole: HashMap::new(), beginnings: HashMap::new(), longest: 0 }
    }
}

impl<T: Copy> Index<T> {
    /// Takes a name, or the beginning of names with a `*` behind it.
    fn insert(&mut self, pattern: &'static str, value: T) {
        match pattern.strip_suffix('*') {
            Some(beginning) => {
                self.longest = self.longest.max(beginning.len());
                self.beginnings.insert(beginning, value);
            }
            None => {
                self.whole.insert(pattern, value);
            }
        }
    }

    /// The longest pattern that fits; a whole name before a beginning.
    fn find(&self, name: &str) -> Option<T> {
        if let Some(&found) = self.whole.get(name) {
            return Some(found);
        }
        let max = name.len().min(self.longest);
        let mut parts = (1..=max).rev().filter_map(|length| name.get(..length));
        parts.find_map(|part| self.beginnings.get(part).copied())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn all() -> Vec<(&'static str, Heading)> {
        let lines: Result<_, String> = patterns(include_str!("functions.txt")).collect();
        lines.unwrap()
    }

    #[test]
    fn every_line_of_the_table_can_be_read() {
        let headings: HashSet<_> =
            all().iter().map(|(_, heading)| format!("{heading:?}")).collect();
        assert_eq!(headings.len(), 23);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error() {
        for text in ["tcp_ack\n", "[of tcpp]\ntcp_ack\n", "[both tcp]\nx\n", "[]\nx\n"] {
            assert!(patterns(text).any(|line| line.is_err()), "{text}");
        }
        let read: Vec<_> = patterns("# why\n\n[of tcp]\ntcp_*\n").collect();
        let meaning = Heading::Meaning(Meaning::Of(Layer::Tcp));
        assert_eq!(read, [Ok(("tcp_*", meaning))]);
    }

    #[test]
    fn no_pattern_stands_twice() {
        let mut seen = HashSet::new();
        for (pattern, heading) in all() {
            let table = std::mem::discriminant(&heading);
            assert!(seen.insert((pattern, table)), "{pattern} stands twice");
        }
    }

    #[test]
    fn patterns_are_names_with_a_star_at_most_at_their_end() {
        for (pattern, _) in all() {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            let sound = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            assert!(name.len() >= 2 && name.chars().all(sound), "{pattern}");
        }
    }

    #[test]
    fn every_pattern_is_found_by_its_own_name() {
        for (pattern, heading) in all() {
            if let Heading::Meaning(says) = heading
                && !pattern.ends_with('*')
            {
                assert_eq!(meaning(pattern), Some(says), "{pattern}");
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
            ("schedule_idle", Meaning::Entry(Layer::Idle)),
            ("ip_fast_csum", Meaning::Of(Layer::Checksum)),
        ] {
            assert_eq!(meaning(name), Some(says), "{name}");
        }
        assert_eq!(meaning("ext4_finish_bio"), None);
        assert_eq!(meaning(""), None);
        assert_eq!(meaning("größe"), None);
    }
}
