//! The search for the number of connections that two hosts can hold: it doubles the number until
//! one is not held, then bisects.
//!
//! A round that is asked for more than the limit says by itself how many it held, and that number
//! is nearly always the limit. So it is tried next, and then a little more; only where it was wrong
//! is the rest halved. Nothing is concluded from a number that was not itself asked for and held
//! for the whole time.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The first number that is tried, unless fewer are allowed.
pub const FIRST_TRIED: u64 = 1024;
/// Rounds of a search at most. Doubling to 2³² takes 23, closing in to [`TOLERANCE`] at most
/// another 20.
pub const MAX_ROUNDS: usize = 48;
/// The search ends when what is held and what is not differ by this share.
pub const TOLERANCE: f64 = 0.01;

/// A search in progress: [`Search::next_number`] says what to try, [`Search::handle_round`] takes
/// what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    most: u64,
    holds: u64,
    stops: Option<u64>,
    guess: Guess,
    rounds: Vec<SearchRound>,
}

/// The expectation from the last round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guess {
    /// Nothing.
    None,
    /// A round that was asked for more held this many.
    Held(u64),
    /// The known number is the maximum: slightly more were not held.
    Above,
}

/// One round of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchRound {
    /// The number that was asked for.
    pub asked: u64,
    /// The number alive at its end; fewer than asked if it stopped at a limit.
    pub held: u64,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchFound {
    /// The largest number that was asked for and held.
    pub holds: u64,
    /// The smallest number that was asked for and not held; absent if all that was allowed was
    /// held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stops_at: Option<u64>,
    /// The largest number that the search may try.
    pub most: u64,
    /// Every round, in order; at most [`MAX_ROUNDS`].
    pub rounds: Vec<SearchRound>,
}

impl Search {
    /// A search between 1 and `most` connections.
    pub fn new(most: u64) -> Self {
        Self { most, holds: 0, stops: None, guess: Guess::None, rounds: Vec::new() }
    }

    /// The number to try now; `None` when the search is over.
    pub fn next_number(&self) -> Option<u64> {
        if self.rounds.len() >= MAX_ROUNDS {
            return None;
        }
        let Some(stops) = self.stops else {
            let doubled = self.holds.saturating_mul(2).max(FIRST_TRIED);
            return (self.holds < self.most).then(|| doubled.min(self.most));
        };
        let gap = stops - self.holds;
        if gap <= step(stops) {
            return None;
        }
        let halved = self.holds + gap / 2;
        Some(match self.guess {
            Guess::Held(held) if self.is_between(held) => held,
            Guess::Above => (self.holds + step(self.holds)).min(stops - 1),
            Guess::Held(_) | Guess::None => halved,
        })
    }

    /// What came of the number that [`Search::next_number`] gave: `held` of it were alive at the
    /// end.
    pub fn handle_round(&mut self, held: u64) {
        let Some(asked) = self.next_number() else {
            return;
        };
        let held = held.min(asked);
        self.rounds.push(SearchRound { asked, held });
        let was_guess = matches!(self.guess, Guess::Held(guess) if guess == asked);
        if held == asked {
            self.holds = asked;
            self.guess = if was_guess { Guess::Above } else { Guess::None };
        } else {
            self.stops = Some(asked);
            // A guess that was wrong is not followed by another: each could be one too many, and
            // take a round.
            let was_above = self.guess == Guess::Above;
            self.guess = match held.cmp(&self.holds) {
                _ if was_guess || was_above => Guess::None,
                Ordering::Greater => Guess::Held(held),
                Ordering::Equal => Guess::Above,
                Ordering::Less => Guess::None,
            };
        }
    }

    /// The result so far.
    pub fn found(&self) -> SearchFound {
        SearchFound {
            holds: self.holds,
            stops_at: self.stops,
            most: self.most,
            rounds: self.rounds.clone(),
        }
    }

    fn is_between(&self, number: u64) -> bool {
        number > self.holds && self.stops.is_none_or(|stops| number < stops)
    }
}

/// The smallest step that matters at a number.
fn step(number: u64) -> u64 {
    ((number as f64 * TOLERANCE) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A search on a host that holds up to `limit`; what it says of more than that is up to `told`.
    fn search(most: u64, limit: u64, mut told: impl FnMut(u64) -> u64) -> SearchFound {
        let mut search = Search::new(most);
        while let Some(asked) = search.next_number() {
            search.handle_round(if asked <= limit { asked } else { told(asked).min(asked - 1) });
        }
        search.found()
    }

    #[test]
    fn a_host_that_says_its_limit_needs_two_rounds_more_than_doubling() {
        let found = search(1 << 20, 19_980, |_| 19_980);
        assert_eq!(found.holds, 19_980);
        assert_eq!(found.stops_at, Some(19_980 + 199));
        let asked: Vec<u64> = found.rounds.iter().map(|round| round.asked).collect();
        assert_eq!(asked, [1024, 2048, 4096, 8192, 16_384, 32_768, 19_980, 20_179]);
    }

    #[test]
    fn a_limit_that_was_tried_by_chance_is_believed_at_once() {
        let found = search(1 << 20, 2048, |_| 2048);
        assert_eq!((found.holds, found.stops_at), (2048, Some(2068)));
        assert_eq!(found.rounds.len(), 4, "{found:?}");
    }

    #[test]
    fn all_that_is_allowed_may_be_held() {
        let found = search(5_000, u64::MAX, |_| unreachable!("all of it is held"));
        assert_eq!((found.holds, found.stops_at), (5_000, None));
        let none = search(0, 7, |_| unreachable!("nothing is asked for"));
        assert_eq!((none.holds, none.rounds.len()), (0, 0));
    }

    #[test]
    fn a_host_that_holds_nothing_is_found_out() {
        let found = search(1 << 20, 0, |_| 0);
        assert_eq!((found.holds, found.stops_at), (0, Some(1)));
    }

    proptest! {
        #[test]
        fn the_limit_is_between_what_held_and_what_did_not(
            most in 1..u64::from(u32::MAX), limit in 0..u64::from(u32::MAX),
            lies in prop::collection::vec(0.0..1.0, 1..9),
        ) {
            let mut turn = 0;
            let found = search(most, limit, |asked| {
                turn += 1;
                (asked as f64 * lies[turn % lies.len()]) as u64
            });
            prop_assert!(found.holds <= limit && found.holds <= most);
            match found.stops_at {
                Some(stops) => {
                    prop_assert!(limit < stops && stops <= most);
                    prop_assert!(stops - found.holds <= step(stops), "{found:?}");
                }
                None => prop_assert_eq!(found.holds, most),
            }
            prop_assert!(found.rounds.len() < MAX_ROUNDS);
        }

        #[test]
        fn a_search_ends_whatever_it_is_told(
            most in 0..u64::MAX, told in prop::collection::vec(0..u64::MAX, 60),
        ) {
            let mut search = Search::new(most);
            for held in told {
                if let Some(asked) = search.next_number() {
                    let found = search.found();
                    prop_assert!(asked > found.holds && asked <= most);
                    prop_assert!(found.stops_at.is_none_or(|stops| asked < stops));
                }
                search.handle_round(held);
            }
            prop_assert_eq!(search.next_number(), None);
        }
    }
}
