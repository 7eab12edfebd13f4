//! `profile`: what it leaves, with and without privileges, and from endpoints that give no profile.
//!
//! Where this host allows no network namespaces or no sampling each test says SKIPPED.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use linerate_testkit::{Need, skip};
use serde_json::Value;

use crate::support::{PROGRAM, Served, is_root, stderr};

const NOBODY: u32 = 65534;

fn run(line: &str) -> Output {
    let words = line.split_whitespace();
    let mut command = Command::new(PROGRAM);
    let command = command.args(words).arg("--quiet").stdin(Stdio::null());
    command.output().expect("the program was built for this test")
}

fn skipped(why: &str) {
    skip(Need::Perf, why);
}

/// The document of a command, or `None` and a message where this host allows no lab.
fn document(line: &str) -> Option<Value> {
    let output = run(&format!("{line} --json"));
    if output.status.code() == Some(3) {
        skipped(&stderr(&output));
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    Some(serde_json::from_slice(&output.stdout).expect("stdout is one JSON document"))
}

/// Whether both ends saw the kernel; says why not.
fn is_sampled(document: &Value) -> bool {
    let seen =
        ["sender", "receiver"].iter().all(|end| document[end]["profile"]["kernel_seen"] == true);
    if !seen {
        skipped(&format!("no profile of the kernel here: {}", document["caveats"]));
    }
    seen
}

/// The layers' shares of an end, by name.
fn share(document: &Value, end: &str, layer: &str) -> f64 {
    let layers = document[end]["layers"].as_array().expect("layers are a list");
    let found = layers.iter().find(|cost| cost["layer"] == layer);
    found.and_then(|cost| cost["share_percent"].as_f64()).unwrap_or(0.0)
}

/// By an amount, which costs its samples however long the machine takes for it.
#[test]
fn a_link_is_profiled_by_layers_at_both_ends() {
    let Some(document) = document("profile --lab mtu=1500 -n 1GB --hz 999") else {
        return;
    };
    assert_eq!(document["schema"], "linerate.profile/1");
    if !is_sampled(&document) {
        return;
    }
    for end in ["sender", "receiver"] {
        let layers = document[end]["layers"].as_array().unwrap();
        let busy = layers.iter().filter(|cost| cost["layer"] != "idle");
        let sum: f64 = busy.map(|cost| cost["share_percent"].as_f64().unwrap()).sum();
        assert!((sum - 100.0).abs() < 1e-6, "{end}: {sum}");
        assert!(share(&document, end, "tcp") > 0.0 && share(&document, end, "copy") > 0.0);
    }
    // TCP and below are worked through at the receiver in soft interrupts, whoever's thread they
    // ran in. IP alone is so cheap that a few seconds may have no sample of it.
    let received = document["receiver"]["layers"].as_array().unwrap();
    let mut below = received
        .iter()
        .filter(|cost| ["tcp", "ip", "driver"].iter().any(|name| cost["layer"] == *name));
    assert!(below.any(|cost| cost["softirq_percent"].as_f64().unwrap() > 0.0));
}

#[test]
fn an_endpoint_that_gives_no_profile_leaves_half_of_one() {
    let served = Served::start(&["--no-profile"]);
    let document = document(&format!("profile {} -t 200ms", served.address));
    let document = document.expect("no lab is needed");
    assert!(document["receiver"].is_null());
    assert!(document["sender"].is_object());
    let caveats = document["caveats"].to_string();
    assert!(caveats.contains("receiver gave no profile"), "{caveats}");
}

/// The program as nobody. It may lie where nobody else can read, so the open file is executed.
fn as_nobody() -> Command {
    let mut command = Command::new("/proc/self/fd/0");
    command.stdin(File::open(PROGRAM).unwrap());
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Text with functions, and the document, of a profile between two commands on loopback.
fn with_functions(endpoint: Command, mut client: Command) -> (String, Value) {
    let served = Served::by(endpoint, &[]);
    client.args(["profile", &served.address, "-n", "1GB", "--quiet"]);
    let output = client.args(["--by", "function"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let output = client.arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    (text, serde_json::from_slice(&output.stdout).unwrap())
}

/// Shares of the samples, whatever was seen of the kernel; in the text, too.
fn functions_are_shares(text: &str, document: &Value) {
    for end in ["sender", "receiver"] {
        let functions = document[end]["functions"].as_array().unwrap();
        let sum = |key: &str| -> f64 { functions.iter().filter_map(|one| one[key].as_f64()).sum() };
        assert!(sum("share_percent") <= 100.0 + 1e-6, "{end}: {functions:?}");
        let samples = document[end]["samples"].as_f64().unwrap();
        assert!(sum("samples") <= samples, "{end}: {functions:?}");
        assert_eq!(functions.is_empty(), samples == 0.0, "{end}");
    }
    let mut tables = text.split("\nFunctions of the ").skip(1);
    assert!(tables.all(|table| {
        let rows = table.lines().skip_while(|line| !line.contains("mostly"));
        let rows = rows.skip(1).take_while(|line| !line.trim().is_empty());
        let share = |row: &str| row.split_whitespace().next()?.parse::<f64>().ok();
        rows.map(|row| share(row).expect(row)).sum::<f64>() < 102.0
    }));
}

#[test]
fn without_privileges_there_is_what_the_kernel_accounts() {
    let (text, document) = with_functions(as_nobody(), as_nobody());
    for end in ["sender", "receiver"] {
        let profile = &document[end]["profile"];
        let seconds = document[end]["cpu_seconds"].as_f64().unwrap();
        assert!(seconds > 0.0, "{end}");
        if profile["all_cpus"] == true {
            skipped("nobody may sample all CPUs here");
            return;
        }
        let each = profile["each_thread"].as_array().unwrap();
        assert_eq!(each.len(), 1, "{end}");
    }
    functions_are_shares(&text, &document);
    let caveats = document["caveats"].to_string();
    assert!(caveats.contains("perf_event_paranoid"), "{caveats}");
    if document["sender"]["profile"]["kernel_seen"] != true {
        assert!(text.contains("soft interrupts, of the host"), "{text}");
    }
}

#[test]
fn with_names_hidden_layers_are_the_accounts_and_functions_have_none() {
    // Root without CAP_SYSLOG may sample everything and sees no addresses of functions.
    let without_syslog = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-syslog", "--inh-caps", "-syslog", PROGRAM]);
        command
    };
    let has_setpriv = || Command::new("setpriv").arg("--version").output().is_ok();
    if !is_root() || !has_setpriv() {
        skipped("only root can do without one capability, by setpriv");
        return;
    }
    let (text, document) = with_functions(without_syslog(), without_syslog());
    let profile = &document["sender"]["profile"];
    if profile["how"] != "sampled" || profile["kernel_seen"] == true {
        skipped("names are shown to everybody here, or nothing is sampled");
        return;
    }
    functions_are_shares(&text, &document);
    let caveats = document["caveats"].to_string();
    assert!(caveats.contains("kptr_restrict"), "{caveats}");
    for end in ["sender", "receiver"] {
        let layers = document[end]["layers"].as_array().unwrap();
        let busy = layers.iter().filter(|cost| cost["layer"] != "idle");
        assert!(busy.clone().count() == 2, "{end}: {layers:?}");
        assert!(busy.clone().all(|cost| cost["samples"] == 0), "{layers:?}");
    }
    assert!(text.contains("soft interrupts, of the host"), "{text}");
}

#[test]
fn functions_stand_below_the_layers() {
    let command = || Command::new(PROGRAM);
    let (text, document) = with_functions(command(), command());
    functions_are_shares(&text, &document);
    if is_sampled(&document) {
        for end in ["sender", "receiver"] {
            assert!(text.contains(&format!("Functions of the {end}")), "{text}");
        }
    }
}

#[test]
fn the_files_beside_the_document_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (flame, folded, stored) = (path("flame.svg"), path("folded.txt"), path("profile.json"));
    let disk = directory.path().display();
    let line = format!(
        "profile --lab mtu=1500 -n 1GB --flame {flame} --folded {folded} --output {stored} \
         --disk {disk}"
    );
    let Some(document) = document(&line) else {
        return;
    };
    let written = &document["disk"];
    assert!(written["write_bps"].as_f64().unwrap() > 0.0 && written["bytes"].as_u64().unwrap() > 0);
    if !is_sampled(&document) {
        return;
    }
    let svg = std::fs::read_to_string(&flame).unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    let text = std::fs::read_to_string(&folded).unwrap();
    let counts = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert!(counts.sum::<u64>() > 0);
    // A stored profile is printed again.
    for (command, word) in [
        (format!("explain {stored}"), "tcp"),
        (format!("explain {stored} --json"), "linerate.profile/1"),
    ] {
        let output = run(command.as_str().trim());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(String::from_utf8_lossy(&output.stdout).to_lowercase().contains(word));
    }
}

/// Names of the changes that a list of the document has.
fn what_ifs(document: &Value, key: &str) -> Vec<String> {
    let listed = document[key].as_array().into_iter().flatten();
    let names = listed.map(|one| one["what_if"].as_str().expect("it has a name").to_owned());
    names.collect()
}

/// The projection of a change. Short runs of a busy machine may give no model of it: then it is
/// named among the others.
fn projection<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let mut all = document["projections"].as_array().into_iter().flatten();
    let found = all.find(|one| one["what_if"] == name);
    let others = what_ifs(document, "not_projected");
    let is_named = found.is_some() != others.contains(&name.to_owned());
    assert!(is_named, "{name}: {}", document["caveats"]);
    found
}

/// The short runs are no longer than the test.
#[test]
fn records_start_in_fragments_on_a_path_that_carries_them_whole_and_are_proved() {
    let Some(document) = document("profile -u --lab mtu=9000 --prove -t 250ms") else {
        return;
    };
    let Some(records) = projection(&document, "records_whole") else {
        return;
    };
    assert_eq!(records["from"], "records");
    assert_eq!(records["ends"][0]["end"], "both");
    let terms = document["cost_models"][0]["ends"][0]["terms"].to_string();
    assert!(terms.contains("fragment"), "{terms}");
    let proof = &records["proof"];
    assert!(proof["pairs"].as_u64().unwrap_or(0) > 0, "{records}");
    for (side, mtu) in [("a", 1500), ("b", 9000)] {
        for end in ["client", "server"] {
            let treatments = proof[side].as_str().unwrap();
            assert!(treatments.contains(&format!("{end}.mtu={mtu}")), "{treatments}");
        }
    }
}

#[test]
fn each_change_is_projected_or_named_and_larger_packets_start_from_ethernets() {
    let Some(document) = document("profile --lab mtu=9000 --what-if -t 250ms") else {
        return;
    };
    let held_back = document["not_projected"].as_array().unwrap().iter();
    let mut held_back = held_back.filter(|one| one["what_if"] == "interrupts_held_back");
    let why = held_back.next().expect("veth cannot")["why"].as_str().unwrap();
    assert!(why.contains("the driver does not have it"), "{why}");
    for (name, point) in [
        ("segments_4096", "ethernet_cut"),
        ("segments_9000_offloaded", "ethernet"),
        ("segments_9000_joined", "ethernet_joined"),
        ("with_receive_offload", "cut"),
        ("without_copies", "base"),
    ] {
        let from = projection(&document, name).map_or(point, |one| one["from"].as_str().unwrap());
        assert_eq!(from, point, "{name}");
    }
    assert!(projection(&document, "records_whole").is_none());
}

#[test]
fn an_endpoint_that_allows_no_treatments_is_named_with_what_would_help() {
    let served = Served::start(&[]);
    let line = format!("profile {} --what-if -t 20ms", served.address);
    let document = document(&line).expect("no lab is needed");
    let others = what_ifs(&document, "not_projected");
    assert!(others.contains(&"segments_9000".to_owned()), "{others:?}");
    let caveats = document["caveats"].to_string();
    assert!(caveats.contains("--allow-treatments"), "{caveats}");
}

#[test]
fn what_cannot_be_profiled_is_refused_with_its_option() {
    for (line, words) in [
        ("profile pit --hz 9", "--hz"),
        ("profile pit --hz 10000", "10 to 9999"),
        ("profile pit --direction both", "--direction"),
        ("profile pit -u --zerocopy", "--zerocopy"),
        ("profile pit --by cpu", "--by"),
        ("profile pit --protocol mptcp --what-if", "--what-if: there is no model of MPTCP"),
        ("profile pit --protocol mptcp --prove", "--protocol tcp"),
        ("profile pit --disk /nonexistent", "--disk /nonexistent: "),
        ("profile", "HOST"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(words), "{line}: {}", stderr(&output));
    }
}
