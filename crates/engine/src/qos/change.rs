//! Puts new policies in force, on all interfaces or on none. If the process is killed at any point,
//! the next command finishes the change or takes it back.
//!
//! 1. Programs and maps are loaded and pinned; nothing is in force yet.
//! 2. The new state is written beside the old one.
//! 3. Classes are added, the program is swapped in one step, classes that are not used any more are
//!    deleted.
//! 4. The new state replaces the old one; pins that it does not use are removed.
//!
//! A command that finds step 2 done and step 4 not looks which program runs. With the new one it
//! finishes the change; with the old one, or none, it takes the change back.

use linerate_sys::bpf::{Map, Program};
use linerate_sys::netlink::Direction;

use super::error::QosError;
use super::hook::{Hooks, Loaded, prefix};
use super::port::Port;
use super::queue;
use super::state::{Hooked, InterfaceState, Mode, QosSite, Which};
use super::status::Readings;

/// The change of one interface.
#[derive(Debug)]
pub(super) struct QosChange {
    pub(super) port: Port,
    pub(super) old: Option<InterfaceState>,
    pub(super) next: InterfaceState,
    pub(super) loaded: Vec<(Direction, Loaded)>,
    /// Notes for the document.
    pub(super) notes: Vec<String>,
}

impl QosChange {
    /// Whether an HTB of our number is ours.
    pub(super) fn has_root(&self) -> bool {
        self.old.as_ref().is_some_and(InterfaceState::has_root)
    }
}

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];

/// Makes all changes, or none.
pub(super) fn commit(site: &mut QosSite, changes: Vec<QosChange>) -> Result<(), QosError> {
    let begun = changes.iter().try_for_each(|change| begin(site, change));
    let made = begun.and_then(|()| {
        (changes.iter()).try_for_each(|change| {
            if !change.next.classes.is_empty() && !change.has_root() {
                queue::clear(&mut site.netlink, &change.port)?;
            }
            enforce(site, &change.port, Some(&change.next), change.old.as_ref())
        })
    });
    if let Err(error) = made {
        for change in &changes {
            // The first error is reported. The next command tries again to restore what cannot be
            // restored now.
            let _ = back(site, &change.port, change.old.as_ref(), &change.next);
        }
        return Err(error);
    }
    changes
        .into_iter()
        .try_for_each(|change| conclude(site, &change.port, change.old.as_ref(), change.next))
}

/// Cleans up after a command that was killed, and answers the state that is in force.
pub(super) fn settle(site: &mut QosSite, port: &Port) -> Result<Option<InterfaceState>, QosError> {
    let hooks = site.hooks(port);
    let current = site.directory.read(&port.key, Which::Current);
    let next = match (site.directory.read(&port.key, Which::Next), &current) {
        (None, None) => return orphan(site, port),
        (None, Some(Ok(current))) => {
            hooks.tidy(Some(current))?;
            return Ok(Some(current.clone()));
        }
        (None, Some(Err(why))) => return lost(site, port, why.clone()).map(Some),
        (Some(Err(why)), _) => return lost(site, port, why).map(Some),
        (Some(Ok(next)), _) => next,
    };
    let running = hooks.in_force(&mut site.netlink, port, Direction::Egress)?;
    // If the new state has no program, it does not matter whether the old one still runs: finishing
    // the change is what the user asked for, and safe.
    let goes_on = next.egress.program.is_none() || running == next.egress.program;
    match current {
        current if goes_on && can_put(site, port, &next)? => {
            let current = current.and_then(Result::ok);
            enforce(site, port, Some(&next), current.as_ref())?;
            conclude(site, port, current.as_ref(), next)?;
        }
        Some(Err(why)) => return lost(site, port, why).map(Some),
        Some(Ok(current)) => back(site, port, Some(&current), &next)?,
        None => back(site, port, None, &next)?,
    }
    let current = site.directory.read(&port.key, Which::Current);
    Ok(current.and_then(Result::ok))
}

/// Handles pins without a state. They are left by a command that was killed before anything was in
/// force, or belong to a policy whose state file somebody has removed.
fn orphan(site: &mut QosSite, port: &Port) -> Result<Option<InterfaceState>, QosError> {
    let hooks = site.hooks(port);
    let mut is_ours = !hooks.pins()?.is_empty() && queue::has_ours(&mut site.netlink, port)?;
    for direction in DIRECTIONS {
        is_ours |= (hooks.in_force(&mut site.netlink, port, direction)?).is_some();
    }
    if !is_ours {
        hooks.tidy(None)?;
        return Ok(None);
    }
    let path = site.directory.file(&port.key, Which::Current);
    lost(site, port, format!("{} is gone", path.display())).map(Some)
}

/// The state of a policy whose file is lost, as far as the kernel shows it.
fn lost(site: &mut QosSite, port: &Port, why: String) -> Result<InterfaceState, QosError> {
    let hooks = site.hooks(port);
    let mut hooked = |direction| -> Result<Hooked, QosError> {
        Ok(Hooked {
            program: hooks.in_force(&mut site.netlink, port, direction)?,
            ..Hooked::default()
        })
    };
    Ok(InterfaceState {
        interface: port.name().to_owned(),
        index: port.index(),
        adapter: port.name().to_owned(),
        egress: hooked(Direction::Egress)?,
        ingress: hooked(Direction::Ingress)?,
        classes: queue::found(&mut site.netlink, port)?,
        lost: Some(why),
        ..InterfaceState::default()
    })
}

