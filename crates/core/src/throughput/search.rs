//! The search for the highest rate that a path carries, on a path that is not the same twice.
//!
//! A trial says of one rate whether it was carried. As in MLRsearch
//! (draft-ietf-bmwg-mlrsearch), a rate is decided by several trials, the most of whose time agrees:
//! one packet that something else has lost decides nothing. RFC 2544 has one trial of 60 seconds,
//! since a queue before the path's narrowest link takes what is sent too much for a while; here a
//! rate at which the delay grows through the trial is beyond the path, too, whether the queue has
//! overflowed yet or not, so that a second is enough.
//!
//! Short trials raise the rate until one is not carried. What arrived of it is nearly always what
//! the path carries, so a little less is tried next, and then a little more; where that was wrong
//! the rest is halved. At last both sides of the border are decided.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Trials of a search at most; it ends before where the path is the same for some seconds.
pub const MAX_TRIALS: usize = 60;
/// How many times the last rate the next one of the ramp is.
const RAMP: f64 = 4.0;
/// Part of a trial's time that the ramp takes.
const RAMP_TIME: f64 = 0.25;
/// Rates that follow what arrived of the last one, before the rest is halved.
const GUESSES: u32 = 3;
/// Sent over asked from which on the generator kept to the rate.
const KEPT: f64 = 0.97;
/// Sent over the most sent before, from which on a generator that missed the rate is not at its
/// limit.
const GAIN: f64 = 1.05;
/// Trials in which the generator may miss a rate that it can reach: the host is too busy for more.
const MAX_MISSES: u32 = 10;

/// What a rate has to keep to count as carried, and how that is decided.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Goal {
    /// Datagrams that may be lost, percent of those sent.
    pub loss_percent: f64,
    /// The result is known to so much of it, percent.
    pub width_percent: f64,
    /// Length of a trial, s.
    pub trial: Span,
    /// Trials that decide about a rate, by the most of them.
    pub trials: u32,
}

impl Goal {
    fn width(&self) -> f64 {
        self.width_percent / 100.0
    }

    /// Whether a trial was carried. A delay that grows by a share of the time is of so much more
    /// than what the path carries.
    pub fn keeps(&self, outcome: &TrialOutcome) -> bool {
        let loss = self.loss_percent / 100.0;
        let most_growth = loss + self.width() / 4.0;
        let grows = outcome.growth.map(|growth| growth - 2.0 * outcome.growth_error);
        outcome.lost_share <= loss && grows.is_none_or(|growth| growth <= most_growth)
    }

    /// The least time of agreeing trials that decides about a rate, s.
    fn deciding_s(&self) -> f64 {
        f64::from(self.trials / 2 + 1) * self.trial.as_secs_f64()
    }
}

/// The next trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextTrial {
    /// Datagrams per second.
    pub per_s: f64,
    /// Its length, s.
    pub seconds: f64,
}

/// What came of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialOutcome {
    /// Datagrams sent per second.
    pub sent_per_s: f64,
    /// Share of them that did not arrive (0–1).
    pub lost_share: f64,
    /// Growth of the one-way delay over the time, ns/ns; `None` where the receiver does not tell.
    pub growth: Option<f64>,
    /// Its standard error.
    pub growth_error: f64,
}

/// A search in progress: [`RateSearch::next`] says what to try, [`RateSearch::take`] takes what
/// came of it.
#[derive(Debug, Clone)]
pub struct RateSearch {
    goal: Goal,
    least: f64,
    most: f64,
    first: f64,
    rates: Vec<Rate>,
    guess: Guess,
    guesses: u32,
    trials: usize,
    /// The highest rate that was sent.
    most_sent: f64,
    /// Trials in which the generator missed a rate that it had reached before.
    misses: u32,
    is_generators: bool,
}

