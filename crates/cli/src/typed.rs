//! The command line of this process: its options as the user typed them, for errors (`-P` for
//! `--streams`), and all of it, for documents and `rerun`.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use linerate_core::units::Family;

use crate::failure::without_passwords;

/// A command line as clap read it, with the seed that was drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// The command's name, such as `stream`, or `host` and `show`.
    command: Vec<String>,
    /// The arguments that were given, those without a name first.
    arguments: Vec<GivenArgument>,
}

/// An argument with the values that it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GivenArgument {
    /// clap's identifier.
    id: String,
    /// The name by which the user gave it.
    typed: String,
    words: Vec<String>,
}

impl CommandLine {
    const EMPTY: Self = Self { command: Vec::new(), arguments: Vec::new() };

    /// The line of these words, which `program` read.
    pub(crate) fn new(program: &Command, matches: &ArgMatches, words: &[OsString]) -> Self {
        let (mut command, mut matches) = (program, matches);
        let mut names = Vec::new();
        while let Some((name, below)) = matches.subcommand() {
            names.push(name.to_owned());
            let Some(named) = command.find_subcommand(name) else { break };
            (command, matches) = (named, below);
        }
        let nameless = command.get_positionals();
        let named = command.get_arguments().filter(|argument| !argument.is_positional());
        let arguments = nameless.chain(named).filter_map(|argument| {
            let id = argument.get_id().as_str();
            let source = matches.value_source(id)?;
            let is_given = source == ValueSource::CommandLine || id == "seed";
            is_given.then(|| GivenArgument {
                id: id.to_owned(),
                typed: as_typed(argument, words),
                words: words_of(argument, matches),
            })
        });
        Self { command: names, arguments: arguments.collect() }
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.arguments.iter().any(|argument| argument.id == id)
    }

    /// The line without the arguments that `ids` lists.
    pub(crate) fn without(mut self, ids: &str) -> Self {
        self.arguments.retain(|argument| !ids.split(' ').any(|id| id == argument.id));
        self
    }

    /// The line with a host before its other arguments.
    pub(crate) fn with_host(mut self, host: &str) -> Self {
        let words = vec![host.to_owned()];
        let host = GivenArgument { id: "host".to_owned(), typed: "HOST".to_owned(), words };
        self.arguments.insert(0, host);
        self
    }

    /// The line with the arguments of another behind its own.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.arguments.extend(other.arguments);
        self
    }

    /// All words, `linerate` first.
    pub(crate) fn words(&self) -> Vec<String> {
        let arguments = self.arguments.iter().flat_map(|argument| &argument.words);
        let words = self.command.iter().chain(arguments).cloned();
        ["linerate".to_owned()].into_iter().chain(words).collect()
    }

    /// The words as a document has them: what is measured and how, without passwords, and without
    /// what is done with the figures.
    pub(crate) fn of_document(&self) -> Vec<String> {
        let line = self.clone().without(OF_OUTPUT);
        line.words().iter().map(|word| without_passwords(word)).collect()
    }
}

/// The arguments that say where a document goes and what it is held to: a rerun is given its own.
pub(crate) const OF_OUTPUT: &str = "details json json_stream csv output quiet save label db title \
     extra_data baseline fail_on_worse fail_on fail_below fail_below_rpm flame folded";

/// The words that give an argument the values that were read.
fn words_of(argument: &Arg, matches: &ArgMatches) -> Vec<String> {
    let (id, name) = (argument.get_id().as_str(), name(argument));
    if !argument.get_action().takes_values() {
        return vec![name];
    }
    let delimiter = argument.get_value_delimiter().map(String::from).unwrap_or_default();
    let times = matches.get_raw_occurrences(id).into_iter().flatten().map(|values| {
        let values = values.map(|value| value.to_string_lossy().into_owned());
        values.collect::<Vec<_>>()
    });
    let of_time = |values: Vec<String>| match (&*name, values.join(&delimiter)) {
        ("", _) => values,
        (_, value) if argument.is_require_equals_set() || value.starts_with('-') => {
            vec![format!("{name}={value}")]
        }
        (_, value) => vec![name.clone(), value],
    };
    times.flat_map(of_time).collect()
}

static LINE: Mutex<CommandLine> = Mutex::new(CommandLine::EMPTY);

/// The command line that is executed; empty before it is read.
pub(crate) fn line() -> CommandLine {
    LINE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps the command line that is executed from now on.
pub(crate) fn keep(line: CommandLine) {
    *LINE.lock().unwrap_or_else(PoisonError::into_inner) = line;
}

/// The option for a family.
pub(crate) fn flag(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "-4",
        Family::Ipv6 => "-6",
    }
}

/// The name by which the user gave an argument of this identifier, such as `-P` for `streams`.
pub(crate) fn option(id: &str) -> String {
    let line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    let given = line.arguments.iter().find(|argument| argument.id == id);
    match given {
        Some(argument) => argument.typed.clone(),
        None if id.starts_with('-') => id.to_owned(),
        None => format!("--{id}"),
    }
}

/// The name by which an argument stands among these words; its own if it does not.
pub(crate) fn as_typed(argument: &Arg, words: &[OsString]) -> String {
    let aliases = argument.get_all_aliases().unwrap_or_default();
    let letters = argument.get_all_short_aliases().unwrap_or_default();
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    let mut names = words.filter_map(|word| match word.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next().unwrap_or(long);
            let is_it = argument.get_long() == Some(name) || aliases.contains(&name);
            is_it.then(|| format!("--{name}"))
        }
        None => {
            let letter = word.strip_prefix('-')?.chars().next()?;
            let is_it = argument.get_short() == Some(letter) || letters.contains(&letter);
            is_it.then(|| format!("-{letter}"))
        }
    });
    names.next().unwrap_or_else(|| name(argument))
}

/// The argument's own name; empty if it has none.
fn name(argument: &Arg) -> String {
    match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_named_as_it_was_typed() {
        for (line, name) in [
            ("linerate stream h -P 0", "-P"),
            ("linerate stream h -P0", "-P"),
            ("linerate stream h --parallel=0", "--parallel"),
            ("linerate stream h --streams 0", "--streams"),
            ("linerate stream h", "--streams"),
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let streams = Arg::new("streams").long("streams").short('P').alias("parallel");
            let typed = as_typed(&streams, &words);
            assert_eq!(typed, name, "{line}");
        }
    }
}
