//! The options of a test on the command line, from the one table of them
//! ([`linerate_core::plan::options`]): name, letter, help and range stand there.
//!
//! What is typed stays text until [`TestOptions::draft`]: the table reads it, so that the command
//! line, files and treatments refuse the same things in the same words.

use std::marker::PhantomData;

use anyhow::anyhow;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use linerate_core::plan::{Draft, Shorthand, TestOption, Workload, options};
use linerate_core::units::{Sizes, TextError, quoted};

use crate::typed;

/// Which of the table's options a command has.
pub(crate) trait Choice: Clone + Send + Sync + 'static {
    /// Workloads whose options these are.
    const WORKLOADS: &'static [Workload];
    /// Not these, by their keys.
    const WITHOUT: &'static [&'static str] = &[];
    /// The option that takes several sizes, and what its help says.
    const SWEPT: Option<(&'static str, &'static str)> = None;
    /// What the help of an option says instead of what the table has.
    const HELP: &'static [(&'static str, &'static str)] = &[];
}

/// The options of a test as they were typed.
#[derive(Debug, Clone)]
pub(crate) struct TestOptions<C> {
    typed: Vec<Typed>,
    /// `-t 0`: the user ends the test.
    is_endless: bool,
    choice: PhantomData<C>,
}

#[derive(Debug, Clone)]
struct Typed {
    key: &'static str,
    text: String,
    shorthand: Option<&'static str>,
}

impl<C: Choice> TestOptions<C> {
    /// Whether the option of that key was given, or a shorthand of it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.typed.iter().any(|typed| typed.key == key)
    }

    /// Whether the user is to end the test.
    pub(crate) fn is_endless(&self) -> bool {
        self.is_endless
    }

    /// A draft of that workload with what was typed.
    ///
    /// # Errors
    /// The workload has no such option, or its value is none.
    pub(crate) fn draft(&self, workload: Workload) -> anyhow::Result<Draft> {
        let swept = C::SWEPT.map(|(key, _)| key);
        let mut draft = Draft::new(workload);
        for typed in self.typed.iter().filter(|typed| Some(typed.key) != swept) {
            draft = typed.put(draft)?;
        }
        Ok(draft)
    }

    /// Drafts of that workload, one for each size.
    ///
    /// # Errors
    /// As [`Self::draft`]; the sizes are none.
    pub(crate) fn drafts(&self, workload: Workload) -> anyhow::Result<Vec<Draft>> {
        let draft = self.draft(workload)?;
        let is_swept = |typed: &&Typed| C::SWEPT.is_some_and(|(key, _)| key == typed.key);
        let Some(swept) = self.typed.iter().find(is_swept) else {
            return Ok(vec![draft]);
        };
        let sizes: Sizes = swept.text.parse().map_err(|error: TextError| {
            let name = typed::option(swept.key);
            anyhow!("{name} {}: {}", quoted(&swept.text), error.why())
        })?;
        if sizes.as_slice().len() == 1 {
            return Ok(vec![swept.put(draft)?]);
        }
        let each = |size: &u64| {
            let text = size.to_string();
            Typed { text, ..swept.clone() }.put(draft.clone())
        };
        sizes.as_slice().iter().map(each).collect()
    }
}

impl Typed {
    fn put(&self, mut draft: Draft) -> anyhow::Result<Draft> {
        let set = draft.set_as(self.key, &self.text, self.shorthand);
        set.map_err(|error| anyhow!(error.named(typed::option)))?;
        Ok(draft)
    }
}

impl<C: Choice> Args for TestOptions<C> {
    fn augment_args(mut command: Command) -> Command {
        for option in chosen::<C>() {
            command = command.arg(argument::<C>(option));
            let shorthands = option.shorthands.iter();
            command = command.args(shorthands.map(|shorthand| flag(option, shorthand)));
        }
        command.next_help_heading(None)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Choice> FromArgMatches for TestOptions<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut typed = Vec::new();
        let mut is_endless = false;
        for option in chosen::<C>() {
            let key = option.key;
            let text = if option.is_flag() {
                matches.get_flag(key).then(|| "on".to_owned())
            } else {
                matches.get_one::<String>(key).cloned()
            };
            // iperf3's word for a test that somebody ends: a day is the longest run.
            let is_until_stopped =
                key == "time" && C::SWEPT.is_some() && text.as_deref() == Some("0");
            is_endless |= is_until_stopped;
            let text = text.map(|text| if is_until_stopped { "24h".to_owned() } else { text });
            typed.extend(text.map(|text| Typed { key, text, shorthand: None }));
            let given = |shorthand: &&Shorthand| matches.get_flag(id_of(shorthand));
            typed.extend(option.shorthands.iter().filter(given).map(|shorthand| Typed {
                key,
                text: shorthand.value.to_owned(),
                shorthand: Some(shorthand.typed),
            }));
        }
        let choice = PhantomData;
        Ok(Self { typed, is_endless, choice })
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Err(Error::raw(ErrorKind::InvalidValue, "options are read once"))
    }
}

/// The options of a command, those of a heading side by side; of two workloads' options of one key
/// the first.
fn chosen<C: Choice>() -> Vec<&'static TestOption> {
    let mut chosen: Vec<&'static TestOption> = Vec::new();
    for option in options() {
        let is_one = C::WORKLOADS.iter().any(|of| option.workloads.contains(of))
            && !option.treatment_only
            && !C::WITHOUT.contains(&option.key)
            && chosen.iter().all(|other| other.key != option.key);
        if is_one {
            chosen.push(option);
        }
    }
    let place = |heading| HEADINGS.iter().position(|other| *other == heading);
    chosen.sort_by_key(|option| place(option.heading).unwrap_or(HEADINGS.len()));
    chosen
}

