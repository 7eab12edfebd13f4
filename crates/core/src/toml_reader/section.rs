//! Reads a table of the file: its keys, and the types and places of their values.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::ReadProblem;
use crate::units::{shortened, suggestion};

use super::Value;

type Fault = super::problem::Fault<ReadProblem>;

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

/// A table of which all keys are known.
pub struct Section<'a> {
    /// As in messages, such as `[[link]]`.
    pub place: &'static str,
    /// Where it begins.
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
        let unknown = table.iter().map(|(key, _)| key);
        let first = unknown
            .filter(|key| !is_known(key.get_ref()))
            .min_by_key(|key| key.span().start);
        if let Some(key) = first {
            let problem = ReadProblem::UnknownKey {
                place,
                key: shortened(key.get_ref()),
                hint: suggestion(key.get_ref(), keys.split(' '))
                    .unwrap_or_else(|| format!("its keys are {}", keys.replace(' ', ", "))),
            };
            return Err(Fault::new(key.span().start, problem));
        }
        Ok(Self {
            place,
            offset,
            table,
        })
    }

    /// The tables of `[[key]]`, each with those keys.
    pub fn sections(
        &self,
        key: &str,
        place: &'static str,
        keys: &str,
    ) -> Result<Vec<Section<'a>>, Fault> {
        let Some(value) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let tables = match value.get_ref() {
            DeValue::Array(tables) => tables.iter(),
            _ => return Err(wrong_type(key, value, "it as a table, in two brackets")),
        };
        let section = |value: &'a Value<'a>| match value.get_ref() {
            DeValue::Table(table) => Section::new(place, value.span().start, table, keys),
            _ => Err(wrong_type(key, value, "it as a table, in two brackets")),
        };
        tables.map(section).collect()
    }

    /// The tables of `[key.name]` and their names, each with those keys.
    pub fn named_sections(
        &self,
        key: &str,
        place: &'static str,
        keys: &str,
    ) -> Result<Vec<(At<&'a str>, Section<'a>)>, Fault> {
        let Some(value) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let hint = "it as a table with a name, such as [host.alpha]";
        let DeValue::Table(tables) = value.get_ref() else {
            return Err(wrong_type(key, value, hint));
        };
        let section = |(name, value): (&'a Spanned<_>, &'a Value<'a>)| {
            let name: At<&str> = At {
                offset: name.span().start,
                value: <Spanned<std::borrow::Cow<str>>>::get_ref(name),
            };
            match value.get_ref() {
                DeValue::Table(table) => Ok((name, Section::new(place, name.offset, table, keys)?)),
                _ => Err(wrong_type(name.value, value, hint)),
            }
        };
        tables.iter().map(section).collect()
    }

    /// The value of a key, if it is there.
    pub fn value(&self, key: &str) -> Option<&'a Value<'a>> {
        self.table.get(key)
    }

    /// A text.
    pub fn string(&self, key: &'static str) -> Result<Option<At<&'a str>>, Fault> {
        self.value(key).map(|value| string(key, value)).transpose()
    }

    /// A text that must be there.
    pub fn required(&self, key: &'static str, hint: &'static str) -> Result<At<&'a str>, Fault> {
        self.string(key)?.ok_or_else(|| self.missing(key, hint))
    }

    /// A list of strings.
    pub fn strings(&self, key: &'static str) -> Result<Option<Vec<At<&'a str>>>, Fault> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| string(key, item)).collect(),
            _ => Err(wrong_type(key, value, "a list of texts in quotes")),
        }
        .map(Some)
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

    /// A whole number of this range, beyond those that TOML itself asks for: a seed has 64 bits.
    pub fn long_number(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<At<u64>>, Fault> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let offset = value.span().start;
        let DeValue::Integer(integer) = value.get_ref() else {
            return Err(wrong_type(key, value, "a whole number"));
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix());
        match number.ok().filter(|number| range.contains(number)) {
            Some(value) => Ok(Some(At { offset, value })),
            None => {
                let value = shortened(&integer.to_string());
                let problem = ReadProblem::OutOfRange { key, value, range };
                Err(Fault::new(offset, problem))
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self, key: &'static str) -> Result<Option<bool>, Fault> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Boolean(boolean) => Ok(Some(*boolean)),
            _ => Err(wrong_type(key, value, "true or false")),
        }
    }

    /// The table of `[key]`, with those keys.
    pub fn section(
        &self,
        key: &str,
        place: &'static str,
        keys: &str,
    ) -> Result<Option<Section<'a>>, Fault> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Table(table) => Section::new(place, value.span().start, table, keys).map(Some),
            _ => Err(wrong_type(key, value, "it as a table")),
        }
    }

    /// The keys and values of a table whose keys are not known beforehand, in the order of the
    /// file.
    pub fn entries(&self, key: &str) -> Result<Vec<(At<&'a str>, &'a Value<'a>)>, Fault> {
        let Some(value) = self.table.get(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Table(table) = value.get_ref() else {
            return Err(wrong_type(key, value, "it as a table, such as { a = 1 }"));
        };
        let entry = |(name, value): (&'a Spanned<std::borrow::Cow<'a, str>>, &'a Value<'a>)| {
            let at = At {
                offset: name.span().start,
                value: name.get_ref().as_ref(),
            };
            (at, value)
        };
        let mut entries: Vec<_> = table.iter().map(entry).collect();
        entries.sort_by_key(|(name, _)| name.offset);
        Ok(entries)
    }

    /// A number with or without a point.
    pub fn float(&self, key: &'static str) -> Result<Option<At<f64>>, Fault> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let text = match value.get_ref() {
            DeValue::Integer(integer) => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => return Err(wrong_type(key, value, "a number")),
        };
        let offset = value.span().start;
        match text.replace('_', "").parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Some(At { offset, value })),
            _ => Err(wrong_type(key, value, "a finite number")),
        }
    }

    /// That a key is not there, at the beginning of the table.
    pub fn missing(&self, key: &'static str, hint: &'static str) -> Fault {
        let place = self.place;
        let problem = ReadProblem::Missing { place, key, hint };
        Fault::new(self.offset, problem)
    }
}

/// A text, and the byte at which its quotes begin.
pub fn string<'a>(key: &str, value: &'a Value<'a>) -> Result<At<&'a str>, Fault> {
    let offset = value.span().start;
    match value.get_ref() {
        DeValue::String(value) => Ok(At { offset, value }),
        _ => Err(wrong_type(key, value, "a text in quotes")),
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

/// That a value has another type than its key asks for.
pub fn wrong_type(key: &str, value: &Value<'_>, hint: &'static str) -> Fault {
    let problem = ReadProblem::WrongType {
        key: shortened(key),
        found: match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        },
        hint,
    };
    Fault::new(value.span().start, problem)
}
