//! Reads keys that hold one value or a list.

use std::borrow::Cow;

use linerate_core::toml_reader::{At, Section, Value, wrong_type};
use toml::de::DeValue;

use crate::policy::error::{Fault, PolicyProblem};

/// The values of a key, a list or a single one, each passed to `each` as text.
pub(super) fn list<T>(
    section: &Section<'_>,
    key: &'static str,
    mut each: impl FnMut(&str) -> Result<Vec<T>, PolicyProblem>,
) -> Result<Vec<T>, Fault> {
    let Some(value) = section.value(key) else {
        return Ok(Vec::new());
    };
    let values = match value.get_ref() {
        DeValue::Array(values) if values.is_empty() => {
            let what = format!("`{key}` is an empty list");
            let hint = "leave the key away where every packet matches";
            return Err(Fault::conflict(value.span().start, what, hint));
        }
        DeValue::Array(values) => values.iter().collect(),
        _ => vec![value],
    };
    let mut all = Vec::new();
    for value in values {
        let item = item(key, value)?;
        let read = each(&item.value).map_err(|problem| Fault::new(item.offset, problem))?;
        all.extend(read);
        if all.len() > MAX_ENTRIES {
            let what = "entries of one key";
            return Err(Fault::too_many(item.offset, what, all.len(), MAX_ENTRIES));
        }
    }
    Ok(all)
}

/// A string, or an integer as text.
pub(super) fn item<'a>(key: &str, value: &'a Value<'a>) -> Result<At<Cow<'a, str>>, Fault> {
    let offset = value.span().start;
    let value = match value.get_ref() {
        DeValue::String(text) => Cow::Borrowed(text.as_ref()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            Cow::Owned(number.map_or_else(|_| integer.to_string(), |number| number.to_string()))
        }
        _ => {
            return Err(
                wrong_type(key, value, "a text in quotes, a whole number or a list").into(),
            );
        }
    };
    Ok(At { offset, value })
}

/// One value, parsed with `read`.
pub(super) fn one<T>(
    section: &Section<'_>,
    key: &'static str,
    read: impl FnOnce(&str) -> Result<T, PolicyProblem>,
) -> Result<Option<T>, Fault> {
    let Some(value) = section.value(key) else {
        return Ok(None);
    };
    let item = match value.get_ref() {
        DeValue::String(_) | DeValue::Integer(_) => item(key, value)?,
        _ => return Err(wrong_type(key, value, "a text in quotes or a whole number").into()),
    };
    let value = read(&item.value).map_err(|problem| Fault::new(item.offset, problem))?;
    Ok(Some(value))
}

/// Most values of a list: more than anyone writes, and enough for an exported address list.
pub(in crate::policy) const MAX_ENTRIES: usize = 1024;
