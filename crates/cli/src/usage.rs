//! Reads the command line with clap, and turns its errors into one line: the option as it was
//! typed, the range in the user's units, and a hint.

mod elsewhere;

use std::error::Error as _;
use std::ffi::OsString;
use std::net::AddrParseError;

use anyhow::anyhow;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use linerate_core::units::{self, listed, quoted, shortened};

use crate::args::{self, Cli, Load, LoadLine, WhichRun};
use crate::config::Config;
use crate::failure::Failure;
use crate::typed::{self, CommandLine};

/// Reads the command line and the user's configuration file. A help text or the version is printed
/// here, and ends the process.
///
/// # Errors
/// One of them is wrong.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, Failure> {
    let words = as_clap_reads_them(words.into_iter().collect());
    let mut read = self::read(&words);
    let is_to_be_added_to = match &read {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::MissingRequiredArgument,
    };
    if is_to_be_added_to {
        let matches = read.as_ref().map(|(_, matches)| matches);
        let added = Config::load()?.added_to(&words, matches.ok());
        if added != words {
            // If something is still missing, the error is about the words that were typed.
            read = self::read(&added).or(read);
        }
    }
    let cli = read.and_then(|(command, matches)| {
        let cli = Cli::from_arg_matches(&matches)?;
        typed::keep(CommandLine::new(&command, &matches, &words));
        Ok(cli)
    });
    cli.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => Failure::usage(anyhow!(line(&error, &words))),
    })
}

/// The words as clap reads them, with the command that reads them.
///
/// # Errors
/// clap refuses them.
fn read(words: &[OsString]) -> Result<(clap::Command, ArgMatches), clap::Error> {
    let mut command = Cli::command();
    let named =
        words.get(1).and_then(|word| word.to_str()).and_then(|word| command.find_subcommand(word));
    if let Some(name) = named.map(|named| named.get_name().to_owned()) {
        command = command.mut_subcommand(name, |named| with_negatives(args::built(named)));
    }
    let matches = command.try_get_matches_from_mut(words)?;
    Ok((command, matches))
}

/// The command line that these words are.
///
/// # Errors
/// clap refuses them.
pub(crate) fn command_line(words: &[String]) -> anyhow::Result<CommandLine> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let (command, matches) = read(&words).map_err(|error| anyhow!(line(&error, &words)))?;
    Ok(CommandLine::new(&command, &matches, &words))
}

/// Lets `-1` in `--repeat -1` be a value, which is out of range, and not an unknown option.
fn with_negatives(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        let takes_one = argument.get_action().takes_values() && !argument.is_positional();
        argument.allow_negative_numbers(takes_one)
    });
    command.mut_subcommands(with_negatives)
}

/// Reads the load of `--with`.
///
/// # Errors
/// It is wrong.
pub(crate) fn load(words: &str) -> anyhow::Result<Load> {
    let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    let command = with_negatives(LoadLine::command());
    let read = command
        .try_get_matches_from(&words)
        .and_then(|matches| LoadLine::from_arg_matches(&matches));
    let named: Vec<_> = ["linerate".into()].into_iter().chain(words).collect();
    read.map(|read| read.load).map_err(|error| match error.kind() {
        ErrorKind::InvalidSubcommand
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            anyhow!("it must begin with stream, rr or crr")
        }
        _ => anyhow!(line(&error, &named)),
    })
}

/// Turns `help stream` into `stream --help`, as git and cargo do, `-v` into `--version`, and
/// `history 17` into `history show 17`.
fn as_clap_reads_them(mut words: Vec<OsString>) -> Vec<OsString> {
    let word = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
    match word(1) {
        "help" => {
            words.remove(1);
            words.push("--help".into());
        }
        "-v" => words[1] = "--version".into(),
        "history" if word(2).parse::<WhichRun>().is_ok() => words.insert(2, "show".into()),
        _ => {}
    }
    words
}

