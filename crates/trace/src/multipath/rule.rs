//! The stopping rule of multipath detection.

/// Maximum number of successors of a router that can be distinguished.
const MAX_SUCCESSORS: usize = 128;

/// Number of flows through a router that must be seen at `successors` next routers before the rule
/// concludes, at this confidence (0.5 to 0.9999), that there is no further one.
///
/// If there were one more, and each flow took any of the `successors + 1` with the same
/// probability, the probability that so many flows miss at least one of them would be at most `1 −
/// confidence` (Augustin, Friedman and Teixeira, "Multipath tracing with Paris traceroute", 2007).
/// At 95 %: 6, 11, 16, 21, 27, 33, … for 1, 2, 3, … successors. This is the error for one router;
/// the errors of the routers of a path add up. No successor at all counts as one; from 128 on the
/// number no longer grows.
pub fn stopping_point(successors: usize, confidence: f64) -> usize {
    let kinds = successors.clamp(1, MAX_SUCCESSORS) + 1;
    let confidence = confidence.clamp(0.5, 0.9999);
    // seen[j]: the probability that j kinds have been seen so far (coupon collector).
    let mut seen = vec![0.0; kinds + 1];
    seen[0] = 1.0;
    let mut flows = 0;
    while seen[kinds] < confidence {
        for j in (1..=kinds).rev() {
            let again = j as f64 / kinds as f64;
            let new = (kinds - j + 1) as f64 / kinds as f64;
            seen[j] = seen[j] * again + seen[j - 1] * new;
        }
        seen[0] = 0.0;
        flows += 1;
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_table_at_95_percent() {
        let published = [6, 11, 16, 21, 27, 33, 38, 44, 51, 57, 63, 70, 76, 83, 90, 96];
        let computed: Vec<usize> = (1..=16).map(|k| stopping_point(k, 0.95)).collect();
        assert_eq!(computed, published);
    }

    #[test]
    fn two_next_routers_need_what_coins_say() {
        // 2^(1−n) at most 1 %: n = 8.
        assert_eq!(stopping_point(1, 0.99), 8);
        assert_eq!(stopping_point(0, 0.99), 8);
        assert!(stopping_point(2, 0.99) > stopping_point(2, 0.95));
    }

    #[test]
    fn absurd_arguments_end() {
        assert!(stopping_point(usize::MAX, 1.0) < 5_000);
        assert!(stopping_point(3, f64::NEG_INFINITY) > 0);
    }
}
