//! Labs in the background: one command makes a lab, others use it, and another ends it.
//!
//! A process of its own holds the lab ([`hold_lab`], started by [`start_holder`]); the namespaces
//! are its descriptors and end with it, however it ends. A [`LabDirectory`] finds the labs of this
//! user, enters their hosts and ends them. Nothing but files in that directory is left by one that
//! was killed, and the next look removes those.
//!
//! | module | what is in it |
//! |---|---|
//! | `directory` | the files of labs and their contents, and which labs are up |
//!
//! This file starts the process that holds a lab, is that process, and speaks with it.

mod directory;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use directory::{HostState, LabDirectory, LabState};
use directory::{hosts_file, status};
use linerate_core::lab::{Inhabitant, LabHost, LabShown, LabStatus, Role, Topology};
use linerate_sys::CallError;
use linerate_sys::netns::{
    Namespace, NamespaceError, bind_mount, join_user_namespace, private_mounts,
    show_network_devices,
};
use linerate_sys::poll::wait_readable;
use linerate_sys::process::{
    EndSignal, Process, effective_user, new_session, peer_user, set_session_nice, start_time,
};

use crate::category::Category;
use crate::lab::pump::come_first;
use crate::lab::{Lab, LabError, LabOptions, prepare};
use crate::state_files::{StateError, remove_file};
use crate::stop::stop_on_signal;
use crate::words::chain;

// Finding a lab, entering one of its hosts, asking the process that holds it, ending it.

impl LabDirectory {
    /// The lab of that name, or the only one that is up.
    ///
    /// # Errors
    /// [`LabError::NotUp`] if there is none, or several.
    pub fn find(&self, labs: &[LabState], name: Option<&str>) -> Result<LabState, LabError> {
        let found = match (name, labs) {
            (Some(name), labs) => labs.iter().find(|lab| lab.name == name),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        found.cloned().ok_or_else(|| LabError::NotUp {
            name: name.map(str::to_owned),
            others: labs.iter().map(|lab| lab.name.clone()).collect(),
        })
    }

    /// What the lab does.
    ///
    /// # Errors
    /// [`LabError::NoAnswer`] after 5 s at the latest.
    pub fn status(&self, lab: &LabState) -> Result<LabStatus, LabError> {
        let answer =
            self.ask(lab, STATUS).and_then(|text| LabStatus::parse(&text).map_err(io::Error::from));
        answer.map_err(|error| no_answer(lab, &error))
    }

    /// Ends a lab: by its socket, after 5 s by SIGTERM, after another 5 s by SIGKILL. Processes
    /// that run in it go on, in hosts without links.
    ///
    /// # Errors
    /// [`LabError::NoAnswer`] if even that does not end it.
    pub fn end(&self, lab: &LabState) -> Result<(), LabError> {
        let fault = |error: io::Error| no_answer(lab, &error);
        let process = match Process::open(lab.pid, lab.started_ticks) {
            Ok(process) => process,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(fault(error)),
        };
        // Whether or not it answers, what counts is that it ends.
        let _ = self.ask(lab, DOWN);
        let attempts = [None, Some(EndSignal::Terminate), Some(EndSignal::Kill)];
        for signal in attempts {
            match signal.map(|signal| process.signal(signal)) {
                Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(fault(error));
                }
                _ => {}
            }
            if ends_within(&process, PATIENCE).map_err(fault)? {
                // Removes the files of one that was killed.
                return self.labs().map(|_| ());
            }
        }
        Err(fault(io::ErrorKind::TimedOut.into()))
    }

    fn ask(&self, lab: &LabState, question: &str) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(self.socket(&lab.name))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(question.as_bytes())?;
        read_within(PATIENCE, &stream, MAX_ANSWER, |_| false)
    }

    /// Moves this process, which has one thread, to a host of a lab: its network, and a mount
    /// namespace of its own in which /etc/hosts has the names of the lab and /sys its devices.
    /// Answers which of these could not be shown, and why.
    ///
    /// # Errors
    /// [`LabError::NoHost`], or the kernel refuses.
    pub fn enter(&self, lab: &LabState, host: &str) -> Result<Vec<String>, LabError> {
        let Some(found) = lab.hosts.iter().find(|known| known.name == host) else {
            return Err(LabError::NoHost {
                lab: lab.name.clone(),
                host: host.to_owned(),
                hosts: lab.hosts.iter().map(|host| host.name.clone()).collect(),
            });
        };
        let enter_error = |source: NamespaceError| LabError::Enter {
            lab: lab.name.clone(),
            host: host.to_owned(),
            source: Box::new(source),
        };
        let path = format!("/proc/{}/fd/{}", lab.pid, found.descriptor);
        let namespace = Namespace::open(&path).map_err(enter_error)?;
        // The lab may have ended since, and its process's number passed to another.
        if namespace.inode().map_err(enter_error)? != found.namespace {
            return Err(LabError::NotUp { name: Some(lab.name.clone()), others: Vec::new() });
        }
        join_user_namespace(lab.pid)
            .map_err(|source| LabError::Join { lab: lab.name.clone(), source: Box::new(source) })?;
        namespace.enter().map_err(enter_error)?;
        let hosts = self.hosts(&lab.name);
        if let Err(error) = private_mounts() {
            return Ok(vec![lacks("/etc/hosts and /sys are not the lab's", &error)]);
        }
        let names = bind_mount(&hosts, Path::new("/etc/hosts"))
            .map_err(|error| lacks("/etc/hosts does not have the names of the lab", &error));
        let scratch = hosts.parent().unwrap_or(Path::new("/"));
        let devices = show_network_devices(scratch)
            .map_err(|error| lacks("/sys does not have the devices of the lab's host", &error));
        Ok([names, devices].into_iter().filter_map(Result::err).collect())
    }
}

