//! `compare` between two hosts: a device and a kernel setting of this one come back however it
//! ends, without privilege nothing is changed, and what the other one does not forget is said. In
//! network namespaces of the test's own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use linerate_sys::ethtool::{Ethtool, Offload};
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, eventually, skip};

use crate::support::{PROGRAM, signal, stderr};

const NOBODY: u32 = 65534;
/// Part of both sides, so that it is in force in every run.
const TREATMENTS: &str = "tso=off,sysctl:net.ipv4.tcp_sack=0";
const OTHER: &str = "tso=off,sysctl:net.ipv4.tcp_sack=0,mss=1400";

/// Two hosts with an endpoint on the second; its first is treated.
struct Bench {
    pair: Pair,
    endpoint: Child,
    address: String,
}

impl Bench {
    /// `None`, and says why, where no namespace can be made.
    fn new() -> Option<Self> {
        let pair = match Pair::create() {
            Ok(pair) => pair,
            Err(error) => {
                skip(Need::Lab, format_args!("needs network namespaces: {error}"));
                return None;
            }
        };
        let mut endpoint = pair
            .b
            .namespace
            .command(PROGRAM)
            .args(["serve", "--port", "0", "--quiet", "--json-stream"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was built for this test");
        let mut line = String::new();
        let stdout = endpoint.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let listening: serde_json::Value = serde_json::from_str(&line).expect("a JSON line");
        let address = listening["addresses"][0].as_str().expect("an address");
        let port = address.rsplit(':').next().expect("a port");
        let address = format!("{}:{port}", pair.b.ipv4);
        Some(Self { pair, endpoint, address })
    }

    /// A comparison that lasts longer than any test waits.
    fn comparing(&self) -> Child {
        self.command(&self.address)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program was built for this test")
    }

    fn command(&self, address: &str) -> Command {
        let mut command = self.pair.a.namespace.command(PROGRAM);
        command
            .args(["compare", address, "--a", TREATMENTS, "--b", OTHER])
            .args(["-t", "10min", "--json"])
            .stdin(Stdio::null());
        command
    }

    /// Whether device and setting are as they were made, as they are treated, or one of each.
    fn state(&self) -> [bool; 2] {
        let read = || {
            let sack =
                fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").expect("every host has it");
            let device = Ethtool::open(Pair::LINK).expect("it is there");
            let features = device.offload(Offload::TcpSegmentation);
            let is_on = features.expect("it has some").iter().any(|one| one.active);
            [is_on, sack.trim() == "1"]
        };
        let namespace = &self.pair.a.namespace;
        namespace.run(read).expect("it can be entered")
    }

    fn assert_untouched_soon(&self, when: &str) {
        eventually(when, || self.state() == UNTOUCHED);
    }

    /// Stops the program where both are in force: from then on nothing changes by itself.
    fn stop_while_treated(&self, child: &Child) {
        eventually("the treatments are in force", || {
            if self.state() != TREATED {
                return false;
            }
            signal(child.id(), "STOP");
            let still = self.state() == TREATED;
            if !still {
                signal(child.id(), "CONT");
            }
            still
        });
    }
}

const UNTOUCHED: [bool; 2] = [true, true];
const TREATED: [bool; 2] = [false, false];

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.endpoint.kill();
        let _ = self.endpoint.wait();
    }
}

/// The process that a program has started to undo its treatments if it is killed.
fn watch_of(pid: u32) -> Option<u32> {
    let called = format!("watch-treatments\0{pid}\0");
    let processes = fs::read_dir("/proc").expect("procfs is there").flatten();
    let mut numbers = processes.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|number| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&called)
    })
}

#[test]
fn a_signal_ends_it_with_the_host_as_it_was() {
    let Some(bench) = Bench::new() else {
        return;
    };
    assert_eq!(bench.state(), UNTOUCHED);
    let mut child = bench.comparing();
    eventually("the treatments are in force", || bench.state() == TREATED);
    signal(child.id(), "INT");
    let status = child.wait().unwrap();
    // Not soon: at its end.
    assert_eq!(bench.state(), UNTOUCHED);
    assert_eq!(status.code(), Some(1));
}

#[test]
fn the_watch_of_a_killed_process_restores_the_host() {
    let Some(bench) = Bench::new() else {
        return;
    };
    let mut child = bench.comparing();
    bench.stop_while_treated(&child);
    signal(child.id(), "KILL");
    child.wait().unwrap();
    bench.assert_untouched_soon("the watch has undone what was left");
}

#[test]
fn the_next_start_restores_the_host_after_process_and_watch_were_killed() {
    let Some(bench) = Bench::new() else {
        return;
    };
    let mut child = bench.comparing();
    bench.stop_while_treated(&child);
    let watch = watch_of(child.id()).expect("it has started a watch");
    signal(watch, "KILL");
    eventually("the watch is gone", || {
        // A child that nobody has waited for has no command line.
        fs::read(format!("/proc/{watch}/cmdline")).map_or(true, |line| line.is_empty())
    });
    signal(child.id(), "KILL");
    child.wait().unwrap();
    // Nobody listens at that port: it ends before it treats anything itself.
    let output = bench.command("127.0.0.1:9").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(bench.state(), UNTOUCHED, "{}", stderr(&output));
}

#[test]
fn without_privilege_it_ends_with_3_and_says_what_is_missing() {
    let Some(bench) = Bench::new() else {
        return;
    };
    let run = || {
        // The program may lie where nobody else can read, so the open file is executed.
        let mut command = Command::new("/proc/self/fd/0");
        command
            .args(["compare", &bench.address, "--a", "none", "--b", "tso=off"])
            .args(["-t", "50ms", "--quiet"])
            .stdin(File::open(PROGRAM).expect("the program was built for this test"));
        if fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    // Entered by the thread that starts it: nobody may not enter it.
    let output = bench.pair.a.namespace.run(run).unwrap().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let words = stderr(&output);
    assert!(words.contains("not permitted") && words.contains("CAP_NET_ADMIN"), "{words}");
    assert!(output.stdout.is_empty());
    assert_eq!(bench.state(), UNTOUCHED);
}

/// With `-R` the endpoint's TCP sends, by what it has learnt of this host before; without it has
/// nothing to begin with.
#[test]
fn an_endpoint_that_sends_and_forgets_nothing_is_a_caveat() {
    let Some(bench) = Bench::new() else {
        return;
    };
    let caveats = |direction: &[&str]| {
        let mut command = bench.pair.a.namespace.command(PROGRAM);
        command
            .args(["compare", &bench.address, "--a", "none", "--b", "nodelay=on"])
            .args(["-t", "50ms", "--pairs", "6", "--json", "--quiet"])
            .args(direction);
        let output = command.stdin(Stdio::null()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        document["caveats"].to_string()
    };
    let down = caveats(&["-R"]);
    assert!(down.contains("applies no treatments"), "{down}");
    let up = caveats(&[]);
    assert!(!up.contains("applies no treatments"), "{up}");
}
