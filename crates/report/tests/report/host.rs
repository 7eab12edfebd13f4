//! Settings of a host: what is not right, what would be done, what was done.

use linerate_core::host::HostDocument;
use linerate_report::Document;
use linerate_report::text::Style;
use serde_json::{Value, json};

fn setting(key: &str, state: &str, more: Value) -> Value {
    let mut setting = json!({"key": key, "place": "namespace", "state": state, "why": "it is \
        enough",
        "range": "a number", "means": "what it \
            decides", "limits": "what it limits", "source": "ip-sysctl.rst"});
    let own = setting.as_object_mut().expect("an object");
    own.extend(more.as_object().expect("an object").clone());
    setting
}

fn document(more: Value) -> HostDocument {
    let mut document = json!({
        "schema": "linerate.host/1",
        "host": {"linerate": "0.1.0", "kernel": "6.18.44", "boot_id": "b", "cpus": 8, "memory_bytes": 17_179_869_184u64,
                 "devices": ["eth0"]},
        "need": {"path": {"rate_bps": 1e10, "rtt_us": 80_000.0, "origin": "given"}, "connections": 20_000},
    });
    let own = document.as_object_mut().expect("an object");
    own.extend(more.as_object().expect("an object").clone());
    serde_json::from_value(document).expect("the document that was just written")
}

fn shown() -> HostDocument {
    document(json!({"settings": [
        setting("net.ipv4.tcp_rmem", "change", json!({
            "now": "4096 131072 6291456", "right": "4096 131072 268435456", "unit": "bytes",
            "why": "the receive window cannot grow to what fills the path, 10 Gbit/s over 80 ms",
            "formula": "last ≥ 2 · rate · rtt ÷ 8",
            "inputs": {"rate_bps": 1e10, "rtt_us": 80_000.0, "needed_bytes": 2e8}})),
        setting("net.ipv4.tcp_max_orphans", "change", json!({
            "place": "host", "now": "8192", "right": "20000", "why": "closing them all at \
                once", "formula": "≥ connections",
            "obstacle": "it is read-only here: a setting of the whole host, or a container"})),
        setting("net.ipv4.tcp_sack", "fine", json!({"now": "1", "kept_from": "0", "persisted": true})),
        setting("net.core.busy_poll", "open", json!({"now": "0", "why": "it depends on the path"})),
        setting("cpu.governor", "unsupported", json!({"why": "no cpufreq"})),
        setting("net.ipv4.tcp_ecn\u{1b}[2J", "unknown", json!({"why": "not permitted"})),
    ]}))
}

#[test]
fn what_is_not_right_goes_first_with_its_reason_and_the_command() {
    insta::assert_snapshot!(shown().text(Style::default()));
}

#[test]
fn all_settings_are_shown_with_their_details() {
    insta::assert_snapshot!(shown().text(Style { details: true, ..Style::default() }));
}

#[test]
fn all_settings_fit_a_narrow_terminal() {
    let name = "net.netfilter.nf_conntrack_tcp_timeout_established";
    let document = document(json!({"settings": [
        setting(name, "open", json!({"now": "432000", "why": "depends on --connections"})),
        setting("net.ipv4.tcp_mem", "fine", json!({"now": "287898 383867 575796",
            "why": "no slow-start threshold is carried from one connection to the next"})),
    ]}));
    let style = Style { details: true, ..Style::default() };
    let text = document.text(style);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for words in [name, "287898 383867 575796", "    depends on --connections"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_dry_run_is_a_difference() {
    let change = json!({"key": "net.ipv4.tcp_rmem", "was": "4096 131072 \
        6291456", "set": "4096 131072 268435456",
        "now": "4096 131072 \
            6291456", "outcome": "planned", "why": "the receive window cannot grow"});
    let document = document(json!({"dry_run": true, "changes": [change],
        "notes": ["net.core.default_qdisc stays as it is: it is read-only here"]}));
    insta::assert_snapshot!(document.text(Style::default()));
}

#[test]
fn what_was_undone_and_what_was_not_is_said() {
    let change = |key: &str, outcome: &str, now: Value, why: Value| json!({"key": key, "was": "1", "set": "0", "now": now, "outcome": outcome, "why": why});
    let document =
        document(json!({"need": {}, "file": "/etc/sysctl.d/90-linerate.conf", "changes": [
            change("net.ipv4.tcp_sack", "restored", json!("1"), json!(null)),
            change("net.ipv4.tcp_ecn", "left_alone", json!("2"), json!("somebody has changed it \
                since")),
            change("device.eth0.tso", "gone", json!(null), json!(null)),
            change("net.ipv4.tcp_dsack", "failed", json!("0"), json!("cannot undo \
                net.ipv4.tcp_dsack: not permitted")),
            change("net.ipv4.tcp_frto", "set", json!("0"), json!(null)),
            change("net.ipv4.tcp_recovery", "already", json!("0"), json!(null)),
        ]}));
    insta::assert_snapshot!(document.text(Style { width: 60, colour: false, ..Style::default() }));
}
