//! A process without root becomes root of a user namespace and builds a pair of hosts in it. It has
//! to have a single thread, which the standard test harness does not offer.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test, though without the attribute"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use linerate_sys::netns::{
    Namespace, Pair, UserNamespaces, enter_user_namespace, user_namespaces_allowed,
};

fn main() -> ExitCode {
    // Root gives up its privileges first, so that the test shows what a user may do.
    if std::env::var_os(UNPRIVILEGED).is_none() && is_root() {
        return run_as_nobody();
    }
    match user_namespaces_allowed() {
        UserNamespaces::Supported => {}
        UserNamespaces::Unsupported { reason, remedy } => {
            return skip(&format!("{reason}; {remedy}"));
        }
        UserNamespaces::CouldNotTell { reason } => return skip(&reason),
    }
    let outside = Namespace::current()
        .and_then(|namespace| namespace.inode())
        .expect("/proc is there");
    enter_user_namespace().expect("the probe said that it may");
    let inside = Namespace::current()
        .and_then(|namespace| namespace.inode())
        .expect("/proc is there");
    assert_ne!(inside, outside);
    assert!(is_root(), "the user is number 0 inside");
    transfer_between_hosts();
    println!("user_namespace: ok");
    ExitCode::SUCCESS
}

fn transfer_between_hosts() {
    let pair = Pair::create().expect("root of a user namespace may");
    for address in pair.b.addresses() {
        let listener = pair
            .b
            .namespace
            .run(|| TcpListener::bind((address, 0)))
            .unwrap()
            .unwrap();
        let target = listener.local_addr().unwrap();
        let sender = pair.a.namespace.spawn_thread("sender", move || {
            TcpStream::connect(target)
                .unwrap()
                .write_all(b"without root")
                .unwrap();
        });
        let mut received = String::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_string(&mut received)
            .unwrap();
        sender.unwrap().join().unwrap();
        assert_eq!(received, "without root");
    }
    let output = pair
        .a
        .namespace
        .command("readlink")
        .arg("/proc/self/ns/net")
        .output()
        .unwrap();
    let inode = pair.a.namespace.inode().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        format!("net:[{inode}]")
    );
}

/// The program itself may lie where nobody else can read, so the open file is executed.
fn run_as_nobody() -> ExitCode {
    let status = Command::new("/proc/self/exe")
        .uid(NOBODY)
        .gid(NOBODY)
        .env(UNPRIVILEGED, "1")
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => skip(&format!("cannot run as another user: {error}")),
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .expect("every process has it");
    line.split_whitespace().nth(2) == Some("0")
}

fn skip(reason: &str) -> ExitCode {
    eprintln!("SKIPPED: user_namespace: {reason}");
    ExitCode::SUCCESS
}

const UNPRIVILEGED: &str = "LINERATE_TEST_UNPRIVILEGED";
const NOBODY: u32 = 65534;
