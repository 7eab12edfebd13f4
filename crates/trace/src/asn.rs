//! The network that an address belongs to, from the user's table of prefixes.
//!
//! A table may have lines in two formats:
//!
//! | line | from |
//! |---|---|
//! | `198.18.0.0/15 64500 Lab of the west` | whoever writes one; pyasn without names |
//! | `198.18.0.0⇥15⇥64500` | RouteViews' prefix-to-AS files (pfx2as) |
//!
//! An AS number may begin with `AS`; several origins of a prefix are joined by `_` or `,` (pfx2as),
//! in braces or not, or stand in several lines. Names follow the number. Lines that begin with `#`
//! or `;` are comments. The longest prefix counts.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use linerate_units::FileError;

/// Maximum number of prefixes of a table: four times the size of the Internet's.
const MAX_PREFIXES: usize = 5_000_000;
/// Maximum number of characters of a name; the rest is cut off.
const MAX_NAME: usize = 60;
/// Maximum number of origins of a prefix.
const MAX_ORIGINS: usize = 16;
/// Length that the IPv4-mapped form, ::ffff:0:0/96, adds to an IPv4 prefix.
const MAPPED_BITS: u8 = 96;

/// The network that an address belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// The AS that announces the prefix; the first of several.
    pub asn: u32,
    /// Name in the table.
    #[serde(rename = "as_name", default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Further AS that announce the same prefix.
    #[serde(rename = "other_asns", default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<u32>,
}

/// A table of prefixes; the longest that contains an address counts.
#[derive(Clone, PartialEq, Eq)]
pub struct AsTable {
    /// For each length, the longest first: the bits of a prefix and the index of its origin. IPv4
    /// is mapped.
    lengths: Vec<(u8, HashMap<u128, u32>)>,
    origins: Vec<Origin>,
}

/// A table under construction.
#[derive(Default)]
struct Builder {
    lengths: Vec<Option<HashMap<u128, u32>>>,
    origins: Vec<Origin>,
    places: HashMap<Origin, u32>,
    prefixes: usize,
}

/// The word with the problem, and the problem.
type Problem<'a> = (&'a str, String);

impl AsTable {
    /// Reads a table.
    ///
    /// # Errors
    /// [`FileError`] for the first line that is invalid or exceeds a limit.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let mut builder = Builder { lengths: vec![None; 129], ..Builder::default() };
        for (number, line) in (1..).zip(text.lines()) {
            let added = builder.add(line);
            added.map_err(|(word, problem)| FileError {
                line: number,
                column: Some(column(line, word)),
                problem,
            })?;
        }
        let lengths =
            (0..=128).zip(builder.lengths).rev().filter_map(|(length, map)| Some((length, map?)));
        Ok(Self { lengths: lengths.collect(), origins: builder.origins })
    }

    /// The network of an address; `None` if no prefix contains it.
    pub fn origin(&self, address: IpAddr) -> Option<&Origin> {
        let bits = bits_of(address);
        let least = if address.is_ipv4() { MAPPED_BITS } else { 0 };
        let lengths = self.lengths.iter().filter(|(length, _)| *length >= least);
        let mut found = lengths.filter_map(|(length, map)| map.get(&(bits & mask(*length))));
        found.next().map(|place| &self.origins[*place as usize])
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.lengths.iter().map(|(_, map)| map.len()).sum()
    }

    /// Whether the table has no prefix.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

impl fmt::Debug for AsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsTable of {} prefixes", self.len())
    }
}

