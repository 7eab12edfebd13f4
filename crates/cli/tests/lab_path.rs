//! `--lab` against the kernel: what a spec says is what a transfer meets.
//!
//! Where this host allows no network namespaces each test says SKIPPED.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use linerate_testkit::{Need, skip};
use serde_json::Value;

const NOBODY: u32 = 65534;

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(line.split_whitespace()).args(["--json", "--quiet"]).stdin(Stdio::null());
    command
}

fn output(line: &str) -> Output {
    command(line).output().expect("the program was built for this test")
}

/// The document of a command, or `None` and a message where this host allows no lab.
fn document(line: &str) -> Option<Value> {
    timed(line).map(|(document, _)| document)
}

/// The same, and the seconds that the command took.
fn timed(line: &str) -> Option<(Value, f64)> {
    let began = Instant::now();
    let output = output(line);
    let seconds = began.elapsed().as_secs_f64();
    Some((parse(line, &output)?, seconds))
}

fn parse(line: &str, output: &Output) -> Option<Value> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        skip(Need::Lab, stderr);
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{line}: {stderr}");
    Some(serde_json::from_slice(&output.stdout).expect("stdout is one JSON document"))
}

fn link(record: &Value, direction: &str, figure: &str) -> u64 {
    record["environment"]["lab"]["links"][0][direction][figure].as_u64().unwrap()
}

#[test]
fn a_rate_is_that_of_the_wire_and_not_of_the_payload() {
    for (direction, options) in [("up", ""), ("down", "-R"), ("up", "-6")] {
        let line = format!("stream --lab rate=20mbit,rtt=10ms -t 1s {options}");
        let Some((record, seconds)) = timed(&line) else {
            return;
        };
        // The link's own count, which no late reader bends; Ethernet's header is the link's, too.
        let packets = link(&record, direction, "delivered");
        let bytes = link(&record, direction, "delivered_bytes") + 14 * packets;
        let most = 20e6 * seconds;
        assert!(bytes as f64 * 8.0 <= most, "{line}: {bytes} bytes");
        assert_eq!(
            record["environment"]["lab"]["spec"].as_str().unwrap().find("rate=20mbit"),
            Some(0)
        );
    }
}

#[test]
fn single_segments_are_lost_and_retransmitted() {
    let line = "stream --lab rate=50mbit,rtt=4ms,up.loss=every(200) -n 4MB --send-buffer 64KiB";
    let Some(record) = document(line) else {
        return;
    };
    let (lost, delivered) = (link(&record, "up", "dropped_loss"), link(&record, "up", "delivered"));
    assert!((delivered / 200).abs_diff(lost) <= 1, "{lost} of {delivered}");
    // A frame of offload that were lost whole would be up to 44 segments.
    assert_eq!(link(&record, "up", "packets_from_1536"), 0);
    // 14 of 2,762 segments are lost; one may be of the control connection, and one still wait in
    // the send buffer at the end.
    let again = record["tcp"]["retransmitted_segments"].as_u64().unwrap();
    assert!(lost >= 13 && again >= lost / 2, "{again} for {lost}");
}

#[test]
fn a_router_tells_of_a_narrow_link_and_a_black_hole_does_not() {
    let Some(record) = document("stream --lab rtt=2ms,mtu=1400,hops=2 -n 1MB") else {
        return;
    };
    assert_eq!(record["tcp"]["mss_bytes"], 1348);
    // It is not stuck: full segments came through.
    assert_eq!(record["bytes"], 1_000_000);

    // As in real life: the connection comes about, and the first full segment is never seen again.
    let output = output("stream --lab rtt=2ms,mtu=1400:blackhole,hops=2 -t 1s");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let said = ["an MTU black hole", "timed out"];
    assert!(said.iter().any(|said| stderr.contains(said)), "{stderr}");
}

#[test]
fn an_answer_comes_from_a_link_that_is_narrow_in_one_direction() {
    for options in ["", "-6"] {
        let line = format!("stream --lab rtt=2ms,up.mtu=1400 -n 1MB {options}");
        let Some(record) = document(&line) else {
            return;
        };
        assert_eq!(record["tcp"]["pmtu_bytes"], 1400, "{line}");
        assert_eq!(record["bytes"], 1_000_000, "{line}");
    }
}

#[test]
fn checksums_catch_damage_on_the_wire_but_not_in_the_host() {
    let wire = "stream --lab rate=50mbit,rtt=2ms,up.corrupt=0.5% -n 4MB --verify";
    let Some(record) = document(wire) else { return };
    assert!(link(&record, "up", "corrupted") > 0);
    assert_eq!(record["corrupted_bytes"], 0);
    let host = wire.replace("0.5%", "0.5%:host");
    let output = output(&host);
    // It may meet a control message, too, which is signed: that run ends, and says why.
    if !String::from_utf8_lossy(&output.stderr).contains("altered on the way") {
        let record = parse(&host, &output).expect("the one before ran");
        assert!(record["corrupted_bytes"].as_u64().unwrap() > 0);
    }
}

