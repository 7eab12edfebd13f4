//! Reads a table of the file: its keys, and the types and places of their values.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Fault, Value};
use crate::units::{Family, shortened};

/// A value, and the byte at which it begins.
#[derive(Debug, Clone, Copy)]
pub struct At<T> {
    /// The byte, counted from 0.
    pub offset: usize,
    /// The value.
    pub value: T,
}

impl<T> At<T> {
    /// The same place with another value.
    pub fn map<U>(self, function: impl FnOnce(T) -> U) -> At<U> {
        At {
            offset: self.offset,
            value: function(self.value),
        }
    }
}

impl At<String> {
    /// The same text, borrowed.
    pub fn as_str(&self) -> At<&str> {
        At {
            offset: self.offset,
            value: &self.value,
        }
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
        let unknown = table.iter().map(|(key, _)| named(key));
        let unknown = unknown.filter(|key| !is_known(key.value));
        if let Some(key) = unknown.min_by_key(|key| key.offset) {
            let otherwise = format!("its keys are {}", keys.replace(' ', ", "));
            return Err(Fault::unknown_key(key, place, keys.split(' '), otherwise));
        }
        Ok(Self {
            place,
            offset,
            table,
        })
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

    /// The tables of `[key.name]` and their names, each with those keys.
    pub fn named_sections(
        &self,
        key: &str,
        place: &'static str,
        keys: &str,
    ) -> Result<Vec<(At<&'a str>, Section<'a>)>, Fault> {
        let hint = "it as a table with a name, such as [host.alpha]";
        let tables = self.typed(key, hint, DeValue::as_table)?;
        let section = |(name, value): (&'a Spanned<_>, &'a Value<'a>)| {
            let name = named(name);
            match value.get_ref().as_table() {
                Some(table) => Ok((name, Section::new(place, name.offset, table, keys)?)),
                None => Err(wrong_type(name.value, value, hint)),
            }
        };
        let tables = tables.iter().flat_map(|at| at.value.iter());
        tables.map(section).collect()
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

    /// A whole number of this range.
    pub fn number(
        &self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<At<u32>>, Fault> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        let found = self.long_number(key, range)?;
        Ok(found.map(|at| at.map(|number| number as u32)))
    }

    /// A whole number of this range. TOML parsers need only read 63 bits; a seed has 64.
    pub fn long_number(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<At<u64>>, Fault> {
        let Some(integer) = self.typed(key, "a whole number", DeValue::as_integer)? else {
            return Ok(None);
        };
        let number = u64::from_str_radix(integer.value.as_str(), integer.value.radix());
        match number.ok().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(integer.map(|_| number))),
            None => {
                let text = integer.value.to_string();
                Err(Fault::out_of_range(
                    integer.map(|_| text.as_str()),
                    key,
                    &range,
                ))
            }
        }
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
        let table = self.typed(key, "it as a table, such as { a = 1 }", DeValue::as_table)?;
        let entries = table.iter().flat_map(|at| at.value.iter());
        let mut entries: Vec<_> = entries.map(|(name, value)| (named(name), value)).collect();
        entries.sort_by_key(|(name, _)| name.offset);
        Ok(entries)
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

    /// The error that a key is missing, at the beginning of the table.
    pub fn missing(&self, key: &'static str, hint: &str) -> Fault {
        Fault::new(self.offset, format!("{} needs `{key}`: {hint}", self.place))
    }
}

/// A key, and the byte at which it begins.
fn named<'a>(key: &'a Spanned<Cow<'a, str>>) -> At<&'a str> {
    At {
        offset: key.span().start,
        value: key.get_ref(),
    }
}

/// The family that a text names: `ipv4` or `ipv6`.
pub fn family(at: At<&str>) -> Result<Family, Fault> {
    match at.value {
        "ipv4" => Ok(Family::Ipv4),
        "ipv6" => Ok(Family::Ipv6),
        _ => Fault::malformed(at, "family", "write \"ipv4\" or \"ipv6\""),
    }
}

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
    Ok(At {
        offset: value.span().start,
        value: text,
    })
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
    Fault::new(
        value.span().start,
        format!("`{key}` is {found}; write {hint}"),
    )
}