/// Headings of the help in this order, the command's own options first.
const HEADINGS: [&str; 4] = ["Stream", "Exchange", "Extent", "Transport"];

fn argument<C: Choice>(option: &'static TestOption) -> Arg {
    let argument = Arg::new(option.key)
        .long(option.key)
        .help(help::<C>(option))
        .help_heading(option.heading)
        .aliases(option.aliases);
    let argument = match option.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    if option.is_flag() {
        return argument.action(ArgAction::SetTrue);
    }
    let is_swept = C::SWEPT.is_some_and(|(key, _)| key == option.key);
    argument
        .action(ArgAction::Set)
        .value_name(if is_swept { "SIZES" } else { option.value_name })
        // The table knows which numbers are too small.
        .allow_negative_numbers(true)
}

fn flag(option: &TestOption, shorthand: &'static Shorthand) -> Arg {
    let flag = Arg::new(id_of(shorthand))
        .help(shorthand.help)
        .help_heading(option.heading)
        .aliases(shorthand.long)
        .action(ArgAction::SetTrue);
    match shorthand.typed.strip_prefix("--") {
        Some(long) => flag.long(long),
        None => flag.short(shorthand.typed.chars().last().expect("a letter follows -")),
    }
}

/// No other option can have such a name.
fn id_of(shorthand: &Shorthand) -> &'static str {
    shorthand.typed
}

/// Where a command has several workloads, whose option it is stands first.
fn help<C: Choice>(option: &TestOption) -> String {
    if let Some((_, help)) = C::HELP.iter().find(|(key, _)| *key == option.key) {
        return (*help).to_owned();
    }
    if let Some((_, help)) = C::SWEPT.filter(|(key, _)| *key == option.key) {
        return help.to_owned();
    }
    let is_of = |of: &&Workload| option.workloads.contains(of);
    if C::WORKLOADS.iter().all(|of| is_of(&of)) {
        return option.help();
    }
    let of: Vec<_> = C::WORKLOADS.iter().filter(is_of).map(|of| of.word()).collect();
    let (of, help) = (of.join(", "), option.help());
    match help.split_once(": ") {
        Some((transport @ ("TCP" | "UDP"), help)) => {
            format!("{transport} {of}: {}", uncapitalised(help))
        }
        _ => format!("{of}: {}", uncapitalised(&help)),
    }
}

/// The text with a small first letter, unless it begins with an abbreviation.
fn uncapitalised(text: &str) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) if rest.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(rest).collect()
        }
        _ => text.to_owned(),
    }
}

const ENDLESS: (&str, &str) =
    ("time", "Measured time: us, ms, s, min or h, 10ms to 24h; 0 until Ctrl-C (default 10s)");

/// Options of `stream`.
#[derive(Debug, Clone)]
pub(crate) struct OfStream;

impl Choice for OfStream {
    const WORKLOADS: &'static [Workload] = &[Workload::Stream];
    const HELP: &'static [(&'static str, &'static str)] = &[ENDLESS];
    const SWEPT: Option<(&'static str, &'static str)> =
        Some(("size", "Sizes: 32,64 or 100..9100/500, up to 64MiB (default 128KiB, UDP 1448)"));
}

/// Options of `rr`.
#[derive(Debug, Clone)]
pub(crate) struct OfRr;

impl Choice for OfRr {
    const WORKLOADS: &'static [Workload] = &[Workload::Rr];
    const HELP: &'static [(&'static str, &'static str)] = &[ENDLESS];
    const SWEPT: Option<(&'static str, &'static str)> = REQUESTS;
}

/// Options of `crr`.
#[derive(Debug, Clone)]
pub(crate) struct OfCrr;

impl Choice for OfCrr {
    const WORKLOADS: &'static [Workload] = &[Workload::Crr];
    const HELP: &'static [(&'static str, &'static str)] = &[ENDLESS];
    const SWEPT: Option<(&'static str, &'static str)> = REQUESTS;
}

const REQUESTS: Option<(&str, &str)> =
    Some(("request", "Request sizes, as a size, list or range, up to 64MiB (default 1)"));

/// Of `compare`: those of the workload that is chosen by its name.
#[derive(Debug, Clone)]
pub(crate) struct OfCompare;

impl Choice for OfCompare {
    const WORKLOADS: &'static [Workload] = &[Workload::Stream, Workload::Rr, Workload::Crr];
    const WITHOUT: &'static [&'static str] = &["interval"];
    const HELP: &'static [(&'static str, &'static str)] = &[
        ("rate", "UDP stream: bits/s of each flow; rr, crr: requests/s over all flows"),
        ("time", "Measured time of each run, 10ms to 24h (default 3s)"),
        ("spin", "rr, crr: poll without sleeping, at both ends"),
    ];
}

/// Options of `profile`.
#[derive(Debug, Clone)]
pub(crate) struct OfProfile;

impl Choice for OfProfile {
    const WORKLOADS: &'static [Workload] = &[Workload::Stream];
    const WITHOUT: &'static [&'static str] = &["count", "interval", "whole"];
    const HELP: &'static [(&'static str, &'static str)] = &[
        ("direction", "up or down, as seen from this host (default up)"),
        ("verify", "Send a seeded pattern and compare it at the receiver: a busy application"),
    ];
}
