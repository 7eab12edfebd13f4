//! Statistics of a stream of packets: loss, duplicates and reordering by their numbers; jitter and
//! delay.

/// Counts the packets of one flow by their sequence numbers, as a receiver sees them.
///
/// A packet is reordered if its number is less than the next expected one, which is one more than
/// the highest so far (RFC 4737, section 3.3). Whether a late packet is new or a duplicate is known
/// for the last [`Self::WINDOW`] numbers; the memory for that, 8 KiB, is allocated once. A packet
/// costs O(1), at most a sweep of those 8 KiB after a jump.
#[derive(Debug, Clone)]
pub struct SequenceTracker {
    /// The first number that counts.
    first: u64,
    /// One more than the highest number received.
    next: u64,
    /// The counts without `lost`, which [`SequenceTracker::counts`] computes.
    counts: SequenceCounts,
    /// The distances between gaps.
    spacing: LossSpacing,
    /// Bit `number % WINDOW` says whether `number` was received, for the WINDOW numbers before
    /// `next`.
    seen: Box<[u64; WORDS]>,
}

/// The classification of an arriving packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Its number is the next expected one or, after a gap, a higher one.
    InOrder,
    /// A packet with a higher number was received before.
    Reordered,
    /// A packet with the same number was received before.
    Duplicate,
    /// It is older than the window, so new or duplicate cannot be told; or its number is
    /// `u64::MAX`, which has no next.
    OutsideWindow,
    /// Its number precedes the first one that counts: it is not counted.
    BeforeFirst,
}

/// The packets of one flow so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequenceCounts {
    /// Packets received, each once.
    pub received: u64,
    /// Numbers not received, of those up to the highest received or the last sent. Up to
    /// `outside_window` of them may have arrived too late to be told from duplicates.
    pub lost: u64,
    /// Runs of consecutive numbers among the lost.
    pub loss_runs: u64,
    /// Packets received again.
    pub duplicated: u64,
    /// Packets received after one with a higher number; they are in `received` too.
    pub reordered: u64,
    /// Packets too old to be told from duplicates; they are in none of the other counts.
    pub outside_window: u64,
}

impl SequenceTracker {
    /// How many numbers back a late packet can be told from a duplicate.
    pub const WINDOW: u64 = 65_536;

    /// Distances between gaps that their variation needs: its error is a sixth with 20.
    pub const LEAST_GAPS: u64 = 20;

    /// Expects `first` first; lower numbers are not counted.
    pub fn new(first: u64) -> Self {
        Self {
            first,
            next: first,
            counts: SequenceCounts::default(),
            spacing: LossSpacing::default(),
            seen: Box::new([0; WORDS]),
        }
    }

    /// Counts one packet.
    #[inline]
    pub fn on_packet(&mut self, number: u64) -> Arrival {
        if number >= self.next {
            return self.on_highest(number);
        }
        if number < self.first {
            return Arrival::BeforeFirst;
        }
        if self.next - number > Self::WINDOW {
            self.counts.outside_window += 1;
            return Arrival::OutsideWindow;
        }
        let (word, bit) = place(number);
        if self.seen[word] & bit != 0 {
            self.counts.duplicated += 1;
            return Arrival::Duplicate;
        }
        // It ends a run, shortens one, or cuts one in two.
        let runs = self.counts.loss_runs + u64::from(self.is_lost_before(number));
        self.counts.loss_runs = (runs + u64::from(self.is_lost(number + 1))).saturating_sub(1);
        self.seen[word] |= bit;
        self.counts.received += 1;
        self.counts.reordered += 1;
        Arrival::Reordered
    }

    /// Counts `n` packets that arrived with ascending numbers from `first` on, such as one
    /// receive-offload batch. It is O(n / 64) where they are new, and O(n) at worst.
    pub fn in_order_run(&mut self, first: u64, n: u64) {
        let end = first.saturating_add(n);
        for number in first..end {
            if number == self.next {
                self.fill(number, end - number, true);
                self.counts.received += end - number;
                self.next = end;
                return;
            }
            self.on_packet(number);
        }
    }

    /// The counts so far; what follows the highest number received is not known to be lost.
    pub fn counts(&self) -> SequenceCounts {
        self.counts_until(self.next)
    }

    /// The counts once the sender said that `end` is one more than the last number it sent, so that
    /// losses at the very end count too.
    pub fn counts_until(&self, end: u64) -> SequenceCounts {
        SequenceCounts {
            lost: end.max(self.next) - self.first - self.counts.received,
            loss_runs: self.counts.loss_runs + u64::from(end > self.next),
            ..self.counts
        }
    }

