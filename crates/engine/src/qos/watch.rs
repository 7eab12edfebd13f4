//! Policies that are to last: put in force again when somebody spoils them, when what they name is
//! made anew, when their interface comes back, and after a reboot.
//!
//! `LINERATE_QOS_DIRECTORY` moves the directory of those that outlive a reboot from
//! `/etc/linerate/qos`, and systemd's unit with it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linerate_qos::document::QosDocument;
use linerate_sys::file::DirectoryChanges;
use linerate_sys::netlink::Announcements;
use linerate_sys::netns::{Namespace, outermost_process};
use linerate_sys::poll::{Poller, wait_readable};
use linerate_sys::proc::cgroup::group_directory;
use linerate_sys::signal::EndRequests;

use super::change::settle;
use super::error::QosError;
use super::prepare::CGROUP;
use super::state::InterfaceState;
use super::{Standing, on_site, put_back, standing};
use crate::state_files::{
    SCRATCH, StateError, is_of_root, read_json, remove_file, replace_file, replace_json,
};

/// Puts policies in force again, whatever spoils them, until the process is asked to end; `say` is
/// told what was done, and what could not be.
///
/// # Errors
/// [`QosError`]: at the first look nothing can be told of any interface. A later look that fails,
/// such as one at an interface that is about to go, is said, and made again after a second.
pub fn watch(mut say: impl FnMut(&str)) -> Result<(), QosError> {
    let waiting = |error| QosError::kernel("wait for changes", error);
    let requests = EndRequests::catch().map_err(io::Error::other).map_err(waiting)?;
    let mut watch = QosWatch::new(&requests)?;
    let mut has_looked = false;
    while !requests.requested() {
        let looked = Instant::now();
        let (words, until) = match watch.look() {
            Ok(words) => (words, SLOW),
            Err(error) if has_looked => {
                let said = format!("could not look: {}", crate::words::chain(&error));
                (Vec::from_iter(watch.say_once(String::new(), said)), SECOND)
            }
            Err(error) => return Err(error),
        };
        has_looked = true;
        words.iter().for_each(|words| say(words));
        watch.poller.wait(until).map_err(waiting)?.for_each(drop);
        // One look is for all that comes with a change.
        let rest = SECOND.saturating_sub(looked.elapsed());
        wait_readable(&requests, rest).map_err(waiting)?;
        watch.announcements.drain();
        watch.directories.drain();
    }
    Ok(())
}

/// The policies that interfaces are to have, and which interface each was seen on.
#[derive(Debug)]
struct QosWatch {
    kept: BTreeMap<String, Kept>,
    /// What was said last of each that could not be put in force; of a whole look, by no name.
    said: BTreeMap<String, String>,
    /// Announcements of links and of their disciplines.
    announcements: Announcements,
    /// Of the states that other commands write, and of control groups.
    directories: DirectoryChanges,
    /// Ready when one of both is, or the process is asked to end.
    poller: Poller,
}

#[derive(Debug)]
struct Kept {
    /// The interface's index; 0 until it was seen with the policy.
    index: u32,
    standing: Standing,
}

impl QosWatch {
    fn new(requests: &EndRequests) -> Result<Self, QosError> {
        let announcements = Announcements::open()?;
        let poller = || -> io::Result<_> {
            let (directories, poller) = (DirectoryChanges::new()?, Poller::new()?);
            poller.add(&announcements, 0)?;
            poller.add(&directories, 1)?;
            poller.add(requests, 2)?;
            Ok((directories, poller))
        };
        let poller = poller().map_err(|error| QosError::kernel("watch directories", error));
        let (directories, poller) = poller?;
        Ok(Self {
            kept: BTreeMap::new(),
            said: BTreeMap::new(),
            announcements,
            directories,
            poller,
        })
    }

