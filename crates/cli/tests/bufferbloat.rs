//! A queue of half a second against CoDel: the grade tells them apart each time, and so does a
//! comparison. With CUBIC, since BBR does not heed what CoDel drops. `LINERATE_TIMES=20 cargo test
//! -p linerate --test it -- --ignored --nocapture bufferbloat`

use std::process::Command;

use serde_json::Value;

use crate::support::{PROGRAM, has_no_lab, json};

/// 1.25 MB at 20 Mbit/s are 500 ms.
const FIFO: &str = "rate=20mbit,rtt=20ms,queue=1250kB";
const CODEL: &str = "rate=20mbit,rtt=20ms,queue=1250kB,aqm=codel";

fn times() -> usize {
    let times = std::env::var("LINERATE_TIMES");
    times.ok().map_or(2, |times| times.parse().unwrap())
}

/// The document of a command; none, after saying why, where this host allows no lab.
fn measured(arguments: &[&str]) -> Option<Value> {
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    (!has_no_lab(&output)).then(|| json(&output))
}

#[test]
#[ignore = "a minute for each of LINERATE_TIMES"]
fn the_grade_tells_a_fifo_of_half_a_second_from_codel() {
    for _ in 0..times() {
        for (path, good) in [(FIFO, false), (CODEL, true)] {
            let Some(document) =
                measured(&["check", "-C", "cubic", "--lab", path, "--json", "--quiet"])
            else {
                return;
            };
            for direction in ["up", "down"] {
                let found = &document["responsiveness"][direction];
                let grade = found["grade"].as_str().unwrap();
                eprintln!(
                    "{path} {direction}: {grade}, adds {:.0} ms, {:.0} round trips per minute",
                    found["added_us"].as_f64().unwrap() / 1e3,
                    found["rpm"].as_f64().unwrap()
                );
                let expected = if good { ["A+", "A", "B"] } else { ["C", "D", "F"] };
                assert!(expected.contains(&grade), "{path} {direction}: {grade}");
            }
        }
    }
}

#[test]
#[ignore = "minutes for each of LINERATE_TIMES"]
fn a_comparison_finds_codel_different_within_ten_pairs() {
    for _ in 0..times() {
        let arguments =
            ["compare", "-C", "cubic", "--lab", FIFO, "--lab-b", CODEL, "--metric", "rpm"];
        let arguments = [&arguments[..], &["--pairs", "10", "--json", "--quiet"]].concat();
        let Some(document) = measured(&arguments) else {
            return;
        };
        let [verdict, pairs, effect] =
            ["verdict", "pairs", "effect_percent"].map(|key| &document[key]);
        eprintln!("{verdict} after {pairs} pairs, {effect} %");
        assert_eq!(verdict, "DIFFERENT");
    }
}