    /// Standard deviation over mean of the distances between gaps in the numbers, from the begin of
    /// one to that of the next; `None` below [`Self::LEAST_GAPS`]. Losses by chance have
    /// √(p³ + (1 − p)³) at a loss of p (a gap and what arrives behind it are geometric each); a full
    /// queue or a token bucket takes each so many-th packet of a steady stream, which makes it
    /// small. A packet that comes late has left a gap.
    pub fn loss_spacing_variation(&self) -> Option<f64> {
        self.spacing.variation()
    }

    /// Of a number in the window.
    fn is_lost(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen[word] & bit == 0
    }

    /// Whether the number before this one counts and is lost; of one before the window it is not
    /// known any more.
    fn is_lost_before(&self, number: u64) -> bool {
        let is_known = number > self.first && self.next - number < Self::WINDOW;
        is_known && self.is_lost(number - 1)
    }

    #[inline]
    fn on_highest(&mut self, number: u64) -> Arrival {
        let Some(next) = number.checked_add(1) else {
            self.counts.outside_window += 1;
            return Arrival::OutsideWindow;
        };
        if number > self.next {
            self.spacing.on_gap(self.next);
            self.fill(self.next, number - self.next, false);
            // The number before `next`, if any, was received: this is a run of its own.
            self.counts.loss_runs += 1;
        }
        let (word, bit) = place(number);
        self.seen[word] |= bit;
        self.next = next;
        self.counts.received += 1;
        Arrival::InOrder
    }

    /// Marks `n` numbers from `first` on as seen or not, a word at a time.
    fn fill(&mut self, first: u64, n: u64, seen: bool) {
        if n >= Self::WINDOW {
            self.seen.fill(if seen { u64::MAX } else { 0 });
            return;
        }
        let (mut number, end) = (first, first + n);
        while number < end {
            let offset = number % 64;
            let bits = (64 - offset).min(end - number);
            let mask = (u64::MAX >> (64 - bits)) << offset;
            let (word, _) = place(number);
            if seen {
                self.seen[word] |= mask;
            } else {
                self.seen[word] &= !mask;
            }
            number += bits;
        }
    }
}

/// Distances between gaps: their number, mean and sum of squared deviations (Welford).
#[derive(Debug, Clone, Default)]
struct LossSpacing {
    last: Option<u64>,
    n: u64,
    mean: f64,
    squares: f64,
}

impl LossSpacing {
    /// Takes the first number of a gap.
    fn on_gap(&mut self, begin: u64) {
        if let Some(last) = self.last.replace(begin) {
            let distance = begin.saturating_sub(last) as f64;
            self.n += 1;
            let off = distance - self.mean;
            self.mean += off / self.n as f64;
            self.squares += off * (distance - self.mean);
        }
    }

    fn variation(&self) -> Option<f64> {
        let deviation = (self.squares / self.n as f64).sqrt();
        (self.n >= SequenceTracker::LEAST_GAPS && self.mean > 0.0).then(|| deviation / self.mean)
    }
}

/// Word and bit of a number in the window.
#[inline]
fn place(number: u64) -> (usize, u64) {
    let slot = number % SequenceTracker::WINDOW;
    ((slot / 64) as usize, 1 << (slot % 64))
}

const WORDS: usize = (SequenceTracker::WINDOW / 64) as usize;

// Interarrival jitter, incrementally.

/// The interarrival jitter of RFC 3550, section 6.4.1: J += (|D| − J) / 16, where D is the change
/// of the transit time from one packet to the next in the order of arrival.
///
/// The clocks of sender and receiver need not agree: only the difference of two transit times
/// counts.
#[derive(Debug, Clone, Default)]
pub struct Jitter {
    last_transit_ns: Option<i64>,
    jitter_ns: Option<f64>,
}

impl Jitter {
    /// Takes a packet's sending time by the sender's clock and its arrival by the receiver's, both
    /// in ns.
    pub fn on_packet(&mut self, sent_ns: u64, arrived_ns: u64) {
        // Two's complement: the clocks may have any offset, and may wrap.
        let transit_ns = arrived_ns.wrapping_sub(sent_ns) as i64;
        if let Some(last) = self.last_transit_ns.replace(transit_ns) {
            let difference_ns = transit_ns.wrapping_sub(last).unsigned_abs() as f64;
            let jitter_ns = self.jitter_ns.get_or_insert(0.0);
            *jitter_ns += (difference_ns - *jitter_ns) / 16.0;
        }
    }

