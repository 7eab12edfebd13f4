//! Which connections are watched and where, and why they cannot be.

use std::collections::HashSet;
use std::io::ErrorKind::{InvalidInput, NotFound, PermissionDenied};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use linerate_core::units::quoted;
use linerate_sys::errno::{ENOENT, EPROTONOSUPPORT};
use linerate_sys::netlink::sock_diag::Filter;
use linerate_sys::netlink::{NetlinkError, Prefix};
use linerate_sys::netns::{Namespace, NamespaceError};
use linerate_sys::proc::processes;
use thiserror::Error;

use crate::category::{Categorized, Category};

/// Which connections are watched: those that all of this holds for.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The local or the remote port is one of these; none: any.
    pub ports: Vec<u16>,
    /// The remote address is in one of these networks, by their length in bits; none: any.
    pub peers: Vec<(IpAddr, u8)>,
    /// A process of this name or number holds it.
    pub process: Option<String>,
    /// It is in one of these states, a bit for each number of the kernel's; `None`: any but
    /// waited out (TIME_WAIT).
    pub states: Option<u32>,
    /// Where.
    pub place: Place,
}

/// The network namespace whose connections are watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Place {
    /// This process's.
    #[default]
    Here,
    /// By its name (`ip netns`) or the path of its file.
    Named(String),
    /// Namespace of a process, such as the first of a container.
    OfProcess(u32),
}

impl Selection {
    pub(super) fn filter(&self) -> Filter {
        let prefix = |(address, length): &(IpAddr, u8)| Prefix::new(*address, *length);
        Filter {
            states: self.states.unwrap_or(Filter::CONNECTIONS),
            ports: self.ports.clone(),
            peers: self.peers.iter().map(prefix).collect(),
        }
    }

    /// The processes that are meant; `None` for all.
    pub(super) fn pids(&self) -> Result<Option<Vec<u32>>, ConnectionsError> {
        let Some(name) = &self.process else {
            return Ok(None);
        };
        let mut pids = processes::called(name).map_err(ConnectionsError::Proc)?;
        if let Ok(pid) = name.parse::<u32>()
            && Path::new(&format!("/proc/{pid}")).exists()
        {
            pids.push(pid);
        }
        if pids.is_empty() {
            return Err(ConnectionsError::NoProcessCalled { name: name.clone() });
        }
        Ok(Some(pids))
    }
}

/// The inodes of the sockets that these processes hold now.
///
/// # Errors
/// Fails if all of these processes are other users'.
pub(super) fn sockets_of(pids: &[u32]) -> Result<HashSet<u32>, ConnectionsError> {
    let mut inodes = HashSet::new();
    let mut refused = None;
    for pid in pids {
        match processes::sockets_of(*pid) {
            Ok(found) => inodes.extend(found),
            Err(error) if error.kind() == PermissionDenied => refused = Some(*pid),
            // It has ended.
            Err(_) => {}
        }
    }
    match refused {
        Some(pid) if inodes.is_empty() => {
            Err(ConnectionsError::NotPermitted { what: format!("process {pid}") })
        }
        _ => Ok(inodes),
    }
}

