//! The process that holds a lab: makes it, answers questions, and ends with it.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use linerate_core::lab::{Role, Topology};
use linerate_sys::poll::wait_readable;
use linerate_sys::process::{effective_user, new_session, peer_user, set_session_nice, start_time};

use super::directory::LabDirectory;
use super::directory::{HostState, LabState, hosts_file, status};
use super::read_within;
use crate::lab::pump::come_first;
use crate::lab::{Lab, LabError, LabOptions, prepare};
use crate::state_files::{StateError, remove_file};
use crate::stop::stop_on_signal;

/// The least weight that a session can have, and the usual one.
const LIGHT: i32 = 19;
const ORDINARY: i32 = 0;
/// Printed on standard output once the lab is up.
pub(super) const READY: &str = "ready\n";
/// The questions, each one line.
pub(super) const STATUS: &str = "status\n";
/// See [`STATUS`].
pub(super) const DOWN: &str = "down\n";

/// Makes a lab, says `ready` on standard output and holds it until it is told to go down, by its
/// socket or a signal. To be called by a process of one thread, which has nothing else to do.
///
/// # Errors
/// [`LabError`]; nothing is left behind then.
pub fn hold_lab(name: &str, topology: Topology, options: &LabOptions) -> Result<(), LabError> {
    // It fails for the leader of a process group, which gets no signals from the terminal anyway.
    let is_own_session = new_session().is_ok();
    let _ = std::env::set_current_dir("/");
    let mut claim = LabDirectory::open()?.claim(name)?;
    prepare()?;
    let stop = stop_on_signal().map_err(process("catch signals"))?;
    // One of an earlier process of this lab, which was killed, as its lock is gone.
    let path = claim.directory().socket(name);
    remove_file(&path)?;
    let listener = listen(&path).map_err(StateError::new("make the socket", &path))?;
    let lab = Lab::build(topology, options)?;
    claim.publish(&state(name, &lab)?, &hosts_file(lab.topology()))?;
    announce().map_err(process("say that the lab is up"))?;
    let steps_back = is_own_session && std::thread::spawn(come_first).join().unwrap_or(false);
    if steps_back {
        weigh(LIGHT);
    }
    while !stop.is_requested() {
        // A failed wait only ends early.
        if !wait_readable(&listener, LOOK_AGAIN).unwrap_or(false) {
            continue;
        }
        if let Ok((stream, _)) = listener.accept()
            && serve(&stream, &lab).is_ok_and(|goes_on| !goes_on)
        {
            break;
        }
    }
    if steps_back {
        // Taking the lab down needs no extra weight.
        weigh(ORDINARY);
    }
    Ok(())
}

/// Sets the weight of this session in the scheduler (autogroup, sched(7)). With the usual weight
/// the threads that only keep CPUs awake would get as much CPU time as a program in the lab, and
/// they are most of this session. Pumps that are ordinary threads need the usual weight.
fn weigh(nice: i32) {
    // Without automatic groups in the kernel there is nothing to do.
    let _ = set_session_nice(nice);
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn announce() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(READY.as_bytes())?;
    stdout.flush()
}

fn state(name: &str, lab: &Lab) -> Result<LabState, LabError> {
    let pid = std::process::id();
    let started_ticks = start_time(pid).map_err(process("read /proc"))?;
    let hosts = lab.topology().nodes.iter().map(|node| {
        let namespace = lab.namespace(&node.name).ok_or(LabError::Host {
            what: "find a host of the lab",
            source: io::ErrorKind::NotFound.into(),
        })?;
        let first = node.interfaces.first();
        Ok(HostState {
            name: node.name.clone(),
            is_router: node.role == Role::Router,
            addresses: first.map_or_else(Vec::new, |first| {
                first.addresses.iter().map(|prefix| prefix.address).collect()
            }),
            descriptor: namespace.as_fd().as_raw_fd(),
            namespace: namespace.inode().map_err(LabError::Namespace)?,
        })
    });
    Ok(LabState {
        name: name.to_owned(),
        pid,
        started_ticks,
        hosts: hosts.collect::<Result<_, LabError>>()?,
    })
}

/// Answers one question. False if the lab is to go down.
fn serve(stream: &UnixStream, lab: &Lab) -> io::Result<bool> {
    if peer_user(stream)? != effective_user() {
        return Ok(true);
    }
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let question = read_within(PATIENCE, stream, MAX_QUESTION, |line| line.ends_with(b"\n"))?;
    let (answer, goes_on) = match &question[..] {
        line if line == STATUS.as_bytes() => (serde_json::to_vec(&status(lab))?, true),
        line if line == DOWN.as_bytes() => (b"{}".to_vec(), false),
        _ => (b"{\"error\":\"no such question\"}".to_vec(), true),
    };
    let mut stream = stream;
    // The lab goes down even if nobody reads the answer.
    let written = stream.write_all(&answer);
    if goes_on { written.map(|()| true) } else { Ok(false) }
}

fn process(what: &'static str) -> impl Fn(io::Error) -> LabError {
    move |source| LabError::Process { what, source }
}

/// How long it may take until a signal is noticed.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// No question is longer, bytes.
const MAX_QUESTION: usize = 16;
/// How long a client may take to send its question.
const PATIENCE: Duration = Duration::from_secs(1);
