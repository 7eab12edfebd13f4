//! Treatments of this host, in force until this is dropped.

use std::net::IpAddr;

use linerate_core::treatment::HostChange;
use linerate_sys::netns::Namespace;

use super::error::TreatError;
use super::journal;
use super::place::NamespacePlace;
use super::step::{Planned, Step, Undone, plan};
use crate::state_files::{HeldDirectory, JsonLog, StateDirectory, remove_file};

/// Treatments that are in force. They are of the network namespace of the thread that applied them,
/// whichever thread drops this. Whatever cannot be undone stays in the journal, and the next start
/// tries again.
#[derive(Debug, Default)]
#[must_use = "dropped at once, it undoes what it applied"]
pub struct Applied {
    namespace: Option<Namespace>,
    journal: Option<JsonLog>,
    /// In the order in which they were set.
    steps: Vec<Step>,
    read_back: Vec<String>,
}

impl Applied {
    /// Applies changes on this host, in the calling thread's network namespace: all of them or
    /// none. `peer` is the address that devices and routes are of. Each is written to the journal
    /// before it is set, and read back when all are.
    ///
    /// # Errors
    /// Not in the table; not permitted; this host, device or route does not have it; it did not
    /// take; another process treats the same thing. Nothing is changed then. [`TreatError::Undo`]
    /// where what was set before that could not be put back.
    pub fn apply(changes: &[HostChange], peer: IpAddr) -> Result<Self, TreatError> {
        let planned = plan(changes)?;
        if planned.is_empty() {
            Ok(Self::default())
        } else {
            Self::apply_in(&journal::directory()?, &planned, peer)
        }
    }

    pub(super) fn apply_in(
        directory: &StateDirectory,
        planned: &[Planned],
        peer: IpAddr,
    ) -> Result<Self, TreatError> {
        let mut applied = Self::default();
        match applied.apply_all(directory, planned, peer) {
            Ok(()) => Ok(applied),
            Err(error) => applied.undo_all().and(Err(error)),
        }
    }

    fn apply_all(
        &mut self,
        directory: &StateDirectory,
        planned: &[Planned],
        peer: IpAddr,
    ) -> Result<(), TreatError> {
        let place = NamespacePlace::here()?;
        self.namespace = Some(Namespace::current()?);
        let held = journal::hold(directory)?;
        journal::undo_in(&held)?;
        for one in planned {
            let step = one.prepare(peer)?;
            if !step.changes() {
                self.steps.push(step);
                continue;
            }
            check_free(&held, &step, &place)?;
            let own = match &mut self.journal {
                Some(own) => own,
                none => none.insert(journal::begin(&held, place.clone())?),
            };
            own.add(&step)?;
            // One that fails half way is undone as well, as far as it went.
            self.steps.push(step.clone());
            step.set()?;
        }
        // Only now: one step may take away what an earlier one set.
        for step in &self.steps {
            self.read_back.push(step.check()?);
        }
        Ok(())
    }

    /// Settings in force, for the record: `eth0: tso off`.
    pub fn read_back(&self) -> Vec<String> {
        self.read_back.clone()
    }

    /// Puts back what was changed, in reverse order, where nobody else has changed it since.
    ///
    /// # Errors
    /// [`TreatError::Undo`] with the first thing that could not be put back; the others are.
    pub fn undo(mut self) -> Result<(), TreatError> {
        self.undo_all()
    }

    fn undo_all(&mut self) -> Result<(), TreatError> {
        let Some(namespace) = self.namespace.take() else {
            return Ok(());
        };
        let steps = std::mem::take(&mut self.steps);
        let undo = || undo_all(&steps);
        let is_here = Namespace::current()?.inode()? == namespace.inode()?;
        if is_here {
            undo()?
        } else {
            namespace.run(undo)??
        }
        if let Some(own) = self.journal.take() {
            // One that stays is found done by the next start.
            let _ = remove_file(own.path());
        }
        Ok(())
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        // Who wants to know calls `undo`; what is left stands in the journal.
        let _ = self.undo_all();
    }
}

/// Undoes those that changed something, the last first.
///
/// # Errors
/// [`TreatError::Undo`] with the first that could not be; the others are undone.
pub(super) fn undo_all(steps: &[Step]) -> Result<(), TreatError> {
    let changed = steps.iter().rev().filter(|step| step.changes());
    let failures = changed.filter_map(|step| undo_step(step).err());
    failures.reduce(|first, _| first).map_or(Ok(()), Err)
}

/// # Errors
/// [`TreatError::Undo`].
pub(super) fn undo_step(step: &Step) -> Result<Undone, TreatError> {
    step.undo().map_err(|source| TreatError::Undo { what: step.what(), source: Box::new(source) })
}

/// Two processes must not treat the same thing: when one undoes its change it would overwrite the
/// other's.
pub(super) fn check_free(
    held: &HeldDirectory,
    step: &Step,
    place: &NamespacePlace,
) -> Result<(), TreatError> {
    let others = journal::entries(held)?;
    let busy = others.iter().find_map(|entry| {
        let header = entry.header.as_ref()?;
        let is_near = entry.is_held && header.place == *place;
        let meets = is_near && entry.steps.iter().any(|other| other.meets(step));
        meets.then_some(header.pid)
    });
    match busy {
        Some(pid) => Err(TreatError::Busy { what: step.what(), pid }),
        None => Ok(()),
    }
}
