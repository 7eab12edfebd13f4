//! What is in force on an interface, kept between commands.
//!
//! Each interface has a file, which is replaced whole. A change writes what is to be in force
//! beside it first, then makes it so, then puts the one in the place of the other: whatever is
//! killed in between leaves enough to go on or back (see [`super::change`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use linerate_qos::document::PolicyReport;
use linerate_sys::netlink::{Direction, HtbClass, TrafficClass};
use linerate_sys::process::effective_user;
use serde::{Deserialize, Serialize};

use super::error::QosError;
use super::hook::prefix;
use crate::own_directory;

/// What becomes of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// They meet the policy.
    #[default]
    Enabled,
    /// They meet a program that does nothing.
    PassingThrough,
    /// They meet no program; the policy and its counts are kept.
    Disabled,
    /// Nothing is to be left.
    Removed,
}

/// All of one interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) interface: String,
    pub(super) index: u32,
    pub(super) mode: Mode,
    /// The policy file as it was given; empty if there was none.
    pub(super) text: String,
    /// Which adapter of it.
    pub(super) adapter: String,
    /// Somebody else's things beside or in the place of ours were accepted.
    pub(super) forced: bool,
    /// What `ingress` was asked for beside the file.
    pub(super) with_ingress: bool,
    pub(super) policies: Vec<PolicyReport>,
    /// Of the classes.
    pub(super) rate_bps: Option<u64>,
    /// `filter NAME` and `policy NAME` to the place where they count.
    pub(super) slots: BTreeMap<String, u32>,
    pub(super) egress: Hooked,
    pub(super) ingress: Hooked,
    pub(super) classes: Vec<HtbClass>,
    pub(super) default_class: Option<u32>,
    /// Of each policy that has one.
    pub(super) class_of: BTreeMap<String, u32>,
    pub(super) offload: Option<Offload>,
    /// The kernel's numbers of what the filters name, `cgroup PATH` and `interface NAME`: one that
    /// is made anew has another.
    #[serde(default)]
    pub(super) bound: BTreeMap<String, u64>,
    /// Somebody else's disciplines that ours stand in the place of, the root first.
    #[serde(default)]
    pub(super) replaced: Vec<Replaced>,
    /// Why no more is known than what the kernel shows.
    #[serde(skip)]
    pub(super) lost: Option<String>,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Hooked {
    /// The kernel's number of the program, which is also the end of its pin's name.
    pub(super) program: Option<u32>,
    /// Pins of the maps that outlive programs, by the maps' names.
    pub(super) maps: BTreeMap<String, String>,
    /// The pin of counters that a larger map has replaced, until their counts are taken over.
    pub(super) retired: Option<String>,
    /// What each slot had counted when its name began to count, by name; subtracted, with wrapping.
    pub(super) base: BTreeMap<String, [u64; 7]>,
}

/// A discipline or a class of one, as the kernel showed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Replaced {
    pub(super) is_class: bool,
    /// Of a discipline, its id has the minor number 0.
    #[serde(flatten)]
    pub(super) class: TrafficClass,
}

/// The cap on offloaded frames, and what it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offload {
    pub(super) set: u32,
    pub(super) was: u32,
    /// Of IPv4, where the kernel tells it apart.
    pub(super) was_ipv4: Option<u32>,
}

impl State {
    /// The classes that packets wait in.
    pub(super) fn leaves(&self) -> impl Iterator<Item = &HtbClass> {
        let is_leaf = |one: &&HtbClass| self.classes.iter().all(|of| of.parent != Some(one.id));
        self.classes.iter().filter(is_leaf)
    }

    /// Whether the HTB at the root is the one of this state.
    pub(super) fn has_root(&self) -> bool {
        self.lost.is_some() || !self.classes.is_empty()
    }

    /// Whether a pin is one of its own.
    pub(super) fn owns(&self, pin: &str) -> bool {
        let is_of = |hooked: &Hooked, prefix: &str| {
            let program = hooked.program.map(|id| format!("{prefix}program_{id}"));
            let link = hooked.program.map(|_| format!("{prefix}link"));
            let own = hooked.maps.values().chain(&hooked.retired);
            own.chain(&program).chain(&link).any(|name| name == pin)
        };
        is_of(&self.egress, prefix(Direction::Egress))
            || is_of(&self.ingress, prefix(Direction::Ingress))
    }
}

