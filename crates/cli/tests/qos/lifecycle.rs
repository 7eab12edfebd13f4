//! From apply to remove, with the exit statuses that scripts read.

use linerate_sys::netlink::Netlink;
use linerate_sys::netns::Pair;
use serde_json::json;

use crate::support::{Bench, bench, eventually, json, run, skipped, udp};

pub(crate) const POLICY: &str = r#"
[filter.voice]
protocol = "udp"
destination_port = 7001
policy = "voice"

[filter.bulk]
protocol = "udp"
destination_port = 7002
policy = "bulk"

[policy.voice]
dscp = "EF"
reserve = "10mbit"
priority = 0

[policy.bulk]
dscp = "AF11"
limit = "50%"

[adapter.veth0]
rate = "100mbit"
policies = ["voice", "bulk"]
"#;

fn qdisc(bench: &Bench) -> String {
    let qdiscs = bench.a().namespace.configure(|netlink| netlink.qdiscs(Pair::LINK));
    qdiscs
        .unwrap()
        .into_iter()
        .find(|qdisc| qdisc.root)
        .map_or_else(String::new, |qdisc| qdisc.kind)
}

fn gso(bench: &Bench) -> (Option<u32>, Option<u32>) {
    let link = bench.a().namespace.configure(|netlink| netlink.link(Pair::LINK)).unwrap();
    (link.gso_max_size, link.gso_ipv4_max_size)
}

/// Somebody else's queueing discipline at host a's end.
fn put_theirs(bench: &Bench) {
    let theirs = |netlink: &mut Netlink| {
        let index = netlink.link(Pair::LINK)?.index;
        netlink.replace_root_by_htb(index, 7, 1)
    };
    bench.a().namespace.configure(theirs).unwrap();
}

fn send(bench: &Bench, port: u16, packets: usize) {
    let socket = udp(bench.a(), bench.a().ipv4.into());
    for _ in 0..packets {
        socket.send_to(&[0; 100], (bench.b().ipv4, port)).unwrap();
    }
}

#[test]
fn a_policy_lives_without_a_process_and_leaves_nothing_behind() {
    let Some(bench) = bench() else { return };
    let (before, whole) = (qdisc(&bench), gso(&bench));
    let file = bench.file(POLICY);
    let status = || json(bench.a(), &["status"], None);
    assert_eq!(status().0, 10);
    let none = run(bench.a(), &["status", "lo"], None);
    let text = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(text.contains("no policy is in force on lo"), "{text}");

    let (code, applied, stderr) = json(bench.a(), &["apply"], Some(&file));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(applied["schema"], "linerate.qos/1");
    assert_eq!(applied["adapters"][0]["state"], "filtering");
    assert_eq!(qdisc(&bench), "htb");
    assert_eq!(gso(&bench).0, Some(12_500));

    send(&bench, 7001, 7);
    send(&bench, 7002, 5);
    send(&bench, 7003, 3);
    let (code, counted, _) = json(bench.a(), &["status", "veth0"], None);
    assert_eq!(code, 0);
    let policies = &counted["adapters"][0]["policies"];
    assert_eq!(policies[0]["egress"]["packets"], 7);
    assert_eq!(policies[0]["egress"]["bytes"], 7 * 142);
    assert_eq!(policies[0]["filters"][0]["egress"]["packets"], 7);
    assert_eq!(policies[1]["egress"]["packets"], 5);
    eventually("classes have sent what they were given", || {
        let document = json(bench.a(), &["stats"], None).1;
        let adapter = &document["adapters"][0];
        let sent = |class: &serde_json::Value| class["packets"].as_u64().unwrap();
        sent(&adapter["policies"][0]["class"]) == 7
            && sent(&adapter["policies"][1]["class"]) == 5
            && sent(&adapter["default_class"]) >= 3
    });

    assert_eq!(json(bench.a(), &["passthrough"], None).0, 0);
    assert_eq!(status().0, 11);
    assert_eq!((qdisc(&bench), gso(&bench)), (before.clone(), whole));
    send(&bench, 7001, 9);
    assert_eq!(json(bench.a(), &["disable"], None).0, 0);
    assert_eq!(status().0, 10);
    send(&bench, 7001, 9);
    let (code, enabled, stderr) = json(bench.a(), &["enable"], None);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(enabled["adapters"][0]["policies"][0]["egress"]["packets"], 7);
    assert_eq!((status().0, qdisc(&bench).as_str()), (0, "htb"));

    let (_, reset, _) = json(bench.a(), &["stats", "--reset"], None);
    assert_eq!(reset["adapters"][0]["policies"][0]["egress"]["packets"], 0);
    assert_eq!(json(bench.a(), &["remove"], None).0, 0);
    assert_eq!(status().0, 10);
    assert_eq!((qdisc(&bench), gso(&bench)), (before, whole));
    let again = run(bench.a(), &["remove"], None);
    assert_eq!(again.status.code(), Some(2));
    let text = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(text.contains("linerate qos apply FILE"), "{text}");
}

