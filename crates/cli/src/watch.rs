//! Undoes treatments of this host when the process that applied them is killed: another process of
//! this program watches it.

use linerate_engine::{start_treatment_watch, undo_leftovers, watch_treatments};

use crate::args::WatchArgs;
use crate::progress::Progress;

/// Name of the hidden command.
const COMMAND: &str = "watch-treatments";

/// Undoes what killed processes left changed, and starts the watch of this process. Every command
/// that may change this host calls this before, while it is in the host's own network namespace,
/// where earlier commands made their changes. Warns of what the user should know, and returns it.
pub(crate) fn before_treating(progress: &mut Progress) -> Vec<String> {
    let notes = prepare();
    notes.iter().for_each(|note| progress.warn(note));
    notes
}

/// As [`before_treating`], without warnings.
pub(crate) fn prepare() -> Vec<String> {
    let mut notes = undo_leftovers();
    if let Err(error) = start_treatment_watch([COMMAND]) {
        notes.push(format!(
            "nothing watches this process: if it is killed, what it has changed is undone at the \
             next start ({error})"
        ));
    }
    notes
}

/// Waits for the end of a process, and undoes what it left changed.
pub(crate) fn execute(args: &WatchArgs) {
    // Nobody reads the notes.
    let _notes = watch_treatments(args.pid, args.started);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, command};

    #[test]
    fn the_watch_is_a_command_of_this_program() {
        let command = command(&format!("{COMMAND} 17 4711")).expect("the engine calls it so");
        let Command::WatchTreatments(args) = command else {
            panic!("{command:?}");
        };
        assert_eq!((args.pid, args.started), (17, 4711));
    }
}
