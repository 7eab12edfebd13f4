//! The analysis in sentences.

use super::{DelayAnalysis, DelayCore, DelayStep, HopDelay};

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
        sentences.extend(where_it_is(analysis, last));
    }
    sentences.extend(varying(analysis, last, probed_s));
    sentences.extend(unknown(analysis));
    sentences.extend(slow(analysis));
    sentences.extend(repeats(analysis));
    sentences
}

/// Where most of the delay is added, and what is not known of that stretch.
fn where_it_is(analysis: &DelayAnalysis, last: &HopDelay) -> Vec<String> {
    let to_last = format!("the {} to hop {}", ms(last.path_us), last.ttl);
    let Some(largest) = analysis.largest.map(|place| &analysis.steps[place]) else {
        return vec![format!(
            "Of {to_last}, it is not known where they are added: the answers scatter more than any \
             two hops differ, or are too few."
        )];
    };
    let (step, which, of) = match (&analysis.core, analysis.is_largest_clear) {
        (_, true) => (largest.clone(), "The largest step is".to_owned(), format!(" of {to_last}")),
        (Some(core), false) => {
            let which = format!(
                "No step is known to be the largest. The shortest stretch that adds half of \
                 {to_last} is"
            );
            (step_of(core, analysis), which, String::new())
        }
        (None, false) => {
            let which = format!(
                "No step is known to be the largest of {to_last}, and no part of the path to add \
                 half of it: the answers scatter too much, or are too few. The largest step that \
                 is known to add anything is"
            );
            (largest.clone(), which, String::new())
        }
    };
    let (added, range) = (ms(step.added_us), interval(step.interval_us, step.coverage));
    let back = detour(&step, analysis).unwrap_or_default();
    let mut sentences = vec![format!("{which} {}: {added}{of} ({range}){back}.", place(&step))];
    sentences.extend(no_detour(&step).map(str::to_owned));
    sentences.extend(step.tunnel_ttls.map(|_| ANSWERS_IN_A_TUNNEL.to_owned()));
    sentences
}

const ANSWERS_IN_A_TUNNEL: &str = "Routers in an MPLS tunnel may send their answers on to its end, \
    from where they return: which of them adds the delay is not known.";

/// The core as if it were one step.
fn step_of(core: &DelayCore, analysis: &DelayAnalysis) -> DelayStep {
    let is_within =
        |step: &&DelayStep| step.after_ttl >= core.after_ttl && step.to_ttl <= core.to_ttl;
    let within = || analysis.steps.iter().filter(is_within);
    let mut tunnels = within().filter_map(|step| step.tunnel_ttls);
    let nearest = tunnels.next();
    let tunnel_ttls = nearest.map(|near| [near[0], tunnels.next_back().unwrap_or(near)[1]]);
    DelayStep {
        after_ttl: core.after_ttl,
        to_ttl: core.to_ttl,
        added_us: core.added_us,
        interval_us: core.interval_us,
        coverage: core.coverage,
        is_known_to_add: true,
        seen_from_ttl: core.to_ttl,
        tunnel_ttls,
        return_extra_hops: within().map(|step| step.return_extra_hops).sum(),
    }
}

/// That the ways back from both ends of a step differ, if the answers show it.
fn detour(step: &DelayStep, analysis: &DelayAnalysis) -> Option<String> {
    step.return_extra_hops.filter(|extra| *extra != 0)?;
    let back = |ttl| return_hops(analysis.hops.iter().find(|hop| hop.ttl == ttl)?);
    let far = back(step.to_ttl)?;
    let near =
        step.after_ttl.and_then(|ttl| Some(format!(", those of hop {ttl} over {}", back(ttl)?)));
    Some(format!(
        ", there or on the way back: answers of hop {} come back over {far} hops{}",
        step.to_ttl,
        near.unwrap_or_default()
    ))
}

/// What can be said of the ways back if they are not seen to differ.
fn no_detour(step: &DelayStep) -> Option<&'static str> {
    match step.return_extra_hops {
        Some(0) => Some(
            "It is as many hops on the way back as on the way there: no detour shows, and \
             one of as many hops would not show.",
        ),
        Some(_) => None,
        None => Some(
            "Over how many hops the answers come back is not known: part of it may be on the way \
             back.",
        ),
    }
}

/// Routers that the answers of a hop pass on the way back.
fn return_hops(hop: &HopDelay) -> Option<i16> {
    Some(i16::from(hop.ttl) + hop.return_extra_hops?)
}

