//! Splits an IPQoS file into blocks. A statement ends with its line; curly brackets only separate,
//! and a block ends where the next one begins.

use linerate_core::toml_reader::{At, Fault};
use linerate_core::units::shortened;

type Result<T> = std::result::Result<T, Fault>;

/// A block: `filter NAME`, `policy NAME` or `adapter NAME` and its attributes.
pub(super) struct HpuxBlock<'a> {
    pub(super) kind: HpuxBlockKind,
    pub(super) name: At<&'a str>,
    attributes: Vec<Attribute<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HpuxBlockKind {
    Filter,
    Policy,
    Adapter,
}

/// A line of a block: a word in its short spelling, and its values.
struct Attribute<'a> {
    word: At<&'static str>,
    values: Vec<At<&'a str>>,
}

impl<'a> HpuxBlock<'a> {
    /// The value of an attribute that may occur only once.
    pub(super) fn value(&self, word: &str) -> Result<Option<At<&'a str>>> {
        let mut found = self.attributes.iter().filter(|one| one.word.value == word);
        let Some(attribute) = found.next() else {
            return Ok(None);
        };
        if let Some(again) = found.next() {
            let what = format!("`{word}` is given twice");
            let hint = "each attribute occurs once in a block";
            return Fault::contradiction(again.word.offset, what, hint);
        }
        match attribute.values.as_slice() {
            [value] => Ok(Some(*value)),
            [] => Err(cut(attribute.word.offset, "the attribute's value")),
            [_, more, ..] => Err(syntax(*more, "the end of the line")),
        }
    }

    /// All names on lines with `uses`.
    pub(super) fn uses(&self) -> Result<Vec<At<&'a str>>> {
        let mut names = Vec::new();
        let attributes = self.attributes.iter();
        for attribute in attributes.filter(|one| one.word.value == "uses") {
            if attribute.values.is_empty() {
                return Err(cut(attribute.word.offset, "a name"));
            }
            names.extend(attribute.values.iter().copied());
        }
        Ok(names)
    }

    /// Position of an attribute, or else of the block.
    pub(super) fn offset(&self, word: &str) -> usize {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|attribute| attribute.word.value == word);
        found.map_or(self.name.offset, |attribute| attribute.word.offset)
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.attributes.iter().any(|one| one.word.value == word)
    }

    /// Number of attributes other than those.
    pub(super) fn count_without(&self, words: &[&str]) -> usize {
        let attributes = self.attributes.iter();
        attributes.filter(|one| !words.contains(&one.word.value)).count()
    }
}

fn syntax(at: At<&str>, expected: &'static str) -> Fault {
    let found = shortened(at.value);
    Fault::new(at.offset, format!("`{found}` is where {expected} is expected"))
}

impl<'a> HpuxBlock<'a> {
    /// Adds the attributes of a statement, which may have several, each with at least one value.
    fn attributes(&mut self, statement: &[At<&'a str>]) -> Result<()> {
        let mut rest = statement;
        while let [first, values @ ..] = rest {
            let word = word(self.kind, *first)?;
            let mut next = values.iter().skip(1);
            let next =
                next.position(|at| self.kind.words().iter().any(|known| is_spelled(*at, known)));
            let (values, behind) = values.split_at(next.map_or(values.len(), |next| next + 1));
            let values = values.to_vec();
            self.attributes.push(Attribute { word, values });
            rest = behind;
        }
        Ok(())
    }
}

/// A statement that ends too early.
fn cut(offset: usize, expected: &'static str) -> Fault {
    let problem = format!("the line ends where {expected} is expected");
    Fault::new(offset, problem)
}

/// The blocks of a text in order.
pub(super) fn blocks(text: &str) -> Result<Vec<HpuxBlock<'_>>> {
    let mut blocks: Vec<HpuxBlock<'_>> = Vec::new();
    for statement in statements(text) {
        let (first, values) = statement.split_first().expect("no statement is empty");
        let kind = match first.value {
            "filter" => HpuxBlockKind::Filter,
            "policy" => HpuxBlockKind::Policy,
            "adapter" => HpuxBlockKind::Adapter,
            _ => {
                let Some(block) = blocks.last_mut() else {
                    let expected = "`filter`, `policy` or `adapter` with a name";
                    return Err(syntax(*first, expected));
                };
                block.attributes(&statement)?;
                continue;
            }
        };
        let name = match values {
            [name] => *name,
            [] => return Err(cut(first.offset, "a name")),
            [_, more, ..] => return Err(syntax(*more, "`{` or the end of the line")),
        };
        blocks.push(HpuxBlock { kind, name, attributes: Vec::new() });
    }
    Ok(blocks)
}

/// The words of each statement.
fn statements(text: &str) -> Vec<Vec<At<&str>>> {
    let mut statements = Vec::new();
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or(line);
        let mut from = begin;
        for part in code.split(['{', '}']) {
            let words = words(part, from);
            if !words.is_empty() {
                statements.push(words);
            }
            from += part.len() + 1;
        }
        begin += line.len();
    }
    statements
}

fn words(part: &str, begin: usize) -> Vec<At<&str>> {
    let mut words = Vec::new();
    let mut from = begin;
    for word in part.split([' ', '\t', '\r', '\n', ',']) {
        if !word.is_empty() {
            words.push(At::new(from, word));
        }
        from += word.len() + 1;
    }
    words
}

impl HpuxBlockKind {
    /// The attributes that such a block may have.
    fn words(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Filter => FILTER_WORDS,
            Self::Policy => POLICY_WORDS,
            Self::Adapter => ADAPTER_WORDS,
        }
    }

    fn named(self) -> &'static str {
        match self {
            Self::Filter => "a filter",
            Self::Policy => "a policy",
            Self::Adapter => "an adapter",
        }
    }
}

fn is_spelled(at: At<&str>, (short, long): &(&str, &str)) -> bool {
    at.value == *short || at.value == *long
}

/// The short spelling of an attribute of such a block.
fn word(kind: HpuxBlockKind, at: At<&str>) -> Result<At<&'static str>> {
    let (table, place) = (kind.words(), kind.named());
    let found = table.iter().find(|known| is_spelled(at, known));
    if let Some((short, _)) = found {
        return Ok(at.map(|_| *short));
    }
    let all: Vec<_> = table.iter().map(|(short, _)| *short).collect();
    let otherwise = format!("its attributes are {}", all.join(", "));
    Err(Fault::unknown_key(at, place, all, otherwise))
}

/// Short and long spelling.
const FILTER_WORDS: &[(&str, &str)] = &[
    ("srcaddr", ""),
    ("srcaddrlo", "srcaddrlow"),
    ("srcaddrhi", "srcaddrhigh"),
    ("dstaddr", ""),
    ("dstaddrlo", "dstaddrlow"),
    ("dstaddrhi", "dstaddrhigh"),
    ("addr", "address"),
    ("srcport", ""),
    ("srcportlo", "srcportlow"),
    ("srcporthi", "srcporthigh"),
    ("dstport", ""),
    ("dstportlo", "dstportlow"),
    ("dstporthi", "dstporthigh"),
    ("port", ""),
    ("protocol", "xport"),
    ("net", "netproto"),
    ("dscp", ""),
    ("dscplo", "dscplow"),
    ("dscphi", "dscphigh"),
    ("dstphysaddr", ""),
    ("pri", "priority"),
];
const POLICY_WORDS: &[(&str, &str)] =
    &[("uses", ""), ("res", "reservation"), ("max", "maximum"), ("dscp", ""), ("vpr", "")];
const ADAPTER_WORDS: &[(&str, &str)] = &[("uses", "")];
