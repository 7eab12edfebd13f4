//! From what is in force to what is to be: on all interfaces or on none, and right again after being killed anywhere.
//!
//! 1. Programs and maps are loaded and pinned; nothing is in force yet.
//! 2. What is to be in force is written beside what is.
//! 3. Classes are added, the program is swapped in one step, classes that are not used any more are deleted.
//! 4. The new state takes the place of the old one; pins of neither are taken away.
//!
//! A command that finds step 2 written and step 4 not done looks which program runs: with the new one it goes on, with
//! the old one, or none, it goes back.

use linerate_sys::bpf::{Map, Program};
use linerate_sys::netlink::Direction;

use super::counters::Readings;
use super::error::QosError;
use super::hook::{Hooks, prefix};
use super::load::Loaded;
use super::port::Port;
use super::queue;
use super::site::Site;
use super::state::{Hooked, Mode, State};

/// What is to be done on one interface.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) port: Port,
    pub(super) old: Option<State>,
    pub(super) next: State,
    pub(super) loaded: Vec<(Direction, Loaded)>,
}

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];

/// Makes all changes, or none.
pub(super) fn commit(site: &mut Site, changes: Vec<Change>) -> Result<(), QosError> {
    let made = changes.iter().try_for_each(|change| begin(site, change));
    let made = made.and_then(|()| {
        (changes.iter()).try_for_each(|change| {
            enforce(site, &change.port, Some(&change.next), change.old.as_ref())
        })
    });
    if let Err(error) = made {
        for change in &changes {
            // The first error is the one to tell; what cannot be put back now the next command tries again.
            let _ = back(site, &change.port, change.old.as_ref(), &change.next);
        }
        return Err(error);
    }
    changes
        .into_iter()
        .try_for_each(|change| conclude(site, &change.port, change.old.as_ref(), change.next))
}

/// Cleans up after a command that was killed, and gives what is in force.
pub(super) fn settle(site: &mut Site, port: &Port) -> Result<Option<State>, QosError> {
    let current = site.directory.current(&port.key)?;
    let hooks = site.hooks(port);
    let Some(next) = site.directory.next(&port.key)? else {
        hooks.tidy(current.as_ref())?;
        return Ok(current);
    };
    let running = hooks.in_force(&mut site.netlink, port, Direction::Egress)?;
    // Without a program to come the packets meet none or the old one: either way it is asked for and safe.
    let goes_on = next.egress.program.is_none() || running == next.egress.program;
    if goes_on {
        enforce(site, port, Some(&next), current.as_ref())?;
        conclude(site, port, current.as_ref(), next)?;
    } else {
        back(site, port, current.as_ref(), &next)?;
    }
    site.directory.current(&port.key)
}

/// Pins what was loaded and writes down what is to be.
fn begin(site: &mut Site, change: &Change) -> Result<(), QosError> {
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
    site.directory.write_next(&change.port.key, &change.next)
}

/// Makes everything as `wanted` says, whatever of it is there already; `other` is what was, or was to be.
fn enforce(
    site: &mut Site,
    port: &Port,
    wanted: Option<&State>,
    other: Option<&State>,
) -> Result<(), QosError> {
    let wanted = wanted.filter(|state| state.mode != Mode::Removed);
    let hooks = site.hooks(port);
    let netlink = &mut site.netlink;
    let offload = |state: Option<&State>| state.and_then(|state| state.offload);
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
    queue::trim(netlink, port, wanted)
}

/// The change is made: it becomes what is in force.
fn conclude(
    site: &mut Site,
    port: &Port,
    old: Option<&State>,
    mut next: State,
) -> Result<(), QosError> {
    let hooks = site.hooks(port);
    if next.mode == Mode::Removed {
        site.directory.remove_current(&port.key)?;
        site.directory.remove_next(&port.key)?;
        return hooks.tidy(None);
    }
    for direction in DIRECTIONS {
        take_over(&hooks, direction, old, &mut next)?;
    }
    site.directory.write_current(&port.key, &next)?;
    site.directory.remove_next(&port.key)?;
    hooks.tidy(Some(&next))
}

/// Counts of a map that a larger one has replaced go into what is subtracted, so that nothing is lost.
fn take_over(
    hooks: &Hooks,
    direction: Direction,
    old: Option<&State>,
    next: &mut State,
) -> Result<(), QosError> {
    let names = next.slots.clone();
    let hooked = next.hooked_mut(direction);
    let Some(retired) = hooked.retired.take() else {
        return Ok(());
    };
    let readings = Readings::of(Map::from_pin(&hooks.pin(&retired))?);
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

/// The change is not made: what was in force is again.
fn back(site: &mut Site, port: &Port, old: Option<&State>, next: &State) -> Result<(), QosError> {
    enforce(site, port, old, Some(next))?;
    site.directory.remove_next(&port.key)?;
    site.hooks(port).tidy(old)
}

impl State {
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

/// What one direction is to be with a loaded program: new maps in the place of old ones of the same name.
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
