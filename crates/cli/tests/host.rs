//! `host` as a program: shown, set, killed, undone, over a reboot, without privilege; and a
//! verdict's remedy as it is printed.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_sys::netns::Pair;
use linerate_testkit::{Need, skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Killed, PROGRAM, assert_says, copy_for_everybody, has_no_lab, stderr, stdout, words,
};

/// A host in a network namespace of its own, with a state of its own.
struct Host {
    pair: Pair,
    directory: TempDir,
}

/// `None`, and says why, where no namespace can be made.
fn host() -> Option<Host> {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("needs network namespaces: {error}"));
            return None;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    for name in ["state", "sysctl.d"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    let closed = Permissions::from_mode(0o700);
    fs::set_permissions(directory.path().join("state"), closed).unwrap();
    Some(Host { pair, directory })
}

impl Host {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.pair.a.namespace.command(program);
        command
            .env("LINERATE_STATE_DIRECTORY", self.path("state"))
            .env("LINERATE_SYSCTL_DIRECTORY", self.path("sysctl.d"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(PROGRAM).arg("host").args(arguments).output().unwrap()
    }

    /// What is to succeed: its document.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn read(&self, key: &str) -> String {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        let text = self.pair.a.namespace.run(|| fs::read_to_string(path).unwrap());
        text.unwrap().trim().replace('\t', " ")
    }
}

const SACK: &str = "net.ipv4.tcp_sack";
const RMEM: &str = "net.ipv4.tcp_rmem";

#[test]
fn a_setting_is_shown_set_as_printed_and_undone() {
    let Some(host) = host() else { return };
    let before = host.read(RMEM);
    let need = ["--rate", "10gbit", "--rtt", "80ms"];
    let page = stdout(&host.run(&[&["show", RMEM], &need[..]].concat()));
    let command = page.lines().find_map(|line| line.trim().strip_prefix("linerate host ")).unwrap();
    assert!(command.starts_with("set net.ipv4.tcp_rmem='4096 "), "{page}");
    // As a shell would take it.
    let pasted =
        host.command("sh").args(["-c", &format!("'{PROGRAM}' host {command}")]).output().unwrap();
    assert_eq!(pasted.status.code(), Some(0), "{}", stderr(&pasted));
    assert!(host.read(RMEM).ends_with(" 268435456"), "{}", host.read(RMEM));
    let shown = host.json(&[&["show", RMEM], &need[..]].concat());
    let setting = &shown["settings"][0];
    assert_eq!(
        (&setting["state"], &setting["kept_from"]),
        (&"fine".into(), &before.clone().into())
    );
    let undone = host.json(&["undo"]);
    assert_eq!(undone["changes"][0]["outcome"], "restored");
    assert_eq!(host.read(RMEM), before);
    let file = host.path("document.json");
    fs::write(&file, serde_json::to_vec(&shown).unwrap()).unwrap();
    let explained = host.command(PROGRAM).arg("explain").arg(&file).output().unwrap();
    assert_eq!(explained.status.code(), Some(0), "{}", stderr(&explained));
    assert!(stdout(&explained).contains("nothing needs to be changed"), "{}", stdout(&explained));
}

#[test]
fn everything_that_decides_is_shown_or_said_to_be_missing() {
    let Some(host) = host() else { return };
    let document = host.json(&words("show --rate 1gbit --rtt 10ms --connections 10000"));
    let settings = document["settings"].as_array().unwrap();
    assert!(settings.len() >= 45, "{}", settings.len());
    for setting in settings {
        assert!(setting["why"].as_str().is_some_and(|why| !why.is_empty()), "{setting}");
        let is_missing = setting["state"] == "unsupported" || setting["state"] == "unknown";
        assert_eq!(setting["now"].is_null(), is_missing, "{setting}");
    }
    let page = stdout(&host.run(&["show", "--all"]));
    assert!(page.contains("device.veth0.rx_ring") && page.contains("not here"), "{page}");
}