impl Place {
    /// As a document names it.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Here => None,
            Self::Named(name) => Some(name.clone()),
            Self::OfProcess(pid) => Some(format!("of process {pid}")),
        }
    }

    fn namespace(&self) -> Result<Option<Namespace>, ConnectionsError> {
        let path = match self {
            Self::Here => return Ok(None),
            Self::Named(name) if name.contains('/') => PathBuf::from(name),
            Self::Named(name) => Path::new(NAMED).join(name),
            Self::OfProcess(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
        };
        Namespace::open(path).map(Some).map_err(|error| match (kind(&error), self) {
            (Some(NotFound), Self::OfProcess(pid)) => ConnectionsError::NoProcess { pid: *pid },
            (Some(NotFound), Self::Named(name)) => {
                ConnectionsError::NoNamespace { name: name.clone(), known: names() }
            }
            (Some(PermissionDenied), _) => self.not_permitted(),
            _ => ConnectionsError::Namespace(error),
        })
    }

    fn not_permitted(&self) -> ConnectionsError {
        let what = format!("network namespace {}", self.name().unwrap_or_default());
        ConnectionsError::NotPermitted { what }
    }

    /// Runs `work` on a thread of the namespace; what it opens stays in there.
    pub(super) fn run<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, ConnectionsError> {
        match self.namespace()? {
            None => Ok(work()),
            Some(namespace) => namespace.run(work).map_err(|error| match kind(&error) {
                Some(PermissionDenied) => self.not_permitted(),
                Some(InvalidInput) => {
                    ConnectionsError::NotANamespace { name: self.name().unwrap_or_default() }
                }
                _ => ConnectionsError::Namespace(error),
            }),
        }
    }
}

fn kind(error: &NamespaceError) -> Option<io::ErrorKind> {
    Some(io::Error::from_raw_os_error(error.errno()?).kind())
}

/// Namespaces with a name, as `ip netns list` finds them.
fn names() -> Vec<String> {
    let entries = fs::read_dir(NAMED).into_iter().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .take(MAX_NAMES)
        .collect();
    names.sort();
    names
}

/// Where iproute2 keeps them.
const NAMED: &str = "/run/netns";
/// In a message.
const MAX_NAMES: usize = 8;

// Errors: why connections cannot be watched.

/// Connections that cannot be watched.
#[derive(Debug, Error)]
pub enum ConnectionsError {
    /// No namespace of that name.
    #[error("--netns {name}: no such network namespace{}", known_names(.known))]
    NoNamespace {
        /// As the user wrote it.
        name: String,
        /// Namespaces that have a name on this host.
        known: Vec<String>,
    },
    /// A file that is something else.
    #[error("--netns {name}: not a network namespace")]
    NotANamespace {
        /// As the user wrote it.
        name: String,
    },
    /// No process of that number.
    #[error("no process has the number {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// No process of that name.
    #[error(
        "--process {}: no process has that name (as `ps -o comm` shows it) or number",
        quoted(name)
    )]
    NoProcessCalled {
        /// The name.
        name: String,
    },
    /// The namespace or the process belongs to somebody else.
    #[error(
        "cannot look into {what}: it is another user's, or the kernel protects it; it takes root \
         with \
         CAP_SYS_PTRACE"
    )]
    NotPermitted {
        /// The object.
        what: String,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(NamespaceError),
    /// This kernel does not show its sockets.
    #[error(
        "this kernel does not show its TCP sockets: load the module tcp_diag (modprobe tcp_diag)"
    )]
    NoDiag(#[source] NetlinkError),
    /// The kernel would not tell.
    #[error(transparent)]
    Kernel(NetlinkError),
    /// `/proc` cannot be read.
    #[error("cannot read /proc")]
    Proc(#[source] io::Error),
}

fn known_names(known: &[String]) -> String {
    match known {
        [] => "; none has a name here (ip netns list)".to_owned(),
        known => format!("; there are {}", known.join(", ")),
    }
}

impl From<NetlinkError> for ConnectionsError {
    fn from(error: NetlinkError) -> Self {
        // A kernel without it knows neither the protocol nor the message.
        match error.errno() {
            Some(ENOENT | EPROTONOSUPPORT) => Self::NoDiag(error),
            _ => Self::Kernel(error),
        }
    }
}

impl Categorized for ConnectionsError {
    fn category(&self) -> Category {
        match self {
            Self::NoNamespace { .. }
            | Self::NotANamespace { .. }
            | Self::NoProcess { .. }
            | Self::NoProcessCalled { .. } => Category::Usage,
            Self::NotPermitted { .. } | Self::NoDiag(_) => Category::Missing,
            Self::Namespace(_) | Self::Kernel(_) | Self::Proc(_) => Category::Failed,
        }
    }
}
