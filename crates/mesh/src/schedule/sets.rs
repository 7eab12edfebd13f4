//! Sets of sites and of pairs of sites, a bit for each.

/// A set of sites.
#[derive(Debug, Clone)]
pub(super) struct SiteSet(Vec<u64>);

impl SiteSet {
    /// The empty set, with room for that many sites.
    pub(super) fn new(sites: usize) -> Self {
        Self(vec![0; sites.div_ceil(64)])
    }

    pub(super) fn contains(&self, site: usize) -> bool {
        self.0[site / 64] >> (site % 64) & 1 == 1
    }

    /// Puts a site in, or takes it out.
    pub(super) fn set(&mut self, site: usize, is_in: bool) {
        let (word, bit) = (&mut self.0[site / 64], 1 << (site % 64));
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        members(self.words())
    }

    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }
}

/// A set of unordered pairs: for each site the set of its partners.
#[derive(Debug, Clone)]
pub(super) struct PairSet(Vec<SiteSet>);

impl PairSet {
    /// The empty set, with room for all pairs of that many sites.
    pub(super) fn new(sites: usize) -> Self {
        Self(vec![SiteSet::new(sites); sites])
    }

    pub(super) fn contains(&self, a: usize, b: usize) -> bool {
        self.0[a].contains(b)
    }

    /// Puts a pair in, or takes it out; whether that changed the set.
    pub(super) fn set(&mut self, a: usize, b: usize, is_in: bool) -> bool {
        let is_changed = self.contains(a, b) != is_in;
        self.0[a].set(b, is_in);
        self.0[b].set(a, is_in);
        is_changed
    }

    pub(super) fn partners(&self, site: usize) -> &SiteSet {
        &self.0[site]
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let of_set = |set: &SiteSet| size_of::<SiteSet>() + 8 * set.0.len();
        self.0.iter().map(of_set).sum()
    }
}

/// The sites of a set's words.
pub(super) fn members(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(number, word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(number * 64 + bit)
        })
    })
}
