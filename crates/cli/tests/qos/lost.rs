//! What somebody took away behind linerate's back is told, and put in order by `apply` and
//! `remove`.

use std::fs;
use std::path::PathBuf;

use linerate_qos::classes::MAJOR;
use linerate_sys::netlink::Netlink;
use linerate_sys::netns::Pair;
use linerate_sys::process::effective_user;
use serde_json::{Value, json};

use crate::lifecycle::POLICY;
use crate::support::{Bench, bench, json, run};

/// The file of what is in force at host a's end.
fn state(bench: &Bench) -> PathBuf {
    let key = bench.pins().file_name().unwrap().to_owned();
    let directory = match effective_user() {
        0 => PathBuf::from("/run/linerate/qos"),
        user => PathBuf::from(format!("/tmp/linerate-{user}/qos")),
    };
    directory.join(format!("{}.json", key.to_str().unwrap()))
}

fn has_htb(bench: &Bench) -> bool {
    let qdiscs = bench.a().namespace.configure(|netlink| netlink.qdiscs(Pair::LINK));
    qdiscs.unwrap().iter().any(|qdisc| qdisc.kind == "htb")
}

/// `status` tells of it, `apply` puts it in order, and so does `remove`.
fn is_told_and_mended(bench: &Bench, words: &str, spoil: impl Fn()) {
    let file = bench.file(POLICY);
    bench.apply(POLICY);
    spoil();
    let (code, status, stderr) = json(bench.a(), &["status"], None);
    let adapter = &status["adapters"][0];
    assert_eq!((code, &adapter["state"]), (1, &json!("failed")), "{stderr}");
    let fault = adapter["fault"].as_str().unwrap();
    assert!(fault.contains("apply it again"), "{fault}");
    let (code, applied, stderr) = json(bench.a(), &["apply"], Some(&file));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(applied["adapters"][0]["state"], "filtering");
    assert!(applied["notes"].to_string().contains(words), "{applied}");
    let counted = &applied["adapters"][0]["policies"][0]["egress"]["packets"];
    assert_eq!(counted, 0);
    assert_eq!(json(bench.a(), &["status"], None).0, 0);
    spoil();
    let removed = run(bench.a(), &["remove"], None);
    let stdout = String::from_utf8_lossy(&removed.stdout).into_owned();
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    assert!(stdout.contains("veth0: removed"), "{stdout}");
    assert!(!has_htb(bench) && !bench.pins().exists() && !state(bench).exists());
    assert_eq!(json(bench.a(), &["status"], None).0, 10);
}

#[test]
fn lost_pins_are_reported_and_restored_by_apply() {
    let Some(bench) = bench() else { return };
    is_told_and_mended(&bench, "counters were removed", || {
        fs::remove_dir_all(bench.pins()).unwrap();
    });
}

#[test]
fn lost_pins_are_restored_by_apply_after_an_interrupted_change() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    let state = state(&bench);
    let mut next: Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    // Of a program that never ran.
    next["egress"]["program"] = json!(u32::MAX);
    fs::write(state.with_extension("next"), next.to_string()).unwrap();
    fs::remove_dir_all(bench.pins()).unwrap();
    assert_eq!(json(bench.a(), &["status"], None).0, 1);
    assert!(!state.with_extension("next").exists());
    for command in ["stats", "disable", "enable", "status", "remove"] {
        let output = run(bench.a(), &[command], None);
        assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
    }
}

#[test]
fn a_corrupt_state_file_is_reported_and_restored_by_apply() {
    let Some(bench) = bench() else { return };
    is_told_and_mended(&bench, "cannot understand", || {
        fs::write(state(&bench), "{\"interface\"").unwrap();
    });
    is_told_and_mended(&bench, "cannot understand", || {
        fs::write(state(&bench), "").unwrap();
    });
}

#[test]
fn a_lost_state_file_is_reported_and_restored_by_apply() {
    let Some(bench) = bench() else { return };
    is_told_and_mended(&bench, "is gone", || {
        fs::remove_file(state(&bench)).unwrap();
    });
}

#[test]
fn an_htb_of_the_same_number_without_our_state_is_not_ours() {
    let Some(bench) = bench() else { return };
    let theirs = |netlink: &mut Netlink| {
        let index = netlink.link(Pair::LINK)?.index;
        netlink.replace_root_by_htb(index, MAJOR, 1)
    };
    bench.a().namespace.configure(theirs).unwrap();
    let file = bench.file(POLICY);
    let refused = run(bench.a(), &["apply"], Some(&file));
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(has_htb(&bench));
    // One that only counts leaves it alone, and so does its end.
    bench.apply(
        "[filter.all]\npolicy = \"all\"\n[policy.all]\n[adapter.veth0]\npolicies = [\"all\"]\n",
    );
    assert_eq!(run(bench.a(), &["remove"], None).status.code(), Some(0));
    assert!(has_htb(&bench));
    let forced = run(bench.a(), &["apply", "--force"], Some(&file));
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    assert_eq!(json(bench.a(), &["status"], None).0, 0);
    let removed = run(bench.a(), &["remove"], None);
    let stdout = String::from_utf8_lossy(&removed.stdout).into_owned();
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    assert!(stdout.contains("htb 4c51: is there again"), "{stdout}");
    assert!(has_htb(&bench));
}
