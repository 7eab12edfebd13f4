//! The directory of the labs' files, which shows what labs are up, and the contents of those files.
//!
//! A lab has a state file, a hosts file and a socket. The process that holds it has a lock on the
//! state file for as long as it lives, however it ends: a state file without lock is left over from
//! one that was killed.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use linerate_core::lab::{LabStatus, LinkStatus, Topology};
use linerate_core::link::{LinkSpec, PathSpec};
use serde::{Deserialize, Serialize};

use crate::lab::{Lab, LabError};
use crate::state_files::{
    HeldDirectory, JsonLog, PATIENCE, StateDirectory, StateError, read_json, replace_file, run,
    runtime, temporary,
};

/// The directory of this user's labs.
#[derive(Debug, Clone)]
pub struct LabDirectory(StateDirectory);

/// The files of a lab, which are this process's and go when this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    directory: LabDirectory,
    name: String,
    state: JsonLog,
}

impl LabDirectory {
    /// `$XDG_RUNTIME_DIR/linerate` where that is this user's, or else `/run/linerate` for root and
    /// `/tmp/linerate-UID` for others. It is made if need be, for this user alone.
    ///
    /// # Errors
    /// [`LabError::State`] if it cannot be made, or is another's or open to others.
    pub fn open() -> Result<Self, LabError> {
        let own = runtime().or_else(run);
        Ok(Self(StateDirectory::make(own.unwrap_or_else(temporary))?))
    }

    /// The labs that are up, by name, and the names of those that were killed: their files are
    /// removed now.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn labs(&self) -> Result<(Vec<LabState>, Vec<String>), LabError> {
        let held = self.hold()?;
        let (mut up, mut removed) = (Vec::new(), Vec::new());
        let names = self.0.names("lab-", ".json")?.into_iter();
        for name in names.filter(|name| check_name(name).is_ok()) {
            match self.look_at(&held, &name)? {
                Found::Up(state) => up.push(state),
                Found::Killed => removed.push(name),
                Found::Nothing => {}
            }
        }
        Ok((up, removed))
    }

    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.0.file(&format!("lab-{name}.sock"))
    }

    pub(super) fn hosts(&self, name: &str) -> PathBuf {
        self.0.file(&format!("lab-{name}.hosts"))
    }

    /// Makes the files of a new lab this process's.
    pub(super) fn claim(&self, name: &str) -> Result<Claim, LabError> {
        check_name(name)?;
        let held = self.hold()?;
        // Those of one that was killed are removed.
        self.look_at(&held, name)?;
        let name = name.to_owned();
        match held.claim(&state(&name))? {
            None => Err(LabError::IsUp { name }),
            Some(state) => Ok(Claim { directory: self.clone(), name, state }),
        }
    }

    fn hold(&self) -> Result<HeldDirectory, StateError> {
        self.0.hold("labs.lock", PATIENCE)
    }

    fn look_at(&self, held: &HeldDirectory, name: &str) -> Result<Found, StateError> {
        Ok(match held.claimed(&state(name))? {
            None => Found::Nothing,
            Some((_, false)) => {
                self.remove(name);
                Found::Killed
            }
            // It is empty while the lab is being made.
            Some((own, true)) => match read_json(own.path()) {
                Ok(Some(state)) => Found::Up(state),
                _ => Found::Nothing,
            },
        })
    }

    fn remove(&self, name: &str) {
        // The state file goes last: while it is there the others may be there.
        for path in [self.socket(name), self.hosts(name), self.0.file(&state(name))] {
            let _ = fs::remove_file(path);
        }
    }
}

fn state(name: &str) -> String {
    format!("lab-{name}.json")
}

enum Found {
    Up(LabState),
    Killed,
    Nothing,
}

impl Claim {
    pub(super) fn directory(&self) -> &LabDirectory {
        &self.directory
    }

    /// Writes the state file; from then on others find the lab.
    pub(super) fn publish(&mut self, state: &LabState, hosts: &str) -> Result<(), StateError> {
        // Programs in the lab read it, whoever they are.
        replace_file(&self.directory.hosts(&self.name), hosts.as_bytes(), 0o644)?;
        self.state.add(state)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Whoever looks sees all files or none, and does not take the lab for a killed one.
        let _held = self.directory.hold();
        self.directory.remove(&self.name);
    }
}

/// Names become file names, and those of sockets are short (unix(7): 107 bytes).
fn check_name(name: &str) -> Result<(), LabError> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=32).contains(&name.len()) && name.chars().all(is_allowed) {
        Ok(())
    } else {
        Err(LabError::Name { name: name.chars().take(64).collect() })
    }
}

// The contents of a lab's files, and the answer of its process.

/// A lab that a process holds: enough to enter its hosts and to end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabState {
    /// Its name.
    pub name: String,
    /// The process that holds it.
    pub pid: u32,
    /// When that began, in clock ticks since boot.
    pub started_ticks: u64,
    /// Hosts and routers, in the order of the file.
    pub hosts: Vec<HostState>,
}

/// A host or router of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// Whether it forwards.
    pub is_router: bool,
    /// The addresses of its first interface, which are what its name means.
    pub addresses: Vec<IpAddr>,
    /// The number that its namespace's descriptor has in the process that holds the lab.
    pub descriptor: i32,
    /// The number of the namespace itself.
    pub namespace: u64,
}