/// The trials of a rate: how long those that were carried took, and those that were not.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    per_s: f64,
    carried_s: f64,
    failed_s: f64,
    /// Whether nearly all of it arrived when it failed: a packet that something else has lost, or
    /// the very border.
    by_little: bool,
}

impl Rate {
    fn is_carried(&self) -> bool {
        self.carried_s > self.failed_s
    }
}

/// Where the border is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Guess {
    None,
    /// Just above this rate, which may be carried.
    At(f64),
    /// Just above the highest rate that was carried.
    Above,
    /// Just below the lowest one that was not.
    Below,
}

impl RateSearch {
    /// A search among rates from `least` to `most` datagrams per second, which begins at `first`.
    pub fn new(goal: Goal, [least, most]: [f64; 2], first: f64) -> Self {
        Self {
            goal,
            least,
            most: most.max(least),
            first: first.clamp(least, most.max(least)),
            rates: Vec::new(),
            guess: Guess::None,
            guesses: 0,
            trials: 0,
            most_sent: 0.0,
            misses: 0,
            is_generators: false,
        }
    }

    /// The trial to make; `None` when the search is over.
    pub fn next(&self) -> Option<NextTrial> {
        if self.trials >= MAX_TRIALS || self.misses >= MAX_MISSES {
            return None;
        }
        let whole = self.goal.trial.as_secs_f64();
        let offer = |per_s: f64, seconds: f64| Some(NextTrial { per_s, seconds });
        match (self.carried(), self.failed()) {
            (None, None) => offer(self.first, RAMP_TIME * whole),
            (Some(carried), None) if carried.per_s < self.most => {
                offer((RAMP * carried.per_s).min(self.most), RAMP_TIME * whole)
            }
            (Some(carried), None) => (!self.is_decided(carried))
                .then_some(NextTrial { per_s: carried.per_s, seconds: whole }),
            (None, Some(failed)) if failed.per_s <= self.least => (!self.is_decided(failed))
                .then_some(NextTrial { per_s: failed.per_s, seconds: whole }),
            (None, Some(failed)) => offer(self.below(failed), whole),
            (Some(_), Some(failed)) if failed.by_little && !self.is_decided(failed) => {
                offer(failed.per_s, whole)
            }
            (Some(carried), Some(failed)) if self.is_narrow(carried, failed) => {
                let open = [carried, failed].into_iter().find(|rate| !self.is_decided(*rate));
                open.and_then(|rate| offer(rate.per_s, whole))
            }
            (Some(carried), Some(failed)) => offer(self.between(carried, failed), whole),
        }
    }

    /// Takes what came of the trial that [`RateSearch::next`] gave.
    pub fn take(&mut self, outcome: TrialOutcome) {
        let Some(offer) = self.next() else {
            return;
        };
        self.trials += 1;
        let is_missed = outcome.sent_per_s < KEPT * offer.per_s;
        let per_s = if is_missed { outcome.sent_per_s.max(self.least) } else { offer.per_s };
        let gains = outcome.sent_per_s > GAIN * self.most_sent;
        self.most_sent = self.most_sent.max(outcome.sent_per_s);
        if is_missed && !gains {
            // A busy host sends less than it could; what it cannot reach by asking more is its
            // most.
            self.misses += u32::from(self.is_generators || self.failed().is_some());
            self.is_generators = true;
            self.most = self.most.min(self.most_sent.max(self.least));
        }
        let is_carried = self.goal.keeps(&outcome);
        let arrived = per_s * (1.0 - outcome.lost_share) / (1.0 + outcome.growth.unwrap_or(0.0));
        let by_little = arrived * (1.0 + self.goal.width()) >= per_s;
        self.note(Rate {
            per_s,
            carried_s: if is_carried { offer.seconds } else { 0.0 },
            failed_s: if is_carried { 0.0 } else { offer.seconds },
            by_little: is_carried || by_little,
        });
        self.guess = self.guess_from(per_s, is_carried, arrived);
        self.guesses += u32::from(matches!(self.guess, Guess::At(_)));
    }