fn line(error: &clap::Error, words: &[OsString]) -> String {
    let text = |kind| error.get(kind).map(strings).unwrap_or_default();
    let argument = text(ContextKind::InvalidArg).join(", ");
    let name = &typed(name(&argument), words);
    let value = text(ContextKind::InvalidValue).concat();
    match error.kind() {
        ErrorKind::UnknownArgument => unknown_option(&argument, words),
        ErrorKind::InvalidSubcommand => {
            unknown_command(&text(ContextKind::InvalidSubcommand).concat(), words)
        }
        ErrorKind::MissingSubcommand => {
            let commands = text(ContextKind::ValidSubcommand).join(", ");
            format!("which of its commands? {commands}")
        }
        ErrorKind::MissingRequiredArgument => missing(&text(ContextKind::InvalidArg), words),
        ErrorKind::ArgumentConflict => {
            let others = text(ContextKind::PriorArg);
            let prior = others.iter().map(|other| typed(self::name(other), words));
            match &prior.collect::<Vec<_>>()[..] {
                [] => format!("{name} is used alone, without other options"),
                [same] if same == name => format!("{name} is given twice"),
                prior => format!("{name} cannot be used with {}", prior.join(", ")),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => needs_a_value(name),
        ErrorKind::InvalidValue => {
            let values = text(ContextKind::ValidValue);
            let valid: Vec<_> = values.iter().map(String::as_str).collect();
            format!("{name} {}: it must be {}", quoted(&value), listed(&valid, "or"))
        }
        ErrorKind::ValueValidation => {
            format!("{name} {}: {}", quoted(&value), why(error, &value))
        }
        ErrorKind::TooManyValues => format!("{name} takes no value"),
        ErrorKind::NoEquals => format!("{name} takes its value after =, as in {name}=VALUE"),
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        }
    }
}

fn needs_a_value(name: &str) -> String {
    format!("{name} needs a value")
}

/// The option as it was typed: `-P` or `--parallel` for `--streams`.
fn typed(option: &str, words: &[OsString]) -> String {
    let (command, _) = command_of(words);
    let long = option.strip_prefix("--").unwrap_or_default();
    let mut arguments = command.get_arguments();
    let named = arguments.find(|argument| argument.get_long() == Some(long));
    named.map_or_else(|| option.to_owned(), |argument| typed::as_typed(argument, words))
}

/// `--time` of `--time <TIME>`, and `HOST` of `[HOST]`.
fn name(argument: &str) -> &str {
    if argument.starts_with('-') {
        return argument.split([' ', '=', '[']).next().unwrap_or_default();
    }
    let argument = argument.trim_end_matches('.');
    let pairs = [('<', '>'), ('[', ']')];
    let mut inner =
        pairs.iter().map(|(open, close)| argument.strip_prefix(*open)?.strip_suffix(*close));
    inner.find_map(|inner| inner).unwrap_or(argument)
}

fn strings(value: &ContextValue) -> Vec<String> {
    match value {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        ContextValue::StyledStr(text) => vec![text.to_string()],
        _ => Vec::new(),
    }
}

/// Why a value is refused. Errors that are of files, too, name the value themselves.
fn why(error: &clap::Error, value: &str) -> String {
    match error.source() {
        Some(why) if why.is::<AddrParseError>() => "it must be an IPv4 or IPv6 address".to_owned(),
        Some(why) => {
            let why = why.to_string();
            let named = why.strip_prefix(&format!("`{}`: ", shortened(value)));
            named.map(str::to_owned).unwrap_or(why)
        }
        None => String::new(),
    }
}

fn missing(arguments: &[String], words: &[OsString]) -> String {
    let names: Vec<_> = arguments.iter().map(|argument| name(argument)).collect();
    let is = if names.len() == 1 { "is" } else { "are" };
    let (command, path) = command_of(words);
    let names = listed(&names, "and");
    if names == "HOST" && elsewhere::is_traffic(&path) && has(&command, "--lab") {
        return format!(
            "HOST is missing: linerate {path} HOST, where `linerate serve` runs; or --lab SPEC"
        );
    }
    let has = |option: &str| words.iter().any(|word| word == option);
    let mut needs = NEEDS.iter();
    if let Some((typed, needed)) = needs.find(|(typed, needed)| names == *needed && has(typed)) {
        return format!("{typed} needs {needed}");
    }
    let mut all = ALTERNATIVES.iter();
    let alternatives = all.find(|(command, first, _)| *command == path && *first == names);
    let names = alternatives.map_or(names.as_str(), |(.., alternatives)| alternatives);
    format!("{names} {is} missing; `linerate {path} -h` shows how it is used")
}

/// Commands that need one of several options; clap names only the first.
const ALTERNATIVES: &[(&str, &str, &str)] = &[
    ("history export", "--format", "--format, --csv or --json-lines"),
    ("history prune", "--keep", "--keep or --older"),
];

/// Options with the option or argument that they need; clap does not say which one needs it.
const NEEDS: &[(&str, &str)] = &[
    ("--key-file", "--reverse"),
    ("--label", "--save"),
    ("--credentials", "--bus"),
    ("--ca", "--bus"),
    ("--stamp-allow", "--stamp"),
    ("--netperf-passphrase", "--netperf"),
    ("--iperf3-users", "--iperf3-key"),
    ("--iperf3-pkcs1", "--iperf3-key"),
    ("--iperf3-key", "--iperf3-users"),
    ("--adapter", "--policy"),
    ("--persist", "--apply"),
    ("--rate", "--rtt"),
    ("--rtt", "--rate"),
    ("--flows", "FILE|RUN"),
    ("-u", "--rate"),
    ("--udp", "--rate"),
    ("-b", "--udp"),
];

fn unknown_command(name: &str, words: &[OsString]) -> String {
    let (command, path) = command_of(words);
    let program = elsewhere::program(format!("{path} {name}").trim());
    let commands = command.get_subcommands().filter(|it| !it.is_hide_set());
    let hint = match program {
        Some(instead) => format!(": use {instead}"),
        None => suggestion(name, commands.map(|it| it.get_name().to_owned())),
    };
    // The name of a host by itself.
    if hint.is_empty() && path.is_empty() && args::names_host(name) {
        return format!("there is no command {name:?}; did you mean linerate check {name}?");
    }
    format!("there is no command {name:?}{hint}")
}

fn unknown_option(option: &str, words: &[OsString]) -> String {
    let (command, path) = command_of(words);
    if !option.starts_with('-') {
        if let Some(before) = takes_equals(option, words) {
            return format!("{before} takes its value after =: {before}={option}");
        }
        let hint = elsewhere::excess(&path, option).map(|hint| format!("; {hint}"));
        return format!("{option:?} is one word too many{}", hint.unwrap_or_default());
    }
    if let Some((name, value)) = negative(option, words) {
        return format!("{name} {value}: it must not be negative");
    }
    let after_colon = |hint| format!(": {hint}");
    let hint = (elsewhere::hint(&path, option).map(after_colon))
        .or_else(|| whose(&path, option))
        .or_else(|| elsewhere::of_iperf3(&path, option).map(after_colon))
        .unwrap_or_else(|| suggestion(option, long_names(&command)));
    match &path[..] {
        "" => format!("there is no option {option}{hint}"),
        path => format!("{path} has no option {option}{hint}"),
    }
}

/// The option before a word, if it takes a value, but only after `=`.
fn takes_equals(word: &str, words: &[OsString]) -> Option<String> {
    let (command, _) = command_of(words);
    let at = words.iter().position(|typed| typed == word)?;
    let before = words.get(at.checked_sub(1)?)?.to_str()?;
    let long = before.strip_prefix("--")?;
    let mut arguments = command.get_arguments();
    let takes = |argument: &&clap::Arg| argument.get_long() == Some(long);
    let argument = arguments.find(takes)?;
    (argument.is_require_equals_set() && argument.get_action().takes_values())
        .then(|| before.to_owned())
}

/// The option and its value in `--precision -1%`, where clap sees an option `-1`.
fn negative<'a>(option: &str, words: &'a [OsString]) -> Option<(&'a str, &'a str)> {
    let is_digit = option.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit());
    let mut pairs = words.windows(2);
    let pair = pairs.find_map(|two| {
        let [name, value] = [two[0].to_str()?, two[1].to_str()?];
        (name.starts_with('-') && value.starts_with(option)).then_some((name, value))
    });
    pair.filter(|_| is_digit)
}

