//! A command that is killed leaves the old policy or the new one.

use std::thread;
use std::time::{Duration, Instant};

use crate::lifecycle::POLICY;
use crate::support::{bench, command, json, run};

/// How many applies are killed, at times spread over as long as one takes.
const ROUNDS: u32 = 24;

#[test]
fn a_killed_apply_leaves_the_old_policy_or_the_new_one() {
    let Some(bench) = bench() else { return };
    let other = POLICY.replace("10mbit", "20mbit").replace("EF", "CS6");
    let files = [POLICY, &other].map(|text| {
        let path = bench.file(text).with_file_name(format!("{}.toml", text.len()));
        std::fs::write(&path, text).unwrap();
        path
    });
    let begun = Instant::now();
    assert_eq!(run(bench.a(), &["apply"], Some(&files[0])).status.code(), Some(0));
    let whole = begun.elapsed();
    let reserve = |document: &serde_json::Value| {
        let adapter = &document["adapters"][0];
        assert_eq!(adapter["state"], "filtering", "{document}");
        let policy = &adapter["policies"][0];
        // Of the program and of the class, as it is in the kernel.
        (policy["reserve_bps"].as_u64().unwrap(), policy["class"]["rate_bps"].as_u64().unwrap())
    };
    let mut seen = [0; 2];
    for round in 0..ROUNDS {
        let next = files[usize::from(seen[1] < seen[0] || round % 2 == 0)].clone();
        let mut child = command(bench.a(), &["apply"], Some(&next)).spawn().unwrap();
        thread::sleep(whole * round / ROUNDS + Duration::from_micros(u64::from(round) * 37));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        let (code, document, stderr) = json(bench.a(), &["status"], None);
        assert_eq!(code, 0, "round {round}: {stderr}");
        let (of_program, of_class) = reserve(&document);
        assert_eq!(of_program, of_class, "round {round}");
        assert!([10_000_000, 20_000_000].contains(&of_program), "round {round}: {of_program}");
        seen[usize::from(of_program == 20_000_000)] += 1;
    }
    let (code, document, stderr) = json(bench.a(), &["apply"], Some(&files[1]));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(reserve(&document), (20_000_000, 20_000_000));
    assert_eq!(run(bench.a(), &["remove"], None).status.code(), Some(0));
}

#[test]
fn a_first_apply_that_is_killed_leaves_all_or_nothing() {
    let Some(bench) = bench() else { return };
    let file = bench.file(POLICY);
    let begun = Instant::now();
    run(bench.a(), &["apply"], Some(&file));
    let whole = begun.elapsed();
    for round in 0..ROUNDS / 2 {
        run(bench.a(), &["remove"], None);
        let mut child = command(bench.a(), &["apply"], Some(&file)).spawn().unwrap();
        thread::sleep(whole * round / (ROUNDS / 2));
        let _ = child.kill();
        child.wait().unwrap();
        let (code, document, stderr) = json(bench.a(), &["status"], None);
        match code {
            0 => assert_eq!(document["adapters"][0]["state"], "filtering"),
            10 => {
                assert_eq!(document["adapters"], serde_json::json!([]));
                let link = linerate_sys::netns::Pair::LINK;
                let qdiscs = bench.a().namespace.configure(|netlink| netlink.qdiscs(link));
                assert!(qdiscs.unwrap().iter().all(|qdisc| qdisc.kind != "htb"));
            }
            _ => panic!("round {round}: {code}: {stderr}"),
        }
    }
}