    /// The highest rate that was carried below all that were not, datagrams per second.
    pub fn carries(&self) -> Option<f64> {
        self.carried().map(|rate| rate.per_s)
    }

    /// The lowest rate that was not carried.
    pub fn fails(&self) -> Option<f64> {
        self.failed().map(|rate| rate.per_s)
    }

    /// Whether the generator could send no faster than the highest rate that was carried.
    pub fn is_generators(&self) -> bool {
        self.is_generators && self.failed().is_none()
    }

    /// Whether the highest rate that may be tried was carried.
    pub fn is_all_carried(&self) -> bool {
        self.failed().is_none() && self.carried().is_some_and(|rate| rate.per_s >= self.most)
    }

    /// Whether both sides of the border were decided.
    pub fn is_settled(&self) -> bool {
        match (self.carried(), self.failed()) {
            (None, None) => false,
            (Some(rate), None) | (None, Some(rate)) => self.is_decided(rate),
            (Some(carried), Some(failed)) => {
                let is_decided = self.is_decided(carried) && self.is_decided(failed);
                is_decided && self.is_narrow(carried, failed)
            }
        }
    }

    fn failed(&self) -> Option<Rate> {
        let failed = self.rates.iter().filter(|rate| !rate.is_carried());
        failed.copied().min_by(|a, b| a.per_s.total_cmp(&b.per_s))
    }

    fn carried(&self) -> Option<Rate> {
        let border = self.failed().map_or(f64::INFINITY, |rate| rate.per_s);
        let carried = self.rates.iter().filter(|rate| rate.is_carried() && rate.per_s < border);
        carried.copied().max_by(|a, b| a.per_s.total_cmp(&b.per_s))
    }

    fn is_decided(&self, rate: Rate) -> bool {
        rate.carried_s.max(rate.failed_s) >= self.goal.deciding_s()
    }

    /// Within rounding: the next rate above what was carried is exactly one width away.
    fn is_narrow(&self, carried: Rate, failed: Rate) -> bool {
        failed.per_s <= carried.per_s * (1.0 + 1.001 * self.goal.width())
    }

    fn note(&mut self, trial: Rate) {
        match self.rates.iter_mut().find(|rate| rate.per_s == trial.per_s) {
            Some(rate) => {
                rate.carried_s += trial.carried_s;
                rate.failed_s += trial.failed_s;
                rate.by_little &= trial.by_little;
            }
            None => self.rates.push(trial),
        }
    }

    fn guess_from(&self, per_s: f64, is_carried: bool, arrived: f64) -> Guess {
        let was_at = matches!(self.guess, Guess::At(guess) if guess == per_s);
        if is_carried {
            return if was_at { Guess::Above } else { Guess::None };
        }
        let guess = arrived / (1.0 + self.goal.width() / 2.0);
        match self.guess {
            // Each further guess could be one too many, and take a trial.
            Guess::Above => Guess::None,
            _ if self.guesses < GUESSES && guess < per_s / (1.0 + self.goal.width()) => {
                Guess::At(guess)
            }
            _ if was_at => Guess::Below,
            _ => Guess::None,
        }
    }

    /// A rate below the lowest that failed, where none was carried yet.
    fn below(&self, failed: Rate) -> f64 {
        match self.guess {
            Guess::At(guess) if guess > self.least && guess < failed.per_s => guess,
            _ => (failed.per_s / RAMP).max(self.least),
        }
    }

    fn between(&self, carried: Rate, failed: Rate) -> f64 {
        let width = 1.0 + self.goal.width();
        let guess = match self.guess {
            Guess::At(guess) => guess,
            Guess::Above => carried.per_s * width,
            Guess::Below => failed.per_s / width,
            Guess::None => 0.0,
        };
        let is_between = guess > carried.per_s && guess < failed.per_s;
        if is_between { guess } else { (carried.per_s * failed.per_s).sqrt() }
    }
}

