//! Reads the TOML files that users write: tables all of whose keys are known, and values with their
//! place in the text.
//!
//! A [`Fault`] says what is wrong and at which byte; [`Fault::located`] gives it line and column.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use crate::units::FileError;
use crate::units::{Family, listed, shortened, suggestion};

/// A value with its place.
pub type Value<'a> = Spanned<DeValue<'a>>;

/// Largest file, bytes: more than a person writes, and too short to occupy the parser for long.
const MAX_BYTES: usize = 1 << 20;

/// The whole file as a table.
pub fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Fault> {
    parse_at_most(text, MAX_BYTES)
}

/// The whole file as a table, for files that programs write too: they may have up to `max` bytes, a
/// whole number of MiB.
pub fn parse_at_most(text: &str, max: usize) -> Result<Spanned<DeTable<'_>>, Fault> {
    if text.len() > max {
        return Err(Fault::too_long(text.len(), max));
    }
    DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Fault::new(offset, error.message())
    })
}

/// The entries of a built-in table of data, each under `[[entry]]`.
///
/// # Panics
/// If the file cannot be read. A test of each table reads it.
pub(crate) fn entries<T: Deserialize<'static>>(text: &'static str) -> Vec<T> {
    #[derive(Deserialize)]
    struct File<T> {
        entry: Vec<T>,
    }
    let file: Result<File<T>, _> = toml::from_str(text);
    file.unwrap_or_else(|error| panic!("{error}")).entry
}

/// An error in a file, with its byte offset.
#[derive(Debug)]
pub struct Fault {
    /// The byte, counted from 0.
    pub offset: usize,
    /// The error in words.
    pub problem: String,
}

impl Fault {
    /// An error at a byte offset.
    pub fn new(offset: usize, problem: impl Display) -> Self {
        let problem = problem.to_string();
        Self { offset, problem }
    }

    /// The error, with line and column in the text.
    pub fn located(self, text: &str) -> FileError {
        let (line, column) = place(text, self.offset);
        FileError { line, column: Some(column), problem: self.problem }
    }

    /// The error of a file longer than `max` bytes, a whole number of MiB.
    pub fn too_long(bytes: usize, max: usize) -> Self {
        let max = max >> 20;
        Self::new(0, format!("the file has {bytes} bytes; it may have at most {max} MiB"))
    }

    /// A key that `place` does not have: the hint is the known key that looks like it, or else
    /// `otherwise`.
    pub fn unknown_key<'k>(
        key: At<&str>,
        place: &str,
        known: impl IntoIterator<Item = &'k str>,
        otherwise: String,
    ) -> Self {
        let hint = suggestion(key.value, known).unwrap_or(otherwise);
        let name = shortened(key.value);
        Self::new(key.offset, format!("{place} has no key `{name}`; {hint}"))
    }

    /// The error of a name that is not in `known`.
    pub fn unknown(at: At<&str>, what: &str, known: &[impl AsRef<str>]) -> Self {
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let hint = suggestion(at.value, &known).unwrap_or_else(|| match &known[..] {
            [] => format!("this file has no {what} at all"),
            known => shortened(&format!("they are {}", known.join(", "))),
        });
        let name = shortened(at.value);
        Self::new(at.offset, format!("there is no {what} `{name}`; {hint}"))
    }

    /// The error of a text that cannot be parsed.
    pub fn malformed<T>(at: At<&str>, what: &str, hint: &str) -> Result<T, Self> {
        let text = shortened(at.value);
        Err(Self::new(at.offset, format!("`{text}` is no {what}; {hint}")))
    }

    /// The error of two keys that contradict each other.
    pub fn contradiction<T>(offset: usize, what: impl Display, hint: &str) -> Result<T, Self> {
        Err(Self::new(offset, format!("{what}: {hint}")))
    }

    /// The error of a name that is used twice.
    pub fn repeated<T>(offset: usize, what: &str, name: &str) -> Result<T, Self> {
        let name = shortened(name);
        Err(Self::new(offset, format!("there are two {what} with the name `{name}`")))
    }
}

/// Line and column of a byte of a text, both counted from 1, the column in characters.
pub fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_begin..].chars().count() + 1)
}

