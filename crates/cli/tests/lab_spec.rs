//! `--lab SPEC` and the demonstration path: what their documents say of the path, and what is said
//! where there is none.

use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use linerate_testkit::{Need, skip};

use crate::support::{has_labs, has_no_lab, json, signal, spawn, stderr};

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// None, after saying why, where this host allows no labs.
fn linerate(arguments: &[&str]) -> Option<Output> {
    let output = Command::new(LINERATE).args(arguments).output().unwrap();
    if has_no_lab(&output) {
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    Some(output)
}

#[test]
fn a_record_says_which_path_it_ran_on() {
    let Some(output) = linerate(&["stream", "--lab", "rtt=2ms", "-n", "1MB", "--json", "--quiet"])
    else {
        return;
    };
    let lab = &json(&output)["environment"]["lab"];
    assert_eq!(lab["spec"], "rtt=2ms");
    assert!(lab["links"][0]["up"]["delivered_bytes"].as_u64() > Some(1_000_000), "{lab}");
}

/// A read with a time limit ends early there (signal(7)). One of several meets a stop in a read.
#[test]
fn a_lab_is_made_by_a_process_that_is_stopped_and_goes_on() {
    if !has_labs() {
        return;
    }
    for _ in 0..5 {
        let mut command = Command::new(LINERATE);
        command.args(["stream", "--lab", "rtt=2ms", "-n", "1", "--quiet", "--json"]);
        let mut child = spawn(command);
        while child.try_wait().unwrap().is_none() {
            signal(child.id(), "STOP");
            thread::sleep(Duration::from_millis(5));
            signal(child.id(), "CONT");
            thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn the_demonstration_has_a_fault_and_a_path() {
    let arguments = ["check", "--quick", "--seed", "0", "--json", "--quiet"];
    let Some(output) = linerate(&arguments) else {
        return;
    };
    let check = json(&output);
    let lab = &check["environment"]["lab"];
    if lab.is_null() {
        skip(Need::Lab, format_args!("demonstration path: {}", check["caveats"]));
        return;
    }
    assert_eq!(check["hidden_fault"]["cause"], "receive_window", "{check}");
    assert_eq!(check["up"]["environment"]["lab"], *lab);
}

/// A user namespace has limits of its own, so that the host's need not be touched.
#[test]
fn where_no_lab_is_allowed_the_check_of_loopback_says_why() {
    let limits = "echo 0 >/proc/sys/user/max_net_namespaces && exec \"$@\"";
    let unshare = ["--user", "--map-root-user", "sh", "-c", limits, "sh"];
    let mut command = Command::new("unshare");
    command.args(unshare).arg(LINERATE);
    command.args(["check", "--quick", "--json", "--quiet"]);
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        refused => {
            skip(Need::Lab, format_args!("no lab allowed: {refused:?}"));
            return;
        }
    };
    let check = json(&output);
    assert!(check["environment"]["lab"].is_null());
    let caveats = check["caveats"].as_array().unwrap();
    let reason = caveats.iter().find(|caveat| {
        let message = caveat["message"].as_str().unwrap();
        message.starts_with("no demonstration path, loopback instead: ")
    });
    let reason = reason.unwrap_or_else(|| panic!("{caveats:?}"));
    assert_eq!(reason["kind"], "local_path");
}