    /// Looks once, and puts in force what is not. What was done, and what could not be.
    ///
    /// # Errors
    /// [`QosError`]: nothing can be told of any interface.
    fn look(&mut self) -> Result<Vec<String>, QosError> {
        let mut words = Vec::new();
        for (name, standing) in persisted() {
            match standing {
                Ok(standing) => {
                    let fresh = Kept { index: 0, standing };
                    self.kept.entry(name).or_insert(fresh);
                }
                Err(error) => {
                    let said = crate::words::chain(&error);
                    words.extend(self.say_once(format!("{name} kept"), said));
                }
            }
        }
        let spoiled = on_site(|site| self.spoiled(site))?;
        self.said.remove("");
        for (name, why) in spoiled {
            let Some(kept) = self.kept.get(&name) else {
                continue;
            };
            let said = match put_back(&name, Some(&kept.standing)) {
                Ok(()) => format!("{name}: the policy is in force again: {why}"),
                Err(error) => format!("{name}: {why}, and cannot be applied: {error}"),
            };
            words.extend(self.say_once(name, said));
        }
        Ok(words)
    }

    /// The words, unless they were said last of the same thing.
    fn say_once(&mut self, about: String, said: String) -> Option<String> {
        let before = self.said.insert(about, said.clone());
        (before.as_ref() != Some(&said)).then_some(said)
    }

    /// The interfaces whose policy is not in force as it should be, and why.
    fn spoiled(&mut self, site: &mut super::QosSite) -> Result<Vec<(String, String)>, QosError> {
        let states = site.directory.path();
        self.directories.watch(states).map_err(StateError::new("watch", states))?;
        let (ports, _) = site.ports()?;
        let mut spoiled = Vec::new();
        let mut seen = Vec::new();
        for port in ports {
            let Some(state) = settle(site, &port)? else {
                continue;
            };
            let name = port.name().to_owned();
            seen.push(name.clone());
            self.follow_groups(&state);
            if state.lost.is_none() {
                let (index, standing) = (port.index(), Standing::from(state.clone()));
                self.kept.insert(name.clone(), Kept { index, standing });
            }
            match super::status::fault(site, &port, &state)? {
                Some(fault) => spoiled.push((name, fault)),
                None => drop(self.said.remove(&name)),
            }
        }
        let links = site.netlink.links()?;
        self.kept.retain(|name, kept| {
            let link = links.iter().find(|link| link.name == *name);
            match link {
                // Somebody removed it on purpose, maybe before it was seen in force.
                Some(link) if !seen.contains(name) && link.index == kept.index => false,
                Some(_) if !seen.contains(name) && kept.index == 0 && !is_kept(name) => false,
                Some(_) if !seen.contains(name) => {
                    spoiled.push((name.clone(), "the interface is new".to_owned()));
                    true
                }
                _ => true,
            }
        });
        Ok(spoiled)
    }

    /// Watches where the control groups that filters name come and go; those where that fails wait
    /// for the next slow look.
    fn follow_groups(&self, state: &InterfaceState) {
        let groups = state.bound.keys().filter_map(|name| name.split_once(CGROUP));
        for (_, path) in groups {
            let Ok(directory) = group_directory(path.trim_start()) else {
                continue;
            };
            let mut above = directory.ancestors().skip(1);
            let _ = above.find(|above| self.directories.watch(above).is_ok());
        }
    }
}

impl From<InterfaceState> for Standing {
    fn from(state: InterfaceState) -> Self {
        Self { mode: state.mode, text: state.text, options: (state.forced, state.with_ingress) }
    }
}

/// Keeps the policies of these interfaces over a reboot. What is still to be done, in words.
///
/// # Errors
/// [`QosError`], if the files cannot be written, or a boot does not set this network namespace.
pub fn persist(document: &QosDocument) -> Result<Vec<String>, QosError> {
    check_persist()?;
    let directory = directory();
    fs::create_dir_all(&directory).map_err(StateError::new("make", &directory))?;
    for adapter in &document.adapters {
        let Some(standing) = standing(&adapter.name)? else {
            continue;
        };
        replace_json(&directory.join(&adapter.name), &standing, 0o644)?;
    }
    let unit = unit_path();
    let program =
        std::env::current_exe().map_err(StateError::new("find the program for", &unit))?;
    let text = UNIT.replace("PROGRAM", &program.display().to_string().replace('%', "%%"));
    let wants = unit.with_file_name("multi-user.target.wants");
    replace_file(&unit, text.as_bytes(), 0o644)?;
    fs::create_dir_all(&wants)
        .and_then(|()| link(&unit, &wants.join(UNIT_NAME)))
        .map_err(StateError::new("write", &unit))?;
    let unit = unit.display();
    Ok(vec![if Path::new("/run/systemd/system").exists() {
        format!(
            "{unit} puts it in force at each boot and after; begin now: `systemctl daemon-reload \
             && \
             systemctl start {UNIT_NAME}`"
        )
    } else {
        format!("{unit} is for systemd: without it have `linerate qos watch` started at boot")
    }])
}

