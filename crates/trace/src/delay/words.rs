//! The analysis in sentences.

use super::{DelayAnalysis, DelayStep, HopDelay};

/// A router is slow if its answer takes this much longer than the path to it allows, both as a
/// share of that and in microseconds.
const SLOW_SHARE: f64 = 0.2;
const SLOW_US: f64 = 2_000.0;
/// Most slow routers named; others are counted.
const MAX_NAMED: usize = 3;

pub(super) fn sentences(analysis: &DelayAnalysis, probed_s: f64) -> Vec<String> {
    let Some(last) = analysis.hops.last() else {
        return vec!["No hop answered: nothing is known of the delay.".into()];
    };
    let mut sentences = Vec::new();
    // With a single hop, all delay is on the way to it.
    if last.ttl > 1 {
        sentences.push(where_it_is(analysis, last));
    }
    sentences.extend(queue_or_propagation(analysis, last, probed_s));
    sentences.extend(unknown(analysis));
    sentences.extend(slow(analysis));
    sentences.extend(repeats(analysis));
    sentences
}

fn where_it_is(analysis: &DelayAnalysis, last: &HopDelay) -> String {
    let whole = ms(last.path_us);
    let Some(largest) = analysis.largest.map(|place| &analysis.steps[place]) else {
        return format!(
            "Of the {whole} to hop {}, it is not known where they are added: the answers scatter \
             more than any two \
             hops differ, or are too few.",
            last.ttl
        );
    };
    match (&analysis.core, analysis.is_largest_clear) {
        (_, true) => format!(
            "The largest step is {}: {} of the {whole} to hop {} ({}).",
            place(largest),
            ms(largest.added_us),
            last.ttl,
            interval(largest.interval_us, largest.coverage)
        ),
        (Some(core), false) => format!(
            "No step is known to be the largest. The shortest stretch that adds half of the \
             {whole} to hop {} is {}: {} \
             ({}).",
            last.ttl,
            between(core.after_ttl, core.to_ttl),
            ms(core.added_us),
            interval(core.interval_us, core.coverage)
        ),
        (None, false) => format!(
            "No step is known to be the largest of the {whole} to hop {}, and no part of the path \
             to add half of it: the \
             answers scatter too much, or are too few. The largest step that is known to add \
             anything is {}: {} ({}).",
            last.ttl,
            place(largest),
            ms(largest.added_us),
            interval(largest.interval_us, largest.coverage)
        ),
    }
}

/// A varying delay is a queue; a delay in every answer is the length of the path. The queue is
/// before the first hop from which on answers vary as much as those of the last one.
fn queue_or_propagation(
    analysis: &DelayAnalysis,
    last: &HopDelay,
    probed_s: f64,
) -> Option<String> {
    // Some documents lack it.
    if last.median_us <= 0.0 {
        return None;
    }
    let varies = |hop: &HopDelay| hop.median_us - hop.least_us;
    let queue = varies(last);
    if queue < QUEUE_US.max(QUEUE_SHARE * last.path_us) {
        if probed_s < LONG_ENOUGH_S {
            return (last.path_us >= QUEUE_US).then(|| {
                format!(
                    "Propagation or a queue: not known, all probes left within {}, in which a \
                     queue hardly changes. `trace -c 10` probes for 10 s.",
                    ms(1e6 * probed_s)
                )
            });
        }
        return Some(format!(
            "The delay is propagation, or a queue that never empties: the median answer of hop {} \
             is {} \
             above the least.",
            last.ttl,
            ms(queue)
        ));
    }
    let beyond = analysis.hops.iter().rev().take_while(|hop| 2.0 * varies(hop) >= queue);
    let first = beyond.last().unwrap_or(last);
    let before = analysis.hops.iter().rfind(|hop| hop.ttl < first.ttl);
    Some(format!(
        "A queue adds {} {}: by so much the median answer of hop {} is above the least; the rest \
         is \
         propagation.",
        ms(queue),
        between(before.map(|hop| hop.ttl), first.ttl),
        last.ttl
    ))
}

/// Answers that vary by less, both as a share of the path and in microseconds, waited in no queue.
const QUEUE_SHARE: f64 = 0.1;
const QUEUE_US: f64 = 500.0;
/// In less time the queue of a bulk transfer hardly changes: CUBIC fills and empties it in seconds.
const LONG_ENOUGH_S: f64 = 2.0;

fn interval(interval_us: [f64; 2], coverage: f64) -> String {
    let [low, high] = interval_us.map(ms);
    format!("interval {low} to {high}, {:.0} %", 100.0 * coverage)
}

/// If a hop inside the step answers as late as its end, the delay is before that hop.
fn place(step: &DelayStep) -> String {
    between(step.after_ttl, step.seen_from_ttl)
}

fn between(after: Option<u8>, to: u8) -> String {
    match after {
        None if to == 1 => "to hop 1".into(),
        None => format!("somewhere between this host and hop {to}"),
        Some(after) if after + 1 == to => format!("from hop {after} to hop {to}"),
        Some(after) => format!("somewhere between hop {after} and hop {to}"),
    }
}

