//! Finds the number of flows that make a path busy: a state machine fed with each interval's
//! figures.

/// The figures of one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Payload received of all flows, bits per second.
    pub goodput_bps: f64,
    /// Mean round trip of the probes that ended in it, µs; `None` if none did.
    pub round_trip_us: Option<f64>,
}

/// The step after an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Add a flow.
    Add,
    /// Keep the flows as they are.
    Hold,
    /// The search is over: the figures are stable, or the time is up.
    Done,
}

/// Tells when more flows change nothing any more.
///
/// A figure is stable when its moving averages, each over the last [`Self::DISTANCE`] intervals,
/// have over as many intervals a standard deviation of at most [`Self::TOLERANCE`] of the last of
/// them. Goodput has to be stable first, then the round trips.
#[derive(Debug, Clone, Default)]
pub struct WorkingConditions {
    max_flows: u32,
    max_intervals: u32,
    flows: u32,
    goodput: Averages,
    round_trips: Averages,
    goodput_stable: bool,
    stable: bool,
}

impl WorkingConditions {
    /// Intervals that a moving average is over, and of whose averages the deviation is taken.
    pub const DISTANCE: usize = 4;
    /// Largest standard deviation of stable averages, relative to the last one.
    pub const TOLERANCE: f64 = 0.05;

    /// Begins with one flow. There are at most `max_intervals` intervals, but not fewer than
    /// [`Self::DISTANCE`].
    pub fn new(max_flows: u32, max_intervals: u32) -> Self {
        Self {
            max_flows,
            max_intervals: max_intervals.max(Self::DISTANCE as u32),
            flows: 1,
            ..Self::default()
        }
    }

    /// An interval is over.
    pub fn interval(&mut self, seen: Seen) -> Next {
        self.goodput.add(Some(seen.goodput_bps));
        self.round_trips.add(seen.round_trip_us);
        self.goodput_stable |= self.goodput.are_stable();
        self.stable = self.goodput_stable && self.round_trips.are_stable();
        if self.stable || self.intervals() >= self.max_intervals {
            return Next::Done;
        }
        if self.flows >= self.max_flows {
            return Next::Hold;
        }
        self.flows += 1;
        Next::Add
    }

    /// The number of flows that should run.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// Intervals so far.
    pub fn intervals(&self) -> u32 {
        self.goodput.values.len() as u32
    }

    /// Goodput no longer changed; then whether the round trips did not either.
    pub fn stable(&self) -> (bool, bool) {
        (self.goodput_stable, self.stable)
    }

    /// Mean goodput of the last intervals, bits per second; 0 before the first.
    pub fn goodput_bps(&self) -> f64 {
        let last = self.goodput.averages.last().copied();
        last.flatten().unwrap_or(0.0)
    }
}

/// Values of intervals and their moving averages; an average over an interval without a value is
/// none.
#[derive(Debug, Clone, Default)]
struct Averages {
    values: Vec<Option<f64>>,
    averages: Vec<Option<f64>>,
}

impl Averages {
    fn add(&mut self, value: Option<f64>) {
        self.values.push(value);
        let last = tail(&self.values);
        let sum: Option<f64> = last.iter().copied().sum();
        self.averages.push(sum.map(|sum| sum / last.len() as f64));
    }

    fn are_stable(&self) -> bool {
        let last = tail(&self.averages);
        let known: Vec<f64> = last.iter().copied().flatten().collect();
        if known.len() < WorkingConditions::DISTANCE {
            return false;
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let square = known.iter().map(|average| (average - mean).powi(2));
        let deviation = (square.sum::<f64>() / known.len() as f64).sqrt();
        let current = known[known.len() - 1];
        current > 0.0 && deviation <= WorkingConditions::TOLERANCE * current
    }
}

/// The last entries that a moving average is over.
fn tail<T>(all: &[T]) -> &[T] {
    &all[all.len().saturating_sub(WorkingConditions::DISTANCE)..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(goodput_bps: f64, round_trip_us: f64) -> Seen {
        Seen { goodput_bps, round_trip_us: Some(round_trip_us) }
    }

    /// Intervals until it is over, of a path that is told by the number of flows.
    fn run(most_flows: u32, path: impl Fn(u32, u32) -> Seen) -> WorkingConditions {
        let mut working = WorkingConditions::new(most_flows, 20);
        for interval in 0..100 {
            let seen = path(working.flows(), interval);
            if working.interval(seen) == Next::Done {
                return working;
            }
        }
        panic!("it has no end");
    }

    #[test]
    fn a_path_that_one_flow_fills_is_stable_after_as_many_intervals_as_an_average_has() {
        let working = run(8, |_, _| seen(94e6, 30e3));
        assert_eq!((working.intervals(), working.flows()), (4, 4));
        assert_eq!(working.stable(), (true, true));
        assert!((working.goodput_bps() - 94e6).abs() < 1.0);
    }

    #[test]
    fn flows_are_added_while_each_of_them_brings_something() {
        // Five windows fill the path; then its queue grows with each flow, to its end.
        let working = run(16, |flows, _| {
            let flows = f64::from(flows);
            seen(flows.min(5.0) * 20e6, 30e3 + (flows - 5.0).clamp(0.0, 3.0) * 40e3)
        });
        assert_eq!(working.stable(), (true, true));
        assert!(working.flows() >= 8, "{working:?}");
    }

    #[test]
    fn a_queue_that_still_fills_is_not_stable_yet() {
        let working = run(8, |_, interval| seen(94e6, 30e3 + f64::from(interval.min(9)) * 50e3));
        assert!(working.intervals() > 10, "{working:?}");
        assert_eq!(working.stable(), (true, true));
    }

    #[test]
    fn a_load_that_never_settles_ends_in_time_and_says_so() {
        let restless = run(8, |_, interval| seen(1e6 * 1.5f64.powi(interval as i32), 30e3));
        assert_eq!((restless.intervals(), restless.flows()), (20, 8));
        assert!(!restless.stable().1);
        let silent = run(8, |_, _| Seen { goodput_bps: 94e6, round_trip_us: None });
        assert_eq!(silent.stable(), (true, false));
        let dead = run(8, |_, _| seen(0.0, 30e3));
        assert_eq!(dead.stable(), (false, false));
    }

    proptest! {
        #[test]
        fn it_always_ends_and_never_has_more_flows_than_it_may(
            values in prop::collection::vec((0.0..1e9f64, prop::option::of(1.0..1e7f64)), 30),
            most_flows in 1..9u32,
            most_intervals in 0..30u32,
        ) {
            let mut working = WorkingConditions::new(most_flows, most_intervals);
            let mut ended = false;
            for (goodput_bps, round_trip_us) in values {
                let before = working.flows();
                let next = working.interval(Seen { goodput_bps, round_trip_us });
                prop_assert_eq!(next == Next::Add, working.flows() == before + 1);
                prop_assert!(working.flows() <= most_flows);
                if next == Next::Done {
                    ended = true;
                    break;
                }
            }
            prop_assert!(ended);
            prop_assert!(working.intervals() >= WorkingConditions::DISTANCE as u32);
        }
    }
}
