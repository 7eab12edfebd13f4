//! Divides one error probability among several metrics (Holm 1979).

/// Where a test crossed, and the interval that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Crossing {
    /// Number of pairs at that look.
    pub(super) pairs: usize,
    /// Walsh averages that the interval leaves out at its lower and its upper end.
    pub(super) skip: [usize; 2],
}

/// A hypothesis that fell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rejection {
    pub(super) at: Crossing,
    /// It fell at the error divided by this.
    pub(super) level: usize,
}

/// One hypothesis for each metric.
#[derive(Debug)]
pub(super) struct Holm {
    rejected: Vec<Option<Rejection>>,
}

impl Holm {
    /// No hypothesis is rejected yet.
    pub(super) fn new(metrics: usize) -> Self {
        Self { rejected: vec![None; metrics] }
    }

    /// Lets fall what may, given where each metric crossed first at each level, from 1 on.
    ///
    /// While k hypotheses stand, one falls if it crossed at 1/k of the error. It must have crossed
    /// with a greater error too: in a test of one look it always has, in one of several looks an
    /// early crossing of other vectors can come between. With that this is a closed test, each
    /// intersection of j hypotheses tested at 1/j of the error, and so the error of the family
    /// holds at every look (Ye, Li, Liu and Yao, *Statistics in Medicine* 32, 2013).
    pub(super) fn update(&mut self, crossing: impl Fn(usize, usize) -> Option<Crossing>) {
        while self.open() > 0 {
            let level = self.open();
            let fallen = |metric: usize| {
                let easier = (1..level).all(|easier| crossing(metric, easier).is_some());
                let at = crossing(metric, level)?;
                easier.then_some((metric, Rejection { at, level }))
            };
            let mut standing = (0..self.rejected.len()).filter(|&m| self.rejected[m].is_none());
            let Some((metric, rejection)) = standing.find_map(fallen) else {
                return;
            };
            self.rejected[metric] = Some(rejection);
        }
    }

    /// The number of hypotheses that are not rejected.
    pub(super) fn open(&self) -> usize {
        self.rejected.iter().filter(|fell| fell.is_none()).count()
    }

    /// How this metric's hypothesis was rejected.
    pub(super) fn rejection(&self, metric: usize) -> Option<Rejection> {
        self.rejected[metric]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which fall, if each metric crossed at levels up to the given one; 0 is none.
    fn fallen(upto: &[usize]) -> Vec<Option<usize>> {
        let mut holm = Holm::new(upto.len());
        let at = Crossing { pairs: 8, skip: [0, 0] };
        holm.update(|metric, level| (level <= upto[metric]).then_some(at));
        let levels = holm.rejected.iter();
        levels.map(|fell| fell.map(|fell| fell.level)).collect()
    }

    #[test]
    fn each_that_falls_makes_it_easier_for_the_next() {
        assert_eq!(fallen(&[1, 3, 2]), [Some(1), Some(3), Some(2)]);
        assert_eq!(fallen(&[3, 0, 2]), [Some(3), None, Some(2)]);
    }

    #[test]
    fn none_falls_at_a_level_that_is_not_its_turn() {
        assert_eq!(fallen(&[2, 2, 2]), [None; 3]);
        assert_eq!(fallen(&[3, 1, 1]), [Some(3), None, None]);
    }

    #[test]
    fn a_crossing_with_a_gap_below_it_does_not_count() {
        let at = Crossing { pairs: 8, skip: [0, 0] };
        let mut holm = Holm::new(2);
        holm.update(|_, level| (level == 2).then_some(at));
        assert_eq!(holm.open(), 2);
    }
}
