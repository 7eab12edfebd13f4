//! What is in force on an interface, kept between commands, and what each command needs of this
//! host.
//!
//! Each interface has a file, which is replaced whole. A change writes what is to be in force
//! beside it first, then makes it so, then puts the one in the place of the other: whatever is
//! killed in between leaves enough to go on or back (see [`super::change`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use linerate_qos::document::PolicyReport;
use linerate_sys::bpf;
use linerate_sys::errno::EPERM;
use linerate_sys::netlink::{Direction, HtbClass, Netlink, TrafficClass};
use serde::{Deserialize, Serialize};

use super::error::QosError;
use super::hook::{Hooks, Via, prefix};
use super::port::{Port, namespace};
use crate::state_files::{
    HeldDirectory, SCRATCH, StateDirectory, StateError, read_json, remove_file, replace_json, run,
    temporary,
};
use crate::words::chain;

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

/// State of one interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct InterfaceState {
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
    /// Rate that the classes share, bits/s.
    pub(super) rate_bps: Option<u64>,
    /// `filter NAME` and `policy NAME` to the place where they count.
    pub(super) slots: BTreeMap<String, u32>,
    pub(super) egress: Hooked,
    pub(super) ingress: Hooked,
    pub(super) classes: Vec<HtbClass>,
    pub(super) default_class: Option<u32>,
    /// Class of each policy that has one.
    pub(super) class_of: BTreeMap<String, u32>,
    pub(super) offload: Option<OffloadCap>,
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
    /// Class; of a discipline, the id has the minor number 0.
    #[serde(flatten)]
    pub(super) class: TrafficClass,
}

/// The cap on offloaded frames, and what it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OffloadCap {
    pub(super) set: u32,
    pub(super) was: u32,
    /// Earlier value for IPv4, where the kernel tells it apart.
    pub(super) was_ipv4: Option<u32>,
}

impl InterfaceState {
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
    /// State in force, as far as is known.
    Current,
    /// State that was to be in force when a command ended early.
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
pub(super) type Stored = Option<Result<InterfaceState, String>>;

/// The directory of the states, locked against other commands.
#[derive(Debug)]
pub(super) struct Directory(HeldDirectory);

impl Directory {
    /// Waits for its turn, and has it told if that takes long.
    pub(super) fn open() -> Result<Self, StateError> {
        let (above, path) = place();
        StateDirectory::make(above)?;
        let directory = StateDirectory::make(path)?;
        let held = match directory.hold(LOCK, SILENCE) {
            Err(error) if error.is_timeout() => {
                if let Some(tell) = WAITING.get() {
                    tell();
                }
                directory.hold(LOCK, Duration::MAX)
            }
            held => held,
        };
        held.map(Self)
    }

    /// Where the states are.
    pub(super) fn path(&self) -> &Path {
        self.0.directory().path()
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
    pub(super) fn keys(&self) -> Result<BTreeSet<String>, StateError> {
        let directory = self.0.directory();
        for name in directory.names("", SCRATCH)? {
            remove_file(&directory.file(&(name + SCRATCH)))?;
        }
        let [current, next] = [Which::Current, Which::Next].map(Which::suffix);
        let keys = directory.names("", current)?.into_iter();
        Ok(keys.chain(directory.names("", next)?).collect())
    }

    /// Keeps what the verifier wrote.
    pub(super) fn keep_log(&self, interface: &str, log: &str) -> Result<PathBuf, StateError> {
        let path = self.path().join(format!("verifier-{interface}.log"));
        fs::write(&path, log).map_err(StateError::new("write", &path))?;
        Ok(path)
    }

    /// The file of an interface's state.
    pub(super) fn file(&self, key: &str, which: Which) -> PathBuf {
        self.path().join(format!("{key}{}", which.suffix()))
    }

    /// What the file says.
    pub(super) fn read(&self, key: &str, which: Which) -> Stored {
        let read = read_json(&self.file(key, which));
        read.map_err(|error| chain(&error)).transpose()
    }

    /// Replaces the whole file.
    pub(super) fn write(
        &self,
        key: &str,
        which: Which,
        state: &InterfaceState,
    ) -> Result<(), StateError> {
        replace_json(&self.file(key, which), state, 0o600)
    }

    /// Removes the file, if it is there.
    pub(super) fn remove(&self, key: &str, which: Which) -> Result<(), StateError> {
        remove_file(&self.file(key, which))
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
const LOCK: &str = "lock";

/// The directory of the states, and the one that it is in.
fn place() -> (PathBuf, PathBuf) {
    let above = run().unwrap_or_else(temporary);
    let path = above.join("qos");
    (above, path)
}

// What each command needs of this host.

/// The calling thread's network namespace, this host's bpffs and the states, with no other command
/// beside.
#[derive(Debug)]
pub(super) struct QosSite {
    pub(super) netlink: Netlink,
    pub(super) directory: Directory,
    bpffs: PathBuf,
    via: Via,
}

impl QosSite {
    /// # Errors
    /// This process may not, or the kernel has no eBPF.
    pub(super) fn open() -> Result<Self, QosError> {
        let support = bpf::probe();
        if let Err(error) = support.programs {
            return Err(match error.errno() {
                Some(EPERM) => {
                    QosError::NotPermitted { operation: "load eBPF programs".to_owned() }
                }
                _ => QosError::Unsupported {
                    what: "run eBPF programs on packets (CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_BPF)",
                    source: error.into(),
                },
            });
        }
        let via = match support.tcx {
            Some(false) => Via::Clsact,
            _ => Via::Tcx,
        };
        Ok(Self {
            netlink: Netlink::open()?,
            directory: Directory::open()?,
            bpffs: bpf::mount()?,
            via,
        })
    }

    pub(super) fn hooks(&self, port: &Port) -> Hooks {
        self.hooks_of(&port.key)
    }

    pub(super) fn hooks_of(&self, key: &str) -> Hooks {
        Hooks::new(&self.bpffs, key, self.via)
    }

    /// The interfaces of this namespace with a policy, after forgetting those that are gone, here
    /// and, where it can be seen, elsewhere. The names of those that were here are told.
    pub(super) fn ports(&mut self) -> Result<(Vec<Port>, Vec<String>), QosError> {
        let own = format!("{}-", namespace()?);
        let links = self.netlink.links()?;
        let (mut ports, mut gone) = (Vec::new(), Vec::new());
        let mut keys = self.directory.keys()?;
        // Pins without a state are somebody's whose state was lost.
        keys.extend(Hooks::keys(&self.bpffs)?);
        for key in keys {
            let link = (key.strip_prefix(&own))
                .map(|index| links.iter().find(|link| link.index.to_string() == index));
            match link {
                Some(Some(link)) => ports.push(Port::new(link.clone())?),
                // Its namespace may be gone as well, so that nobody there can see to it.
                None if self.hooks_of(&key).is_dead()? => drop(self.forget(&key)?),
                None => {}
                Some(None) => gone.extend(self.forget(&key)?),
            }
        }
        Ok((ports, gone))
    }

    /// Takes away what is left of an interface that is gone.
    fn forget(&mut self, key: &str) -> Result<Option<String>, QosError> {
        let current = self.directory.read(key, Which::Current);
        let state = current.or(self.directory.read(key, Which::Next)).and_then(Result::ok);
        self.hooks_of(key).tidy(None)?;
        self.directory.remove(key, Which::Current)?;
        self.directory.remove(key, Which::Next)?;
        Ok(state.map(|state| state.interface))
    }
}