/// A value, and the byte at which it begins.
#[derive(Debug, Clone, Copy)]
pub struct At<T> {
    /// The byte, counted from 0.
    pub offset: usize,
    /// The value.
    pub value: T,
}

/// A key, and the text of its value.
pub type KeyText<'a> = (At<&'a str>, At<String>);

impl<T> At<T> {
    /// A value that begins at a byte.
    pub fn new(offset: usize, value: T) -> Self {
        Self { offset, value }
    }

    /// Another value at the same place.
    pub fn map<U>(self, function: impl FnOnce(T) -> U) -> At<U> {
        At::new(self.offset, function(self.value))
    }
}

impl At<String> {
    /// The text, borrowed.
    pub fn as_str(&self) -> At<&str> {
        At::new(self.offset, &self.value)
    }
}

impl At<&str> {
    /// The text, read as a `T` that `accepts` lets pass; else it "is no `what`; `hint`".
    pub fn parsed<T: FromStr>(
        self,
        what: &str,
        hint: &str,
        accepts: impl FnOnce(&T) -> bool,
    ) -> Result<T, Fault> {
        let read = self.value.parse().ok().filter(accepts);
        read.map_or_else(|| Fault::malformed(self, what, hint), Ok)
    }

    /// The text, read as a `T`; what is wrong is in the words of its own error.
    pub fn read<T: FromStr<Err: Display>>(self) -> Result<T, Fault> {
        let fault = |error| Fault::new(self.offset, error);
        self.value.parse().map_err(fault)
    }

    /// The number of the name in `known`; else there is no such `what`.
    pub fn index_in(self, what: &str, known: &[impl AsRef<str>]) -> Result<usize, Fault> {
        let found = known.iter().position(|name| name.as_ref() == self.value);
        found.ok_or_else(|| Fault::unknown(self, what, known))
    }

    /// What the text stands for in `words`; else it "is no `what`".
    pub fn choice<T: Copy>(self, what: &str, words: &[(&str, T)]) -> Result<T, Fault> {
        if let Some((_, meant)) = words.iter().find(|(word, _)| *word == self.value) {
            return Ok(*meant);
        }
        let known = words.iter().map(|(word, _)| *word);
        let hint = suggestion(self.value, known.clone()).unwrap_or_else(|| {
            let quoted: Vec<String> = known.map(|word| format!("\"{word}\"")).collect();
            format!("write {}", listed(&quoted, "or"))
        });
        Fault::malformed(self, what, &hint)
    }
}