/// Whether all programs of a state are there, attached or not.
fn can_put(site: &mut QosSite, port: &Port, state: &InterfaceState) -> Result<bool, QosError> {
    let hooks = site.hooks(port);
    for direction in DIRECTIONS {
        if let Some(program) = state.hooked(direction).program
            && !hooks.can_put(&mut site.netlink, port, direction, program)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Pins what was loaded, and writes down the new state.
fn begin(site: &mut QosSite, change: &QosChange) -> Result<(), QosError> {
    let hooks = site.hooks(&change.port);
    hooks.make_directory()?;
    for (direction, loaded) in &change.loaded {
        let hooked = change.next.hooked(*direction);
        for (name, map, is_new) in &loaded.maps {
            if let (true, Some(pin)) = (*is_new, hooked.maps.get(name)) {
                map.pin(&hooks.pin(pin))?;
            }
        }
        hooks.keep(*direction, &loaded.program)?;
    }
    let directory = &site.directory;
    Ok(directory.write(&change.port.key, Which::Next, &change.next)?)
}

/// Makes everything as `wanted` says, even if a part of it is there already. `other` is the state
/// that is left: the old one, or the new one if the change is taken back.
fn enforce(
    site: &mut QosSite,
    port: &Port,
    wanted: Option<&InterfaceState>,
    other: Option<&InterfaceState>,
) -> Result<(), QosError> {
    let wanted = wanted.filter(|state| state.mode != Mode::Removed);
    let hooks = site.hooks(port);
    let netlink = &mut site.netlink;
    let offload = |state: Option<&InterfaceState>| state.and_then(|state| state.offload);
    queue::cap(netlink, port, offload(wanted), offload(other))?;
    if let Some(state) = wanted {
        queue::add(netlink, port, state)?;
    }
    for direction in DIRECTIONS {
        match wanted.and_then(|state| state.hooked(direction).program) {
            Some(program) => hooks.put(netlink, port, direction, program)?,
            None => hooks.take_away(netlink, port, direction)?,
        }
    }
    // An HTB with our number that no state knows is somebody else's.
    if [wanted, other].into_iter().flatten().any(InterfaceState::has_root) {
        let replaced = other.map_or(&[][..], |other| &other.replaced);
        queue::trim(netlink, port, wanted, replaced)
    } else {
        Ok(())
    }
}

/// Concludes a change: the new state becomes the state in force.
fn conclude(
    site: &mut QosSite,
    port: &Port,
    old: Option<&InterfaceState>,
    mut next: InterfaceState,
) -> Result<(), QosError> {
    let hooks = site.hooks(port);
    if next.mode == Mode::Removed {
        site.directory.remove(&port.key, Which::Current)?;
        site.directory.remove(&port.key, Which::Next)?;
        return hooks.tidy(None);
    }
    for direction in DIRECTIONS {
        take_over(&hooks, direction, old, &mut next)?;
    }
    site.directory.write(&port.key, Which::Current, &next)?;
    site.directory.remove(&port.key, Which::Next)?;
    hooks.tidy(Some(&next))
}

/// Carries over the counts of maps that larger ones have replaced: they are taken off the figure
/// that is subtracted, so that no count is lost.
fn take_over(
    hooks: &Hooks,
    direction: Direction,
    old: Option<&InterfaceState>,
    next: &mut InterfaceState,
) -> Result<(), QosError> {
    let names = next.slots.clone();
    let hooked = next.hooked_mut(direction);
    let Some(retired) = hooked.retired.take() else {
        return Ok(());
    };
    let Some(retired) = hooks.map(&retired)? else {
        // The new map begins at zero.
        hooked.base.clear();
        return Ok(());
    };
    let readings = Readings::new(retired);
    for (name, slot) in names {
        if old.is_some_and(|old| old.slots.get(&name) == Some(&slot)) {
            let counted = readings.slot(slot)?;
            let base = hooked.base.entry(name).or_default();
            for (base, counted) in base.iter_mut().zip(counted) {
                *base = base.wrapping_sub(counted);
            }
        }
    }
    Ok(())
}

/// Takes a change back: the old state is in force again.
fn back(
    site: &mut QosSite,
    port: &Port,
    old: Option<&InterfaceState>,
    next: &InterfaceState,
) -> Result<(), QosError> {
    let mut there = old.cloned();
    let hooks = site.hooks(port);
    if let Some(there) = &mut there {
        for direction in DIRECTIONS {
            let hooked = there.hooked_mut(direction);
            // A program that somebody has removed stays away, and `status` reports it. The rest is
            // restored.
            if let Some(program) = hooked.program
                && !hooks.can_put(&mut site.netlink, port, direction, program)?
            {
                hooked.program = None;
            }
        }
    }
    enforce(site, port, there.as_ref(), Some(next))?;
    site.directory.remove(&port.key, Which::Next)?;
    hooks.tidy(old)
}

impl InterfaceState {
    pub(super) fn hooked(&self, direction: Direction) -> &Hooked {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    pub(super) fn hooked_mut(&mut self, direction: Direction) -> &mut Hooked {
        match direction {
            Direction::Egress => &mut self.egress,
            Direction::Ingress => &mut self.ingress,
        }
    }
}

/// The new state of one direction: maps of the loaded program replace old ones of the same name.
pub(super) fn hooked(
    old: &Hooked,
    direction: Direction,
    program: &Program,
    maps: &[(String, Map, bool)],
) -> Result<Hooked, QosError> {
    let mut hooked = old.clone();
    hooked.program = Some(program.id()?);
    for (name, map, _) in maps.iter().filter(|(.., is_new)| *is_new) {
        let pin = format!("{}{name}_{}", prefix(direction), map.info().id);
        let replaced = hooked.maps.insert(name.clone(), pin);
        if name == COUNTERS {
            hooked.retired = replaced;
        }
    }
    Ok(hooked)
}

/// The map that counts.
pub(super) const COUNTERS: &str = "counters";
