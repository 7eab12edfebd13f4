//! Parser of the text of a path, `rate=100mbit,rtt=29ms,loss=0.1%`. The keys are in `keys.rs`.

use std::collections::BTreeMap;
use std::str::FromStr;

use thiserror::Error;

use super::keys::{CONTRADICTIONS, ELSEWHERE, KEYS, Key, KeyRefusal, Setter, WholePath};
use super::spec::{LinkSpec, PathSpec};
use linerate_units::{Nanos, parts, shortened, suggestion};

/// An error in the text of a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("column {column}: {problem}")]
pub struct SpecError {
    /// Column of the key or value at fault, in characters from 1.
    pub column: usize,
    /// The problem in words.
    pub problem: String,
}

impl FromStr for PathSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let entries = entries(text)?;
        let mut path = SpecDraft::default();
        // A setting for one direction overrides one for both, in any order.
        for entry in entries.iter().filter(|entry| entry.scope == Scope::Both) {
            path.set(entry)?;
        }
        for entry in entries.iter().filter(|entry| entry.scope != Scope::Both) {
            path.set(entry)?;
        }
        path.finish()
    }
}

/// One `key=value`.
struct SpecEntry<'a> {
    scope: Scope,
    key: &'static Key,
    column: usize,
    value: &'a str,
    value_column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Both,
    Up,
    Down,
}

/// One direction, and the columns of the keys that are given for it.
#[derive(Default)]
struct DirectionDraft {
    spec: LinkSpec,
    given: BTreeMap<&'static str, usize>,
}

#[derive(Default)]
struct SpecDraft {
    whole: WholePath,
    up: DirectionDraft,
    down: DirectionDraft,
}

impl SpecDraft {
    fn set(&mut self, entry: &SpecEntry) -> Result<(), SpecError> {
        let directions = match entry.scope {
            Scope::Both => vec![&mut self.up, &mut self.down],
            Scope::Up => vec![&mut self.up],
            Scope::Down => vec![&mut self.down],
        };
        for direction in directions {
            direction.given.insert(entry.key.name, entry.column);
            if let Setter::Link(set) = entry.key.set {
                set(&mut direction.spec, entry.value).map_err(|refusal| entry.error(&refusal))?;
            }
        }
        match entry.key.set {
            Setter::Link(_) => Ok(()),
            Setter::Path(_) if entry.scope != Scope::Both => {
                let hint = "it is the whole path's; for one direction there is `up.delay`";
                Err(contradiction(entry.column, entry.key.name, hint))
            }
            Setter::Path(set) => {
                set(&mut self.whole, entry.value).map_err(|refusal| entry.error(&refusal))
            }
        }
    }

    fn finish(mut self) -> Result<PathSpec, SpecError> {
        for direction in [&self.up, &self.down] {
            let given = |key| direction.given.get(key).copied();
            if let (Some(_), Some(column)) = (given("rtt"), given("delay")) {
                let hint = "`rtt` gives the delay of both directions already";
                return Err(contradiction(column, "delay", hint));
            }
        }
        if self.up.given.contains_key("rtt") {
            self.up.spec.delay = Nanos(self.whole.rtt.0 / 2);
            self.down.spec.delay = self.whole.rtt - self.up.spec.delay;
        }
        let rtt = self.up.spec.delay + self.down.spec.delay;
        Ok(PathSpec {
            up: self.up.finish(rtt)?,
            down: self.down.finish(rtt)?,
            hops: self.whole.hops,
        })
    }
}

impl DirectionDraft {
    fn finish(mut self, rtt: Nanos) -> Result<LinkSpec, SpecError> {
        if !self.given.contains_key("queue") {
            self.spec.queue = self.spec.default_queue(rtt);
        }
        if let Some(reorder) = &mut self.spec.reorder
            && reorder.hold_back == Nanos::ZERO
        {
            // The delay by which netem sends other packets earlier; netem refuses to reorder
            // without a delay.
            reorder.hold_back = match self.spec.delay {
                Nanos::ZERO => Nanos::from_millis(1),
                delay => delay,
            };
        }
        for (key, is_wrong, hint) in CONTRADICTIONS {
            if let Some(column) = self.given.get(key)
                && is_wrong(&self.spec)
            {
                return Err(contradiction(*column, key, hint));
            }
        }
        Ok(self.spec)
    }
}

impl SpecEntry<'_> {
    fn error(&self, refusal: &KeyRefusal) -> SpecError {
        let (key, value) = (self.key.name, shortened(self.value));
        let (example, range) = (self.key.example, self.key.range);
        let problem = match refusal {
            KeyRefusal::Malformed => {
                format!("`{value}` is not a value of `{key}`; write {example}")
            }
            KeyRefusal::OutOfRange => {
                format!("`{key}={value}` is out of range; it may be {range}")
            }
            KeyRefusal::NoUnit => {
                format!("`{key}={value}` is {value} bit/s; did you mean `{value}mbit`?")
            }
        };
        SpecError { column: self.value_column, problem }
    }
}

/// Splits the text at its commas, except those in parentheses. An empty text is a path without
/// settings.
fn entries(text: &str) -> Result<Vec<SpecEntry<'_>>, SpecError> {
    let mut entries: Vec<SpecEntry> = Vec::new();
    let mut begin = 1;
    for piece in parts(text).filter(|_| !text.trim().is_empty()) {
        let column = begin + piece.chars().take_while(|c| c.is_whitespace()).count();
        let entry = entry(piece.trim(), column)?;
        let is_same =
            |other: &SpecEntry| (other.scope, other.key.name) == (entry.scope, entry.key.name);
        if entries.iter().any(is_same) {
            let key = entry.key.name;
            let problem = format!("`{key}` is given twice; say it once, or with `up.` and `down.`");
            return Err(SpecError { column, problem });
        }
        entries.push(entry);
        begin += piece.chars().count() + 1;
    }
    Ok(entries)
}

fn entry(text: &str, column: usize) -> Result<SpecEntry<'_>, SpecError> {
    let Some((left, right)) = text.split_once('=') else {
        let problem = format!("`{}` is not written as key=value", shortened(text));
        return Err(SpecError { column, problem });
    };
    let (scope, name) = match left.split_once('.') {
        Some(("up", name)) => (Scope::Up, name),
        Some(("down", name)) => (Scope::Down, name),
        _ => (Scope::Both, left),
    };
    let name = name.trim();
    let names = || KEYS.iter().map(|key| key.name);
    let Some(key) = KEYS.iter().find(|key| key.name == name) else {
        let all = || format!("the keys are {}", names().collect::<Vec<_>>().join(", "));
        let mut elsewhere = ELSEWHERE.iter();
        let own = elsewhere.find(|(_, others)| others.contains(&name));
        let hint = own
            .map(|(own, _)| format!("did you mean `{own}`?"))
            .or_else(|| suggestion(name, names()))
            .unwrap_or_else(all);
        let problem = format!("there is no key `{}`; {hint}", shortened(name));
        return Err(SpecError { column, problem });
    };
    let blanks = right.chars().take_while(|c| c.is_whitespace()).count();
    Ok(SpecEntry {
        scope,
        key,
        column,
        value: right.trim(),
        value_column: column + left.chars().count() + 1 + blanks,
    })
}

fn contradiction(column: usize, key: &str, hint: &str) -> SpecError {
    SpecError { column, problem: format!("`{key}` contradicts the rest: {hint}") }
}