    /// The jitter so far in ns; `None` before the second packet.
    pub fn ns(&self) -> Option<f64> {
        self.jitter_ns
    }
}

/// One-way delays over the smallest of a flow: what queues add. The clocks of both ends need not
/// agree, but one that gains 50 ppm on the other adds half a millisecond in 10 s.
#[derive(Debug, Clone, Default)]
pub struct AddedDelay {
    /// The first transit time, from which the others are counted.
    origin_ns: Option<i64>,
    least_ns: i64,
    n: f64,
    /// The first measured sending time; the means of the times since and of the delays, and their
    /// summed products about the means (Welford 1962), ns and ns².
    first_sent_ns: Option<u64>,
    mean_sent_ns: f64,
    mean_delay_ns: f64,
    sent_squared: f64,
    sent_delay: f64,
    delay_squared: f64,
}

/// The growth of a delay over the time, ns/ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayGrowth {
    /// By least squares.
    pub growth: f64,
    /// Its standard error, as far as the delays are not a line.
    pub error: f64,
}

impl AddedDelay {
    /// Takes a packet's sending time by the sender's clock and its arrival by the receiver's, both
    /// in ns. One that is not measured counts for the smallest alone.
    pub fn on_packet(&mut self, sent_ns: u64, arrived_ns: u64, is_measured: bool) {
        let transit_ns = arrived_ns.wrapping_sub(sent_ns) as i64;
        let origin_ns = *self.origin_ns.get_or_insert(transit_ns);
        let delay_ns = transit_ns.wrapping_sub(origin_ns);
        self.least_ns = self.least_ns.min(delay_ns);
        if is_measured {
            let first = *self.first_sent_ns.get_or_insert(sent_ns);
            let from_mean = sent_ns.wrapping_sub(first) as i64 as f64 - self.mean_sent_ns;
            self.n += 1.0;
            let before = delay_ns as f64 - self.mean_delay_ns;
            self.mean_sent_ns += from_mean / self.n;
            self.mean_delay_ns += before / self.n;
            let after = delay_ns as f64 - self.mean_delay_ns;
            self.sent_squared += from_mean * from_mean * (1.0 - 1.0 / self.n);
            self.sent_delay += from_mean * after;
            self.delay_squared += before * after;
        }
    }

    /// Mean delay of the measured packets over the smallest of all, ns; `None` without any.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.n > 0.0).then(|| (self.mean_delay_ns - self.least_ns as f64).max(0.0))
    }

    /// Growth of the measured packets' delay over their sending time: what is sent beyond a link's
    /// rate waits longer and longer in the queue before it, by (sent − carried) ÷ carried. Clocks
    /// that run apart add their difference, usually below 0.0001. Delays that follow each other are
    /// alike, so that the error is that of a few independent ones. `None` for fewer than 20
    /// packets, or if all were sent at once.
    pub fn growth(&self) -> Option<DelayGrowth> {
        let is_known = self.n >= FEWEST_FOR_GROWTH && self.sent_squared > 0.0;
        is_known.then(|| {
            let growth = self.sent_delay / self.sent_squared;
            let residue = (self.delay_squared - growth * self.sent_delay).max(0.0);
            let error = (residue / self.sent_squared / INDEPENDENT_DELAYS).sqrt();
            DelayGrowth { growth, error }
        })
    }
}