/// Every hundredth packet: a control connection would not survive where nobody verifies, and is
/// spared there. The transfer counts its bytes: of its 14,000 packets some are hit, however slow
/// the machine is.
#[test]
fn damage_to_the_payload_reaches_the_application_only_where_nobody_verifies() {
    let verified = "stream --lab rate=1gbit,rtt=2ms,up.corrupt=1%:payload -n 20MB --verify \
                    --seed 7";
    let Some(record) = document(verified) else {
        return;
    };
    let seen = |record: &Value| {
        let seen = &record["receiver"]["counters"]["TcpInCsumErrors"];
        seen.as_u64().unwrap_or(0)
    };
    assert!(link(&record, "up", "corrupted") > 0 && seen(&record) > 0);
    assert_eq!(record["corrupted_bytes"], 0);

    let marked = verified.replace("payload", "payload,up.verified=yes");
    let record = document(&marked).expect("the one before ran");
    // One bit of each is flipped; the link's own figure has packets beside the transfer's, too.
    let damaged = link(&record, "up", "corrupted");
    let arrived = record["corrupted_bytes"].as_u64().unwrap();
    assert!((1..=damaged).contains(&arrived), "{arrived} of {damaged}");
    assert_eq!(seen(&record), 0);
}

#[test]
fn the_whole_lab_needs_no_root() {
    let line = "stream --lab rate=50mbit,rtt=10ms -n 1MB";
    // The program may lie where nobody else can read, so the open file is executed.
    let file = File::open(env!("CARGO_BIN_EXE_linerate")).unwrap();
    let mut command = Command::new("/proc/self/fd/0");
    command.args(line.split_whitespace()).args(["--json", "--quiet"]).stdin(file);
    if std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
    {
        command.uid(NOBODY).gid(NOBODY);
    }
    let Some(record) = parse(line, &command.output().unwrap()) else {
        return;
    };
    assert_eq!(record["bytes"], 1_000_000);
}

/// What a queue does to a call or a page is simulated in link and core; how well it is measured is
/// for `bufferbloat.rs`, on a quiet machine.
#[test]
fn a_check_looks_for_queues_in_both_directions() {
    let lab = "rate=20mbit,rtt=20ms,up.queue=1250kB,down.aqm=codel";
    let Some(check) = document(&format!("check -t 1s -C cubic --lab {lab}")) else {
        return;
    };
    for direction in ["up", "down"] {
        let found = &check["responsiveness"][direction];
        // On a machine that stands still it may not be measured, and that is said.
        let missing = format!("responsiveness {direction} was not measured");
        let is_said = check["caveats"].to_string().contains(&missing);
        assert_eq!(found.is_null(), is_said, "{check}");
        assert_eq!(found["rpm"].is_f64(), found["grade"].is_string(), "{found}");
    }
}

#[test]
fn a_spec_that_cannot_be_is_refused_with_its_column() {
    for (spec, words) in [
        ("rate=fast", "column 6"),
        ("rate=1mbit,latency=3ms", "column 12"),
        ("trace=/nowhere/at/all", "/nowhere/at/all"),
    ] {
        let output = output(&format!("stream --lab {spec}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{spec}: {stderr}");
        assert!(stderr.contains(words), "{spec}: {stderr}");
    }
}

#[test]
fn a_host_and_a_lab_exclude_each_other_and_one_is_needed() {
    for line in ["stream pit --lab rtt=1ms", "stream", "stream --lab rtt=1ms --port 5"] {
        assert_eq!(output(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn calls_beside_a_transfer_are_judged() {
    let line = "load --lab rate=10mbit,rtt=20ms,queue=625KB tests/data/call.toml";
    let Some(load) = document(line) else {
        return;
    };
    let calls = load["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{load}");
    for call in calls {
        // ITU-T G.107, annex B.
        let mos = call["mos"].as_f64().unwrap();
        assert!((1.0..=4.5).contains(&mos), "{call}");
    }
    assert!(load["loaded_latency_us"].as_f64() > Some(0.0), "{load}");
}

/// In 200 ms a link of 20 Mbit/s with a queue of 20 kB takes no more than 1.04 of its rate, however
/// late this host's threads are.
#[test]
fn a_search_never_takes_for_carried_what_a_link_cannot_carry() {
    let search = "--frames 128,1018 --direction both --trial 200ms --trials 1 --width 5%";
    let line = format!("throughput --lab rate=20mbit,rtt=2ms,queue=20kB {search}");
    let Some(document) = document(&line) else {
        return;
    };
    let rows = document["rows"].as_array().unwrap();
    let searched: Vec<_> =
        rows.iter().map(|row| (&row["direction"], &row["frame_bytes"])).collect();
    let (up, down) = ("up".into(), "down".into());
    let (short, long) = (128.into(), 1018.into());
    assert_eq!(searched, [(&up, &short), (&up, &long), (&down, &short), (&down, &long)]);
    for row in rows {
        assert!(!row["trials"].as_array().unwrap().is_empty());
        let carried = row["frames_bps"].as_f64().unwrap_or(0.0);
        assert!(carried <= 1.3 * 20e6, "{row}");
    }
}
