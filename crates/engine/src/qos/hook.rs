//! Programs in the kernel: loaded, and attached by TCX, or by clsact on kernels before 6.6.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use linerate_qos::program::{self, Lifetime, MapSpec};
use linerate_sys::bpf::{
    self, Attach, BpfError, LoadRequest, Map, MapKind, MapRequest, Program, ProgramKind, TcxLink,
};
use linerate_sys::errno::ENOENT;
use linerate_sys::netlink::{Direction, Netlink};

use super::error::QosError;
use super::port::Port;
use super::state::InterfaceState;
use crate::state_files::{StateError, is_unshared};

/// How programs are attached on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    Tcx,
    Clsact,
}

/// The pins of one interface, and where its programs stand.
#[derive(Debug, Clone)]
pub(super) struct Hooks {
    directory: PathBuf,
    via: Via,
}

impl Hooks {
    pub(super) fn new(bpffs: &Path, key: &str, via: Via) -> Self {
        Self { directory: bpffs.join("linerate").join(key), via }
    }

    pub(super) fn via(&self) -> Via {
        self.via
    }

    /// The type that a program must have to be attached there.
    pub(super) fn kind(&self, direction: Direction) -> ProgramKind {
        ProgramKind::SchedCls { attach: (self.via == Via::Tcx).then(|| attach(direction)) }
    }