/// Packets from which on the growth of their delay is known.
const FEWEST_FOR_GROWTH: f64 = 20.0;
/// As many delays of a flow count as independent: those of Wi-Fi and mobile networks stay alike for
/// a tenth of a second.
const INDEPENDENT_DELAYS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_so_many_th_packet_that_is_missing_has_no_spread_and_losses_by_chance_are_geometric() {
        let spread = |is_lost: &mut dyn FnMut(u64) -> bool| {
            let mut tracker = SequenceTracker::new(0);
            (0..20_000).filter(|number| !is_lost(*number)).for_each(|number| {
                tracker.on_packet(number);
            });
            tracker.loss_spacing_variation()
        };
        assert_eq!(spread(&mut |number| number % 11 == 7), Some(0.0));
        // A link that carries 10 of 11.5 loses each eighth or each seventh.
        assert!(spread(&mut |number| number * 3 % 23 < 3).unwrap() < 0.5);
        let mut source = crate::simulation::Source::new(1);
        let by_chance = spread(&mut |_| source.uniform() < 0.12).unwrap();
        assert!(
            (by_chance - (0.88_f64.powi(3) + 0.12_f64.powi(3)).sqrt()).abs() < 0.05,
            "{by_chance}"
        );
        assert_eq!(spread(&mut |number| number == 40), None);
    }

    /// One percent too much is 10 ms more of queue each second, also under jitter of 4 ms.
    #[test]
    fn what_is_sent_beyond_a_links_rate_waits_longer_and_longer() {
        let mut source = crate::simulation::Source::new(1);
        let mut growth = |beyond: f64, jitter_ns: f64, offset: u64| {
            let mut delay = AddedDelay::default();
            for number in 0..1000_u64 {
                let sent = number * 1_000_000;
                let queue = (sent as f64 * beyond + source.uniform() * jitter_ns) as u64;
                delay.on_packet(offset.wrapping_add(sent), sent + queue + 20_000_000, true);
            }
            delay.growth().expect("enough packets")
        };
        for offset in [0, u64::MAX - 500_000_000] {
            let full = growth(0.01, 0.0, offset);
            assert!((full.growth - 0.01).abs() < 1e-6 && full.error < 1e-6, "{full:?}");
            assert!(growth(0.0, 0.0, offset).growth.abs() < 1e-9);
            let jitter = growth(0.01, 4e6, offset);
            assert!((jitter.growth - 0.01).abs() < 0.001, "{jitter:?}");
            assert!((0.0005..0.002).contains(&jitter.error), "{jitter:?}");
        }
        let mut few = AddedDelay::default();
        (0..19).for_each(|number| few.on_packet(number, 2 * number, true));
        assert_eq!(few.growth(), None);
        let mut at_once = AddedDelay::default();
        (0..30).for_each(|number| at_once.on_packet(7, 100 + number, true));
        assert_eq!(at_once.growth(), None);
    }

    #[test]
    fn a_delay_is_counted_over_the_smallest_whatever_the_clocks_say() {
        for offset in [0, 3_600_000_000_000, u64::MAX - 500] {
            let mut delay = AddedDelay::default();
            let mut take = |sent: u64, transit: u64, is_measured| {
                delay.on_packet(sent, sent.wrapping_add(transit).wrapping_add(offset), is_measured);
            };
            take(0, 1_000_000, false);
            take(1_000, 900_000, false);
            take(2_000, 6_900_000, true);
            take(3_000, 8_900_000, true);
            assert_eq!(delay.mean_ns(), Some(7_000_000.0));
        }
        assert_eq!(AddedDelay::default().mean_ns(), None);
    }

    const W: u64 = SequenceTracker::WINDOW;

    /// The same counts from a set of everything that was ever received.
    struct Model {
        first: u64,
        next: u64,
        seen: HashSet<u64>,
        counts: SequenceCounts,
    }

    impl Model {
        fn new(first: u64) -> Self {
            Self { first, next: first, seen: HashSet::new(), counts: SequenceCounts::default() }
        }

        fn on_packet(&mut self, number: u64) {
            if number < self.first {
                return;
            }
            if number + W < self.next {
                self.counts.outside_window += 1;
            } else if !self.seen.insert(number) {
                self.counts.duplicated += 1;
            } else {
                self.counts.received += 1;
                self.counts.reordered += u64::from(number < self.next);
            }
            self.next = self.next.max(number + 1);
        }

        fn counts(&self) -> SequenceCounts {
            SequenceCounts { lost: self.next - self.first - self.counts.received, ..self.counts }
        }

        /// Numbers that are lost and follow one that is not.
        fn loss_runs(&self) -> u64 {
            let is_lost = |number: u64| !self.seen.contains(&number);
            let begins = |n: &u64| is_lost(*n) && (*n == self.first || !is_lost(*n - 1));
            (self.first..self.next).filter(begins).count() as u64
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Packet(i64),
        Run(i64, u64),
    }

    /// Steps relative to the next expected number: mostly near it, sometimes about a window away.
    fn step() -> impl Strategy<Value = Step> {
        let near = prop_oneof![
            8 => -100_i64..100,
            1 => -70_000_i64..70_000,
            1 => (-3_i64..3).prop_map(|offset| offset - W as i64),
            1 => 0_i64..200_000,
        ];
        prop_oneof![
            20 => near.clone().prop_map(Step::Packet),
            10 => (near.clone(), 0_u64..300).prop_map(|(from, n)| Step::Run(from, n)),
            1 => (near, 0_u64..140_000).prop_map(|(from, n)| Step::Run(from, n)),
        ]
    }

    proptest! {
        #[test]
        fn counts_equal_those_of_a_set_of_all_numbers(
            start in 0_u64..200_000, steps in prop::collection::vec(step(), 1..120),
        ) {
            let (mut tracker, mut model) = (SequenceTracker::new(start), Model::new(start));
            for step in steps {
                match step {
                    Step::Packet(offset) => {
                        let number = model.next.saturating_add_signed(offset);
                        tracker.on_packet(number);
                        model.on_packet(number);
                    }
                    Step::Run(offset, n) => {
                        let first = model.next.saturating_add_signed(offset);
                        tracker.in_order_run(first, n);
                        (first..first + n).for_each(|number| model.on_packet(number));
                    }
                }
                let counts = SequenceCounts { loss_runs: 0, ..tracker.counts() };
                prop_assert_eq!(counts, model.counts());
            }
        }

        #[test]
        fn loss_runs_are_those_of_a_set_of_all_numbers(
            start in 0_u64..200, steps in prop::collection::vec((-20_i64..20, 0_u64..9), 1..60),
        ) {
            let (mut tracker, mut model) = (SequenceTracker::new(start), Model::new(start));
            for (offset, n) in steps {
                let first = model.next.saturating_add_signed(offset);
                tracker.in_order_run(first, n);
                (first..first + n).for_each(|number| model.on_packet(number));
                prop_assert_eq!(tracker.counts().loss_runs, model.loss_runs());
            }
            // What is lost at the end is a run, too.
            let counts = tracker.counts_until(model.next + 3);
            prop_assert_eq!(counts.loss_runs, model.loss_runs() + 1);
        }
    }

    #[test]
    fn each_arrival_is_named() {
        let mut tracker = SequenceTracker::new(10);
        let arrivals = [10, 12, 11, 11, 9, 12 + W + 1, 12, u64::MAX].map(|n| tracker.on_packet(n));
        use Arrival::*;
        let expected = [
            InOrder,
            InOrder,
            Reordered,
            Duplicate,
            BeforeFirst,
            InOrder,
            OutsideWindow,
            OutsideWindow,
        ];
        assert_eq!(arrivals, expected);
        let counts = SequenceCounts {
            received: 4,
            lost: W,
            loss_runs: 1,
            duplicated: 1,
            reordered: 1,
            outside_window: 2,
        };
        assert_eq!(tracker.counts(), counts);
    }

    #[test]
    fn losses_at_the_very_end_count_once_the_sender_says_where_it_is() {
        let mut tracker = SequenceTracker::new(0);
        tracker.in_order_run(0, 90);
        assert_eq!(tracker.counts().lost, 0);
        assert_eq!(tracker.counts_until(100).lost, 10);
        // A sender that claims fewer than have arrived is not believed.
        assert_eq!(tracker.counts_until(50).lost, 0);
    }

    #[test]
    fn hostile_numbers_do_not_overflow() {
        let mut tracker = SequenceTracker::new(0);
        tracker.on_packet(u64::MAX - 1);
        tracker.in_order_run(u64::MAX - 5, u64::MAX);
        tracker.on_packet(u64::MAX);
    }

    #[test]
    fn follows_the_recurrence_of_the_rfc() {
        let mut jitter = Jitter::default();
        for (sent, arrived) in [(0, 100), (1_000, 1_116), (2_000, 2_084)] {
            jitter.on_packet(sent, arrived);
        }
        // |D| is 16, then 32: 16/16 = 1, then 1 + (32 − 1)/16.
        assert_eq!(jitter.ns(), Some(1.0 + 31.0 / 16.0));
    }

    #[test]
    fn converges_to_the_change_of_an_alternating_delay() {
        let mut jitter = Jitter::default();
        for packet in 0..1_000_u64 {
            jitter.on_packet(packet * 1_000, packet * 1_000 + 200 * (packet % 2));
        }
        assert!((jitter.ns().unwrap() - 200.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn clock_offset_does_not_count(
            transits in prop::collection::vec(0_u64..1_000_000, 2..50), offset: u64,
        ) {
            let (mut here, mut there) = (Jitter::default(), Jitter::default());
            for (packet, transit) in transits.into_iter().enumerate() {
                let sent = packet as u64 * 1_000;
                here.on_packet(sent, sent + transit);
                there.on_packet(sent.wrapping_add(offset), sent + transit);
            }
            prop_assert_eq!(here.ns(), there.ns());
        }
    }
}
