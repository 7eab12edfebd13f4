//! How a name finds its pattern.

use std::collections::HashMap;

/// Patterns by what they begin with.
pub(super) struct Index<T> {
    whole: HashMap<&'static str, T>,
    beginnings: HashMap<&'static str, T>,
    longest: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            whole: HashMap::new(),
            beginnings: HashMap::new(),
            longest: 0,
        }
    }
}

impl<T: Copy> Index<T> {
    /// Takes a name, or the beginning of names with a `*` behind it.
    pub(super) fn insert(&mut self, pattern: &'static str, value: T) {
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
    pub(super) fn find(&self, name: &str) -> Option<T> {
        if let Some(&found) = self.whole.get(name) {
            return Some(found);
        }
        let most = name.len().min(self.longest);
        let mut parts = (1..=most).rev().filter_map(|length| name.get(..length));
        parts.find_map(|part| self.beginnings.get(part).copied())
    }
}