impl Builder {
    fn add<'a>(&mut self, line: &'a str) -> Result<(), Problem<'a>> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with(['#', ';'])) else {
            return Ok(());
        };
        let (address, length_word, asn) = match first.split_once('/') {
            Some((address, length)) => (address, Some(length), words.next()),
            None => (first, words.next(), words.next()),
        };
        let end = &line[line.trim_end().len()..];
        let length_word = length_word.ok_or((end, "a prefix has no length".into()))?;
        let asn = asn.ok_or((end, "a prefix has no AS number".into()))?;
        let (bits, length) = prefix(first, address, length_word)?;
        let name_at = asn.as_ptr() as usize - line.as_ptr() as usize + asn.len();
        let name =
            line[name_at..].trim().chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
        let numbers = numbers(asn)?;
        self.prefixes += 1;
        if self.prefixes > MAX_PREFIXES {
            let problem = format!("a table has {MAX_PREFIXES} prefixes at most");
            return Err((first, problem));
        }
        let entered = self.enter(bits, length, numbers, name);
        entered.map_err(|problem| (asn, problem))
    }

    /// Adds a prefix. Several origins of a prefix are kept together, in the order of the table.
    fn enter(
        &mut self,
        bits: u128,
        length: u8,
        numbers: Vec<u32>,
        name: String,
    ) -> Result<(), String> {
        let map = self.lengths[usize::from(length)].get_or_insert_default();
        let mut origin = match map.get(&bits) {
            Some(place) => self.origins[*place as usize].clone(),
            None => Origin { asn: numbers[0], name, others: Vec::new() },
        };
        for number in numbers {
            if number != origin.asn && !origin.others.contains(&number) {
                origin.others.push(number);
            }
        }
        if origin.others.len() >= MAX_ORIGINS {
            return Err(format!("a prefix has {MAX_ORIGINS} origins at most"));
        }
        // There are at most as many origins as prefixes, so that the number fits.
        let next = self.origins.len() as u32;
        let place = *self.places.entry(origin.clone()).or_insert(next);
        if place == next {
            self.origins.push(origin);
        }
        map.insert(bits, place);
        Ok(())
    }
}

fn prefix<'a>(
    whole: &'a str,
    address: &'a str,
    length: &'a str,
) -> Result<(u128, u8), Problem<'a>> {
    let no_address = |_| (address, format!("`{}` is not an address", shown(address)));
    let parsed: IpAddr = address.parse().map_err(no_address)?;
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    let bits_long = length.parse::<u8>().ok().filter(|bits| *bits <= most).ok_or_else(|| {
        let shown = shown(length);
        (length, format!("`{shown}` is no length of a prefix: 0 to {most}"))
    })?;
    let length = bits_long + if parsed.is_ipv4() { MAPPED_BITS } else { 0 };
    let bits = bits_of(parsed);
    if bits & !mask(length) != 0 {
        return Err((whole, format!("{parsed} has bits beyond its {bits_long}")));
    }
    Ok((bits, length))
}

/// Parses the AS numbers of a word, at least one.
fn numbers(word: &str) -> Result<Vec<u32>, Problem<'_>> {
    let bare = word.trim_start_matches('{').trim_end_matches('}');
    let number = |part: &str| {
        let digits = part.strip_prefix("AS").or_else(|| part.strip_prefix("as")).unwrap_or(part);
        // A sign is not accepted, although Rust parses it.
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| is_number)
    };
    let numbers: Option<Vec<u32>> = bare.split(['_', ',']).map(number).collect();
    numbers.ok_or_else(|| {
        let shown = shown(word);
        (word, format!("`{shown}` is no AS number: 0 to {}", u32::MAX))
    })
}

/// Shortens a word for an error.
fn shown(word: &str) -> String {
    word.chars().take(40).collect()
}