/// By how much the delay varies, and before which hop: the first from which on answers vary as much
/// as those of the last one. What does not vary is the length of the path, and as well the time to
/// send a packet, or a queue that never empties.
fn varying(analysis: &DelayAnalysis, last: &HopDelay, probed_s: f64) -> Option<String> {
    // Some documents lack it.
    if last.median_us <= 0.0 {
        return None;
    }
    let varies = |hop: &HopDelay| hop.median_us - hop.least_us;
    let (most, ttl) = (varies(last), last.ttl);
    if most >= QUEUE_US.max(QUEUE_SHARE * last.path_us) {
        let beyond = analysis.hops.iter().rev().take_while(|hop| 2.0 * varies(hop) >= most);
        let first = beyond.last().unwrap_or(last);
        return Some(format!(
            "The delay varies by {} {}: by so much the median answer of hop {ttl} is above the \
             least. {CONSTANT}",
            ms(most),
            place_before(first, analysis)
        ));
    }
    if probed_s < LONG_ENOUGH_S {
        return (last.path_us >= QUEUE_US).then(|| {
            format!(
                "Whether the delay varies is not known: all probes left within {}, in which a \
                 queue hardly changes. `trace -c 10` probes for 10 s.",
                ms(1e6 * probed_s)
            )
        });
    }
    Some(format!(
        "The delay hardly varies: the median answer of hop {ttl} is {} above the least. {CONSTANT}",
        ms(most)
    ))
}

const CONSTANT: &str = "The constant part is propagation, serialization and any standing queue.";

