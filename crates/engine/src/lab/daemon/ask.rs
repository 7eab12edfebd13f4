//! Asks the process that holds a lab for its state, and ends it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use linerate_core::lab::{Inhabitant, LabHost, LabShown, LabStatus};
use linerate_sys::process::{EndSignal, Process};

use super::directory::LabDirectory;
use super::hold::{DOWN, STATUS};
use super::state::LabState;
use crate::lab::LabError;

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
}

/// Reads until what has arrived `is_whole`, until the stream ends, or until there are `most` bytes.
///
/// # Errors
/// All of it takes longer than `patience`; the stream fails.
pub(super) fn read_within(
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
