//! What undoes treatments of this host when the process that applied them is killed: this program,
//! started beside it.

use linerate_engine::{start_treatment_watch, undo_leftovers, watch_treatments};

use crate::args::WatchArgs;
use crate::progress::Progress;

/// Name of the hidden command.
const COMMAND: &str = "watch-treatments";

/// To be called by every command that may change this host, before it does and while it is in this
/// host's own namespace: that is where a command before this one can have left something. Undoes
/// what killed processes have left, and has this one watched. Answers what the user should know, a
/// line for each thing, and warns of it.
pub(crate) fn before_treating(progress: &mut Progress) -> Vec<String> {
    let notes = prepare();
    notes.iter().for_each(|note| progress.warn(note));
    notes
}

/// The same, and warns of nothing.
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

/// Waits for the end of a process, and undoes what it has left. There is nobody to tell.
pub(crate) fn execute(args: &WatchArgs) {
    let _notes = watch_treatments(args.pid, args.started);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_watch_is_a_command_of_this_program() {
        let line = ["linerate", COMMAND, "17", "4711"];
        let command = Cli::try_parse_from(line)
            .expect("the engine calls it so")
            .command;
        assert!(matches!(
            command,
            Command::WatchTreatments(WatchArgs {
                pid: 17,
                started: 4711
            })
        ));
    }
}