/// The commands that have a long option. A letter may mean something else in each command, so it is
/// only looked for in `stream`, and only if iperf3 has it.
fn whose(path: &str, option: &str) -> Option<String> {
    let cli = Cli::whole();
    if let (2, Some(letter)) = (option.len(), option.chars().nth(1)) {
        let stream = cli.find_subcommand("stream")?;
        let has = stream.get_arguments().any(|of| of.get_short() == Some(letter));
        let is_iperf3s = elsewhere::of_iperf3(path, option).is_some();
        return (has && is_iperf3s).then(|| "; stream has it".to_owned());
    }
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
    let with: Vec<_> = commands.filter(|command| has(command, option)).collect();
    let names: Vec<_> = with.iter().map(|command| command.get_name()).collect();
    let is_long = option.starts_with("--") && !names.is_empty();
    let have = if names.len() == 1 { "has" } else { "have" };
    is_long.then(|| format!("; {} {have} it", listed(&names, "and")))
}

fn has(command: &clap::Command, option: &str) -> bool {
    let long = option.strip_prefix("--");
    let mut arguments = command.get_arguments();
    long.is_some() && arguments.any(|argument| argument.get_long() == long)
}

/// All long options of a command, with the names that they have in other programs.
fn long_names(command: &clap::Command) -> impl Iterator<Item = String> {
    command.get_arguments().flat_map(|argument| {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        let longs = argument.get_long().into_iter().chain(aliases);
        longs.map(|long| format!("--{long}"))
    })
}

