//! Moves this process to a host of a lab.

use std::path::Path;

use linerate_sys::CallError;
use linerate_sys::netns::{
    Namespace, NamespaceError, bind_mount, join_user_namespace, private_mounts,
    show_network_devices,
};

use super::directory::LabDirectory;
use super::state::LabState;
use crate::lab::LabError;
use crate::words::chain;

impl LabDirectory {
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

fn lacks(what: &str, error: &CallError) -> String {
    format!("{what}: {}", chain(error))
}