#[test]
fn a_wrong_file_leaves_what_is_in_force() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    let limit = POLICY.replace("10mbit", "99999kbit");
    for (text, code, words) in [
        (POLICY.replace("dscp = \"EF\"", "dscp = 64"), 2, "line 13"),
        (limit, 2, "must be left"),
        (POLICY.replace("veth0", "veth7"), 2, "veth7"),
        (POLICY.replace("adapter.veth0", "adapter.\"*\""), 2, "--adapter"),
    ] {
        let output = run(bench.a(), &["apply"], Some(&bench.file(&text)));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    let status = bench.status();
    assert_eq!(serde_json::to_value(&status).unwrap()["adapters"][0]["state"], "filtering");
    assert_eq!(status.adapters[0].policies[0].reserve_bps, Some(10_000_000));
}

#[test]
fn an_adapter_for_any_interface_is_put_where_it_is_asked_for() {
    let Some(bench) = bench() else { return };
    let file = bench.file(&POLICY.replace("adapter.veth0", "adapter.\"*\""));
    let (code, applied, stderr) = json(bench.a(), &["apply", "--adapter", "veth0"], Some(&file));
    assert_eq!((code, &applied["adapters"][0]["name"]), (0, &json!("veth0")), "{stderr}");
    let (code, enabled, stderr) = json(bench.a(), &["passthrough", "veth0"], None);
    assert_eq!(
        (code, &enabled["adapters"][0]["state"]),
        (0, &json!("passing_through")),
        "{stderr}"
    );
    let (code, enabled, stderr) = json(bench.a(), &["enable", "veth0"], None);
    assert_eq!((code, &enabled["adapters"][0]["state"]), (0, &json!("filtering")), "{stderr}");
}

#[test]
fn a_policy_file_is_applied_to_all_interfaces_or_none() {
    let Some(bench) = bench() else { return };
    let both = format!("{POLICY}\n[adapter.lo]\npolicies = [\"voice\"]\n");
    let output = run(bench.a(), &["apply"], Some(&bench.file(&both)));
    assert_eq!(output.status.code(), Some(2), "lo has no rate");
    assert!(bench.status().adapters.is_empty());
    let both = format!("{POLICY}\n[adapter.lo]\nrate = \"1gbit\"\npolicies = [\"voice\"]\n");
    let applied = bench.apply(&both);
    assert_eq!(applied.adapters.len(), 2);
}

#[test]
fn objects_of_other_programs_are_left_alone() {
    let Some(bench) = bench() else { return };
    let file = bench.file(POLICY);
    let check = || run(bench.a(), &["check"], Some(&file));
    assert_eq!(check().status.code(), Some(0));
    put_theirs(&bench);
    let output = check();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stdout}");
    assert!(stdout.contains("htb 7:") && stdout.contains("--force"), "{stdout}");
    let output = run(bench.a(), &["apply"], Some(&file));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("htb 7:") && stderr.contains("--force"), "{stderr}");
    let output = run(bench.a(), &["apply", "--force"], Some(&file));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("is replaced"), "{stderr}");
    // What is there now is its own.
    assert_eq!(check().status.code(), Some(0));
}

#[test]
fn the_policy_of_an_interface_that_is_gone_is_forgotten() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    let directory = bench.pins();
    assert!(directory.exists());
    bench.a().namespace.configure(|netlink| netlink.delete_link(Pair::LINK)).unwrap();
    // Whoever looks first sees to it, in this namespace or in another: the tests beside do, too.
    let (code, document, stderr) = json(bench.a(), &["status"], None);
    assert_eq!((code, &document["adapters"]), (10, &json!([])), "{stderr}");
    assert!(!directory.exists());
}

#[test]
fn what_somebody_took_away_is_told() {
    let Some(bench) = bench() else { return };
    bench.apply(POLICY);
    put_theirs(&bench);
    let (code, status, _) = json(bench.a(), &["status"], None);
    assert_eq!((code, &status["adapters"][0]["state"]), (1, &json!("failed")));
}

#[test]
fn without_privileges_it_says_what_it_takes() {
    let mut command = std::process::Command::new(crate::support::PROGRAM);
    if linerate_sys::process::effective_user() == 0 {
        use std::os::unix::process::CommandExt as _;
        command.uid(65_534).gid(65_534);
    }
    let output = command.args(["qos", "status"]).output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skipped::<()>(&format!("nobody may not run the program here: {error}"));
            return;
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("CAP_BPF"), "{stderr}");
}