/// What a lab does, as its process answers it.
pub(super) fn status(lab: &Lab) -> LabStatus {
    let topology = lab.topology();
    let report = lab.report();
    let links = topology.links.iter().map(|link| {
        let counted = report.links.iter().find(|counted| counted.name == link.name);
        let (up, down) = counted.map(|counted| (counted.up.clone(), counted.down.clone())).unzip();
        LinkStatus {
            name: link.name.clone(),
            between: link.ends.map(|(node, _)| topology.nodes[node].name.clone()),
            spec: spec(&link.up, &link.down),
            mtu_bytes: link.mtu,
            up,
            down,
        }
    });
    LabStatus {
        baseline_rtt_us: report.baseline.map(|baseline| baseline.as_secs_f64() * 1e6),
        links: links.collect(),
    }
}

/// The text of /etc/hosts in a lab.
pub(super) fn hosts_file(topology: &Topology) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for node in &topology.nodes {
        for prefix in node.interfaces.iter().take(1).flat_map(|first| &first.addresses) {
            text += &format!("{} {}\n", prefix.address, node.name);
        }
    }
    text
}

fn spec(up: &LinkSpec, down: &LinkSpec) -> String {
    let path = PathSpec { up: up.clone(), down: down.clone(), hops: 0 };
    path.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> LabDirectory {
        let path =
            std::env::temp_dir().join(format!("linerate-test-{name}-{}", std::process::id()));
        LabDirectory(StateDirectory::make(path).unwrap())
    }

    fn state(name: &str) -> LabState {
        LabState { name: name.to_owned(), pid: 1, started_ticks: 2, hosts: Vec::new() }
    }

    #[test]
    fn a_lab_is_up_as_long_as_its_claim() {
        let directory = temporary("claim");
        let mut claim = directory.claim("a").unwrap();
        assert!(directory.labs().unwrap().0.is_empty(), "it is not made yet");
        claim.publish(&state("a"), "").unwrap();
        assert_eq!(directory.labs().unwrap(), (vec![state("a")], vec![]));
        assert!(matches!(directory.claim("a"), Err(LabError::IsUp { .. })));
        let _other = directory.claim("b").unwrap();
        drop(claim);
        assert_eq!(directory.labs().unwrap(), (vec![], vec![]));
        drop(_other);
        fs::remove_dir_all(directory.0.path()).unwrap();
    }

    #[test]
    fn leftovers_of_a_killed_lab_are_removed_and_reported() {
        let directory = temporary("killed");
        // As an earlier version left it: without a line end, and without a lock.
        let text = serde_json::to_vec(&state("a")).unwrap();
        for file in ["lab-a.json", "lab-a.hosts"] {
            fs::write(directory.0.file(file), &text).unwrap();
        }
        assert_eq!(directory.labs().unwrap(), (vec![], vec!["a".to_owned()]));
        assert_eq!(directory.labs().unwrap(), (vec![], vec![]));
        assert!(!directory.hosts("a").exists());
        fs::write(directory.0.file("lab-a.json"), &text).unwrap();
        let lock = fs::File::open(directory.0.file("lab-a.json")).unwrap();
        lock.lock().unwrap();
        assert_eq!(directory.labs().unwrap(), (vec![state("a")], vec![]));
        drop(lock);
        drop(directory.claim("a").unwrap());
        assert_eq!(directory.labs().unwrap(), (vec![], vec![]));
        fs::remove_dir_all(directory.0.path()).unwrap();
    }

    #[test]
    fn names_that_are_paths_are_refused() {
        let directory = temporary("names");
        for name in ["", "../a", "a/b", "A", "a b", &"a".repeat(33)] {
            assert!(matches!(directory.claim(name), Err(LabError::Name { .. })), "{name}");
        }
        fs::remove_dir_all(directory.0.path()).unwrap();
    }

    #[test]
    fn a_symbolic_link_is_not_taken_for_a_labs_file() {
        let directory = temporary("link");
        let other = directory.0.file("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, directory.0.file("lab-a.json")).unwrap();
        let refused = directory.claim("a").map(drop).unwrap_err();
        assert!(matches!(refused, LabError::State(_)), "{refused}");
        assert!(directory.labs().is_err());
        fs::remove_file(directory.0.file("lab-a.json")).unwrap();
        std::os::unix::fs::symlink(&other, directory.hosts("a")).unwrap();
        let mut claim = directory.claim("a").unwrap();
        claim.publish(&state("a"), "198.18.0.1 a").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        drop(claim);
        fs::remove_dir_all(directory.0.path()).unwrap();
    }

    #[test]
    fn a_hosts_file_has_each_name_with_the_addresses_of_its_first_interface() {
        let topology = Topology::of_path(&"hops=1".parse().unwrap());
        let expected = "127.0.0.1 localhost\n::1 localhost\n198.18.0.1 client\n2001:2::1 client\n\
                        198.18.0.2 r1\n2001:2::2 r1\n198.18.1.2 server\n2001:2:0:1::2 server\n";
        assert_eq!(hosts_file(&topology), expected);
    }
}