/// Forgets what is kept over a reboot, of one interface or of all.
pub(super) fn forget(interface: Option<&str>) -> Result<Vec<String>, QosError> {
    let mut names: Vec<_> = persisted().into_iter().map(|(name, _)| name).collect();
    names.retain(|name| interface.is_none_or(|interface| interface == name));
    for name in &names {
        remove_file(&directory().join(name))?;
    }
    Ok(names)
}

fn is_kept(interface: &str) -> bool {
    directory().join(interface).is_file()
}

/// What is kept, or why it cannot be understood, by interface; nothing in namespaces that no boot
/// sets.
fn persisted() -> Vec<(String, Result<Standing, QosError>)> {
    let entries = match fs::read_dir(directory()) {
        Ok(entries) if is_set_by_a_boot() => entries,
        _ => return Vec::new(),
    };
    let files = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let (path, name) = (entry.path(), entry.file_name().into_string().ok()?);
        if name.ends_with(SCRATCH) || !path.is_file() {
            return None;
        }
        Some((name, read_json(&path).transpose()?.map_err(QosError::from)))
    });
    files.collect()
}

/// Whether policies of this network namespace can be kept over a reboot, by a unit that runs this
/// program as root.
///
/// # Errors
/// [`QosError::Unknown`], and what to do instead.
pub fn check_persist() -> Result<(), QosError> {
    let refused = |why: String| {
        let what = "--persist".to_owned();
        Err(QosError::Unknown { what, why })
    };
    if !is_set_by_a_boot() {
        let why = "a boot sets the host's first network namespace, and this is another: have \
                   `linerate qos watch` started in it";
        return refused(why.to_owned());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string());
    match program.and_then(|program| is_of_root(&program)) {
        Err(why) if std::env::var_os(DIRECTORY).is_none() => refused(format!(
            "{why}, and each boot would run this program as root: install it first, as a package \
             or by `install -o root -g root linerate /usr/bin`"
        )),
        _ => Ok(()),
    }
}

fn is_set_by_a_boot() -> bool {
    let Ok(first) = fs::metadata(format!("/proc/{}/ns/net", outermost_process())) else {
        return true;
    };
    let own = Namespace::current().and_then(|own| own.inode());
    std::env::var_os(DIRECTORY).is_some() || own.is_ok_and(|own| own == first.ino())
}

fn link(to: &Path, at: &Path) -> io::Result<()> {
    match std::os::unix::fs::symlink(to, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn directory() -> PathBuf {
    let moved = std::env::var_os(DIRECTORY).map(PathBuf::from);
    moved.unwrap_or_else(|| PathBuf::from("/etc/linerate/qos"))
}

fn unit_path() -> PathBuf {
    match std::env::var_os(DIRECTORY) {
        Some(moved) => PathBuf::from(moved).with_file_name(UNIT_NAME),
        None => Path::new("/etc/systemd/system").join(UNIT_NAME),
    }
}

/// What nobody announces, such as a program that was taken away, is seen so late.
const SLOW: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const DIRECTORY: &str = "LINERATE_QOS_DIRECTORY";
const UNIT_NAME: &str = "linerate-qos.service";
const UNIT: &str = "\
[Unit]
Description=linerate: DiffServ policies of this host's interfaces

[Service]
ExecStart=\"PROGRAM\" qos watch
Restart=on-failure

[Install]
WantedBy=multi-user.target
";
