//! The user's defaults: `~/.config/linerate.toml`, or `linerate.toml` in `XDG_CONFIG_HOME`.
//!
//! Its keys become words of the command line before that is read. A typed option takes precedence.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use clap::ArgMatches;
use linerate_core::toml_reader::{self, Fault, FileError, Section};
use linerate_core::units::EndpointName;
use linerate_history::Place;

use crate::failure::Failure;
use crate::files;

/// Largest file, in bytes.
const MAX_FILE: u64 = 64 << 10;
const KEYS: &str = "host key-file save db colours";
/// The commands whose runs `save` keeps.
const RUNS: [&str; 9] =
    ["check", "stream", "rr", "crr", "load", "capacity", "compare", "profile", "trace"];

/// Whether pages have colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Colours {
    /// On a terminal that knows them, without `NO_COLOR`.
    #[default]
    Auto,
    Always,
    Never,
}

impl Colours {
    const WORDS: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("always", Self::Always), ("never", Self::Never)];
}

/// The settings of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    host: Option<String>,
    key_file: Option<PathBuf>,
    save: bool,
    db: Option<Place>,
    colours: Colours,
}

static COLOURS: OnceLock<Colours> = OnceLock::new();
static DB: OnceLock<Place> = OnceLock::new();

/// The history that the file names, once the file was read.
pub(crate) fn db() -> Option<Place> {
    DB.get().cloned()
}

/// The setting for colours, once the file was read.
pub(crate) fn colours() -> Colours {
    COLOURS.get().copied().unwrap_or_default()
}

/// The file's path and the settings that are in force.
///
/// # Errors
/// It is wrong, or has no place.
pub(crate) fn text() -> Result<String, Failure> {
    let Some(place) = place() else {
        return Err(Failure::usage(anyhow!(
            "neither XDG_CONFIG_HOME nor HOME says where linerate.toml is"
        )));
    };
    let is_there = place.exists();
    let note = if is_there { "" } else { " (not there)" };
    let config = Config::load()?;
    Ok(format!("# {}{note}\n{}", place.display(), config.toml()))
}

impl Config {
    /// Reads the user's file; without one there are no settings.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong: the error has line and column.
    pub(crate) fn load() -> Result<Self, Failure> {
        let Some(place) = place() else {
            return Ok(Self::default());
        };
        let read = || {
            let text = match files::read_text("", &place, MAX_FILE) {
                Ok(text) => text,
                Err(error) if is_missing(&error) || is_hidden(&place) => return Ok(Self::default()),
                Err(error) => return Err(error),
            };
            let directory = place.parent().unwrap_or(Path::new("/"));
            Self::parse(&text, directory).with_context(|| place.display().to_string())
        };
        let config: Self = read().map_err(Failure::usage)?;
        // It can be set only once, and there is only one file.
        let _ = COLOURS.set(config.colours);
        if let Some(db) = &config.db {
            let _ = DB.set(db.clone());
        }
        Ok(config)
    }

    /// Parses the file's text. Relative paths in it start from `directory`.
    ///
    /// # Errors
    /// Something in it is wrong.
    pub(crate) fn parse(text: &str, directory: &Path) -> Result<Self, FileError> {
        let read = || {
            let table = toml_reader::parse(text)?;
            let root = Section::new("linerate.toml", 0, table.get_ref(), KEYS)?;
            let host = root.string("host")?;
            if let Some(host) = host.filter(|host| host.value.parse::<EndpointName>().is_err()) {
                let hint = "write host, host:port or [v6]:port";
                return Fault::malformed(host, "endpoint", hint);
            }
            let key_file = root.string("key-file")?;
            let db = root.string("db")?;
            let colours = root.choice("colours", "choice of colours", &Colours::WORDS)?;
            Ok(Self {
                host: host.map(|host| host.value.to_owned()),
                key_file: key_file.map(|key| whole_path(key.value, directory)),
                save: root.boolean("save")?.unwrap_or(false),
                db: db.map(|db| OsString::from(whole_db(db.value, directory)).into()),
                colours: colours.unwrap_or_default(),
            })
        };
        read().map_err(|fault: Fault| fault.located(text))
    }