/// The step that looks largest but is not known to add anything.
fn unknown(analysis: &DelayAnalysis) -> Option<String> {
    let steps = &analysis.steps;
    let known = analysis.largest.map_or(0.0, |place| steps[place].added_us);
    let unknown = steps.iter().filter(|step| !step.is_known_to_add && step.added_us > known);
    let step = unknown.max_by(|a, b| a.added_us.total_cmp(&b.added_us))?;
    let (what, place, [low, high]) = (ms(step.added_us), place(step), step.interval_us.map(ms));
    let but = if step.interval_us[0] > 0.0 {
        "that takes more answers to be known".to_owned()
    } else {
        format!("its interval is {low} to {high}: that cannot be said")
    };
    Some(format!("It looks as if {what} were added {place}, but {but}."))
}

fn slow(analysis: &DelayAnalysis) -> Option<String> {
    let is_slow = |hop: &&HopDelay| {
        hop.slow_answer_us > SLOW_US && hop.slow_answer_us > SLOW_SHARE * hop.path_us
    };
    let slow: Vec<&HopDelay> = analysis.hops.iter().filter(is_slow).collect();
    let first = slow.first()?;
    let name = |hop: &&HopDelay| format!("hop {} by {}", hop.ttl, ms(hop.slow_answer_us));
    let named: Vec<String> = slow.iter().take(MAX_NAMED).map(name).collect();
    let further = match slow.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let until = analysis.steps[first.step].to_ttl;
    Some(format!(
        "Answers came later than the path explains, {}{further}: hop {until} beyond answered \
         within {}. It is those \
         routers' own slowness or a queue that came and went, not delay of the path.",
        named.join(", "),
        ms(first.path_us)
    ))
}

fn repeats(analysis: &DelayAnalysis) -> Option<String> {
    let hop = analysis.hops.iter().find(|hop| hop.repeats.is_some())?;
    let earlier = hop.repeats?;
    Some(format!(
        "Hops {earlier} and {} answer from the same address: a router that does not decrement TTL, \
         or a loop; they are not two \
         places.",
        hop.ttl
    ))
}

/// Microseconds as milliseconds, to three digits.
fn ms(us: f64) -> String {
    let ms = us / 1e3;
    let digits = match ms.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{ms:.digits$} ms")
}

#[cfg(test)]
mod tests {
    use super::super::{HopSamples, analyze};
    use super::*;

    fn words(rtts_ms: &[[f64; 3]]) -> String {
        let hops: Vec<HopSamples> = (1..)
            .zip(rtts_ms)
            .map(|(ttl, rtts)| HopSamples {
                ttl,
                address: None,
                rtt_us: rtts.iter().map(|ms| ms * 1e3).collect(),
            })
            .collect();
        analyze(&hops, 60.0).words.join("\n")
    }

    #[test]
    fn the_largest_step_is_named_with_its_interval() {
        let text = words(&[[1.0, 1.1, 1.2], [41.0, 41.1, 41.3], [42.0, 42.1, 42.2]]);
        assert_eq!(
            text,
            "The largest step is from hop 1 to hop 2: 40.0 ms of the 42.0 ms to hop 3 (interval \
             39.8 ms to 40.3 ms, 90 %).\n\
             The delay is propagation, or a queue that never empties: the median answer of hop 3 \
             is 0.10 ms above the least."
        );
    }

    #[test]
    fn a_queue_is_told_from_propagation_with_its_place() {
        let text = words(&[[1.0, 1.1, 1.2], [41.0, 66.0, 80.0], [42.0, 67.0, 81.0]]);
        assert!(text.contains("A queue adds 25.0 ms from hop 1 to hop 2: by so much"), "{text}");
        // One router that answers slowly is no queue.
        let text = words(&[[1.0, 1.1, 1.2], [41.0, 66.0, 80.0], [42.0, 42.1, 42.2]]);
        assert!(text.contains("The delay is propagation"), "{text}");
    }

    #[test]
    fn probes_of_a_moment_do_not_tell_a_queue_from_propagation() {
        let hops = [HopSamples { ttl: 1, address: None, rtt_us: vec![42e3, 42.1e3, 42.2e3] }];
        let text = |probed_s| analyze(&hops, probed_s).words.join("\n");
        assert!(
            text(0.075)
                .starts_with("Propagation or a queue: not known, all probes left within 75.0 ms")
        );
        assert!(text(9.0).starts_with("The delay is propagation, or a queue that never empties"));
    }

    #[test]
    fn slow_routers_are_told_from_the_path() {
        let text = words(&[[1.0, 1.1, 1.2], [90.0, 95.0, 99.0], [3.0, 3.1, 3.2]]);
        assert!(text.contains("somewhere between hop 1 and hop 3"), "{text}");
        assert!(text.contains("hop 2 by 87.0 ms"), "{text}");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(ms(99_960.0), "100 ms");
        assert_eq!(ms(9_996.0), "10.0 ms");
        assert_eq!(ms(-1_234.0), "-1.23 ms");
    }

    #[test]
    fn silence_says_so() {
        assert_eq!(words(&[]), "No hop answered: nothing is known of the delay.");
    }
}