/// Which of the two states of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    /// What is in force, as far as is known.
    Current,
    /// What was to be in force when a command ended early.
    Next,
}

impl Which {
    fn suffix(self) -> &'static str {
        match self {
            Self::Current => ".json",
            Self::Next => ".next",
        }
    }
}

/// What a file says; none if there is no file, and an error in words if it is not whole or not of
/// this program.
pub(super) type Stored = Option<Result<State, String>>;

/// The directory of the states, locked against other commands.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Waits for its turn.
    pub(super) fn open() -> Result<Self, QosError> {
        let user = effective_user();
        let (above, path) = place();
        own_directory::make(&above, user)
            .and_then(|()| own_directory::make(&path, user))
            .map_err(QosError::NoDirectory)?;
        let file = path.join("lock");
        let lock = own_directory::open_lock(&file).map_err(fault("open", &file))?;
        wait_for(&lock).map_err(fault("wait for", &file))?;
        Ok(Self { path, _lock: lock })
    }

    /// Where the states are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a state of this key.
    pub(super) fn has(key: &str) -> bool {
        let (_, path) = place();
        [Which::Current, Which::Next]
            .iter()
            .any(|one| path.join(format!("{key}{}", one.suffix())).exists())
    }

    /// All states by their keys. What a command that was killed had not written to its end is
    /// removed.
    pub(super) fn keys(&self) -> Result<Vec<String>, QosError> {
        let entries = fs::read_dir(&self.path).map_err(fault("read", &self.path))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut keys = BTreeSet::new();
        for name in names {
            if name.ends_with(own_directory::SCRATCH) {
                remove(&self.path.join(&name))?;
            }
            let states = [Which::Current, Which::Next];
            let key = states
                .iter()
                .find_map(|one| name.strip_suffix(one.suffix()));
            keys.extend(key.map(str::to_owned));
        }
        Ok(keys.into_iter().collect())
    }

    /// Keeps what the verifier wrote.
    pub(super) fn keep_log(&self, interface: &str, log: &str) -> Result<PathBuf, QosError> {
        let path = self.path.join(format!("verifier-{interface}.log"));
        fs::write(&path, log).map_err(fault("write", &path))?;
        Ok(path)
    }

    /// The file of an interface's state.
    pub(super) fn file(&self, key: &str, which: Which) -> PathBuf {
        self.path.join(format!("{key}{}", which.suffix()))
    }

    /// What the file says.
    pub(super) fn read(&self, key: &str, which: Which) -> Result<Stored, QosError> {
        let path = self.file(key, which);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).map_err(|error| {
                format!("{} cannot be understood: {error}", path.display())
            }))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault("read", &path)(error)),
        }
    }

    /// Replaces the whole file.
    pub(super) fn write(&self, key: &str, which: Which, state: &State) -> Result<(), QosError> {
        let path = self.file(key, which);
        let text = serde_json::to_vec(state).map_err(io::Error::from);
        text.and_then(|text| own_directory::replace_file(&path, &text, 0o600))
            .map_err(fault("write", &path))
    }

    /// Removes the file, if it is there.
    pub(super) fn remove(&self, key: &str, which: Which) -> Result<(), QosError> {
        remove(&self.file(key, which))
    }
}

fn remove(path: &Path) -> Result<(), QosError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Takes the lock in turn, and has it told if that takes long.
fn wait_for(lock: &File) -> io::Result<()> {
    match own_directory::lock(lock, SILENCE) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            if let Some(tell) = WAITING.get() {
                tell();
            }
            lock.lock()
        }
        locked => locked,
    }
}

/// Has `tell` called when a command waits for another one for longer than a second;
/// the first caller's counts.
pub fn tell_when_waiting(tell: fn()) {
    // A second one has nothing else to say.
    let _ = WAITING.set(tell);
}

static WAITING: OnceLock<fn()> = OnceLock::new();
const SILENCE: Duration = Duration::from_secs(1);

/// The directory of the states, and the one that it is in.
fn place() -> (PathBuf, PathBuf) {
    let above = own_directory::run().unwrap_or_else(own_directory::temporary);
    let path = above.join("qos");
    (above, path)
}

pub(super) fn fault(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> QosError {
    let path = path.to_owned();
    move |source| QosError::State {
        operation,
        path,
        source,
    }
}
