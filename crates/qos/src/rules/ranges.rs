//! Sets of numbers.

/// A set of numbers as sorted, separate, non-empty ranges.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// The set of these ranges, sorted and merged; `None` if there are none.
    pub fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Option<Self> {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        (!joined.is_empty()).then_some(Self(joined))
    }

    /// The ranges, sorted, none touching the next.
    pub fn as_slice(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// The lowest and the highest number.
    pub fn hull(&self) -> (u128, u128) {
        (self.0[0].0, self.0[self.0.len() - 1].1)
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u128) -> bool {
        self.last_before(number).is_some_and(|end| number <= end)
    }

    /// The end of the last range that begins at a number or before it.
    fn last_before(&self, number: u128) -> Option<u128> {
        let behind = self.0.partition_point(|(first, _)| *first <= number);
        self.0[..behind].last().map(|(_, last)| *last)
    }

    /// Whether all of `inner` is in the set.
    pub fn covers(&self, inner: &Self) -> bool {
        inner.0.iter().all(|(first, last)| self.last_before(*first).is_some_and(|end| *last <= end))
    }

    /// Whether the sets overlap.
    pub fn meets(&self, other: &Self) -> bool {
        let (few, many) = match self.0.len() <= other.0.len() {
            true => (self, other),
            false => (other, self),
        };
        few.0.iter().any(|(first, last)| many.last_before(*last).is_some_and(|end| *first <= end))
    }

    /// The intersection; `None` if it is empty.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                both.push((first, last));
            }
            if a.1 <= b.1 {
                left.next()
            } else {
                right.next()
            };
        }
        Self::new(both)
    }

    /// The difference; `None` if it is empty.
    pub fn without(&self, other: &Self) -> Option<Self> {
        let mut rest = Vec::new();
        for &(first, last) in &self.0 {
            let mut from = Some(first);
            let begin = other.0.partition_point(|(_, end)| *end < first);
            for &(start, end) in &other.0[begin..] {
                let Some(at) = from else { break };
                if start > last {
                    break;
                }
                if start > at {
                    rest.push((at, start - 1));
                }
                from = end.checked_add(1).filter(|next| *next <= last);
            }
            rest.extend(from.map(|at| (at, last)));
        }
        Self::new(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = Ranges> {
        let small = (0u128..40, 0u128..6).prop_map(|(first, more)| (first, first + more));
        let top = (0u128..40).prop_map(|below| (u128::MAX - below, u128::MAX));
        prop::collection::vec(prop_oneof![4 => small, 1 => top], 1..6)
            .prop_map(|ranges| Ranges::new(ranges).expect("there is one range at least"))
    }

    fn numbers() -> impl Iterator<Item = u128> {
        (0..50).chain((0..50).map(|below| u128::MAX - below))
    }

    proptest! {
        #[test]
        fn sets_do_what_their_numbers_say(a in set(), b in set()) {
            let both = a.intersection(&b);
            let rest = a.without(&b);
            let within =
                |set: &Option<Ranges>, number| set.as_ref().is_some_and(|set| set.contains(number));
            for number in numbers() {
                let (in_a, in_b) = (a.contains(number), b.contains(number));
                prop_assert_eq!(within(&both, number), in_a && in_b);
                prop_assert_eq!(within(&rest, number), in_a && !in_b);
            }
            prop_assert_eq!(a.meets(&b), both.is_some());
            prop_assert_eq!(a.covers(&b), b.without(&a).is_none());
            prop_assert_eq!(Ranges::new(a.as_slice().to_vec()), Some(a));
        }
    }
}