/// Reads until what has arrived `is_whole`, until the stream ends, or until there are `most` bytes.
///
/// # Errors
/// All of it takes longer than `patience`; the stream fails.
fn read_within(
    patience: Duration,
    mut stream: &UnixStream,
    most: usize,
    is_whole: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    let end = Instant::now() + patience;
    let mut bytes = Vec::new();
    let mut piece = vec![0; most.min(64 << 10)];
    while bytes.len() < most && !is_whole(&bytes) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(more) => bytes.extend_from_slice(&piece[..more]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

impl LabState {
    /// The lab as documents have it, with the answer of its process if there is one.
    pub fn shown(&self, status: Option<LabStatus>) -> LabShown {
        let hosts = self.hosts.iter().map(|host| LabHost {
            name: host.name.clone(),
            is_router: host.is_router,
            addresses: host.addresses.clone(),
        });
        let (baseline_rtt_us, links) =
            status.map(|status| (status.baseline_rtt_us, status.links)).unzip();
        LabShown {
            name: self.name.clone(),
            pid: self.pid,
            hosts: hosts.collect(),
            baseline_rtt_us: baseline_rtt_us.flatten(),
            links,
            running: self.inhabitants(),
        }
    }

    /// Processes of this user that run in its hosts, by number.
    pub fn inhabitants(&self) -> Vec<Inhabitant> {
        let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut found: Vec<_> = numbers.filter_map(|pid| self.inhabitant(pid)).collect();
        found.sort_by_key(|process| process.pid);
        found
    }

    fn inhabitant(&self, pid: u32) -> Option<Inhabitant> {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        let digits = namespace.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?;
        let number: u64 = digits.parse().ok()?;
        let host = self.hosts.iter().find(|host| host.namespace == number)?;
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Inhabitant { pid, command: command.trim_end().to_owned(), host: host.name.clone() })
    }
}

/// A signal to this process may shorten the wait.
fn ends_within(process: &Process, time: Duration) -> io::Result<bool> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if process.ends_within(left)? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

fn no_answer(lab: &LabState, error: &io::Error) -> LabError {
    LabError::NoAnswer { lab: lab.name.clone(), pid: lab.pid, reason: error.to_string() }
}

/// How long the process may take to answer, and to end. On a busy host it takes seconds to remove
/// the namespaces.
const PATIENCE: Duration = Duration::from_secs(15);

/// The most bytes of an answer; 512 links take a quarter of it.
const MAX_ANSWER: usize = 4 << 20;

fn lacks(what: &str, error: &CallError) -> String {
    format!("{what}: {}", chain(error))
}

// Starting the process that holds a lab.

/// Starts this program again, with those arguments, as the process that holds a lab, gives it
/// `input` to read, and waits until it says that the lab is up. It is then on its own.
///
/// # Errors
/// [`LabError::Holder`] with the words and the exit status of that process.
pub fn start_holder<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    input: &str,
) -> Result<(), LabError> {
    let mut child = Command::new("/proc/self/exe")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| LabError::Process {
            what: "start the process that is to hold the lab",
            source,
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read it will say why.
        let _ = stdin.write_all(input.as_bytes());
    }
    match is_ready(&mut child) {
        Ok(true) => Ok(()),
        Ok(false) => Err(last_words(child)),
        Err(source) => {
            let _ = child.kill();
            let _ = child.wait();
            let what = "wait for the process that is to hold the lab";
            Err(LabError::Process { what, source })
        }
    }
}

fn is_ready(child: &mut Child) -> io::Result<bool> {
    let Some(mut stdout) = child.stdout.take() else {
        return Ok(false);
    };
    if !wait_readable(&stdout, MAX_WAIT)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut text = [0; READY.len()];
    match stdout.read_exact(&mut text) {
        Ok(()) => Ok(text == *READY.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// It has ended, or is about to: its words and its exit status are the caller's.
fn last_words(mut child: Child) -> LabError {
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(MAX_WORDS).read_to_string(&mut text);
    }
    let status = child.wait();
    let code = status.as_ref().ok().and_then(|status| status.code());
    let text = text.trim();
    let message = match (text, &status) {
        ("", Ok(status)) => format!("the process that was to hold the lab ended: {status}"),
        ("", Err(error)) => format!("the process that was to hold the lab is lost: {error}"),
        (text, _) => text.strip_prefix("linerate: ").unwrap_or(text).to_owned(),
    };
    let category = match code {
        Some(2) => Category::Usage,
        Some(3) => Category::Missing,
        _ => Category::Failed,
    };
    LabError::Holder { message, category }
}

/// 256 hosts take some ten seconds on a slow machine.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// More than a chain of causes has.
const MAX_WORDS: u64 = 16 << 10;

// The process that holds a lab: makes it, answers questions, and ends with it.

/// The least weight that a session can have, and the usual one.
const LIGHT: i32 = 19;
const ORDINARY: i32 = 0;
/// Printed on standard output once the lab is up.
const READY: &str = "ready\n";
/// The questions, each one line.
const STATUS: &str = "status\n";
/// See [`STATUS`].
const DOWN: &str = "down\n";

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
    // This thread answers at once, too, however little is left for its session.
    let steps_back = is_own_session && come_first();
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
    stream.set_write_timeout(Some(HOLD_PATIENCE))?;
    let question = read_within(HOLD_PATIENCE, stream, MAX_QUESTION, |line| line.ends_with(b"\n"))?;
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
const HOLD_PATIENCE: Duration = Duration::from_secs(1);