#[test]
fn what_is_out_of_range_is_refused_and_nothing_is_set() {
    let Some(host) = host() else { return };
    for (line, code, part) in [
        ("set net.ipv4.tcp_sack=0 net.ipv4.tcp_fin_timeout=0", 2, "1 to 86400"),
        ("set net.ipv4.tcp_sack=0 device.veth0.tso=off --persist", 2, "sysctl.d"),
        ("set net.ipv4.tcp_sack=0 net.ipv4.tcp_congestion_control=nosuch", 3, "nosuch"),
        ("set net.ipv4.tcp_sack=0 net.core.default_qdisc=fq", 3, "net.core.default_qdisc"),
        ("show net.ipv4.nosuch", 2, "net.ipv4.nosuch"),
        ("show --rate 1gbit", 2, "--rtt"),
        ("show --rate 1gbit --rtt 0s", 2, "--rtt"),
        ("profile wlan", 2, "many-connections"),
        ("undo net.ipv4.nosuch", 2, "net.ipv4.nosuch"),
    ] {
        let output = host.run(&words(line));
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert_says(&output, part);
        assert_eq!(host.read(SACK), "1", "{line}");
    }
    assert!(!host.path("sysctl.d/90-linerate.conf").exists());
}

#[test]
fn a_profile_is_a_dry_run_until_it_is_applied() {
    let Some(host) = host() else { return };
    let before = [RMEM, "net.ipv4.tcp_mtu_probing"].map(|key| host.read(key));
    let page = stdout(&host.run(&["profile", "wan", "--rate", "10gbit", "--rtt", "100ms"]));
    assert!(page.contains(&format!("  - {}\n", before[0])), "{page}");
    assert!(page.contains("nothing was changed"), "{page}");
    assert_eq!([RMEM, "net.ipv4.tcp_mtu_probing"].map(|key| host.read(key)), before);
    let wan = words("profile wan --rate 10gbit --rtt 100ms --apply --persist");
    let applied = host.json(&wan);
    assert_eq!(host.read("net.ipv4.tcp_mtu_probing"), "1");
    assert!(applied["changes"].as_array().unwrap().iter().all(|change| change["outcome"] == "set"));
    let file = fs::read_to_string(host.path("sysctl.d/90-linerate.conf")).unwrap();
    assert!(file.contains("net.ipv4.tcp_mtu_probing = 1\n"), "{file}");
    let again = host.json(&wan);
    assert!(again["changes"].is_null(), "all of it is in force: {again}");
    let undone = host.json(&["undo"]);
    assert!(undone["file"].as_str().unwrap().ends_with("90-linerate.conf"));
    assert_eq!([RMEM, "net.ipv4.tcp_mtu_probing"].map(|key| host.read(key)), before);
    assert!(!host.path("sysctl.d/90-linerate.conf").exists());
}

#[test]
fn settings_of_a_killed_process_can_be_undone() {
    let Some(host) = host() else { return };
    let keys = [SACK, "net.ipv4.tcp_dsack", "net.ipv4.tcp_timestamps", "net.ipv4.tcp_mtu_probing"];
    let before = keys.map(|key| host.read(key));
    let words = keys.map(|key| format!("{key}={}", if host.read(key) == "0" { 1 } else { 0 }));
    let begun = Instant::now();
    let set = |host: &Host| {
        let mut command = host.command(PROGRAM);
        command.args(["host", "set", "--persist"]).args(&words).stdout(Stdio::null());
        command
    };
    assert!(set(&host).status().unwrap().success());
    host.json(&["undo"]);
    let whole = begun.elapsed();
    for round in 0..12 {
        let mut child = set(&host).spawn().unwrap();
        thread::sleep(whole * round / 12 + Duration::from_micros(u64::from(round) * 137));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        host.json(&["undo"]);
        assert_eq!(keys.map(|key| host.read(key)), before, "round {round}");
        assert!(!host.path("sysctl.d/90-linerate.conf").exists(), "round {round}");
        assert!(!host.path("state/kept.jsonl").exists(), "round {round}");
    }
}