/// What a user asks for by default.
#[cfg(test)]
pub(super) const GOAL: Goal = Goal {
    loss_percent: 0.0,
    width_percent: 1.0,
    trial: Span(std::time::Duration::from_secs(1)),
    trials: 3,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A link of so many datagrams per second behind a queue of so many seconds, and a generator.
    #[derive(Debug, Clone, Copy)]
    struct Path {
        carries: f64,
        queue_s: f64,
        generates: f64,
    }

    impl Path {
        fn trial(self, offer: NextTrial) -> TrialOutcome {
            let sent_per_s = offer.per_s.min(self.generates);
            let beyond = (sent_per_s / self.carries - 1.0).max(0.0);
            let growing_s = (self.queue_s / beyond).min(offer.seconds);
            let full = 1.0 - growing_s / offer.seconds;
            TrialOutcome {
                sent_per_s,
                lost_share: full * beyond / (1.0 + beyond),
                growth: Some(beyond * (1.0 - full).powi(2)),
                growth_error: 0.0,
            }
        }
    }

    fn searched(path: impl Fn(usize, NextTrial) -> TrialOutcome, goal: Goal) -> RateSearch {
        let mut search = RateSearch::new(goal, [10.0, 1e7], 100.0);
        while let Some(offer) = search.next() {
            let outcome = path(search.trials, offer);
            search.take(outcome);
        }
        search
    }

    proptest! {
        /// RFC 2544's trial of a second would take a link with a queue of 200 ms for a fifth
        /// faster.
        #[test]
        fn the_rate_of_a_link_is_found_whatever_its_queue_holds(
            carries in 200.0..1e6, queue_s in 0.0..3.0,
        ) {
            let path = Path { carries, queue_s, generates: f64::INFINITY };
            let search = searched(|_, offer| path.trial(offer), GOAL);
            let (found, fails) = (search.carries().unwrap(), search.fails().unwrap());
            prop_assert!(search.is_settled() && !search.is_generators());
            prop_assert!((0.98..=1.003).contains(&(found / carries)), "{search:?}");
            prop_assert!(fails > carries && fails <= found * 1.0101, "{search:?}");
            prop_assert!(search.trials <= 28, "{search:?}");
        }

        /// One trial of five at rates that the path carries loses something that is not the path's.
        #[test]
        fn what_now_and_then_loses_a_packet_does_not_move_the_border(
            carries in 200.0..1e6, seed in 0_usize..5,
        ) {
            let path = Path { carries, queue_s: 0.0, generates: f64::INFINITY };
            let disturbed = |trial: usize, offer: NextTrial| {
                let outcome = path.trial(offer);
                let lost = if (trial + seed).is_multiple_of(5) { 1e-5 } else { 0.0 };
                TrialOutcome { lost_share: outcome.lost_share.max(lost), ..outcome }
            };
            let search = searched(disturbed, Goal { trials: 5, ..GOAL });
            let found = search.carries().unwrap();
            prop_assert!((0.93..=1.003).contains(&(found / carries)), "{search:?}");
        }

        #[test]
        fn a_search_ends_and_keeps_its_order_whatever_it_is_told(
            told in prop::collection::vec((0.0..1e7, 0.0..1.0, -1.0..9.0), MAX_TRIALS + 5),
        ) {
            let mut search = RateSearch::new(GOAL, [10.0, 1e6], 100.0);
            for (sent_per_s, lost_share, growth) in told {
                if let Some(offer) = search.next() {
                    prop_assert!((10.0..=1e6).contains(&offer.per_s) && offer.seconds > 0.0);
                }
                let growth = Some(growth);
                search.take(TrialOutcome { sent_per_s, lost_share, growth, growth_error: 0.0 });
                let pair = search.carries().zip(search.fails());
                prop_assert!(pair.is_none_or(|(carries, fails)| carries < fails));
            }
            prop_assert_eq!(search.next(), None);
        }
    }

    #[test]
    fn a_generator_that_reaches_no_more_is_told_from_the_path() {
        let path = Path { carries: 1e6, queue_s: 0.0, generates: 300_000.0 };
        let search = searched(|_, offer| path.trial(offer), GOAL);
        assert_eq!(search.carries(), Some(300_000.0));
        assert_eq!(search.fails(), None);
        assert!(search.is_generators() && search.is_settled(), "{search:?}");
    }

    #[test]
    fn a_generator_that_falls_behind_now_and_then_is_not_at_its_limit() {
        let path = Path { carries: 50_000.0, queue_s: 0.0, generates: f64::INFINITY };
        let behind = |trial: usize, offer: NextTrial| {
            let per_s = if trial < 3 || trial == 12 { 0.6 * offer.per_s } else { offer.per_s };
            path.trial(NextTrial { per_s, ..offer })
        };
        let search = searched(behind, GOAL);
        assert!(search.carries().is_some_and(|found| found > 49_000.0), "{search:?}");
        assert!(!search.is_generators() && search.is_settled());
    }

    #[test]
    fn a_generator_that_reaches_less_each_time_ends_the_search() {
        let path = Path { carries: 1e6, queue_s: 0.0, generates: f64::INFINITY };
        let less = |trial: usize, offer: NextTrial| TrialOutcome {
            sent_per_s: offer.per_s.min(1_000.0 - 50.0 * trial as f64),
            ..path.trial(offer)
        };
        let search = searched(less, GOAL);
        assert!(search.trials <= 15 && search.is_generators(), "{search:?}");
        assert!(!search.is_settled());
    }

    #[test]
    fn losses_by_chance_leave_no_rate_without_loss_and_a_goal_that_allows_them_finds_the_link() {
        let path = Path { carries: 50_000.0, queue_s: 0.05, generates: f64::INFINITY };
        let noisy = |_: usize, offer: NextTrial| {
            let outcome = path.trial(offer);
            TrialOutcome { lost_share: 0.001 + 0.999 * outcome.lost_share, ..outcome }
        };
        let none = searched(noisy, GOAL);
        assert_eq!((none.carries(), none.fails()), (None, Some(10.0)));
        assert!(none.is_settled() && none.trials < 20, "{none:?}");
        let some = searched(noisy, Goal { loss_percent: 0.5, ..GOAL });
        let found = some.carries().unwrap();
        assert!((49_400.0..=50_400.0).contains(&found), "{some:?}");
    }

    /// Delays that wander by themselves: what follows from their growth is no more than it shows.
    #[test]
    fn delays_that_wander_do_not_lower_the_border_and_leave_the_losses_to_decide() {
        let path = Path { carries: 50_000.0, queue_s: 0.005, generates: f64::INFINITY };
        let wandering = |trial: usize, offer: NextTrial| {
            let outcome = path.trial(offer);
            let drift = if trial.is_multiple_of(2) { 0.006 } else { -0.006 };
            let growth = outcome.growth.map(|growth| growth + drift);
            TrialOutcome { growth, growth_error: 0.006, ..outcome }
        };
        let found = searched(wandering, GOAL).carries().unwrap();
        assert!((49_400.0..=50_500.0).contains(&found), "{found}");
    }

    #[test]
    fn a_receiver_that_tells_no_delays_leaves_the_losses_to_decide() {
        let path = Path { carries: 50_000.0, queue_s: 0.1, generates: f64::INFINITY };
        let untold =
            |_: usize, offer: NextTrial| TrialOutcome { growth: None, ..path.trial(offer) };
        let found = searched(untold, GOAL).carries().unwrap();
        // What a queue of 100 ms takes in a second.
        assert!((54_000.0..=55_100.0).contains(&found), "{found}");
    }
}
