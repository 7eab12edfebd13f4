//! The command line of this process: its options as the user typed them, for errors (`-P` for
//! `--streams`), and all of it, for documents and `rerun`.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use linerate_core::plan::options;
use linerate_core::units::Family;

use crate::failure::without_passwords;

/// A command line as clap read it, with the seed that was drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// The command's name, such as `stream`, or `host` and `show`.
    command: Vec<String>,
    /// The words of each argument by its identifier: those without a name first.
    arguments: Vec<(String, Vec<String>)>,
}

impl CommandLine {
    const EMPTY: Self = Self { command: Vec::new(), arguments: Vec::new() };

    /// The line that `program` read.
    pub(crate) fn new(program: &Command, matches: &ArgMatches) -> Self {
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
            let is_given = source == ValueSource::CommandLine || id == SEED;
            is_given.then(|| (id.to_owned(), words_of(argument, matches)))
        });
        let arguments = arguments.collect();
        Self { command: names, arguments }
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.arguments.iter().any(|(it, _)| it == id)
    }

    /// The line without these arguments.
    pub(crate) fn without(mut self, ids: &[&str]) -> Self {
        self.arguments.retain(|(id, _)| !ids.contains(&&**id));
        self
    }

    /// The line with these words before its other arguments.
    pub(crate) fn with(mut self, id: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.arguments.insert(0, (id.to_owned(), words));
        self
    }

    /// The line with the arguments of another behind its own.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.arguments.extend(other.arguments);
        self
    }

    /// All words, `linerate` first.
    pub(crate) fn words(&self) -> Vec<String> {
        let arguments = self.arguments.iter().flat_map(|(_, words)| words);
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

const SEED: &str = "seed";

/// The arguments that say where a document goes and what it is held to, which a rerun is given
/// anew.
pub(crate) const OF_OUTPUT: &[&str] = &[
    "against",
    "baseline",
    "csv",
    "db",
    "details",
    "extra_data",
    "fail_below",
    "fail_below_rpm",
    "fail_on",
    "fail_on_worse",
    "flame",
    "folded",
    "json",
    "json_stream",
    "label",
    "output",
    "quiet",
    "save",
    "title",
];

/// The words that give an argument the values that were read.
fn words_of(argument: &Arg, matches: &ArgMatches) -> Vec<String> {
    let id = argument.get_id().as_str();
    let name = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => String::new(),
    };
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

/// An option of a test, by its key, as it was typed to this process.
pub(crate) fn option(key: &str) -> String {
    let of_key = options().iter().filter(|option| option.key == key);
    let (mut letters, mut aliases) = (Vec::new(), Vec::new());
    for option in of_key {
        letters.extend(option.short);
        aliases.extend(option.aliases);
    }
    here(&format!("--{key}"), &letters, &aliases)
}

/// An option with that letter and those other long names, as it was typed to this process.
pub(crate) fn here(option: &str, letters: &[char], aliases: &[&str]) -> String {
    let words: Vec<OsString> = std::env::args_os().collect();
    among(&words, option, letters, aliases)
}

/// The same on any command line; the long name if the option was not typed.
pub(crate) fn among(
    words: &[OsString],
    option: &str,
    letters: &[char],
    aliases: &[&str],
) -> String {
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    let mut names = words.filter_map(|word| match word.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next().unwrap_or(long);
            let is_it = option.strip_prefix("--") == Some(name) || aliases.contains(&name);
            is_it.then(|| format!("--{name}"))
        }
        None => {
            let letter = word.strip_prefix('-')?.chars().next()?;
            letters.contains(&letter).then(|| format!("-{letter}"))
        }
    });
    names.next().unwrap_or_else(|| option.to_owned())
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
            let typed = among(&words, "--streams", &['P'], &["parallel"]);
            assert_eq!(typed, name, "{line}");
        }
    }
}
