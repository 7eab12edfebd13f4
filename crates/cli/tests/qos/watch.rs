//! Policies that last over what spoils them, and `check`, which refuses what `apply` would.

use std::path::Path;
use std::process::{Child, Command, Output};

use linerate_sys::netlink::{Netlink, VethEnd};
use serde_json::Value;
use tempfile::TempDir;

use crate::lifecycle::POLICY;
use crate::support::{Bench, PROGRAM, bench, command, eventually, json, run};

const LAN: &str = "lan0";

fn make_lan(bench: &Bench) {
    let end = |name| VethEnd { name, namespace: None, mtu: None };
    let make = |netlink: &mut Netlink| netlink.create_veth(&end(LAN), &end("lan1"));
    bench.a().namespace.configure(make).unwrap();
}

fn delete_lan(bench: &Bench) {
    let delete = |netlink: &mut Netlink| netlink.delete_link(LAN);
    bench.a().namespace.configure(delete).unwrap();
}

/// `qos watch` until it is dropped.
struct Watching(Child);

impl Watching {
    fn new(bench: &Bench, kept: &Path) -> Self {
        let mut command = command(bench.a(), &["watch"], None);
        command.env("LINERATE_QOS_DIRECTORY", kept);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that knows of the directory.
fn run_with(bench: &Bench, kept: &Path, arguments: &[&str], file: Option<&Path>) -> Output {
    let mut command = command(bench.a(), arguments, file);
    command.env("LINERATE_QOS_DIRECTORY", kept).output().unwrap()
}

fn filters(bench: &Bench) -> bool {
    let (code, status, _) = json(bench.a(), &["status", LAN], None);
    code == 0 && status["adapters"][0]["state"] == "filtering"
}

#[test]
fn a_policy_that_is_kept_comes_back_with_its_interface_and_goes_with_remove() {
    let Some(bench) = bench() else { return };
    let directory = TempDir::new().unwrap();
    let kept = directory.path().join("qos");
    make_lan(&bench);
    let file = bench.file(&POLICY.replace("veth0", LAN));
    let applied = run_with(&bench, &kept, &["apply", "--persist"], Some(&file));
    assert_eq!(applied.status.code(), Some(0), "{applied:?}");
    assert!(kept.join(LAN).exists());
    let unit = std::fs::read_to_string(directory.path().join("linerate-qos.service")).unwrap();
    assert!(unit.contains(" qos watch\n"), "{unit}");
    // What cannot be understood of one interface is no reason to leave the others.
    let torn = kept.join("torn0");
    std::fs::write(&torn, "{").unwrap();

    let watching = Watching::new(&bench, &kept);
    // A class is taken away.
    let take = |netlink: &mut Netlink| {
        let index = netlink.link(LAN)?.index;
        netlink.delete_root(index, linerate_qos::classes::MAJOR)
    };
    bench.a().namespace.configure(take).unwrap();
    eventually("the classes are there again", || filters(&bench));
    delete_lan(&bench);
    make_lan(&bench);
    eventually("the new interface has the policy", || filters(&bench));
    drop(watching);

    // As after a reboot.
    delete_lan(&bench);
    make_lan(&bench);
    assert!(!filters(&bench));
    let _watching = Watching::new(&bench, &kept);
    eventually("the kept policy is applied", || filters(&bench));
    let removed = run_with(&bench, &kept, &["remove", LAN], None);
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    assert!(!kept.join(LAN).exists() && torn.exists());
    assert_eq!(json(bench.a(), &["status", LAN], None).0, 10);
    let removed = run_with(&bench, &kept, &["remove"], None);
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    assert!(!torn.exists());
}

#[test]
fn a_program_that_others_can_replace_is_not_started_by_a_boot() {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("linerate");
    let copied = Command::new("cp").args([Path::new(PROGRAM), &program]).status();
    assert!(copied.unwrap().success());
    let file = directory.path().join("policy.toml");
    std::fs::write(&file, POLICY.replace("veth0", "nosuch0")).unwrap();
    let mut apply = Command::new(&program);
    let refused = apply.args(["qos", "apply", "--persist"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("others than root can write /"), "{said}");
}

#[test]
fn in_another_network_namespace_nothing_is_kept_over_a_boot() {
    let Some(bench) = bench() else { return };
    let refused = run(bench.a(), &["apply", "--persist"], Some(&bench.file(POLICY)));
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("linerate qos watch"), "{stderr}");
}

#[test]
fn qos_check_refuses_what_qos_apply_refuses() {
    let Some(bench) = bench() else { return };
    let port = "destination_port = 7001";
    for (text, words) in [
        (POLICY.to_owned(), ""),
        (POLICY.replace("veth0", "veth7"), "no such interface"),
        (POLICY.replace("rate = \"100mbit\"", ""), "needs `rate`"),
        (POLICY.replace(port, "incoming = \"lan7\""), "interface lan7"),
        (POLICY.replace(port, "cgroup = \"/no/such\""), "control group /no/such"),
        (POLICY.replace("10mbit", "99999kbit"), "must be left"),
        (POLICY.replace("[adapter.veth0]", "[adapter.\"*\"]"), "--adapter"),
    ] {
        let file = bench.file(&text);
        let code = if words.is_empty() { 0 } else { 2 };
        let checked = run(bench.a(), &["check"], Some(&file));
        let said = [&*checked.stdout, &*checked.stderr].concat();
        let stdout = String::from_utf8_lossy(&said).replace("\n    ", " ");
        assert_eq!(checked.status.code(), Some(code), "{stdout}");
        assert!(stdout.contains(words), "{stdout}");
        assert!(
            words.is_empty() || words.starts_with("--") || stdout.contains("policy.toml:"),
            "{stdout}"
        );
        let applied = run(bench.a(), &["apply"], Some(&file));
        assert_eq!(applied.status.code(), Some(code), "{text} {applied:?}");
    }
    let (code, document, _) = json(
        bench.a(),
        &["check", "--file-only"],
        Some(&bench.file(&POLICY.replace("veth0", "veth7"))),
    );
    assert_eq!(code, 0, "{document}");
    assert_ne!(document, Value::Null);
}