/// Column at which `word`, a part of `line`, begins, in characters from 1.
fn column(line: &str, word: &str) -> usize {
    let offset = (word.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
    1 + line.get(..offset).map_or(0, |before| before.chars().count())
}

fn bits_of(address: IpAddr) -> u128 {
    let mapped: Ipv6Addr = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    mapped.to_bits()
}

fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        length => u128::MAX << (128 - u32::from(length.min(128))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asn(table: &AsTable, address: &str) -> Option<u32> {
        table.origin(address.parse().unwrap()).map(|origin| origin.asn)
    }

    #[test]
    fn both_formats_are_read_and_the_longest_prefix_counts() {
        let table = AsTable::parse(
            "; pyasn\n# mine\n\n198.18.0.0/15 64500 Lab of the west\n198.18.4.0\t24\t64501_64502\n\
             2001:2::/48 AS64503\n198.18.4.0/24 64504\n0.0.0.0/0 64510\n",
        )
        .unwrap();
        assert_eq!(table.len(), 4);
        let west = table.origin("198.19.255.255".parse().unwrap()).unwrap();
        assert_eq!((west.asn, west.name.as_str()), (64_500, "Lab of the west"));
        let many = table.origin("198.18.4.9".parse().unwrap()).unwrap();
        assert_eq!((many.asn, &many.others[..]), (64_501, &[64_502, 64_504][..]));
        assert_eq!(asn(&table, "2001:2:0:7::1"), Some(64_503));
        assert_eq!(asn(&table, "192.0.2.1"), Some(64_510));
        assert_eq!(asn(&table, "2001:db8::1"), None, "0.0.0.0/0 is of IPv4");
        let all = AsTable::parse("::/0 1").unwrap();
        assert_eq!(asn(&all, "192.0.2.1"), None, "and ::/0 of IPv6");
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_column() {
        let cases = [
            (
                "198.18.0.0/15 64500\n  nonsense/8 1",
                "line 2, column 3: `nonsense` is not an address",
            ),
            ("198.18.0.0/33 1", "line 1, column 12: `33` is no length of a prefix: 0 to 32"),
            ("2001:2::\t129\t1", "line 1, column 10: `129` is no length of a prefix: 0 to 128"),
            ("198.18.0.1/15 1", "line 1, column 1: 198.18.0.1 has bits beyond its 15"),
            ("198.18.0.0/15 -5", "line 1, column 15: `-5` is no AS number"),
            ("198.18.0.0/15 4294967296", "`4294967296` is no AS number: 0 to 4294967295"),
            ("198.18.0.0/15 1_x", "`1_x` is no AS number"),
            ("198.18.0.0/15  ", "line 1, column 14: a prefix has no AS number"),
            ("198.18.0.0", "line 1, column 11: a prefix has no length"),
        ];
        for (text, words) in cases {
            let error = AsTable::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{error} and not {words}");
        }
    }

    #[test]
    fn a_name_is_cut_and_has_no_control_characters() {
        let long = format!("198.18.0.0/15 1 a\u{1b}b{}", "x".repeat(100));
        let table = AsTable::parse(&long).unwrap();
        let origin = table.origin("198.18.0.1".parse().unwrap()).unwrap();
        assert_eq!(origin.name.chars().count(), MAX_NAME);
        assert!(origin.name.starts_with("abx"));
    }

    proptest! {
        #[test]
        fn a_lookup_is_what_a_look_at_every_prefix_says(
            prefixes in prop::collection::vec((any::<u32>(), 0..=32u8, any::<u32>()), 0..40),
            asked: u32,
        ) {
            let cut = |bits: u32, length: u8| {
                bits & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
            };
            let text: String = prefixes
                .iter()
                .map(|(bits, length, asn)| format!("{}/{length} \
                    {asn}\n", IpAddr::from(cut(*bits, *length).to_be_bytes())))
                .collect();
            let table = AsTable::parse(&text).unwrap();
            let holds = prefixes.iter()
                .filter(|(bits, length, _)| cut(*bits, *length) == cut(asked, *length));
            let longest = holds.clone().map(|(_, length, _)| *length).max();
            let first = holds.filter(|(_, length, _)| Some(*length) == longest)
                .map(|(.., asn)| *asn).next();
            let found = table.origin(IpAddr::from(asked.to_be_bytes())).map(|origin| origin.asn);
            prop_assert_eq!(found, first);
        }

        #[test]
        fn any_text_is_a_table_or_has_a_place_in_it(text in ".{0,80}(\\n.{0,40}){0,3}") {
            if let Err(error) = AsTable::parse(&text) {
                let line = text.lines().nth(error.line - 1).unwrap();
                prop_assert!(error.column <= Some(line.chars().count() + 1));
            }
        }
    }
}