    pub(super) fn pin(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The map of a pin; none if somebody has taken the pin away.
    pub(super) fn map(&self, pin: &str) -> Result<Option<Map>, QosError> {
        match Map::from_pin(&self.pin(pin)) {
            Ok(map) => Ok(Some(map)),
            Err(error) if error.errno() == Some(ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The keys that have pins in this bpffs.
    ///
    /// # Errors
    /// Others could put programs in the place of ours.
    pub(super) fn keys(bpffs: &Path) -> Result<Vec<String>, QosError> {
        let directory = bpffs.join("linerate");
        check_own(&directory)?;
        names(&directory)
    }

    /// # Errors
    /// As of [`Hooks::keys`].
    pub(super) fn make_directory(&self) -> Result<(), QosError> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.directory);
        made.map_err(StateError::new("make", &self.directory))?;
        self.directory.parent().map_or(Ok(()), check_own)
    }

    /// Gives the program the name by which [`Hooks::put`] finds it.
    pub(super) fn keep(&self, direction: Direction, program: &Program) -> Result<u32, QosError> {
        let id = program.id()?;
        program.pin(&self.program(direction, id))?;
        Ok(id)
    }

    /// The number of our program there, if it is.
    pub(super) fn in_force(
        &self,
        netlink: &mut Netlink,
        port: &Port,
        direction: Direction,
    ) -> Result<Option<u32>, QosError> {
        match self.via {
            Via::Tcx => Ok(self.link(direction)?.map(|(_, program)| program)),
            Via::Clsact => {
                let filters = netlink.bpf_filters(port.index(), direction)?;
                let own = filters.iter().find(|filter| filter.name == NAME);
                Ok(own.and_then(|filter| filter.program))
            }
        }
    }

    /// Attaches the pinned program with that number in the place of the one that is there. Each
    /// packet meets the one or the other.
    pub(super) fn put(
        &self,
        netlink: &mut Netlink,
        port: &Port,
        direction: Direction,
        id: u32,
    ) -> Result<(), QosError> {
        let running = self.in_force(netlink, port, direction)?;
        if running == Some(id) {
            return Ok(());
        }
        let program = Program::from_pin(&self.program(direction, id))?;
        let others = self.others(netlink, port, direction)?;
        let is_first = others.iter().all(|(_, is_ahead)| !is_ahead);
        match (self.via, self.link(direction)?) {
            (Via::Tcx, Some((link, old))) if is_first => {
                // Fails if somebody else has attached another program in the meantime.
                let old = Program::from_pin(&self.program(direction, old)).ok();
                link.replace(&program, old.as_ref())?;
            }
            // The old one, if there is one, ends with its pin: no packet meets neither.
            (Via::Tcx, _old) => {
                let link = TcxLink::attach(&program, port.index(), attach(direction))?;
                let pin = self.link_pin(direction);
                bpf::unpin(&pin)?;
                link.pin(&pin)?;
            }
            (Via::Clsact, _) => {
                netlink.ensure_clsact(port.index(), port.name())?;
                netlink.put_bpf_filter(
                    port.index(),
                    direction,
                    (PRIORITY, HANDLE, NAME),
                    program.as_fd(),
                )?;
            }
        }
        Ok(())
    }

    /// Takes our program away, if there is one.
    pub(super) fn take_away(
        &self,
        netlink: &mut Netlink,
        port: &Port,
        direction: Direction,
    ) -> Result<(), QosError> {
        match self.via {
            Via::Tcx => {
                if let Some((link, _)) = self.link(direction)? {
                    link.detach()?;
                }
                Ok(bpf::unpin(&self.link_pin(direction))?)
            }
            Via::Clsact if self.in_force(netlink, port, direction)?.is_some() => {
                Ok(netlink.delete_bpf_filter(port.index(), direction, PRIORITY, HANDLE)?)
            }
            Via::Clsact => Ok(()),
        }
    }

    /// Programs there that are not ours, in words, and whether packets meet each before ours.
    pub(super) fn others(
        &self,
        netlink: &mut Netlink,
        port: &Port,
        direction: Direction,
    ) -> Result<Vec<(String, bool)>, QosError> {
        let own = self.in_force(netlink, port, direction)?;
        let side = match direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        };
        let mut found = Vec::new();
        if self.via == Via::Tcx {
            let attached = bpf::query(port.index(), attach(direction))?;
            let is_own = |id: &u32| Some(*id) == own;
            let ahead = attached.iter().position(is_own).unwrap_or(attached.len());
            let others = (attached.iter().enumerate()).filter(|(_, id)| !is_own(id));
            found.extend(
                others.map(|(at, id)| (format!("eBPF program {id} at its TCX {side}"), at < ahead)),
            );
        }
        let filters = netlink.bpf_filters(port.index(), direction)?;
        let others = filters.iter().filter(|filter| filter.name != NAME);
        found.extend(others.map(|filter| {
            let is_ahead = self.via == Via::Clsact && filter.priority < PRIORITY;
            let words = format!("eBPF filter {} at its clsact {side}", filter.name);
            (words, is_ahead)
        }));
        Ok(found)
    }

    /// Removes the pins of programs and maps that the state does not use any more.
    pub(super) fn tidy(&self, state: Option<&InterfaceState>) -> Result<(), QosError> {
        for pin in self.pins()? {
            if !state.is_some_and(|state| state.owns(&pin)) {
                bpf::unpin(&self.pin(&pin))?;
            }
        }
        if state.is_none() {
            match fs::remove_dir(&self.directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StateError::new("remove", &self.directory)(error).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Names of everything pinned, whosever it is.
    pub(super) fn pins(&self) -> Result<Vec<String>, QosError> {
        names(&self.directory)
    }

    /// Whether [`Hooks::put`] could put that program there, or it is there.
    pub(super) fn can_put(
        &self,
        netlink: &mut Netlink,
        port: &Port,
        direction: Direction,
        id: u32,
    ) -> Result<bool, QosError> {
        Ok(self.program(direction, id).exists()
            || self.in_force(netlink, port, direction)? == Some(id))
    }

    /// Whether the interface of our link is gone; one without a link may be anywhere.
    pub(super) fn is_dead(&self) -> Result<bool, QosError> {
        let pin = self.link_pin(Direction::Egress);
        Ok(pin.exists() && TcxLink::from_pin(&pin)?.info()?.interface == 0)
    }

    /// Our link with its program's number; none if the interface that it was of is gone.
    fn link(&self, direction: Direction) -> Result<Option<(TcxLink, u32)>, QosError> {
        let pin = self.link_pin(direction);
        if !pin.exists() {
            return Ok(None);
        }
        let link = TcxLink::from_pin(&pin)?;
        let info = link.info()?;
        Ok((info.interface != 0).then_some((link, info.program)))
    }

    fn link_pin(&self, direction: Direction) -> PathBuf {
        self.pin(&format!("{}link", prefix(direction)))
    }

    fn program(&self, direction: Direction, id: u32) -> PathBuf {
        self.pin(&format!("{}program_{id}", prefix(direction)))
    }
}

/// Beginning of the names of a direction's pins; a bpffs takes no dots.
pub(super) fn prefix(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress_",
        Direction::Egress => "egress_",
    }
}

/// In a bpffs that others mounted anybody may have made a directory of that name.
fn check_own(directory: &Path) -> Result<(), QosError> {
    let is_there = fs::symlink_metadata(directory).is_ok();
    if !is_there || is_unshared(directory) {
        return Ok(());
    }
    let why = "others than this user can change what is pinned there; remove it";
    Err(StateError::unfit(directory, why).into())
}

/// Names in a directory; none if there is no directory.
fn names(directory: &Path) -> Result<Vec<String>, QosError> {
    match fs::read_dir(directory) {
        Ok(entries) => {
            Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(StateError::new("read", directory)(error).into()),
    }
}

fn attach(direction: Direction) -> Attach {
    match direction {
        Direction::Ingress => Attach::TcxIngress,
        Direction::Egress => Attach::TcxEgress,
    }
}

/// Name of our filter of clsact.
const NAME: &str = "linerate_qos";
const PRIORITY: u16 = 0x4c51;
const HANDLE: u32 = 1;

// Loading compiled programs into the kernel.

/// A loaded program, and those of its maps that are kept for the next one.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) program: Program,
    /// The maps with [`Lifetime::Adapter`], each with whether it was made for this program.
    pub(crate) maps: Vec<(String, Map, bool)>,
}

/// Makes the maps, or takes those that `kept` finds, and loads the program.
///
/// # Errors
/// What the kernel refuses; [`BpfError::verifier_log`] has the verifier's words.
pub(crate) fn load(
    compiled: &program::Program,
    kind: ProgramKind,
    mut kept: impl FnMut(&MapSpec) -> Option<Map>,
) -> Result<Loaded, BpfError> {
    let mut maps = Vec::with_capacity(compiled.maps.len());
    for spec in &compiled.maps {
        let old = match spec.lifetime {
            Lifetime::Adapter => kept(spec).filter(|map| fits(map, spec)),
            Lifetime::Program => None,
        };
        let is_new = old.is_none();
        let map = match old {
            Some(map) => map,
            None => make(spec)?,
        };
        maps.push((spec, map, is_new));
    }
    let descriptors: Vec<_> = (maps.iter()).map(|(_, map, _)| map.as_fd().as_raw_fd()).collect();
    let instructions = compiled.linked(&descriptors);
    let program = Program::load(&LoadRequest {
        instructions: &instructions,
        name: "linerate_qos",
        kind,
        license: "Dual MIT/GPL",
    })?;
    let lasting = maps
        .into_iter()
        .filter(|(spec, ..)| spec.lifetime == Lifetime::Adapter)
        .map(|(spec, map, is_new)| (spec.name.to_owned(), map, is_new))
        .collect();
    Ok(Loaded { program, maps: lasting })
}

fn make(spec: &MapSpec) -> Result<Map, BpfError> {
    let map = Map::create(&MapRequest {
        name: spec.name,
        kind: kind_of(spec.kind),
        key_bytes: spec.key_bytes,
        value_bytes: spec.value_bytes,
        entries: spec.entries,
    })?;
    if !spec.content.is_empty() {
        map.fill(&spec.content)?;
    }
    Ok(map)
}

fn fits(map: &Map, spec: &MapSpec) -> bool {
    let info = map.info();
    info.kind == kind_of(spec.kind) as u32
        && info.key_bytes == spec.key_bytes
        && info.value_bytes == spec.value_bytes
        && info.entries == spec.entries
}

fn kind_of(kind: program::MapKind) -> MapKind {
    match kind {
        program::MapKind::Array => MapKind::Array,
        program::MapKind::PerCpuArray => MapKind::PerCpuArray,
        program::MapKind::LruHash => MapKind::LruHash,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn pins_are_not_put_where_others_can_change_them() {
        let bpffs = tempfile::tempdir().unwrap();
        let own = bpffs.path().join("linerate");
        assert!(Hooks::keys(bpffs.path()).unwrap().is_empty());
        let hooks = Hooks::new(bpffs.path(), "1-2", Via::Tcx);
        hooks.make_directory().unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        assert_eq!(Hooks::keys(bpffs.path()).unwrap(), ["1-2"]);
        fs::set_permissions(&own, PermissionsExt::from_mode(0o1777)).unwrap();
        let refused = |result: Result<(), QosError>| {
            assert!(
                matches!(&result, Err(QosError::State(error)) if error.is_of_directory()),
                "{result:?}"
            );
        };
        refused(Hooks::keys(bpffs.path()).map(drop));
        refused(hooks.make_directory());
        fs::rename(&own, bpffs.path().join("other")).unwrap();
        symlink(bpffs.path().join("other"), &own).unwrap();
        refused(hooks.make_directory());
    }
}