/// The place just before a hop, or the tunnel that it is in.
fn place_before(hop: &HopDelay, analysis: &DelayAnalysis) -> String {
    let step = &analysis.steps[hop.step];
    match step.tunnel_ttls {
        Some([first, last]) if (first..=last).contains(&hop.ttl) => place(step),
        _ => {
            let before = analysis.hops.iter().rfind(|before| before.ttl < hop.ttl);
            between(before.map(|before| before.ttl), hop.ttl)
        }
    }
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
    let (after, to) = (step.after_ttl, step.seen_from_ttl);
    let Some([first, last]) = step.tunnel_ttls else {
        return between(after, to);
    };
    let labels = match first == last {
        true => format!("hop {first}"),
        false => format!("hops {first} to {last}"),
    };
    // The hop before the labels sends packets into the tunnel; the one behind gets them without.
    if after.map_or(0, u16::from) + 1 < u16::from(first) || to > last.saturating_add(1) {
        return format!("{}, partly the MPLS tunnel with labels at {labels}", between(after, to));
    }
    let from = after.map_or_else(|| "this host".to_owned(), |after| format!("hop {after}"));
    format!("in the MPLS tunnel from {from} to hop {to} (labels at {labels})")
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
        "more answers are needed to know it".to_owned()
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
    let name = |hop: &&HopDelay| {
        let detour = hop.return_extra_hops.filter(|extra| *extra > 0);
        let back = detour.and(return_hops(hop)).map(|back| format!(" (over {back} hops back)"));
        format!("hop {} by {}{}", hop.ttl, ms(hop.slow_answer_us), back.unwrap_or_default())
    };
    let named: Vec<String> = slow.iter().take(MAX_NAMED).map(name).collect();
    let further = match slow.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let is_sooner = |hop: &&HopDelay| hop.ttl > first.ttl && hop.least_us <= first.path_us;
    let sooner = analysis.hops.iter().find(is_sooner)?;
    Some(format!(
        "Answers came later than the path explains, {}{further}: hop {} beyond answered within {}. \
         It is those routers' own slowness, a queue that came and went or a longer way back of \
         their answers, not delay of the way to them.",
        named.join(", "),
        sooner.ttl,
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

    fn hop(ttl: u8, rtts_ms: &[f64; 3]) -> HopSamples {
        let rtt_us = rtts_ms.iter().map(|ms| ms * 1e3).collect();
        HopSamples { ttl, rtt_us, return_hops: Some(ttl), ..HopSamples::default() }
    }

    fn words(rtts_ms: &[[f64; 3]]) -> String {
        let hops: Vec<HopSamples> = (1..).zip(rtts_ms).map(|(ttl, rtts)| hop(ttl, rtts)).collect();
        analyze(&hops, 60.0).words.join("\n")
    }

    #[test]
    fn the_largest_step_is_named_with_its_interval() {
        let text = words(&[[1.0, 1.1, 1.2], [41.0, 41.1, 41.3], [42.0, 42.1, 42.2]]);
        assert_eq!(
            text,
            "The largest step is from hop 1 to hop 2: 40.0 ms of the 42.0 ms to hop 3 (interval \
             39.8 ms to 40.3 ms, 90 %).\n\
             It is as many hops on the way back as on the way there: no detour shows, and \
             one of as many hops would not show.\n\
             The delay hardly varies: the median answer of hop 3 is 0.10 ms above the least. The \
             constant part is propagation, serialization and any standing queue."
        );
    }

    #[test]
    fn a_varying_delay_is_told_from_a_constant_one_with_its_place() {
        let text = words(&[[1.0, 1.1, 1.2], [41.0, 66.0, 80.0], [42.0, 67.0, 81.0]]);
        assert!(
            text.contains("The delay varies by 25.0 ms from hop 1 to hop 2: by so much"),
            "{text}"
        );
        // One router that answers slowly is no queue.
        let text = words(&[[1.0, 1.1, 1.2], [41.0, 66.0, 80.0], [42.0, 42.1, 42.2]]);
        assert!(text.contains("The delay hardly varies"), "{text}");
    }

    #[test]
    fn probes_of_a_moment_do_not_tell_whether_the_delay_varies() {
        let hops = [hop(1, &[42.0, 42.1, 42.2])];
        let text = |probed_s| analyze(&hops, probed_s).words.join("\n");
        let unknown = "Whether the delay varies is not known: all probes left within 75.0 ms";
        assert!(text(0.075).starts_with(unknown));
        assert!(text(9.0).starts_with("The delay hardly varies"));
    }

    #[test]
    fn slow_routers_are_told_from_the_path() {
        let text = words(&[[1.0, 1.1, 1.2], [90.0, 95.0, 99.0], [3.0, 3.1, 3.2]]);
        assert!(text.contains("somewhere between hop 1 and hop 3"), "{text}");
        assert!(text.contains("hop 2 by 87.0 ms"), "{text}");
    }

    /// Labels at hops 3 to 5, whose answers all pass hop 6, the end of the tunnel.
    #[test]
    fn a_delay_inside_a_tunnel_is_that_of_the_whole_tunnel() {
        let mut hops: Vec<HopSamples> = [1.0, 2.0, 42.0, 42.0, 42.0, 42.0, 43.0]
            .iter()
            .zip(1..)
            .map(|(ms, ttl)| hop(ttl, &[*ms, ms + 0.1, ms + 0.2]))
            .collect();
        hops[2..5].iter_mut().for_each(|hop| hop.is_labelled = true);
        let analysis = analyze(&hops, 60.0);
        let text = analysis.words.join("\n");
        let says = "The largest step is in the MPLS tunnel from hop 2 to hop 6 (labels at hops 3 \
                    to 5): 40.0 ms of the 43.0 ms to hop 7";
        assert!(text.starts_with(says) && text.contains("which of them adds"), "{text}");
        // A queue in it, too: the answers of all its routers vary.
        for hop in &mut hops[2..] {
            hop.rtt_us = hop.rtt_us.iter().zip([0.0, 25e3, 50e3]).map(|(a, b)| a + b).collect();
        }
        let text = analyze(&hops, 60.0).words.join("\n");
        let says = "The delay varies by 25.1 ms in the MPLS tunnel from hop 2 to hop 6";
        assert!(text.contains(says), "{text}");
        // Hop 2 is slow and does not end a step.
        hops[1].rtt_us = vec![90e3; 3];
        let text = analyze(&hops, 60.0).words.join("\n");
        let says =
            "somewhere between hop 1 and hop 6, partly the MPLS tunnel with labels at hops 3";
        assert!(text.contains(says), "{text}");
    }

    #[test]
    fn a_detour_of_the_answers_is_named_beside_the_step() {
        let rtts = [[1.0, 1.1, 1.2], [2.0, 2.1, 2.2], [22.0, 22.1, 22.2], [23.0, 23.1, 23.2]];
        let mut hops: Vec<HopSamples> =
            (1..).zip(&rtts).map(|(ttl, rtts)| hop(ttl, rtts)).collect();
        let text = |hops: &[HopSamples]| analyze(hops, 60.0).words.join("\n");
        assert!(text(&hops).contains("no detour shows"), "{}", text(&hops));
        hops[2].return_hops = Some(9);
        let says = "%), there or on the way back: answers of hop 3 come back over 9 hops, those of \
                    hop 2 over 2.";
        assert!(text(&hops).contains(says), "{}", text(&hops));
        hops[2].return_hops = None;
        assert!(text(&hops).contains("part of it may be on the way back"), "{}", text(&hops));
        // What later hops do not keep is no step, and may be a detour.
        hops[2] = HopSamples { rtt_us: vec![60e3; 3], return_hops: Some(12), ..hops[2].clone() };
        let says = "hop 3 by 37.0 ms (over 12 hops back): hop 4 beyond answered within 23.0 ms";
        assert!(text(&hops).contains(says), "{}", text(&hops));
        assert!(text(&hops).contains("or a longer way back"), "{}", text(&hops));
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
