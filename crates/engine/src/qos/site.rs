//! What each command needs of this host.

use std::path::PathBuf;

use linerate_sys::bpf;
use linerate_sys::errno::EPERM;
use linerate_sys::netlink::Netlink;

use super::error::QosError;
use super::hook::{Hooks, Via};
use super::port::{Port, namespace};
use super::state::{Directory, Which};

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
