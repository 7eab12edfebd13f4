//! What clap refuses, said as everything else is: one line with the option as it is written, the
//! range in the user's units, and a hint that is right.

use std::ffi::OsString;

use anyhow::anyhow;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::args::Cli;
use crate::failure::Failure;

/// The command line, read.
///
/// # Errors
/// It cannot be read. A help text or the version that was asked for is printed here, and ends the
/// process.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, Failure> {
    let words = help_as_an_option(words.into_iter().collect());
    Cli::try_parse_from(&words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => Failure::usage(anyhow!(line(&error, &words))),
    })
}

/// `help stream` is `stream --help`, as with git and cargo.
fn help_as_an_option(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

fn line(error: &clap::Error, words: &[OsString]) -> String {
    let text = |kind| error.get(kind).map(strings).unwrap_or_default();
    let argument = text(ContextKind::InvalidArg).join(", ");
    let name = name(&argument);
    let value = text(ContextKind::InvalidValue).concat();
    match error.kind() {
        ErrorKind::UnknownArgument => unknown_option(&argument, words, error),
        ErrorKind::InvalidSubcommand => {
            let command = text(ContextKind::InvalidSubcommand).concat();
            let hint = suggestion(error, ContextKind::SuggestedSubcommand, &command);
            format!("there is no command {command:?}{hint}")
        }
        ErrorKind::MissingSubcommand => {
            let commands = text(ContextKind::ValidSubcommand).join(", ");
            format!("which of its commands? {commands}")
        }
        ErrorKind::MissingRequiredArgument => missing(&text(ContextKind::InvalidArg), words),
        ErrorKind::ArgumentConflict => {
            let prior = text(ContextKind::PriorArg);
            let prior: Vec<_> = prior.iter().map(|prior| self::name(prior)).collect();
            match &prior[..] {
                [] => format!("{name} is used alone, without other options"),
                [same] if *same == name => format!("{name} is given twice"),
                prior => format!("{name} cannot be used with {}", prior.join(", ")),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{name} needs a value"),
        ErrorKind::InvalidValue => {
            let valid = text(ContextKind::ValidValue).join(", ");
            format!("{name} {value:?}: it is one of {valid}")
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(ToString::to_string);
            why_not(name, &value, &plain(&why.unwrap_or_default()))
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

/// A reason that says the value itself is not said it again.
fn why_not(name: &str, value: &str, why: &str) -> String {
    if why.contains(&format!("`{value}`")) {
        format!("{name}: {why}")
    } else {
        format!("{name} {value:?}: {why}")
    }
}

/// `--time` of `--time <TIME>`, and `HOST` of `[HOST]`.
fn name(argument: &str) -> &str {
    if argument.starts_with('-') {
        return argument.split([' ', '=']).next().unwrap_or_default();
    }
    let argument = argument.trim_end_matches('.');
    let pairs = [('<', '>'), ('[', ']')];
    let mut inner = pairs
        .iter()
        .map(|(open, close)| argument.strip_prefix(*open)?.strip_suffix(*close));
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

/// What the standard library and clap say of a number, in words and the user's range.
fn plain(why: &str) -> String {
    let range = why.split_once(" is not in ").map(|(_, range)| range);
    match (range.and_then(|range| range.split_once("..=")), why) {
        (Some((least, most)), _) => format!("it must be {least} to {most}"),
        (_, "invalid digit found in string" | "cannot parse integer from empty string") => {
            "it must be a whole number".to_owned()
        }
        (_, "number too large to fit in target type") => "the number is too large".to_owned(),
        (_, "invalid IP address syntax") => "it must be an IPv4 or IPv6 address".to_owned(),
        _ => why.to_owned(),
    }
}

fn missing(arguments: &[String], words: &[OsString]) -> String {
    let names: Vec<_> = arguments.iter().map(|argument| name(argument)).collect();
    let names = names.join(" and ");
    let command = command_of(words);
    let takes_a_lab = command.as_ref().is_some_and(|command| {
        let mut arguments = command.get_arguments();
        arguments.any(|argument| argument.get_id() == "lab")
    });
    match command {
        Some(command) if names == "HOST" && takes_a_lab => {
            let command = command.get_name();
            format!(
                "HOST is missing: linerate {command} HOST, where `linerate serve` runs; or --lab SPEC"
            )
        }
        Some(command) => {
            let command = command.get_name();
            format!("{names} is missing; `linerate {command} -h` shows how it is used")
        }
        None => format!("{names} is missing"),
    }
}

fn unknown_option(option: &str, words: &[OsString], error: &clap::Error) -> String {
    let hint = match elsewhere(option) {
        Some(hint) => format!(": {hint}"),
        None => suggestion(error, ContextKind::SuggestedArg, option),
    };
    if !option.starts_with('-') {
        return format!("{option:?} is one word too many{hint}");
    }
    match command_of(words) {
        Some(command) => format!("{} has no option {option}{hint}", command.get_name()),
        None => format!("there is no option {option}{hint}"),
    }
}

/// What clap takes for a slip of the fingers.
fn suggestion(error: &clap::Error, kind: ContextKind, typed: &str) -> String {
    let close = error.get(kind).map(strings).unwrap_or_default();
    let hidden = |word: &String| {
        let cli = Cli::command();
        let found = cli.find_subcommand(word);
        found.is_some_and(clap::Command::is_hide_set)
    };
    // The closest stands last.
    let closest = close
        .into_iter()
        .rfind(|word| !hidden(word) && word != typed);
    match closest {
        Some(word) => format!("; did you mean {}?", name(&word)),
        None => String::new(),
    }
}

/// The command that was named, down to `qos check`.
fn command_of(words: &[OsString]) -> Option<clap::Command> {
    let mut command = Cli::command();
    command.build();
    let mut found = None;
    for word in words.iter().skip(1).map_while(|word| word.to_str()) {
        let Some(next) = command.find_subcommand(word).cloned() else {
            break;
        };
        command = next.clone();
        found = Some(next);
    }
    found
}

/// What other tools' options are here.
fn elsewhere(option: &str) -> Option<&'static str> {
    let (_, hint) = ELSEWHERE
        .iter()
        .find(|(names, _)| names.contains(&option))?;
    Some(hint)
}

/// Options of iperf3, netperf, mtr and traceroute that are written otherwise here.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["--udp"], "UDP is -u"),
    (
        &["--client", "-c"],
        "the host stands by itself, as in linerate stream HOST",
    ),
    (
        &["-H", "--host"],
        "the host stands by itself, as in linerate stream HOST",
    ),
    (&["--server", "-s"], "the server is linerate serve"),
    (&["--parallel"], "parallel flows are -P, or --streams"),
    (
        &["--bitrate", "--bandwidth"],
        "the rate of UDP is -b; a TCP flow has --pacing",
    ),
    (
        &["--reverse"],
        "the reverse direction is -R, or --direction down",
    ),
    (
        &["--length", "--len"],
        "the size of a message is -l, or --size",
    ),
    (&["--set-mss"], "the maximum segment size is -M, or --mss"),
    (&["--no-delay"], "TCP_NODELAY is -N, or --nodelay"),
    (&["--blockcount", "-k"], "a number of messages is --count"),
    (
        &["--tos", "-S"],
        "the code point is --dscp, a quarter of the TOS byte",
    ),
    (
        &["--linux-congestion"],
        "the congestion control is -C, or --congestion",
    ),
    (&["--version4"], "only IPv4 is -4"),
    (&["--version6"], "only IPv6 is -6"),
    (&["--bind"], "the local address is --source"),
    (&["--bind-dev", "--interface"], "the interface is --device"),
    (&["-J"], "JSON is --json"),
    (&["--logfile"], "the document goes to a file by --output"),
    (
        &["--report", "-r", "--report-wide"],
        "a report is what trace prints without --watch",
    ),
    (&["--tcp", "-T"], "over TCP is --protocol tcp"),
    (&["--max-hops"], "the last hop that is tried is --hops"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let words = std::iter::once("linerate").chain(line.split_whitespace());
        parse(words.map(OsString::from)).unwrap_err().chain()
    }

    #[test]
    fn each_refusal_is_one_line_that_names_the_option_as_it_is_written() {
        for (line, said) in [
            (
                "strem pit",
                "there is no command \"strem\"; did you mean stream?",
            ),
            ("watch-treatment", "there is no command \"watch-treatment\""),
            (
                "stream",
                "HOST is missing: linerate stream HOST, where `linerate serve` runs; or --lab SPEC",
            ),
            ("stream pit --udp", "stream has no option --udp: UDP is -u"),
            (
                "stream pit --tiem 5",
                "stream has no option --tiem; did you mean --time?",
            ),
            ("stream pit pot", "\"pot\" is one word too many"),
            ("stream pit --json=1", "--json takes no value"),
            (
                "stream pit --fail-below 90",
                "--fail-below \"90\": a rate needs its unit: 90mbit?",
            ),
            (
                "stream pit --json --csv",
                "--json cannot be used with --csv",
            ),
            ("stream pit --time", "--time needs a value"),
            ("stream pit --json --json", "--json is given twice"),
            (
                "stream pit --via ftp",
                "--via \"ftp\": it is one of iperf3, netperf",
            ),
            ("stream pit -p 0", "--port \"0\": it must be 1 to 65535"),
            ("stream pit -p x", "--port \"x\": it must be a whole number"),
            ("stream pit --repeat -1", "stream has no option -1"),
            (
                "stream pit --source x",
                "--source \"x\": it must be an IPv4 or IPv6 address",
            ),
            (
                "stream pit:0",
                "HOST: `pit:0` is not an endpoint (host, host:port, [v6]:port): a port is 1 to 65535",
            ),
            (
                "qos chekc a",
                "there is no command \"chekc\"; did you mean check?",
            ),
        ] {
            assert_eq!(refused(line), said, "{line}");
        }
    }

    #[test]
    fn help_before_a_command_is_its_help() {
        let words = ["linerate", "help", "lab", "up"]
            .map(OsString::from)
            .to_vec();
        let turned = help_as_an_option(words);
        assert_eq!(
            turned,
            ["linerate", "lab", "up", "--help"].map(OsString::from)
        );
    }

    #[test]
    fn hints_about_other_tools_name_options_that_exist() {
        let cli = Cli::command();
        let exists = |word: &str| {
            cli.get_subcommands().any(|command| {
                command.get_arguments().any(|argument| {
                    let long = argument.get_long().map(|long| format!("--{long}"));
                    let short = argument.get_short().map(|short| format!("-{short}"));
                    long.as_deref() == Some(word) || short.as_deref() == Some(word)
                })
            })
        };
        for (_, hint) in ELSEWHERE {
            let words = hint
                .split([' ', ',', ';'])
                .filter(|word| word.starts_with('-'));
            for word in words {
                assert!(exists(word), "{hint}");
            }
        }
    }
}
