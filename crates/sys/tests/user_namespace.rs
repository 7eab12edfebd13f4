//! A process without root becomes root of a user namespace, builds a pair of hosts in it and
//! carries frames; another process of the same user joins it there. They have to have a single
//! thread, which the standard test harness does not offer.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test, though without the attribute"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use linerate_sys::netns::{
    Namespace, Pair, bind_mount, enter_user_namespace, join_user_namespace, private_mounts,
    user_namespaces_allowed,
};
use linerate_sys::packet::{Outgoing, PacketSocket, VirtioHeader};
use linerate_sys::proc::Probe;
use linerate_testkit::Need;

fn main() -> ExitCode {
    // Root gives up its privileges first, so that the test shows what a user may do.
    if std::env::var_os(UNPRIVILEGED).is_none() && is_root() {
        return run_as_nobody();
    }
    if std::env::var_os(JOINER).is_some() {
        join();
        return ExitCode::SUCCESS;
    }
    match user_namespaces_allowed() {
        Probe::Supported(()) => {}
        Probe::Unsupported(reason) | Probe::Unknown(reason) => return skip(&reason),
    }
    let joiner = start_joiner();
    let outside =
        Namespace::current().and_then(|namespace| namespace.inode()).expect("/proc is there");
    enter_user_namespace().expect("the probe said that it may");
    let inside =
        Namespace::current().and_then(|namespace| namespace.inode()).expect("/proc is there");
    assert_ne!(inside, outside);
    assert!(is_root(), "the user is number 0 inside");
    let pair = Pair::create().expect("root of a user namespace may");
    transfer_between_hosts(&pair);
    carry_frames(&pair);
    let_in(joiner, &pair);
    println!("user_namespace: ok");
    ExitCode::SUCCESS
}

fn transfer_between_hosts(pair: &Pair) {
    for address in pair.b.addresses() {
        let listener = pair.b.namespace.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let sender = pair.a.namespace.spawn_thread("sender", move || {
            TcpStream::connect(target).unwrap().write_all(b"without root").unwrap();
        });
        let mut received = String::new();
        listener.accept().unwrap().0.read_to_string(&mut received).unwrap();
        sender.unwrap().join().unwrap();
        assert_eq!(received, "without root");
    }
    let output = pair.a.namespace.command("readlink").arg("/proc/self/ns/net").output().unwrap();
    let inode = pair.a.namespace.inode().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("net:[{inode}]"));
}

/// More than would fit into a receive buffer that a user may have: every frame waits until all are
/// sent.
fn carry_frames(pair: &Pair) {
    let open =
        |namespace: &Namespace| namespace.run(|| PacketSocket::open(Pair::LINK)).unwrap().unwrap();
    let (mut from, mut to) = (open(&pair.a.namespace), open(&pair.b.namespace));
    let mut frame = [0xFF; 1514];
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    let outgoing = Outgoing { header: VirtioHeader::default(), frame: &frame };
    let mut sent = 0;
    while sent < FRAMES {
        sent += from.send(&vec![outgoing; FRAMES - sent]).unwrap();
    }
    let deadline = Instant::now() + linerate_testkit::PATIENCE;
    let mut received = 0;
    while received < FRAMES {
        assert!(Instant::now() < deadline, "{received} of {FRAMES}");
        received +=
            usize::from(to.receive().unwrap().is_some_and(|received| received.frame == frame));
    }
    assert_eq!(to.dropped().unwrap(), 0);
}

/// Starts, while outside of the user namespace, the process that is to join it.
fn start_joiner() -> Child {
    Command::new("/proc/self/exe").env(JOINER, "1").stdin(Stdio::piped()).spawn().unwrap()
}

/// Tells the other process where to go, and waits until it has been there.
fn let_in(mut joiner: Child, pair: &Pair) {
    let hosts = std::fs::read(HOSTS).unwrap();
    let place = format!(
        "{} {} {}",
        std::process::id(),
        pair.b.namespace.as_fd().as_raw_fd(),
        pair.b.namespace.inode().unwrap()
    );
    let mut stdin = joiner.stdin.take().unwrap();
    stdin.write_all(place.as_bytes()).unwrap();
    drop(stdin);
    assert!(joiner.wait().unwrap().success());
    assert_eq!(std::fs::read(HOSTS).unwrap(), hosts);
}

/// What the other process does.
fn join() {
    let mut place = String::new();
    std::io::stdin().read_to_string(&mut place).unwrap();
    let numbers: Vec<u64> = place.split(' ').filter_map(|n| n.parse().ok()).collect();
    let [pid, fd, inode] = numbers[..] else {
        // The first process was skipped or has failed, and says so itself.
        return;
    };
    let directory = std::env::current_dir().unwrap();
    join_user_namespace(pid as u32).unwrap();
    join_user_namespace(pid as u32).expect("being a member is no error");
    assert!(is_root(), "the user is number 0 inside");
    assert_eq!(std::env::current_dir().unwrap(), directory);
    let namespace = Namespace::open(format!("/proc/{pid}/fd/{fd}")).unwrap();
    namespace.enter().unwrap();
    assert_eq!(Namespace::current().unwrap().inode().unwrap(), inode);
    let mut links = Namespace::current().unwrap().netlink().unwrap();
    assert!(links.link(Pair::LINK).is_ok());
    private_mounts().unwrap();
    bind_mount(Path::new("/etc/passwd"), Path::new(HOSTS)).unwrap();
    assert_eq!(std::fs::read(HOSTS).unwrap(), std::fs::read("/etc/passwd").unwrap());
}

/// The program itself may lie where nobody else can read, so the open file is executed.
fn run_as_nobody() -> ExitCode {
    let status =
        Command::new("/proc/self/exe").uid(NOBODY).gid(NOBODY).env(UNPRIVILEGED, "1").status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => skip(&format!("cannot run as another user: {error}")),
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find(|line| line.starts_with("Uid:")).expect("every process has it");
    line.split_whitespace().nth(2) == Some("0")
}

fn skip(reason: &str) -> ExitCode {
    linerate_testkit::skip(Need::Lab, format_args!("user_namespace: {reason}"));
    ExitCode::SUCCESS
}

const FRAMES: usize = 8000;
const HOSTS: &str = "/etc/hosts";
const JOINER: &str = "LINERATE_TEST_JOINER";
const UNPRIVILEGED: &str = "LINERATE_TEST_UNPRIVILEGED";
const NOBODY: u32 = 65534;