#[test]
fn several_commands_at_once_are_one_after_the_other() {
    let Some(host) = host() else { return };
    let before = host.read(RMEM);
    let children: Vec<Child> = (1..=6)
        .map(|number| {
            let word = format!("{RMEM}=4096 131072 {}", 6_000_000 + number);
            let mut command = host.command(PROGRAM);
            command.args(["host", "set", &word]).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let undone = host.json(&["undo"]);
    assert_eq!(undone["changes"][0]["was"], Value::String(before.clone()));
    assert_eq!(host.read(RMEM), before);
}

#[test]
fn without_privilege_it_shows_and_says_why_it_cannot_set() {
    let Some(host) = host() else { return };
    let program = copy_for_everybody(host.directory.path());
    let as_nobody = |arguments: &[&str]| {
        let mut command = host.command("setpriv");
        command.args("--reuid=65534 --regid=65534 --clear-groups --bounding-set=-all".split(' '));
        command.env("LINERATE_STATE_DIRECTORY", host.path("nobodys"));
        command.arg(&program).arg("host").args(arguments).output()
    };
    let output = match as_nobody(&["show", RMEM, "--rate", "10gbit", "--rtt", "80ms"]) {
        Ok(output) if !stderr(&output).starts_with("setpriv:") => output,
        other => {
            skip(Need::Setpriv, format_args!("setpriv cannot drop privileges here: {other:?}"));
            return;
        }
    };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("not permitted: it needs root"), "{}", stdout(&output));
    fs::create_dir(host.path("nobodys")).unwrap();
    std::os::unix::fs::chown(host.path("nobodys"), Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(host.path("nobodys"), Permissions::from_mode(0o700)).unwrap();
    let output = as_nobody(&["set", "net.ipv4.tcp_sack=0"]).unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_says(&output, "CAP_NET_ADMIN");
    assert_eq!(host.read(SACK), "1");
}

/// Both journals are in one directory then: nobody has a directory of the system's.
#[test]
fn without_a_state_directory_of_the_system_settings_are_kept_and_undone() {
    let Some(host) = host() else { return };
    let program = copy_for_everybody(host.directory.path());
    let runtime = host.path("runtime");
    fs::create_dir(&runtime).unwrap();
    std::os::unix::fs::chown(&runtime, Some(65_534), Some(65_534)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(arguments)
            .env_remove("LINERATE_STATE_DIRECTORY")
            .env("XDG_RUNTIME_DIR", &runtime)
            .output()
            .unwrap()
    };
    let program = program.to_str().unwrap();
    let refused = as_nobody(&[program, "host", "set", "net.ipv4.tcp_sack=0"]);
    if stderr(&refused).starts_with("setpriv:") {
        let why = format_args!("setpriv cannot drop privileges here: {refused:?}");
        return skip(Need::Setpriv, why);
    }
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let undone = as_nobody(&[program, "host", "undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", stderr(&undone));
    let script = format!(
        "cat /proc/sys/net/ipv4/tcp_sack
        '{program}' host set net.ipv4.tcp_sack=0 >/dev/null || exit
        cat /proc/sys/net/ipv4/tcp_sack
        '{program}' host undo >/dev/null || exit
        cat /proc/sys/net/ipv4/tcp_sack"
    );
    let own = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c"];
    let kept = as_nobody(&[&own[..], &[&script]].concat());
    if stderr(&kept).starts_with("unshare:") {
        return skip(Need::Lab, format_args!("no user namespaces here: {kept:?}"));
    }
    assert_eq!(kept.status.code(), Some(0), "{}", stderr(&kept));
    assert_eq!(stdout(&kept), "1\n0\n1\n");
}

#[test]
fn a_container_whose_settings_are_read_only_says_so() {
    let Some(host) = host() else { return };
    let script = format!(
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys || exit 77
        '{PROGRAM}' host show {RMEM} --rate 10gbit --rtt 80ms
        '{PROGRAM}' host set net.ipv4.tcp_sack=0; echo status $?"
    );
    let output = host.command("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    if output.status.code() == Some(77) || stderr(&output).starts_with("unshare:") {
        skip(Need::Setpriv, format_args!("nothing can be mounted here: {}", stderr(&output)));
        return;
    }
    let page = stdout(&output);
    assert!(page.contains("but        it is read-only here"), "{page}");
    assert!(!page.contains("linerate host set"), "what cannot be set is in no command: {page}");
    assert!(page.ends_with("status 3\n"), "{page}{}", stderr(&output));
    assert_says(&output, "read-only here");
    assert_eq!(host.read(SACK), "1");
}

#[test]
fn cpus_of_queues_are_set_where_sys_shows_them_and_refused_elsewhere() {
    let Some(host) = host() else { return };
    let refused = host.run(&["set", "device.veth0.rps_cpus=0"]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert_says(&refused, "another network namespace");
    // As `ip netns exec` does it.
    let script = format!(
        "mount -t sysfs sysfs /sys || exit 77
        file=/sys/class/net/veth0/queues/rx-0/rps_cpus
        '{PROGRAM}' host set device.veth0.rps_cpus=0 >&2 && cat $file && '{PROGRAM}' host undo >&2 && cat $file"
    );
    let output = host.command("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    if output.status.code() == Some(77) || stderr(&output).starts_with("unshare:") {
        skip(Need::Setpriv, format_args!("/sys cannot be mounted here: {}", stderr(&output)));
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let masks: Vec<u64> = stdout(&output)
        .lines()
        .map(|line| u64::from_str_radix(&line.replace(',', ""), 16).unwrap())
        .collect();
    assert_eq!(masks, [1, 0], "{}", stderr(&output));
}

/// A lab that stays, taken down with the test.
struct Lab {
    directory: TempDir,
}

impl Lab {
    fn environment(&self) -> [(&str, PathBuf); 2] {
        let here = self.directory.path();
        [("XDG_RUNTIME_DIR", here.to_owned()), ("LINERATE_STATE_DIRECTORY", here.join("state"))]
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.envs(self.environment()).args(arguments);
        command
    }

    fn in_host(&self, host: &str, arguments: &[&str]) -> Output {
        let words = [&["lab", "exec", host, "--"], arguments].concat();
        self.command(&words).output().unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // It may be down already.
        let _ = self.command(&["lab", "down"]).output();
    }
}

/// That a verdict's remedy is such a command is a law of core.
#[test]
fn a_path_is_measured_and_what_is_shown_works_where_it_is_pasted() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    let lab = Lab { directory };
    let up = lab.command(&["lab", "up", "--lab", "rate=200mbit,rtt=20ms"]).output().unwrap();
    if has_no_lab(&up) {
        return;
    }
    assert!(up.status.success(), "{}", stderr(&up));
    let narrow = "net.ipv4.tcp_rmem=4096 16384 65536";
    let narrow = lab.in_host("server", &[PROGRAM, "host", "set", narrow]);
    assert!(narrow.status.success(), "{}", stderr(&narrow));
    let server = lab
        .command(&["lab", "exec", "server", "--", PROGRAM, "serve"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Killed(server);
    let mut line = String::new();
    BufReader::new(server.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let show = |host: &str, options: &[&str]| {
        let shown = lab.in_host(host, &[&[PROGRAM, "host", "show", RMEM], options].concat());
        assert!(shown.status.success(), "{}", stderr(&shown));
        stdout(&shown)
    };
    let shown = show("client", &["--for", "server", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let path = &shown["need"]["path"];
    assert_eq!(path["origin"], "measured", "{shown}");
    for key in ["rtt_us", "rate_bps"] {
        assert!(path[key].as_f64() > Some(0.0), "{path}");
    }
    // As it is pasted into a shell beside the lab.
    let page = show("server", &["--rate", "200mbit", "--rtt", "20ms"]);
    let printed = "linerate lab exec server -- linerate host set net.ipv4.tcp_rmem='";
    let mut lines = page.lines().map(str::trim);
    let line = lines.find(|line| line.starts_with(printed));
    let pasted = line.expect(&page).replace("linerate", PROGRAM);
    let mut shell = Command::new("sh");
    shell.args(["-c", &pasted]).envs(lab.environment());
    let set = shell.output().unwrap();
    assert!(set.status.success(), "{pasted}: {}", stderr(&set));
    let now = lab.in_host("server", &["cat", "/proc/sys/net/ipv4/tcp_rmem"]);
    let most = stdout(&now).split_whitespace().last().map(str::to_owned);
    let most: u64 = most.unwrap().parse().unwrap();
    assert!(most >= 2 * 200_000_000 / 8 / 50, "{most}: {pasted}");
}