/// The name that is meant: the only one that begins with what was typed, or the nearest one.
fn suggestion(typed: &str, names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let begins = |name: &&String| typed.len() > 3 && name.starts_with(typed);
    let mut longer = names.iter().filter(begins);
    let nearest = match (longer.next(), longer.next()) {
        (Some(only), None) => Some(format!("did you mean {only}?")),
        _ => units::suggestion(typed, &names).map(|hint| hint.replace('`', "")),
    };
    nearest.map_or_else(String::new, |nearest| format!("; {nearest}"))
}

/// The command that was typed, and its full name, such as `qos check`.
fn command_of(words: &[OsString]) -> (clap::Command, String) {
    let mut command = Cli::whole();
    let mut path = Vec::new();
    for word in words.iter().skip(1).map_while(|word| word.to_str()) {
        let Some(next) = command.find_subcommand(word).cloned() else {
            break;
        };
        path.push(word);
        command = next;
    }
    (command, path.join(" "))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_file_adds_what_was_not_typed() {
        let text = "host = \"pit\"\nkey-file = \"/k\"\nsave = true";
        let config = Config::parse(text, Path::new("/")).unwrap();
        for (line, added) in [
            ("check", "check pit --save --key-file /k"),
            ("stream", "stream pit --save --key-file /k"),
            ("stream -R", "stream pit -R --save --key-file /k"),
            ("stream pit", "stream pit --save --key-file /k"),
            ("stream pat", "stream pat --save"),
            ("stream pat --save", "stream pat --save"),
            ("stream --lab rtt=1ms", "stream --lab rtt=1ms --save"),
            ("trace", "trace pit --save"),
            ("serve", "serve"),
            ("compare --treatments", "compare --treatments"),
            ("load --list", "load --list"),
            ("host show", "host show"),
        ] {
            let words = |line: &str| -> Vec<OsString> {
                let words = ["linerate"].into_iter().chain(line.split(' '));
                words.map(OsString::from).collect()
            };
            let given = words(line);
            let read = read(&given).ok();
            let read = read.as_ref().map(|(_, matches)| matches);
            assert_eq!(config.added_to(&given, read), words(added), "{line}");
        }
    }

    #[test]
    fn help_the_version_and_a_run_are_asked_for_as_elsewhere() {
        for (typed, read) in [
            ("help lab up", "lab up --help"),
            ("-v", "--version"),
            ("history 17 --json", "history show 17 --json"),
            ("history last", "history show last"),
            ("history site=north", "history show site=north"),
            ("history --most 3", "history --most 3"),
            ("history list", "history list"),
            ("check -v", "check -v"),
        ] {
            let words = |line: &str| -> Vec<OsString> { line.split(' ').map(Into::into).collect() };
            let line = as_clap_reads_them(words(&format!("linerate {typed}")));
            assert_eq!(line, words(&format!("linerate {read}")));
        }
    }
}
