//! The session of MPE/iX (1999): a traceroute of ten hops from Atlanta to India, whose delays go up
//! and down.

use std::net::IpAddr;

use linerate_trace::delay::{DelayAnalysis, HopSamples, analyze};

const TABLE: &str = include_str!("../../../experiments/tables/mpeix_traceroute.csv");

fn session() -> Vec<HopSamples> {
    let mut table = csv::Reader::from_reader(TABLE.as_bytes());
    table
        .records()
        .map(|row| {
            let row = row.expect("the table is well-formed");
            let ms = |column: usize| row[column].parse::<f64>().expect("a figure");
            HopSamples {
                ttl: row[0].parse().expect("a TTL"),
                address: row[1].parse::<IpAddr>().ok(),
                rtt_us: (3..6).map(|column| ms(column) * 1e3).collect(),
                ..HopSamples::default()
            }
        })
        .collect()
}

fn analysis() -> DelayAnalysis {
    analyze(&session(), 60.0)
}

#[test]
fn the_session_has_ten_hops_of_three_answers() {
    let session = session();
    assert_eq!(session.len(), 10);
    assert!(session.iter().all(|hop| hop.rtt_us.len() == 3 && hop.address.is_some()));
}

#[test]
fn the_first_two_answers_come_from_one_address() {
    let repeats: Vec<_> =
        analysis().hops.iter().filter_map(|hop| Some((hop.ttl, hop.repeats?))).collect();
    assert_eq!(repeats, [(2, 1)]);
}

/// Hop 6 answered within 75 ms once, so that the hops before it, which took 269 to 585 ms at best,
/// were late by themselves or by a queue.
#[test]
fn the_first_five_hops_were_late_and_not_the_path_to_them_long() {
    let analysis = analysis();
    let paths: Vec<f64> = analysis.hops.iter().map(|hop| hop.path_us / 1e3).collect();
    assert_eq!(paths, [75.0, 75.0, 75.0, 75.0, 75.0, 75.0, 294.0, 345.0, 793.0, 793.0]);
    let late: Vec<f64> = analysis.hops.iter().map(|hop| hop.slow_answer_us / 1e3).collect();
    assert_eq!(late, [255.0, 326.0, 395.0, 194.0, 510.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
}

/// 448 of 793 ms seem to be added between hops 8 and 10, but hop 8's answers took from 345 to 939
/// ms: with three each, no step beyond hop 6 is known.
#[test]
fn beyond_hop_6_no_step_can_be_said() {
    let analysis = analysis();
    let steps: Vec<_> = analysis
        .steps
        .iter()
        .map(|step| (step.after_ttl, step.to_ttl, step.added_us / 1e3, step.is_known_to_add))
        .collect();
    assert_eq!(
        steps,
        [
            (None, 6, 75.0, true),
            (Some(6), 7, 219.0, false),
            (Some(7), 8, 51.0, false),
            (Some(8), 10, 448.0, false),
        ]
    );
    // Hop 9 answers as late as hop 10, within 1 ms: its answers count too.
    assert_eq!(analysis.steps[3].interval_us, [-145_000.0, 483_000.0]);
    assert!(!analysis.is_largest_clear);
}

#[test]
fn what_can_be_said_and_what_cannot_in_words() {
    insta::assert_snapshot!(analysis().words.join("\n"));
}