    /// The command line with the settings of the file added. `read` is the command line as clap
    /// read it, unless a required argument was missing.
    pub(crate) fn added_to(&self, given: &[OsString], read: Option<&ArgMatches>) -> Vec<OsString> {
        let mut words = given.to_vec();
        let command = read.and_then(ArgMatches::subcommand);
        let name = given.get(1).and_then(|name| name.to_str()).unwrap_or("");
        let is_run = RUNS.contains(&name);
        // Options that the command does not have count as not typed.
        let has = |id: &str| {
            command.is_some_and(|(_, matches)| matches.try_contains_id(id).unwrap_or(false))
        };
        let flag = |option: &str| given.iter().any(|word| word == option);
        if !is_run || flag("--treatments") || flag("--list") {
            return words;
        }
        let typed = command.and_then(|(_, matches)| typed(matches, "host"));
        let is_own = typed.is_none() || typed == self.host;
        if self.save && !flag("--save") {
            words.push("--save".into());
        }
        if let (Some(host), false, true) = (&self.host, has("lab"), is_own) {
            if typed.is_none() {
                words.insert(2, host.into());
            }
            if let (Some(key), false, false) = (&self.key_file, has("key_file"), name == "trace") {
                words.extend(["--key-file".into(), key.into()]);
            }
        }
        words
    }

    /// The settings as the file's text; those that are not set stand behind `#`.
    fn toml(&self) -> String {
        let line = |key: &str, value: Option<String>, example: &str, means: &str| {
            let hash = if value.is_some() { "" } else { "# " };
            let value = toml_text(value.as_deref().unwrap_or(example));
            format!("{hash}{key} = {value}  # {means}\n")
        };
        let key_file = self.key_file.as_ref().map(|key| key.display().to_string());
        let db = self.db.as_ref().map(ToString::to_string);
        let mut words = Colours::WORDS.into_iter();
        let colours = words.find(|(_, it)| *it == self.colours).map(|(word, _)| word.to_owned());
        let save = self.save;
        [
            line("host", self.host.clone(), "pit", "where no HOST is typed"),
            line("key-file", key_file, "pit.key", "its key"),
            format!("save = {save}  # every run is kept: linerate history\n"),
            line("db", db, "postgres://me@db/linerate", "where the history is"),
            line("colours", colours, "auto", "auto, always or never"),
        ]
        .concat()
    }
}

/// A TOML string.
fn toml_text(text: &str) -> String {
    // A JSON string is a TOML string, too.
    serde_json::Value::from(text).to_string()
}

fn typed(matches: &ArgMatches, id: &str) -> Option<String> {
    let mut raw = matches.try_get_raw(id).ok().flatten()?;
    raw.next().map(|word| word.to_string_lossy().into_owned())
}

fn is_missing(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}

/// Whether the file is in a directory that this user may not read: `sudo -u nobody` keeps HOME.
fn is_hidden(place: &Path) -> bool {
    let found = place.metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The file's path. Relative paths in the variables are ignored (XDG Base Directory Specification).
fn place() -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let home = || Some(absolute("HOME")?.join(".config"));
    Some(absolute("XDG_CONFIG_HOME").or_else(home)?.join("linerate.toml"))
}

/// The history that the key `db` of a file names. A relative path starts from the file's directory.
pub(crate) fn beside(db: &str, file: &Path) -> String {
    whole_db(db, file.parent().unwrap_or(Path::new("")))
}

fn whole_db(db: &str, directory: &Path) -> String {
    match OsString::from(db).into() {
        Place::Server(url) => url,
        Place::File(_) => whole_path(db, directory).to_string_lossy().into_owned(),
    }
}

/// The path that `text` means: relative to `directory`, or with `~/` to the home directory.
fn whole_path(text: &str, directory: &Path) -> PathBuf {
    match (text.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => directory.join(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/etc/x")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        for (text, words) in [
            ("save = 1", "line 1, column 8: `save` is"),
            ("\nhost = 5", "line 2, column 8: `host` is"),
            ("hots = \"pit\"", "line 1, column 1: linerate.toml has no key `hots`"),
            ("colours = \"pink\"", "line 1, column 11: `pink` is no choice of colours"),
            ("host = \"a b\"", "line 1, column 8: `a b` is no endpoint"),
            ("save", "line 1, column"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_shown_configuration_reads_back_the_same() {
        let text = "host = \"pit:5202\"\nkey-file = \"k\"\nsave = true\n\
             db = \"h.db\"\ncolours = \"never\"";
        let config = read(text).unwrap();
        assert_eq!(config.key_file.as_deref(), Some(Path::new("/etc/x/k")));
        assert_eq!(config.db, Some(Place::from(Path::new("/etc/x/h.db"))));
        assert_eq!(read(&config.toml()).unwrap(), config);
        let nothing = Config::default();
        assert_eq!(read(&nothing.toml()).unwrap(), nothing);
    }
}