/// A table of the file whose keys are all known.
pub struct Section<'a> {
    /// The table's name in messages, such as `[[link]]`.
    pub place: &'static str,
    /// The byte at which it begins.
    pub offset: usize,
    table: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    /// The table, if it has no other keys than these, which have blanks between them.
    pub fn new(
        place: &'static str,
        offset: usize,
        table: &'a DeTable<'a>,
        keys: &str,
    ) -> Result<Self, Fault> {
        let is_known = |key: &str| keys.split(' ').any(|known| known == key);
        let named = table.iter().map(|(key, _)| named(key));
        let first = named.filter(|key| !is_known(key.value)).min_by_key(|key| key.offset);
        if let Some(key) = first {
            let otherwise = format!("its keys are {}", keys.replace(' ', ", "));
            return Err(Fault::unknown_key(key, place, keys.split(' '), otherwise));
        }
        Ok(Self { place, offset, table })
    }

    /// The value of a key, and where it is, if it has the type that `read` takes.
    fn typed<T>(
        &self,
        key: &str,
        hint: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Result<Option<At<T>>, Fault> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let offset = value.span().start;
        match read(value.get_ref()) {
            Some(value) => Ok(Some(At { offset, value })),
            None => Err(wrong_type(key, value, hint)),
        }
    }

    /// The tables of `[[key]]`, each with those keys.
    pub fn sections(
        &self,
        key: &str,
        place: &'static str,
        keys: &str,
    ) -> Result<Vec<Section<'a>>, Fault> {
        let hint = "it as a table, in two brackets";
        let tables = self.typed(key, hint, DeValue::as_array)?;
        let section = |value: &'a Value<'a>| match value.get_ref().as_table() {
            Some(table) => Section::new(place, value.span().start, table, keys),
            None => Err(wrong_type(key, value, hint)),
        };
        let tables = tables.iter().flat_map(|at| at.value.iter());
        tables.map(section).collect()
    }

    /// The tables of `[key.name]` and their names, each with those keys, in the order of the file.
    pub fn named_sections(
        &self,
        key: &str,
        place: &'static str,
        keys: &str,
    ) -> Result<Vec<(At<&'a str>, Section<'a>)>, Fault> {
        let hint = "it as a table with a name, such as [host.alpha]";
        let section = |(name, value): (At<&'a str>, &'a Value<'a>)| match value.get_ref() {
            DeValue::Table(table) => Ok((name, Section::new(place, name.offset, table, keys)?)),
            _ => Err(wrong_type(name.value, value, hint)),
        };
        self.entries_or(key, hint)?.into_iter().map(section).collect()
    }

    /// The byte at which the value of a key begins, or else that of the table.
    pub fn offset_of(&self, key: &str) -> usize {
        let value = self.value(key);
        value.map_or(self.offset, |value| value.span().start)
    }

    /// The `command` of the table `workload`.
    pub fn command(&self, hint: &str) -> Result<At<&'a str>, Fault> {
        let workload = self.entries("workload")?;
        let command = workload.iter().find(|(key, _)| key.value == "command");
        let (_, command) = command.ok_or_else(|| self.missing("workload", hint))?;
        string("command", command)
    }

    /// The value of a key, if it is there.
    pub fn value(&self, key: &str) -> Option<&'a Value<'a>> {
        self.table.get(key)
    }

    /// A text.
    pub fn string(&self, key: &'static str) -> Result<Option<At<&'a str>>, Fault> {
        self.value(key).map(|value| string(key, value)).transpose()
    }

    /// A text parsed as a `T` that `accepts` admits: see [`At::parsed`].
    pub fn parsed<T: FromStr>(
        &self,
        key: &'static str,
        what: &str,
        hint: &str,
        accepts: impl FnOnce(&T) -> bool,
    ) -> Result<Option<T>, Fault> {
        let text = self.string(key)?;
        text.map(|at| at.parsed(what, hint, accepts)).transpose()
    }

    /// A text that must be there.
    pub fn required(&self, key: &'static str, hint: &str) -> Result<At<&'a str>, Fault> {
        self.string(key)?.ok_or_else(|| self.missing(key, hint))
    }

    /// A list of strings.
    pub fn strings(&self, key: &'static str) -> Result<Option<Vec<At<&'a str>>>, Fault> {
        let list = self.typed(key, "a list of texts in quotes", DeValue::as_array)?;
        let texts = list.map(|at| at.value.iter().map(|item| string(key, item)).collect());
        texts.transpose()
    }

    /// A whole number of this range. A seed has 64 bits, of which TOML's own numbers have 63.
    pub fn number<N: Copy + Into<u64> + TryFrom<u64>>(
        &self,
        key: &'static str,
        range: RangeInclusive<N>,
    ) -> Result<Option<N>, Fault> {
        let Some(at) = self.typed(key, "a whole number", DeValue::as_integer)? else {
            return Ok(None);
        };
        let (min, max): (u64, u64) = ((*range.start()).into(), (*range.end()).into());
        let read = u64::from_str_radix(at.value.as_str(), at.value.radix()).ok();
        let in_range = read.filter(|number| (min..=max).contains(number));
        let number = in_range.and_then(|number| N::try_from(number).ok());
        let out_of_range = || {
            let text = shortened(&at.value.to_string());
            let problem = format!("`{key} = {text}` is out of range; it may be {min} to {max}");
            Fault::new(at.offset, problem)
        };
        number.ok_or_else(out_of_range).map(Some)
    }

    /// What a word stands for in `words`; else it "is no `what`".
    pub fn choice<T: Copy>(
        &self,
        key: &'static str,
        what: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Fault> {
        let word = self.string(key)?;
        word.map(|at| at.choice(what, words)).transpose()
    }

    /// `true` or `false`.
    pub fn boolean(&self, key: &'static str) -> Result<Option<bool>, Fault> {
        let found = self.typed(key, "true or false", DeValue::as_bool)?;
        Ok(found.map(|at| at.value))
    }

    /// The table of `[key]`, with those keys.
    pub fn section(
        &self,
        key: &str,
        place: &'static str,
        keys: &str,
    ) -> Result<Option<Section<'a>>, Fault> {
        let table = self.typed(key, "it as a table", DeValue::as_table)?;
        let section = table.map(|at| Section::new(place, at.offset, at.value, keys));
        section.transpose()
    }

    /// The keys and values of a table whose keys are not known beforehand, in the order of the
    /// file.
    pub fn entries(&self, key: &str) -> Result<Vec<(At<&'a str>, &'a Value<'a>)>, Fault> {
        self.entries_or(key, "it as a table, such as { a = 1 }")
    }

    fn entries_or(
        &self,
        key: &str,
        hint: &str,
    ) -> Result<Vec<(At<&'a str>, &'a Value<'a>)>, Fault> {
        let table = self.typed(key, hint, DeValue::as_table)?;
        let keys = table.iter().flat_map(|at| at.value.iter());
        let mut entries = Vec::from_iter(keys.map(|(name, value)| (named(name), value)));
        entries.sort_by_key(|(name, _)| name.offset);
        Ok(entries)
    }

    /// The keys of a table with the texts of their values, in the order of the file.
    pub fn texts(&self, key: &str) -> Result<Vec<KeyText<'a>>, Fault> {
        let text = |(name, value): (At<&'a str>, _)| Ok((name, text(name.value, value)?));
        self.entries(key)?.into_iter().map(text).collect()
    }

    /// A finite number, with or without a point.
    pub fn float(&self, key: &'static str) -> Result<Option<At<f64>>, Fault> {
        self.typed(key, "a finite number", |value| {
            let text = match value {
                DeValue::Integer(integer) => integer.as_str(),
                DeValue::Float(float) => float.as_str(),
                _ => return None,
            };
            let number: f64 = text.replace('_', "").parse().ok()?;
            number.is_finite().then_some(number)
        })
    }

    /// The error of a key that contradicts another, at its value.
    pub fn contradiction<T>(&self, key: &str, what: impl Display, hint: &str) -> Result<T, Fault> {
        Fault::contradiction(self.offset_of(key), what, hint)
    }

    /// The error that a key is missing, at the beginning of the table.
    pub fn missing(&self, key: &'static str, hint: &str) -> Fault {
        Fault::new(self.offset, format!("{} needs `{key}`: {hint}", self.place))
    }
}

/// Refuses two tables with one name.
pub fn check_names<'n>(
    what: &str,
    sections: &[Section<'_>],
    names: impl Iterator<Item = &'n str>,
) -> Result<(), Fault> {
    let mut known = HashSet::new();
    let mut tables = sections.iter().zip(names);
    match tables.find(|(_, name)| !known.insert(*name)) {
        Some((section, name)) => Fault::repeated(section.offset, what, name),
        None => Ok(()),
    }
}

/// A key, and the byte at which it begins.
fn named<'a>(key: &'a Spanned<Cow<'a, str>>) -> At<&'a str> {
    At::new(key.span().start, key.get_ref())
}

/// The words of the address families.
pub const FAMILIES: [(&str, Family); 2] = [("ipv4", Family::Ipv4), ("ipv6", Family::Ipv6)];

/// A text, and the byte at which its quotes begin.
pub fn string<'a>(key: &str, value: &'a Value<'a>) -> Result<At<&'a str>, Fault> {
    let offset = value.span().start;
    match value.get_ref().as_str() {
        Some(value) => Ok(At { offset, value }),
        None => Err(wrong_type(key, value, "a text in quotes")),
    }
}

/// A value as it would be written on the command line.
pub fn text(key: &str, value: &Value<'_>) -> Result<At<String>, Fault> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        _ => return Err(wrong_type(key, value, "a text, a number, true or false")),
    };
    Ok(At::new(value.span().start, text))
}

/// The error that a value has another type than its key asks for.
pub fn wrong_type(key: &str, value: &Value<'_>, hint: &str) -> Fault {
    let found = match value.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let key = shortened(key);
    Fault::new(value.span().start, format!("`{key}` is {found}; write {hint}"))
}
